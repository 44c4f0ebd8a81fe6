package lower

import (
	"fmt"
	"math"
	"strconv"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/runtime/mnn"
)

// bidirectional is attention of every row to all rows of the call, or of its text, without a cache. Without a mask the Attention op
// is causal, and with one it is wrong for several texts or fixed pictures, so unless there is a mask of a picture of native size the
// scores are made by ordinary ops. q, k and v are [1, rows, heads, dim].
func (b *builder) bidirectional(at string, a *arch.Attention, q, k, v value) value {
	if b.towerMask != nil {
		return b.op(at+"FusedAttention", mnn.OpAttention, &mnn.Attention{}, b.scores(at, a, q), k, v, b.squares(a.Square))
	}
	scale := a.Scale
	if scale == 0 {
		scale = 1 / math.Sqrt(float64(a.HeadDim))
	}
	k, v = b.spreadHeads(at+"k_shared", a, k), b.spreadHeads(at+"v_shared", a, v)
	heads := func(name string, x value) value {
		return b.permute(at+name, x, 0, 2, 1, 3)
	}
	placed := q
	if r := a.Relative; r != nil {
		q = b.binary(at+"q_content", mnn.BinaryAdd, q, b.constant(at+"content", r.Content, 1, 1, int32(a.Heads), int32(a.HeadDim)))
	}
	texts := func(name string, x value) value { return b.perText(at+name, x, a.Heads, a.HeadDim) }
	q, k, v = texts("q_texts", b.times(at+"q_scale", q, scale)), texts("k_texts", k), texts("v_texts", v)
	q, k, v = heads("q_heads", q), heads("k_heads", k), heads("v_heads", v)
	s := b.op(at+"scores", mnn.OpBatchMatMul, &mnn.BatchMatMul{TransposeY: true}, q, k)
	if a.Relative != nil {
		s = b.binary(at+"scores_by_distance", mnn.BinaryAdd, s, b.distanceScores(at, a, placed, scale))
	}
	if window := b.bounded(a.Window); window > 0 {
		s = b.binary(at+"scores_near", mnn.BinaryAdd, s, b.nearMask(window))
	}
	if a.Slopes != nil {
		s = b.binary(at+"scores_biased", mnn.BinaryAdd, s, b.distanceBias(a.Slopes))
	}
	if b.padding != nil {
		s = b.binary(at+"scores_masked", mnn.BinaryAdd, s, *b.padding)
	}
	s = b.op(at+"probabilities", mnn.OpSoftmax, &mnn.Axis{Axis: -1}, s)
	o := heads("mixed", b.op(at+"mix", mnn.OpBatchMatMul, &mnn.BatchMatMul{}, s, v))
	return b.reshape(at+"mixed_rows", o, 1, -1, int32(a.Heads*a.HeadDim))
}

// spreadHeads gives every query head its own copy of the keys or values x that it shares with others, [1, rows, heads, dim].
func (b *builder) spreadHeads(name string, a *arch.Attention, x value) value {
	if a.KVHeads == a.Heads {
		return x
	}
	x = b.reshape(name+"/groups", x, 1, -1, int32(a.KVHeads), 1, int32(a.HeadDim))
	x = b.binary(name+"/repeated", mnn.BinaryMul, x, b.ones(1, 1, 1, int32(a.Heads/a.KVHeads), 1))
	return b.reshape(name, x, 1, -1, int32(a.Heads), int32(a.HeadDim))
}

// nearMask is the mask of attention to the positions less than window away on either side, [1, 1, tokens, tokens]. The engine makes
// none of the kind.
func (b *builder) nearMask(window int) value {
	name := "/mask/near_" + strconv.Itoa(window)
	return b.shares(name, func() value {
		b.condition(masksWithin)
		left := b.binary(name+"/left", mnn.BinaryMinimum, b.binary(name+"/within", mnn.BinarySub, b.scalarFloat(float64(window-1)), b.apart()), b.scalarFloat(0))
		return b.explicit(name, b.times(name+"/scores", b.binary(name+"/bad", mnn.BinaryMaximum, left, b.scalarFloat(-1)), hidden))
	})
}

// apart is the distance between query and key, [tokens, tokens].
func (b *builder) apart() value {
	return b.shares("/mask/apart", func() value {
		return b.unary("/mask/apart", mnn.UnaryAbs, b.toFloat("/mask/distance_float", b.distance()))
	})
}

// distanceBias is what heads with these slopes add to their scores, [1, heads, tokens, tokens].
func (b *builder) distanceBias(slopes []float64) value {
	name := "/mask/distance_bias_" + strconv.Itoa(len(slopes))
	return b.shares(fmt.Sprint(name, slopes), func() value {
		b.condition(masksWithin)
		b.maskBytes += 4 * len(slopes)
		factors := make([]float32, len(slopes))
		for i, s := range slopes {
			factors[i] = float32(-s)
		}
		dims := []int32{1, int32(len(slopes)), 1, 1}
		perHead := b.shared(fmt.Sprint("slopes", slopes), &mnn.Blob{Dims: dims, Format: mnn.NCHW, DType: mnn.DTFloat, Float32s: factors})
		apart := b.op(name+"/apart", mnn.OpUnsqueeze, &mnn.Squeeze{Dims: []int32{0, 1}}, b.apart())
		return b.binary(name, mnn.BinaryMul, apart, perHead)
	})
}

// far is what the mask adds to the score of a patch in another square: enough that its probability is 0, and within the range of halves.
const far = 30000

// squares is the mask of a tower that reads patches, by which a patch attends to those of its own square of so many patches an edge, or to
// all if that is 0. The order of patches does not matter.
func (b *builder) squares(edge int) value {
	if edge == 0 {
		return *b.towerMask
	}
	at := fmt.Sprintf("/squares_%d/", edge)
	return b.shares(at, func() value {
		square := func(axis int) value {
			q := b.binary(fmt.Sprintf("%saxis_%d", at, axis), mnn.BinaryRealDiv, b.place(axis), b.scalar(int32(edge)))
			return b.toFloat(fmt.Sprintf("%saxis_%d_float", at, axis), q)
		}
		// Pictures have fewer squares an edge than gridPositions, and the number of a square is exact in float32.
		number := b.binary(at+"number", mnn.BinaryAdd, b.times(at+"rows", square(0), gridPositions), square(1))
		apart := b.binary(at+"apart", mnn.BinarySub, b.reshape(at+"queries", number, 1, 1, -1, 1), b.reshape(at+"keys", number, 1, 1, 1, -1))
		other := b.binary(at+"other", mnn.BinaryMinimum, b.unary(at+"distance", mnn.UnaryAbs, apart), b.scalarFloat(1))
		return b.binary(at+"mask", mnn.BinaryAdd, *b.towerMask, b.times(at+"far", other, -far))
	})
}

// perText divides rows [1, rows, ...] into texts or tiles, [texts, tokens, dims...], if the graph takes several of them.
func (b *builder) perText(name string, x value, dims ...int) value {
	tail := make([]int32, len(dims))
	for i, d := range dims {
		tail[i] = int32(d)
	}
	if b.tile != 0 {
		return b.reshape(name, x, append([]int32{-1, int32(b.tile)}, tail...)...)
	}
	if b.length == nil {
		return x
	}
	shape := b.concat(name+"/shape", 0, b.list(-1), *b.length, b.list(tail...))
	return b.op(name, mnn.OpReshape, &mnn.Reshape{DimType: mnn.NCHW}, x, shape)
}
