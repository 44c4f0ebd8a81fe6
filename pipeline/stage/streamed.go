package stage

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/llmexport/llmexport/pipeline"
	"github.com/llmexport/llmexport/pipeline/hub"
	"github.com/llmexport/llmexport/pipeline/safetensors"
	"github.com/llmexport/llmexport/quant"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// validateKeep refuses what Keep false does not go with. Weights that are not kept are read once, while the package is
// written: everything that would need them before or after is refused at its place in the recipe.
func (f *Fetch) validateKeep(job *pipeline.Job) error {
	if f.Keep {
		return nil
	}
	r := job.Recipe
	if r.Model.Path != "" {
		return r.Stages["fetch"].Errorf("keep", "is about repositories; the checkpoint in %s stays where it is", r.Model.Path)
	}
	stages, err := New(r)
	if err != nil {
		return err
	}
	q, v := Find[*Quantize](stages), Find[*Verify](stages)
	chain, err := quant.NewChain(q.Method)
	if err != nil {
		return r.Stages["quantize"].Errorf("method", "%v", err)
	}
	const gone = "with fetch.keep: false the weights are gone when the package is written"
	for _, c := range []struct {
		bad          bool
		section, key string
		text         string
	}{
		{q.Budget != nil, "quantize", "budget", "a budget reads the whole model before anything is written; " + gone + ": choose bits, or keep the weights"},
		{chain.Calibrated(), "quantize", "method", "methods that watch the model read it before anything is written; " + gone + ": choose rtn, search or hqq, or keep the weights"},
		{v.Enabled && v.Perplexity.MaxRatio != nil, "verify", "perplexity.max_ratio", "the perplexity of the source is measured on its weights; " + gone},
		{v.Enabled && v.KL.Max != nil, "verify", "kl.max", "divergence is measured against the source; " + gone},
		{v.Enabled && v.Layers.Max != nil, "verify", "layers.max", "layers are compared with those of the source; " + gone},
		{v.Enabled && v.Golden != "", "verify", "golden", "outputs that were recorded elsewhere are compared with those of the source; " + gone},
	} {
		if c.bad {
			return r.Stages[c.section].Errorf(c.key, "%s", c.text)
		}
	}
	return nil
}

// fetchHeaders brings the small files and the headers of the shards, and refuses what cannot be made of a model that is
// read once.
func (f *Fetch) fetchHeaders(ctx context.Context, job *pipeline.Job) (*snapshotRecord, error) {
	sk, err := f.skeleton(ctx, job, f.beforeWeights(ctx))
	if err != nil {
		return nil, err
	}
	rec := f.recordOf(&sk.Snapshot, nil)
	rec.Heads = heads(sk)
	here := sk.Snapshot
	here.Files = nil
	var shards []hub.File
	for _, x := range sk.Files {
		if _, ok := sk.Headers[x.Name]; !ok {
			here.Files = append(here.Files, x)
			continue
		}
		if x.SHA256 == "" {
			return nil, fmt.Errorf("%s: the hub lists no SHA-256 of it, which fetch.keep: false needs: %w", x.Name, tensor.ErrUnsupported)
		}
		shards = append(shards, x)
	}
	if err := rec.hash(ctx, job, &here); err != nil {
		return nil, err
	}
	checkpoint := pipeline.Artifact{Detail: rec.here}
	if rec.Heads != nil {
		rec.Elsewhere = &sk.Snapshot
	} else {
		rec.Heads = map[string]safetensors.Head{}
		for _, x := range here.Files {
			if strings.HasSuffix(x.Name, ".safetensors") {
				if rec.Heads[x.Name], err = safetensors.ReadHead(filepath.Join(sk.Dir, x.Name)); err != nil {
					return nil, blame(ctx, checkpoint, err)
				}
			}
		}
	}
	if err := f.suitsStreaming(job, &rec); err != nil {
		return nil, blame(ctx, checkpoint, err)
	}
	rec.Files = append(rec.Files, shards...)
	slices.SortFunc(rec.Files, func(a, b hub.File) int { return strings.Compare(a.Name, b.Name) })
	return &rec, nil
}

// suitsStreaming plans the package, which must not need weights.
func (f *Fetch) suitsStreaming(job *pipeline.Job, rec *snapshotRecord) error {
	q, err := quantizeOf(job)
	if err != nil {
		return err
	}
	src := &Source{Dir: rec.Dir, heads: rec.Heads}
	defer src.Close()
	err = src.open(job.Recipe.Model.IgnoreConfig)
	if err == nil {
		_, err = q.Plan(job, src)
	}
	if errors.Is(err, safetensors.ErrNoWeights) {
		return job.Recipe.Stages["fetch"].Errorf("keep", "the matrices of this checkpoint are codes, and the package is laid out by their scales, which have to be read first: keep the weights")
	}
	return err
}
