package stage

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"

	"github.com/rs/zerolog"

	"github.com/llmexport/llmexport/internal/digest"
	"github.com/llmexport/llmexport/internal/hub"
	"github.com/llmexport/llmexport/pipeline/shared"
)

// resolve finds the checkpoint. The hub decides what it is, unless an earlier span has found that out: then the cache and the
// shared store come first. If the hub cannot be reached, and the cache lacks the checkpoint, that of the shared store is used.
func (f *Fetch) resolve(ctx context.Context, r *Run) (*hub.Snapshot, error) {
	check := f.beforeWeights(ctx, r)
	if r.Shared != nil && r.commitOf != "" {
		r.offline = true
		s, err := f.Resolve(ctx, r, check)
		if r.offline = false; err == nil {
			return s, nil
		}
		if s, err = f.stored(ctx, r, check); err == nil || ctx.Err() != nil {
			return s, err
		}
	}
	s, err := f.Resolve(ctx, r, check)
	if r.Shared == nil || !errors.As(err, new(*hub.UnreachableError)) && !(f.isOffline(r) && errors.Is(err, fs.ErrNotExist)) {
		return s, err
	}
	s, serr := f.stored(ctx, r, check)
	if serr != nil {
		return nil, fmt.Errorf("%w; the shared store: %w", err, serr)
	}
	zerolog.Ctx(ctx).Warn().Err(err).Str("repo", s.Repo).Str("revision", s.Revision).
		Msg("the hub cannot be reached; using the checkpoint in the shared store, which may be outdated")
	return s, nil
}

// isOffline reports whether requests to the hub are forbidden.
func (f *Fetch) isOffline(r *Run) bool {
	_, o, err := f.Ref(r)
	return err == nil && o.Offline
}

// stored takes a checkpoint from the shared store into that of this machine.
func (f *Fetch) stored(ctx context.Context, r *Run, check func(*hub.Snapshot) error) (*hub.Snapshot, error) {
	ref, o, err := f.Ref(r)
	if err != nil {
		return nil, err
	}
	c, found, err := r.Shared.Find(ctx, o.Source, ref.Repo, cmp.Or(ref.Revision, "main"))
	if err == nil && !found {
		err = fmt.Errorf("it has no files of %s: %w", ref, fs.ErrNotExist)
	}
	if err != nil {
		return nil, err
	}
	a, err := r.Store.Take(ctx, &r.Limits, shared.Entry(o.Source, ref.Repo, c.Commit))
	if err != nil {
		return nil, err
	}
	rec, err := a.Record()
	if err != nil {
		return nil, err
	}
	s := &hub.Snapshot{Dir: a.Path, Repo: ref.Repo, Revision: c.Commit, Source: o.Source,
		Gated: c.Gated, Private: c.Private, Listed: c.Listed}
	for _, x := range rec.Files {
		s.Files = append(s.Files, hub.File{Name: x.Name, Size: x.Size, SHA256: x.SHA256})
	}
	return s, check(s)
}

// offer gives the files of a repository to the shared store, so that no other machine needs the hub for them.
func (f *Fetch) offer(ctx context.Context, r *Run, s *hub.Snapshot) error {
	if r.Shared == nil || r.Recipe.Model.Repo == "" || f.Local != "" {
		return nil
	}
	b, err := json.Marshal(r.origin.Files)
	if err == nil {
		err = r.Shared.OfferCheckpoint(ctx, s, r.origin.Files, digest.Of(b), cmp.Or(r.commitOf, r.Recipe.Model.Revision, "main"))
	}
	if err != nil && ctx.Err() == nil {
		zerolog.Ctx(ctx).Warn().Err(err).Msg("the shared store does not have the checkpoint")
		return nil
	}
	return err
}
