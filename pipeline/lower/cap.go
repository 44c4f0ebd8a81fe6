package lower

import (
	"fmt"
	"math"
	"strconv"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/runtime/mnn"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// MaxStoredContext is the longest practical context of stored attention, which holds the keys and values of all positions and reads
// them for every token.
const MaxStoredContext = 4096

// LinearAttention as a memory: for inputs as small as memoryScale, SiLU halves its input and the delta rule
// adds the outer product of key and value. memoryScale is a power of two, so scaling is exact. siluOne is where SiLU is 1.
const (
	memoryScale = 1.0 / (1 << 27)
	siluOne     = 1.2784645427610738
)

// checkCap rejects capped attention over an unbounded context.
func checkCap(context, positions int) error {
	if context <= MaxStoredContext {
		return nil
	}
	if context == positions {
		return fmt.Errorf("capped attention scores need a bounded context: set target.context, to at most %d tokens (the checkpoint has %d): %w",
			MaxStoredContext, positions, tensor.ErrUnsupported)
	}
	return fmt.Errorf("target.context %d: capped attention scores allow at most %d tokens: %w", context, MaxStoredContext, tensor.ErrUnsupported)
}

// stores reports whether keys and values of an attention are stored by ops that all backends compute alike.
func (b *builder) stores(a *arch.Attention) bool {
	ignored := a.Sinks.Tensor != "" || b.bounded(a.Window) > 0
	return a.Cap != 0 || b.storedAttention && ignored && !a.Bidirectional && a.Slopes == nil && a.Chunk == 0
}

// stored is attention with scores of Cap·tanh(score/Cap), or with a window or sinks for backends that ignore them. The Attention op has
// no cap, and no other op can read its cache. Two LinearAttention ops keep the keys and values of a bounded context instead. The first
// stores the key of a token in the column of its position; reading it with queries gives the scores. The second stores the value in the
// row of its position and mixes values by the softmax of the scores. A sink is the score of one more column, which has no value. The
// result is [1, tokens, heads*dim].
func (b *builder) stored(at string, a *arch.Attention, q, k, v value) (value, error) {
	if err := checkCap(b.context, b.decoder.MaxPositions); err != nil {
		return 0, err
	}
	b.atLeast("high")
	what := "attention is computed from simple ops"
	if a.Cap != 0 {
		what = "attention scores are capped"
	}
	b.condition(fmt.Sprintf("%s, which costs memory and time for every one of the %d positions that the package holds; "+
		"tokens beyond them are not seen", what, b.context))
	b.condition("history cannot be edited, and no tokens can be drafted (lookahead): the state of a layer cannot go back")
	n, dim := b.context, a.HeadDim
	heads, columns := int32(a.Heads), int32(n)
	hot := b.column(a.Heads)
	small := func(name string, x value, kv int) value {
		x = b.times(name+"_small", x, memoryScale)
		if kv < a.Heads {
			x = b.reshape(name+"_groups", x, 1, -1, int32(kv), 1, int32(dim))
			x = b.binary(name+"_repeated", mnn.BinaryMul, x, b.ones(1, 1, 1, int32(a.Heads/kv), 1))
		}
		return b.reshape(name+"_row", x, 1, -1, heads*int32(dim))
	}
	scale := a.Scale
	if scale == 0 {
		scale = 1 / math.Sqrt(float64(dim))
	}
	s := b.memory(at+"scores", a.Heads, dim, n, small(at+"q", q, a.Heads), small(at+"k", k, a.KVHeads), hot)
	// The op divides by the square root of the length of its keys.
	scale *= 4 / memoryScale / memoryScale * math.Sqrt(float64(dim))
	if a.Cap != 0 {
		s = b.times(at+"scores/scaled", s, scale/a.Cap)
		s = b.times(at+"scores/capped", b.unary(at+"scores/tanh", mnn.UnaryTanh, s), a.Cap)
	} else {
		s = b.times(at+"scores/scaled", s, scale)
	}
	s = b.binary(at+"scores/masked", mnn.BinaryAdd, s, b.columnMask(b.bounded(a.Window)))
	if a.Sinks.Tensor != "" {
		none := b.times(at+"sinks/none", b.slice(at+"sinks/column", s, b.list(0), 1, 3), 0)
		sinks := b.binary(at+"sinks/tokens", mnn.BinaryAdd, none, b.constant(at+"sinks", a.Sinks, 1, 1, heads, 1))
		s = b.concat(at+"scores/and_sinks", 3, s, sinks)
	}
	p := b.op(at+"probabilities", mnn.OpSoftmax, &mnn.Axis{Axis: -1}, s)
	if a.Sinks.Tensor != "" {
		p = b.slice(at+"probabilities/columns", p, b.list(0), columns, 3)
	}
	p = b.reshape(at+"probabilities_row", b.times(at+"probabilities_small", p, memoryScale), 1, -1, heads*columns)
	o := b.memory(at+"mix", a.Heads, n, dim, p, hot, small(at+"v", v, a.KVHeads))
	o = b.times(at+"mix/scaled", o, 4/memoryScale/memoryScale*math.Sqrt(float64(n)))
	return b.reshape(at+"mix/row", o, 1, -1, heads*int32(dim)), nil
}

// memory stores values [1, tokens, heads*valueDim] under keys and reads them by queries, both [1, tokens, heads*keyDim]. The
// result, [1, tokens, heads, valueDim], still has the factors that capped removes.
func (b *builder) memory(name string, heads, keyDim, valueDim int, q, k, v value) value {
	rows := heads * (2*keyDim + valueDim)
	x := b.op(name+"/columns", mnn.OpPermute, &mnn.Permute{Dims: []int32{0, 2, 1}}, b.concat(name+"/rows", 2, q, k, v))
	// The op's convolution passes the token through: the last of its two taps is 1.
	taps := b.shares("/memory/taps_"+strconv.Itoa(rows), func() value {
		w := make([]float32, 2*rows)
		for i := range rows {
			w[2*i+1] = 1
		}
		return b.floats("/memory/taps_"+strconv.Itoa(rows), w, int32(rows), 1, 2)
	})
	decay, beta := b.memoryGates(heads)
	b.caches++
	b.stateBytes += 4 * (int64(heads)*int64(keyDim)*int64(valueDim) + int64(rows))
	return b.op(name, mnn.OpLinearAttention, &mnn.LinearAttention{
		Type: mnn.GatedDeltaRule, KeyHeads: int32(heads), ValueHeads: int32(heads), KeyDim: int32(keyDim), ValueDim: int32(valueDim),
	}, x, decay, beta, taps)
}

// memoryGates returns the logarithm of the decay and the factor on stored values, [1, tokens, heads]: nothing decays, except
// that position 0 erases the state of an earlier conversation.
func (b *builder) memoryGates(heads int) (decay, beta value) {
	name := "/memory/heads_" + strconv.Itoa(heads)
	decay = b.shares(name+"/decay", func() value {
		all := b.binary(name+"/first", mnn.BinaryMul, b.first(), b.ones(1, 1, int32(heads)))
		zero := b.binary(name+"/zero", mnn.BinaryMul, all, b.scalarFloat(0))
		b.once[name+"/beta"] = b.binary(name+"/beta", mnn.BinaryAdd, zero, b.scalarFloat(1))
		return b.binary(name+"/decay", mnn.BinaryMul, all, b.scalarFloat(forget))
	})
	return decay, b.once[name+"/beta"]
}

// forget is the logarithm of a decay that erases everything: exp(forget) is 0 in float32.
const forget = -160

// first is 1 at position 0 and 0 after it, [1, tokens, 1].
func (b *builder) first() value {
	return b.shares("/positions/first", func() value {
		if b.axes {
			return b.reshape("/positions/first", b.opens(), 1, -1, 1)
		}
		behind := b.binary("/positions/behind", mnn.BinaryMinimum, b.floatPositions(), b.scalarFloat(1))
		return b.binary("/positions/first", mnn.BinarySub, b.scalarFloat(1), behind)
	})
}

// floatPositions returns the call's positions, [1, tokens, 1].
func (b *builder) floatPositions() value {
	b.plainPositions()
	return b.shares("/positions/float", func() value {
		return b.toFloat("/positions/float", b.reshape("/positions/column", b.positions, 1, -1, 1))
	})
}

// columnDistance returns the distance from a column of the context to a token, [1, tokens, context].
func (b *builder) columnDistance() value {
	return b.shares("/memory/distance", func() value {
		columns := make([]float32, b.context)
		for i := range columns {
			columns[i] = float32(i)
		}
		return b.binary("/memory/distance", mnn.BinarySub, b.floatPositions(), b.floats("/memory/column_numbers", columns, 1, 1, int32(b.context)))
	})
}

// column returns the input that the op's SiLU turns into 1 in the column of the token's position and 0 in the others, for every
// head: [1, tokens, heads*context].
func (b *builder) column(heads int) value {
	name := "/memory/column_" + strconv.Itoa(heads)
	return b.shares(name, func() value {
		off := b.binary(name+"/off", mnn.BinaryMinimum, b.unary(name+"/apart", mnn.UnaryAbs, b.columnDistance()), b.scalarFloat(1))
		hot := b.times(name+"/hot", b.binary(name+"/on", mnn.BinarySub, b.scalarFloat(1), off), siluOne)
		all := b.binary(name+"/heads", mnn.BinaryMul, b.reshape(name+"/one", hot, 1, -1, 1, int32(b.context)), b.ones(1, 1, int32(heads), 1))
		return b.reshape(name, all, 1, -1, int32(heads*b.context))
	})
}

// columnMask hides the columns that a token must not attend to, [1, tokens, 1, context].
func (b *builder) columnMask(window int) value {
	name := "/memory/mask_" + strconv.Itoa(window)
	return b.shares(name, func() value {
		distance := b.columnDistance()
		bad := b.binary(name+"/future", mnn.BinaryMinimum, distance, b.scalarFloat(0))
		if window > 0 {
			left := b.binary(name+"/left", mnn.BinarySub, b.scalarFloat(float64(window-1)), distance)
			bad = b.binary(name+"/in_window", mnn.BinaryAdd, bad, b.binary(name+"/past", mnn.BinaryMinimum, left, b.scalarFloat(0)))
		}
		bad = b.times(name+"/scores", b.binary(name+"/bad", mnn.BinaryMaximum, bad, b.scalarFloat(-1)), hidden)
		return b.reshape(name, bad, 1, -1, 1, int32(b.context))
	})
}
