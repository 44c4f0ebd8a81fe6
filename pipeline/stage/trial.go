package stage

import (
	"context"
	"maps"
	"os"
	"path/filepath"

	"github.com/rs/zerolog"

	"github.com/llmexport/llmexport/pipeline"
	"github.com/llmexport/llmexport/pipeline/assemble"
	"github.com/llmexport/llmexport/pipeline/calibrate"
	"github.com/llmexport/llmexport/quant"
)

// trialDir is the directory of a trial in the entry of an allocation.
const trialDir = "trial"

// trialWeights is the unit of the progress of a trial.
const trialWeights = "weights of a trial"

const (
	// mostTrials bounds the allocations that are tried for a limit on the divergence.
	mostTrials = 5
	// closeEnough of the limit is a divergence that is not worth another trial.
	closeEnough = 0.9
	// trialMargin makes up for sums that do not grow in proportion to the divergence of the model.
	trialMargin = 0.97
)

// predicted allocates the budget of a run, and predicts the divergence of the package by a trial.
//
// Divergences of single matrices do not quite add up to that of the model, and an allocation prefers matrices whose divergence is
// estimated too low. A budget of bytes has the same allocation whatever the sum is worth. For a limit on the divergence, the limit
// on the sum is moved until the trial meets the one that was asked for.
func (r *Run) predicted(ctx context.Context, base *assemble.Planned, sens *quant.Sensitivities, p *pipeline.Partial) (*assemble.Allocation, error) {
	chain, err := r.Quantize.chain()
	if err != nil {
		return nil, err
	}
	_, windows, probe, err := r.text()
	if err != nil {
		return nil, err
	}
	t := &trial{r, untuned(chain), enough(windows), probe, sens.Items, p}
	limit := r.Quantize.Budget.KL
	var best, last *assemble.Allocation
	for sum, trials := limit, 0; trials < mostTrials; trials++ {
		a, pl, total, err := share(r, base, sens, sum)
		if err != nil {
			return nil, err
		}
		if last != nil && maps.Equal(a.Specs, last.Specs) {
			break
		}
		if a.KL, err = t.divergence(ctx, pl); err != nil {
			return nil, err
		}
		zerolog.Ctx(ctx).Info().Float64("sum", total).Float64("kl", a.KL).
			Msg("divergences of matrices by themselves, and of all together in a trial")
		if limit == 0 {
			return a, nil
		}
		if a.KL <= limit && (best == nil || a.Bytes < best.Bytes) {
			best = a
		}
		smallest := total > sum
		if last = a; a.KL <= limit && a.KL >= closeEnough*limit || a.KL > limit && smallest || a.KL == 0 {
			break
		}
		sum = total * trialMargin * limit / a.KL
	}
	if best == nil {
		return nil, r.Recipe.Stages["quantize"].Errorf("budget.kl", "cannot be met: the smallest divergence possible is %s", roundUp(last.KL))
	}
	return best, nil
}

// untuned returns a chain without its tuner.
func untuned(c *quant.Chain) *quant.Chain {
	x := *c
	x.Tuner = nil
	return &x
}

// trial encodes a model with less text than [Quantize] takes and without tuning, and of a model with many layers only some of these.
type trial struct {
	run            *Run
	chain          *quant.Chain
	windows, probe [][]int32
	measured       []quant.Item
	partial        *pipeline.Partial
}

// divergence encodes the model, or a sample of its layers, as an allocation says, and predicts its divergence on the probe. What a
// killed run encoded is taken up again.
func (t *trial) divergence(ctx context.Context, pl *assemble.Planned) (float64, error) {
	d := pl.Source.Decoder
	layers := t.run.sampled(d)
	name, err := pipeline.Key(trialDir, pl.Allocation.Specs, layers)
	if err != nil {
		return 0, err
	}
	o, shown, err := t.run.watching(pl, t.windows, t.partial, "allocate", trialWeights)
	if err != nil {
		return 0, err
	}
	o.Dir, o.Name = filepath.Join(o.Dir, trialDir), o.Name+"/"+trialDir+"/"+name
	if err := os.MkdirAll(o.Dir, 0o777); err != nil {
		return 0, err
	}
	s := schemeOf(pl, t.chain, &t.run.Calibrate)
	text, all := extension{factor: 1}, extension{factor: 1}
	if layers != nil {
		leaveOut(d, &s, layers)
		o.GradientWindows = trialGradients(len(t.windows[0]))
		text, all = t.extensions(d, &s)
	}
	f, err := calibrate.Quantize(ctx, o, s)
	if err != nil {
		return 0, err
	}
	kl, err := calibrate.Divergence(ctx, o, s, f, t.probe)
	if layers != nil {
		zerolog.Ctx(ctx).Info().Ints("layers", layers).Float64("kl", kl).Float64("factor", text.factor).Float64("rest", text.rest).
			Msg("divergence of some layers in a trial, what all layers have for each nat of it, and that of the table and the head")
	}
	kl = text.of(kl)
	if err == nil && shown != nil {
		var seen calibrate.Seen
		seen, err = calibrate.See(ctx, o, s, f, shown.shown, shown.probe)
		seen.KL = all.of(seen.KL)
		zerolog.Ctx(ctx).Info().Float64("text", kl).Float64("kl", seen.KL).Msg("divergences in a trial, on text and on prompts with what calibration shows")
		kl = max(kl, seen.KL)
	}
	if err != nil {
		return 0, err
	}
	return kl, os.RemoveAll(o.Dir)
}
