package generic

import (
	"fmt"

	"github.com/llmexport/llmexport/backends/internal/ops"
	"github.com/llmexport/llmexport/runtime/mnn"
	"github.com/llmexport/llmexport/runtime/tensor"
)

func (r *run) recurrence(op int, p *mnn.LinearAttention, in []ops.Tensor) (ops.Tensor, error) {
	shapes := make([][]int, len(in))
	var x [4][]float32
	for k, v := range in {
		if shapes[k] = v.Shape; v.Ints != nil {
			return ops.Tensor{}, fmt.Errorf("linear attention on integers: %w", tensor.ErrCorrupt)
		}
		if k < len(x) {
			x[k] = v.Floats
		}
	}
	rec, err := ops.NewRecurrence(p, shapes, r.call.Tokens, &r.exe.options)
	if err != nil {
		return ops.Tensor{}, err
	}
	s, err := rec.State(r.state.Linear[op], r.state.Positions)
	if err != nil {
		return ops.Tensor{}, err
	}
	r.state.Linear[op] = s
	out := ops.NewFloats(rec.Shape...)
	rec.Run(out.Floats, x, s, r.exe.options.Threads)
	return out, nil
}
