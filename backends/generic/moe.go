package generic

import (
	"context"
	"fmt"

	"github.com/llmexport/llmexport/backends/internal/ops"
	"github.com/llmexport/llmexport/runtime/mnn"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// compileExperts makes an executable of each expert of every MoE.
func (e *executable) compileExperts(w mnn.Weights, cache *int64) error {
	made, named := make(map[string]*executable), ops.Named(e.g)
	for i := range e.g.Ops {
		p, ok := e.g.Ops[i].Param.(*mnn.MoE)
		if !ok || !e.live[i] {
			continue
		}
		list, err := ops.Experts(named, p)
		if err != nil {
			return fmt.Errorf("op %s (%v): %w", e.g.Ops[i].Name, e.g.Ops[i].Type, err)
		}
		for _, s := range list {
			x := made[s.Name]
			if x == nil {
				x = newExecutable(&mnn.Graph{Ops: s.Ops, Tensors: s.Tensors}, s.Live(), s.Outputs[0], e.options)
				x.expert = true
				if err := x.open(w, cache); err != nil {
					return fmt.Errorf("expert %s: %w", s.Name, err)
				}
				made[s.Name] = x
			}
			e.experts[i] = append(e.experts[i], x)
		}
	}
	return nil
}

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
	for k := range works {
		w := &works[k]
		e := r.exe.experts[i][w.Expert]
		sub := &run{exe: e, call: r.call, input0: x.Pick(0, w.Rows, []int{len(w.Rows), x.Shape[1]}), vals: make([]ops.Tensor, len(e.g.Tensors))}
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
