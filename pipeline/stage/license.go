package stage

import (
	"context"
	"errors"

	"github.com/llmexport/llmexport/internal/hub"
	"github.com/llmexport/llmexport/pipeline/source"
	"github.com/llmexport/llmexport/publish"
	"github.com/llmexport/llmexport/publish/manifest"
)

// access is the access to the repository of s, as [manifest.Source] records it.
func (f *Fetch) access(s *hub.Snapshot) string {
	switch {
	case f.Access != nil:
		return *f.Access
	case s.Private:
		return manifest.Private
	case s.Gated != "":
		return manifest.Gated
	case s.Repo != "" && !s.Listed:
		return manifest.Unknown
	}
	return ""
}

// checkTerms rejects a run whose package may not go where the recipe says, because of its source's licence or access.
func (f *Fetch) checkTerms(ctx context.Context, r *Run, s *hub.Snapshot) error {
	return entryError(r, f.ask(ctx, r, s))
}

// Terms returns the condition of a place that a package of s does not meet, which would stop the run before anything is made;
// empty if there is none.
func (f *Fetch) Terms(ctx context.Context, r *Run, s *hub.Snapshot) (string, error) {
	err := f.ask(ctx, r, s)
	if missing := (*publish.TermsError)(nil); errors.As(err, &missing) {
		return missing.Error(), nil
	}
	return "", entryError(r, err)
}

// ask is [publish.CheckSource] of a checkpoint whose small files are on this machine.
func (f *Fetch) ask(ctx context.Context, r *Run, s *hub.Snapshot) error {
	if s.Repo != "" {
		r.commit = s.Revision
	}
	places, err := r.Publish.places(ctx, r)
	if err != nil {
		return err
	}
	src := manifest.Source{Hub: s.Source, Repo: s.Repo, Access: f.access(s)}
	if src.License, src.LicenseName, err = source.Terms(s.Dir); err != nil {
		return err
	}
	return publish.CheckSource(src, places)
}
