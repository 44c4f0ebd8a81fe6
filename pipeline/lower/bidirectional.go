package lower

import (
	"math"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/runtime/mnn"
)

// bidirectional is attention of every row to all rows of the call, or of its text, without a cache. Without a mask the Attention op
// is causal, and with one it is wrong for several texts or fixed pictures, so unless there is a mask of a picture of native size the
// scores are made by ordinary ops. q, k and v are [1, rows, heads, dim].
func (b *builder) bidirectional(at string, a *arch.Attention, q, k, v value) value {
	if b.towerMask != nil {
		return b.op(at+"FusedAttention", mnn.OpAttention, &mnn.Attention{}, b.scores(at, a, q), k, v, *b.towerMask)
	}
	scale := a.Scale
	if scale == 0 {
		scale = 1 / math.Sqrt(float64(a.HeadDim))
	}
	heads := func(name string, x value) value {
		return b.permute(at+name, x, 0, 2, 1, 3)
	}
	texts := func(name string, x value) value { return b.perText(at+name, x, a.Heads, a.HeadDim) }
	q, k, v = texts("q_texts", b.times(at+"q_scale", q, scale)), texts("k_texts", k), texts("v_texts", v)
	q, k, v = heads("q_heads", q), heads("k_heads", k), heads("v_heads", v)
	s := b.op(at+"scores", mnn.OpBatchMatMul, &mnn.BatchMatMul{TransposeY: true}, q, k)
	if b.padding != nil {
		s = b.binary(at+"scores_masked", mnn.BinaryAdd, s, *b.padding)
	}
	s = b.op(at+"probabilities", mnn.OpSoftmax, &mnn.Axis{Axis: -1}, s)
	o := heads("mixed", b.op(at+"mix", mnn.OpBatchMatMul, &mnn.BatchMatMul{}, s, v))
	return b.reshape(at+"mixed_rows", o, 1, -1, int32(a.Heads*a.HeadDim))
}

// perText divides rows [1, rows, ...] into texts, [texts, tokens, dims...], if the graph takes several of them.
func (b *builder) perText(name string, x value, dims ...int) value {
	if b.length == nil {
		return x
	}
	tail := make([]int32, len(dims))
	for i, d := range dims {
		tail[i] = int32(d)
	}
	shape := b.concat(name+"/shape", 0, b.list(-1), *b.length, b.list(tail...))
	return b.op(name, mnn.OpReshape, &mnn.Reshape{DimType: mnn.NCHW}, x, shape)
}
