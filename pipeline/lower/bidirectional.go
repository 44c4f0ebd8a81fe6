package lower

import (
	"math"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/runtime/mnn"
)

// bidirectional is attention of every row to all rows of the call, without a cache. Without a mask the Attention op is causal, and
// with one it is wrong for several pictures, so the scores are made by ordinary ops. q, k and v are [1, rows, heads, dim].
func (b *builder) bidirectional(at string, a *arch.Attention, q, k, v value) value {
	scale := a.Scale
	if scale == 0 {
		scale = 1 / math.Sqrt(float64(a.HeadDim))
	}
	heads := func(name string, x value) value {
		return b.op(at+name, mnn.OpPermute, &mnn.Permute{Dims: []int32{0, 2, 1, 3}}, x)
	}
	q, k, v = heads("q_heads", b.times(at+"q_scale", q, scale)), heads("k_heads", k), heads("v_heads", v)
	s := b.op(at+"scores", mnn.OpBatchMatMul, &mnn.BatchMatMul{TransposeY: true}, q, k)
	s = b.op(at+"probabilities", mnn.OpSoftmax, &mnn.Axis{Axis: -1}, s)
	o := heads("mixed", b.op(at+"mix", mnn.OpBatchMatMul, &mnn.BatchMatMul{}, s, v))
	return b.reshape(at+"mixed_rows", o, 1, -1, int32(a.Heads*a.HeadDim))
}
