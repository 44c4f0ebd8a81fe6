package stage

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/rs/zerolog"

	"github.com/llmexport/llmexport/internal/disk"
	"github.com/llmexport/llmexport/pipeline"
	"github.com/llmexport/llmexport/publish"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// Publish puts the verified package into every place the recipe names; dist/<name> beside the recipe if it names
// none.
type Publish []publish.Target

// String implements pipeline.Stage.
func (*Publish) String() string { return "publish" }

// Validate implements pipeline.Validator.
func (p *Publish) Validate(job *pipeline.Job) error {
	_, err := p.stores(job)
	return err
}

func (p *Publish) stores(job *pipeline.Job) ([]publish.Store, error) {
	targets := *p
	if len(targets) == 0 {
		targets = Publish{{Dir: filepath.ToSlash(filepath.Join("dist", job.Recipe.Name))}}
	}
	var stores []publish.Store
	for i, t := range targets {
		s, err := publish.New(t, job.Recipe.Dir)
		if err != nil {
			return nil, job.Recipe.Stages["publish"].Errorf(fmt.Sprintf("[%d]", i), "%v", err)
		}
		stores = append(stores, s)
	}
	return stores, nil
}

// Places names where the package goes.
func (p *Publish) Places(job *pipeline.Job) ([]string, error) {
	stores, err := p.stores(job)
	names := make([]string, len(stores))
	for i, s := range stores {
		names[i] = s.String()
	}
	return names, err
}

// Run implements pipeline.Stage.
func (p *Publish) Run(ctx context.Context, job *pipeline.Job) error {
	verdict, err := job.Artifacts.One(pipeline.Verdict)
	if err != nil {
		return err
	}
	dir := filepath.Join(verdict.Path, "files")
	pkg, err := publish.Open(dir)
	if err != nil {
		return err
	}
	stores, err := p.stores(job)
	if err != nil {
		return err
	}
	for _, s := range stores {
		if d, ok := s.(publish.Dir); ok {
			if err := disk.CheckSpace(filepath.Dir(d.Path), pkg.Manifest.Bytes()); err != nil {
				return err
			}
		}
		r, err := publish.To(ctx, s, pkg)
		if err != nil {
			// Publishing compares every byte; what differs may be ours.
			if errors.Is(err, tensor.ErrCorrupt) && pkg.Manifest.VerifyFiles(ctx, dir) != nil && ctx.Err() == nil {
				return damaged(verdict.Path, err)
			}
			return err
		}
		zerolog.Ctx(ctx).Info().Str("to", r.Ref).Str("status", string(r.Status)).Int64("bytes", r.Bytes).Str("digest", string(r.Digest)).Msg("published")
		job.Artifacts.Add(pipeline.Artifact{Kind: pipeline.Published, Name: string(r.Status), Path: r.Ref, Digest: r.Digest, Size: r.Bytes})
	}
	return nil
}
