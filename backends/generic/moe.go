package generic

import (
	"context"
	"fmt"

	"github.com/llmexport/llmexport/backends/internal/ops"
	"github.com/llmexport/llmexport/runtime/mnn"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// experts runs a MoE.
func (r *run) experts(ctx context.Context, i int, p *mnn.MoE, in []ops.Tensor) (ops.Tensor, error) {
	shapes := make([][]int, len(in))
	for k, v := range in {
		if shapes[k] = v.Shape; (v.Ints != nil) != (k == 2) {
			return ops.Tensor{}, fmt.Errorf("experts of integers, or chosen by floats: %w", tensor.ErrCorrupt)
		}
	}
	if err := ops.CheckExperts(p, shapes); err != nil {
		return ops.Tensor{}, err
	}
	x := in[0]
	works, err := ops.Route(p, in[1].Floats, in[2].Ints)
	if err != nil {
		return ops.Tensor{}, err
	}
	out := ops.NewFloats(x.Shape...)
	mix := ops.NewMix(out.Floats, x.Shape[0])
	mix.Half = r.exe.options.Half
	for k := range works {
		w := &works[k]
		e := r.exe.experts[i][w.Expert]
		sub := &run{
			exe: e, call: r.call, input0: x.Pick(0, w.Rows, []int{len(w.Rows), x.Shape[1]}),
			vals: make([]ops.Tensor, len(e.g.Tensors)), halves: make([]bool, len(e.g.Tensors)),
		}
		if err := sub.ops(ctx); err != nil {
			return ops.Tensor{}, fmt.Errorf("expert %d: %w", w.Expert, err)
		}
		y := sub.vals[e.logits]
		if y.Ints != nil || len(y.Floats) != len(sub.input0.Floats) {
			return ops.Tensor{}, fmt.Errorf("expert %d gives shape %v for %v: %w", w.Expert, y.Shape, sub.input0.Shape, tensor.ErrCorrupt)
		}
		mix.Add(w, y.Floats)
	}
	return out, nil
}
