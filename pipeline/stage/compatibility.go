package stage

import (
	"context"
	"errors"

	"github.com/llmexport/llmexport/pipeline/calibrate"
	"github.com/llmexport/llmexport/pipeline/source"
	"github.com/llmexport/llmexport/quant"
	"github.com/llmexport/llmexport/recipes"
)

// checkDir rejects options that cannot work with the checkpoint of an origin. If the checkpoint cannot be opened, the stage
// that needs it reports the error.
func (q *Quantize) checkDir(ctx context.Context, r *Run, o source.Origin) error {
	if !q.calibrated() {
		return nil
	}
	src, err := r.open(ctx, o)
	if err != nil {
		return nil
	}
	if err := q.check(r, src); err != nil || q.Budget == nil {
		return err
	}
	if _, err = r.plan(src); errors.As(err, new(*recipes.Error)) {
		return err
	}
	return nil // the stage that plans reports it
}

// check rejects options that cannot work with a checkpoint, at their place in the recipe.
func (q *Quantize) check(r *Run, src *source.Source) error {
	sec := r.Recipe.Stages["quantize"]
	chain, err := q.chain()
	switch {
	case err != nil:
		return sec.Errorf("method", "%v", err)
	case src.Decoder.Pooling != nil && q.Budget != nil:
		return sec.Errorf("budget", "is not supported for a model that turns texts into vectors: set bits and overrides")
	case src.Decoder.Pooling != nil && chain.Needs() != quant.Nothing:
		return sec.Errorf("method", "methods that watch the model are not supported for one that turns texts into vectors; choose %s", quant.WithoutModel())
	case chain.Rotator != nil && src.Decoder.Tied:
		return sec.Errorf("method", "%s needs a head with its own weights; the head of this model is tied to the embedding", chain.Rotator.Name())
	case calibrate.Check(src.Decoder, chain) != nil:
		return sec.Errorf("method", "%v", calibrate.Check(src.Decoder, chain))
	case !q.keeps(src):
		return nil
	case q.Budget != nil:
		return sec.Errorf("budget", "the matrices of this checkpoint are %s codes, which are stored as they are; "+
			"set quantize.import to requantize to give them a budget", src.Quantized.Method())
	case chain.Needs() != quant.Nothing:
		return sec.Errorf("method", "the matrices of this checkpoint are %s codes, which are stored as they are, "+
			"but methods that watch the model need all of its matrices; set quantize.import to requantize, or choose %s "+
			"for the other matrices", src.Quantized.Method(), quant.WithoutModel())
	}
	return nil
}
