package stage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/llmexport/llmexport/internal/hub"
	"github.com/llmexport/llmexport/pipeline/safetensors"
	"github.com/llmexport/llmexport/pipeline/source"
	"github.com/llmexport/llmexport/quant"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// validateKeep rejects options that need the weights before or after the package is written if Keep is false, because weights
// that are not kept are read only once.
func (f *Fetch) validateKeep(r *Run) error {
	if f.Keep {
		return nil
	}
	if path := r.Recipe.Model.Path; path != "" {
		return r.Recipe.Stages["fetch"].Errorf("keep", "applies to repositories only; the checkpoint in %s is a directory, which is never removed", path)
	}
	q, v := &r.Quantize, &r.Verify
	chain, err := q.chain()
	if err != nil {
		return r.Recipe.Stages["quantize"].Errorf("method", "%v", err)
	}
	const gone = "with fetch.keep: false the weights are gone when the package is written"
	return cmp.Or(check(r.Recipe.Stages["quantize"],
		rule{q.Budget != nil, "budget", "a budget needs the whole model before anything is written; " + gone +
			": set bits instead, or keep the weights"},
		rule{chain.Needs() != quant.Nothing, "method", "methods that watch the model need all of it before anything is written; " + gone +
			": choose " + quant.WithoutModel() + ", or keep the weights"},
	), check(r.Recipe.Stages["verify"],
		rule{v.Enabled && v.Perplexity.MaxRatio != nil, "perplexity.max_ratio", "the perplexity of the source is measured on its weights; " + gone},
		rule{v.Enabled && v.KL.Max != nil, "kl.max", "divergence is measured against the source; " + gone},
		rule{v.Enabled && v.Layers.Max != nil, "layers.max", "layers are compared with those of the source; " + gone},
		rule{v.Enabled && v.Golden != "", "golden", "goldens are compared with the outputs of the source; " + gone},
	))
}

// fetchHeaders downloads the small files and the headers of the shards, and rejects models whose weights must be read before
// the package can be laid out.
func (f *Fetch) fetchHeaders(ctx context.Context, r *Run) error {
	sk, err := f.Skeleton(ctx, r, f.beforeWeights(ctx, r))
	if err != nil {
		return err
	}
	r.origin = source.OfSkeleton(sk)
	r.origin.Access = f.access(&sk.Snapshot)
	here := sk.Snapshot
	here.Files = nil
	var shards []hub.File
	for _, x := range sk.Files {
		if _, ok := sk.Headers[x.Name]; !ok {
			here.Files = append(here.Files, x)
			continue
		}
		if x.SHA256 == "" {
			return fmt.Errorf("%s: the hub lists no SHA-256 for it, which fetch.keep: false needs: %w", x.Name, tensor.ErrUnsupported)
		}
		shards = append(shards, x)
	}
	if err := f.hash(ctx, r, &here); err != nil {
		return err
	}
	if r.origin.Heads != nil {
		r.origin.Elsewhere = &sk.Snapshot
	} else {
		r.origin.Heads = map[string]safetensors.Head{}
		for _, x := range here.Files {
			if strings.HasSuffix(x.Name, ".safetensors") {
				if r.origin.Heads[x.Name], err = safetensors.ReadHead(filepath.Join(sk.Dir, x.Name)); err != nil {
					return r.blame(ctx, err)
				}
			}
		}
	}
	r.origin.Files = append(r.origin.Files, shards...)
	slices.SortFunc(r.origin.Files, func(a, b hub.File) int { return strings.Compare(a.Name, b.Name) })
	return f.planWithoutWeights(ctx, r)
}

// planWithoutWeights lays out the package before any weights are downloaded.
func (f *Fetch) planWithoutWeights(ctx context.Context, r *Run) error {
	src, err := r.open(ctx, r.origin)
	if err == nil {
		_, err = r.plan(src)
	}
	if errors.Is(err, safetensors.ErrNoWeights) {
		return r.Recipe.Stages["fetch"].Errorf("keep",
			"the matrices of this checkpoint are codes, and the layout of the package depends on their scales: keep the weights")
	}
	if err != nil {
		return r.blame(ctx, err)
	}
	return nil
}
