package stage

import (
	"cmp"
	"context"
	"fmt"

	"github.com/llmexport/llmexport/internal/hub"
	"github.com/llmexport/llmexport/pipeline"
)

// Resolve finds the checkpoint without reading it, and downloads the files of a repository that are not in the cache. The
// checks run before weights are fetched; their errors are returned unchanged, without the name of the model.
func (f *Fetch) Resolve(ctx context.Context, r *Run, checks ...func(*hub.Snapshot) error) (*hub.Snapshot, error) {
	return find(r, checks, func(ref hub.Ref, o hub.Options) (*hub.Snapshot, *hub.Snapshot, error) {
		s, err := hub.Resolve(ctx, ref, o)
		return s, s, err
	})
}

// Skeleton is Resolve without weights: from a repository that is not in the cache, only small files and headers are fetched.
func (f *Fetch) Skeleton(ctx context.Context, r *Run, checks ...func(*hub.Snapshot) error) (*hub.Skeleton, error) {
	return find(r, checks, func(ref hub.Ref, o hub.Options) (*hub.Skeleton, *hub.Snapshot, error) {
		s, err := hub.Headers(ctx, ref, o)
		if err != nil {
			return nil, nil, err
		}
		return s, &s.Snapshot, nil
	})
}

// find resolves the checkpoint of a run, and gives a local copy the names of the original.
func find[T any](r *Run, checks []func(*hub.Snapshot) error, ask func(hub.Ref, hub.Options) (T, *hub.Snapshot, error)) (T, error) {
	var none T
	ref, o, err := r.Fetch.Ref(r)
	if err != nil {
		return none, err
	}
	var refused error // already positioned in the recipe
	o.Check = func(s *hub.Snapshot) error {
		r.Fetch.name(r, s)
		for _, check := range checks {
			if refused = check(s); refused != nil {
				return refused
			}
		}
		return nil
	}
	found, s, err := ask(ref, o)
	if err != nil && ref.Path == "" {
		err = fmt.Errorf("model: %w", err)
	}
	if err := cmp.Or(refused, err); err != nil {
		return none, err
	}
	r.Fetch.name(r, s)
	return found, nil
}

// name gives a local copy of a repository the names of the original.
func (f *Fetch) name(r *Run, s *hub.Snapshot) {
	if f.Local == "" {
		return
	}
	s.Repo, s.Revision, s.Source = r.Recipe.Model.Repo, r.Recipe.Model.Revision, ""
	if f.Source == hub.ModelScope {
		s.Source = hub.ModelScope
	}
}

// Ref is the place of the checkpoint, with the options of the hub's client.
func (f *Fetch) Ref(r *Run) (hub.Ref, hub.Options, error) {
	m := r.Recipe.Model
	if f.Local != "" {
		return hub.Ref{Path: f.Local}, hub.Options{}, nil
	}
	if m.Path != "" {
		return hub.Ref{Path: r.Recipe.Resolve(m.Path)}, hub.Options{}, nil
	}
	o, err := f.hub(&r.Limits)
	o.Offline = o.Offline || r.offline
	if err == nil && r.Shared != nil {
		o.Stored = r.Shared.Stored(o.Source, m.Repo)
	}
	return hub.Ref{Repo: m.Repo, Revision: cmp.Or(r.commitOf, m.Revision)}, o, err
}

// hub returns the options of the hub's client: those of the environment unless the recipe overrides them.
func (f *Fetch) hub(l *pipeline.Limits) (hub.Options, error) {
	read := hub.OptionsFromEnv
	if f.Source == hub.ModelScope {
		read = hub.ModelScopeFromEnv
	}
	o, err := read()
	if err != nil {
		return hub.Options{}, err
	}
	if f.Endpoint != "" {
		o = o.At(f.Endpoint)
	}
	o.Mirrors, o.MinSpeed, o.Client = f.Mirrors, f.MinSpeed, f.Client
	o.Progress = func(file string, done, total int64) { l.Report("fetch", file, done, total) }
	return o, nil
}
