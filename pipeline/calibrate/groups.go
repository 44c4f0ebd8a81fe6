package calibrate

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/rs/zerolog"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/pipeline/forward"
	"github.com/llmexport/llmexport/quant"
	"github.com/llmexport/llmexport/runtime/kernel"
)

// groupTokens is about how much of the probe groups are measured on.
const groupTokens = 3072

// mostPasses is how many passes through a whole model the measurements of groups may cost, unless there are more kinds of matrices:
// twelve of 3,072 tokens are about an eighth of the work of gptq with 65,536.
const mostPasses = 12

// group is what is measured together: the matrices of one kind in a run of layers.
type group struct {
	kind string
	from int // the first layer
	ops  []*op
	kl   *float64 // the divergence with them at their anchors, if it was measured together with that of a group before
}

// Groups are the first layers of the groups of matrices that [Measure] measures, in their order; the number of layers stands for
// the head.
func Groups(d *arch.Decoder) (from []int) {
	one := func(arch.Weight, bool) []quant.Spec { return []quant.Spec{quant.Half} }
	for _, g := range groupsOf(opsOf(d, one), len(d.Layers)) {
		from = append(from, g.from)
	}
	return from
}

// runsOf is the number of runs that layers are divided into.
func runsOf(ops []*op, layers int) int {
	kinds := map[string]bool{}
	for _, x := range ops {
		if len(x.specs) > 0 && x.layer < layers {
			kinds[x.kind] = true
		}
	}
	runs := 1
	for runs < layers && len(kinds)*(runs+2) <= 2*mostPasses { // of r runs, a measurement passes (r+1)/(2r) of the layers
		runs++
	}
	return runs
}

// groupsOf divides ops into groups, by their first layer.
func groupsOf(ops []*op, layers int) []*group {
	runs := runsOf(ops, layers)
	var all []*group
	at := map[string]*group{}
	for _, x := range ops {
		if len(x.specs) == 0 {
			continue
		}
		run := min(x.layer*runs/max(layers, 1), runs) // the head is a run by itself
		key := fmt.Sprint(run, x.kind)
		g := at[key]
		if g == nil {
			g = &group{kind: x.kind, from: x.layer}
			at[key], all = g, append(all, g)
		}
		g.ops = append(g.ops, x)
	}
	slices.SortStableFunc(all, func(a, b *group) int { return cmp.Compare(a.from, b.from) })
	return all
}

// groups measures the divergences of groups of ops at their anchors, and sets the ratios to the estimates.
func (x *measurement) groups(ctx context.Context) error {
	all := groupsOf(x.ops, len(x.Decoder.Layers))
	for i, g := range all {
		values, err := x.steps.do(fmt.Sprintf("group %s %d", g.kind, g.from), func() ([]float64, error) {
			if g.kl == nil {
				if err := x.measure(ctx, x.together(all[i:])); err != nil {
					return nil, err
				}
			}
			return []float64{*g.kl}, nil
		})
		if err != nil {
			return err
		}
		sum := 0.0
		for _, op := range g.ops {
			sum += op.estimate
		}
		ratio := 1.0
		if sum > 0 {
			ratio = values[0] / sum
		}
		for _, op := range g.ops {
			op.ratio = ratio
		}
		zerolog.Ctx(ctx).Debug().Str("kind", g.kind).Int("from", g.from).Int("matrices", len(g.ops)).Float64("estimate", sum).
			Float64("kl", values[0]).Msg("measured")
		x.advance(x.work.Groups.Times(1 / float64(len(all))))
	}
	zerolog.Ctx(ctx).Info().Int("matrices", len(x.ops)).Int("groups", len(all)).
		Msg("divergences of matrices are estimated by gradients, and measured for groups of them")
	return nil
}

// together are the groups that are measured with the first one of a list. Where there is a device, to which weights travel for longer than it
// needs for the products of so little text, these are all that begin in the same layer, as far as their states have room. On a
// CPU a group by itself takes longer, and less is lost if the run is killed.
func (x *measurement) together(list []*group) []*group {
	n := 1
	if kernel.HasDevice() {
		states := int64(4*groupTokens) * int64(x.Decoder.Hidden)
		for n < len(list) && list[n].from == list[0].from && int64(n+1)*states <= x.Memory/memoryShare {
			n++
		}
	}
	return list[:n]
}

// measure finds the divergences of the model with the ops of each of some groups, which begin in the same layer, at their anchors.
func (x *measurement) measure(ctx context.Context, list []*group) error {
	p, err := x.measured(ctx)
	if err != nil {
		return err
	}
	if err := p.seek(ctx, list[0].from); err != nil {
		return err
	}
	changes := make([]variant, len(list))
	for i, g := range list {
		c := variant{tensors: map[string]bool{}, layers: map[int]bool{}}
		specs := map[string]quant.Spec{}
		var weights []arch.Weight
		for _, op := range g.ops {
			specs[op.tensor], c.tensors[op.tensor], c.layers[op.layer] = anchor(x.Scale, op.cols), true, true
			weights = append(weights, arch.Weight{Tensor: op.tensor, Rows: op.rows, Cols: op.cols})
		}
		if c.model, err = x.anchorsOf(specs, weights...); err != nil {
			return err
		}
		changes[i] = c
	}
	values, err := p.changed(ctx, changes)
	if err != nil {
		return err
	}
	for i, g := range list {
		g.kl = &values[i]
	}
	return nil
}

// anchorsOf returns the model with some matrices at their anchors.
func (x *measurement) anchorsOf(specs map[string]quant.Spec, list ...arch.Weight) (*forward.Model, error) {
	src, err := x.anchors.replace(x.Source, specs, list...)
	if err != nil {
		return nil, err
	}
	return forward.New(x.Decoder, src, x.Threads)
}

// measured returns the probe, which is made when the first step needs it.
func (x *measurement) measured(ctx context.Context) (*probe, error) {
	if x.probe != nil {
		return x.probe, nil
	}
	length := len(x.Probe[0])
	var err error
	x.probe, err = newProbe(ctx, &x.Options, x.model, x.Probe[:min(len(x.Probe), (groupTokens+length-1)/length)], x.Memory/memoryShare)
	if err == nil {
		x.probe.logits.version = kernel.NewVersion() // each group is compared with them
	}
	return x.probe, err
}
