package stage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/llmexport/llmexport/internal/digest"
	"github.com/llmexport/llmexport/internal/hub"
	"github.com/llmexport/llmexport/pipeline"
	"github.com/llmexport/llmexport/recipes"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// inputs is everything that an entry of the store depends on.
type inputs = []any

// entry finds the entry of the store that depends on these inputs, or makes it. Before anything is made of the checkpoint, its
// files are compared with their digests, once in a run, unless this run has computed them.
func (r *Run) entry(ctx context.Context, name string, of inputs, build pipeline.Build, keep ...string) (pipeline.Artifact, error) {
	key, err := pipeline.Key(name, of...)
	if err != nil {
		return pipeline.Artifact{}, err
	}
	if r.looking {
		a, ok := r.Store.Has(name, key)
		if !ok {
			r.missing, err = name, errMissing
		}
		return a, err
	}
	if r.finding {
		a, err := r.Store.Take(ctx, &r.Limits, name+"-"+key)
		if errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("%w: %w", errNotMade, err)
		}
		return a, err
	}
	a, err := r.Store.Do(ctx, &r.Limits, name, key, func(p *pipeline.Partial) (digest.Digest, error) {
		r.announce(ctx, name)
		if err := r.reread(ctx); err != nil {
			return "", err
		}
		return build(p)
	}, keep...)
	if err == nil {
		label := pipeline.Label{Package: r.Recipe.Name, Model: cmp.Or(r.Recipe.Model.Repo, r.Recipe.Model.Path), Recipe: r.Recipe.File()}
		err = pipeline.WriteLabel(r.Store.Dir(), a.Name, label)
	}
	return a, err
}

// reread compares the files of the checkpoint that this run has not read yet with their digests.
func (r *Run) reread(ctx context.Context) error {
	if r.here == nil {
		return nil
	}
	return again(r.here, r.here.Reread(ctx))
}

// blame returns the reason that the checkpoint could not be opened: its files have changed, or else err.
func (r *Run) blame(ctx context.Context, err error) error {
	if positioned := (*recipes.Error)(nil); errors.As(err, &positioned) {
		return err
	}
	return cmp.Or(r.reread(ctx), err)
}

// again restarts a run after a damaged file of a hub was removed from the cache.
func again(s *hub.Snapshot, err error) error {
	if s.Repo != "" && errors.Is(err, tensor.ErrCorrupt) {
		return fmt.Errorf("%w; %w", err, pipeline.ErrAgain)
	}
	return err
}
