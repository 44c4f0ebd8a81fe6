package stage

import (
	"context"
	"fmt"

	"github.com/llmexport/llmexport/pipeline/assemble"
	"github.com/llmexport/llmexport/pipeline/source"
	"github.com/llmexport/llmexport/publish/manifest"
	"github.com/llmexport/llmexport/runtime"
	"github.com/llmexport/llmexport/runtime/tensor"
	"github.com/llmexport/llmexport/verify"
)

// Compared is a package with its cost and its measurements.
type Compared struct {
	Dir string
	// Manifest is nil for a package without one.
	Manifest   *manifest.Manifest
	Cost       *Cost
	Evaluation *verify.Evaluation
}

// ComparePackages measures the packages in dirs against a checkpoint, all on the same windows. The files of packages with a
// manifest are compared with it before they are opened, and the checkpoint must be the one that it names: see
// [source.OtherError]. Keys of its config.json that one of the manifests lists as without effect are ignored.
func ComparePackages(ctx context.Context, dirs []string, checkpoint string, o verify.Options) ([]Compared, error) {
	list := make([]Compared, len(dirs))
	manifests := make([]*manifest.Manifest, len(dirs))
	packages := make([]*runtime.Package, len(dirs))
	var ignored []string
	for i, dir := range dirs {
		m, err := manifestOf(dir)
		if err != nil {
			return nil, err
		}
		if m != nil { // before any of its files is parsed
			if err := m.Damage(ctx, dir); err != nil {
				return nil, fmt.Errorf("%s: %w", dir, err)
			}
		}
		p, err := runtime.Open(dir)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", dir, err)
		}
		defer p.Close()
		if p.Task() != runtime.Generate {
			return nil, fmt.Errorf("%s: packages that turn texts into vectors or scores are not compared by divergence: %w", dir, tensor.ErrUnsupported)
		}
		cost, err := CostOf(p)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", dir, err)
		}
		ignored = append(ignored, ignoredKeys(m)...)
		manifests[i] = m
		list[i], packages[i] = Compared{Dir: dir, Manifest: m, Cost: cost}, p
	}
	if err := source.CheckManifests(ctx, checkpoint, manifests...); err != nil {
		return nil, err
	}
	src, err := source.Open(ctx, source.Origin{Dir: checkpoint}, ignored)
	if err != nil {
		return nil, err
	}
	defer src.Close()
	s, err := assemble.VerifySource(src, o)
	if err != nil {
		return nil, err
	}
	evaluations, err := verify.Compare(ctx, s, packages, o)
	if err != nil {
		return nil, err
	}
	for i, e := range evaluations {
		list[i].Evaluation = e
	}
	return list, nil
}
