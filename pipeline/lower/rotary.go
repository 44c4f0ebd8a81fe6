package lower

import (
	"fmt"
	"math"
	"math/bits"
	"strconv"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/mnn"
)

// rotarySplit returns the rows of the low table, the power of two nearest above sqrt(positions), which makes both
// tables about equal and their sum smallest, and the rows of the high table, which together cover all positions.
func rotarySplit(positions int) (split, high int) {
	split = 1 << ((bits.Len(uint(positions-1)) + 1) / 2)
	return split, (positions + split - 1) / split
}

// ropes lists the rotary tables that the layers use, in the order of use.
func ropes(d *arch.Decoder) []*arch.Rope {
	var list []*arch.Rope
	seen := map[*arch.Rope]bool{nil: true}
	for _, layer := range d.Layers {
		for _, br := range layer {
			var r *arch.Rope
			switch x := br.Block.(type) {
			case *arch.Attention:
				r = x.Rope
			case *arch.LatentAttention:
				r = x.Rope
			}
			if !seen[r] {
				seen[r] = true
				list = append(list, r)
			}
		}
	}
	return list
}

// switches reports whether a call can be long enough for the other factors.
func switches(r *arch.Rope, context int) bool { return r.Long != nil && context > r.Original }

// rotary builds the cosines and sines of the call's positions, [1, tokens, 1, dim] each, from two levels
// of tables: position = split*q + r, and the angles add. Both factors are exact in float32 for every position; a product
// position*frequency in fp16 would not be. A factor on cosine and sine is in the low tables.
//
// With a second set of frequencies, the tables of both sets are concatenated, and the last position of the call selects the
// set for all of its positions.
func (b *builder) rotary(r *arch.Rope) (cos, sin value) {
	if have, ok := b.angles[r]; ok {
		return have[0], have[1]
	}
	defer func() { b.angles[r] = [2]value{cos, sin} }()
	at := "/rotary"
	if n := len(b.angles); n > 0 {
		at += "." + strconv.Itoa(n)
	}
	if r.Axes != nil {
		cos, sin = b.turnedByAxes(at, r)
		b.whole = b.whole || !b.tower
		if !b.tower {
			b.condition("the engine gives wrong positions to pictures of a prompt in pieces, so prompts must not be divided (chunk)")
		}
	} else {
		sets := [][]float64{r.InvFreq}
		q, low := b.rotaryRows("/rotary", func() value { return b.positions })
		if switches(r, b.context) {
			sets = append(sets, r.Long)
			second := b.beyond(r.Original)
			q = b.binary(at+"/high_row", mnn.BinaryAdd, q, b.binary(at+"/high_set", mnn.BinaryMul, second, b.scalar(int32(b.high))))
			low = b.binary(at+"/low_row", mnn.BinaryAdd, low, b.binary(at+"/low_set", mnn.BinaryMul, second, b.scalar(int32(b.split))))
			b.whole = true
			b.condition(fmt.Sprintf("other rotary factors hold in calls that go beyond position %d: a conversation that grows across it keeps the keys of its "+
				"first tokens as they are, which differs from running the whole text again; prompts must not be divided (chunk)", r.Original))
		}
		cos, sin = b.turned(at, sets, r.Scale, q, low)
	}
	widen := func(name string, x value) value {
		return b.reshape(name+"_heads", b.concat(name+"_pair", 1, x, x), 1, -1, 1, int32(r.Dim))
	}
	return widen(at+"/cos", cos), widen(at+"/sin", sin)
}

// turned looks up cosines and sines, [tokens, pairs], in tables of sets of frequencies, by rows of the high and the low table.
func (b *builder) turned(at string, sets [][]float64, scale float64, q, low value) (cos, sin value) {
	var cosH, sinH, cosL, sinL []float32
	for _, freq := range sets {
		cosH, sinH = angles(cosH, sinH, freq, b.high, b.split, 1)
		cosL, sinL = angles(cosL, sinL, freq, b.split, 1, scale)
	}
	high, split, half := int32(len(sets)*b.high), int32(len(sets)*b.split), int32(len(sets[0]))
	ch := b.gather(at+"/cos_high", b.floats(at+"/table/cos_high", cosH, high, half), q)
	sh := b.gather(at+"/sin_high", b.floats(at+"/table/sin_high", sinH, high, half), q)
	cl := b.gather(at+"/cos_low", b.floats(at+"/table/cos_low", cosL, split, half), low)
	sl := b.gather(at+"/sin_low", b.floats(at+"/table/sin_low", sinL, split, half), low)

	cos = b.binary(at+"/cos", mnn.BinarySub,
		b.binary(at+"/cos_cos", mnn.BinaryMul, ch, cl), b.binary(at+"/sin_sin", mnn.BinaryMul, sh, sl))
	sin = b.binary(at+"/sin", mnn.BinaryAdd,
		b.binary(at+"/sin_cos", mnn.BinaryMul, sh, cl), b.binary(at+"/cos_sin", mnn.BinaryMul, ch, sl))
	return cos, sin
}

// rotaryRows splits the call's positions into rows of the high and of the low table, the same for all tables.
func (b *builder) rotaryRows(at string, positions func() value) (high, low value) {
	high = b.shares(at+"/high", func() value {
		p := b.reshape(at+"/position", positions(), -1)
		most := b.split*b.high - 1
		p = b.binary(at+"/clamp_low", mnn.BinaryMaximum, p, b.scalar(0))
		p = b.binary(at+"/clamp_high", mnn.BinaryMinimum, p, b.scalar(int32(most)))
		q := b.quotient(at+"/high", p, b.split, most)
		back := b.binary(at+"/high_positions", mnn.BinaryMul, q, b.scalar(int32(b.split)))
		b.once[at+"/low"] = b.binary(at+"/low", mnn.BinarySub, p, back)
		return q
	})
	return high, b.once[at+"/low"]
}

// beyond is 1 in a call whose last position is at least n, else 0, int32 [1].
func (b *builder) beyond(n int) value {
	name := "/rotary/beyond_" + strconv.Itoa(n)
	return b.shares(name, func() value {
		over := b.binary(name+"/over", mnn.BinarySub, b.lastPosition(), b.list(int32(n-1)))
		return b.binary(name, mnn.BinaryMinimum, b.binary(name+"/positive", mnn.BinaryMaximum, over, b.list(0)), b.list(1))
	})
}

// flatPositions returns the call's positions, int32 [tokens].
func (b *builder) flatPositions() value {
	b.plainPositions()
	return b.shares("/positions", func() value { return b.reshape("/positions", b.positions, -1) })
}

// lastPosition returns the last of them, int32 [1].
func (b *builder) lastPosition() value {
	return b.shares("/positions/last", func() value {
		return b.slice("/positions/last", b.flatPositions(), b.list(-1), sliceEnd, 0)
	})
}

// angles appends cos and sin of i*step*freq for i below n, [n, len(freq)], times scale, rounded from float64. They
// reach a file, so kernel.Sincos and not math.Sincos computes them. Both are 0 where freq is not a number.
func angles(cos, sin []float32, freq []float64, n, step int, scale float64) ([]float32, []float32) {
	for i := range n {
		for _, f := range freq {
			s, c := 0.0, 0.0
			if !math.IsNaN(f) {
				s, c = kernel.Sincos(float64(i*step) * f)
			}
			cos, sin = append(cos, float32(c*scale)), append(sin, float32(s*scale))
		}
	}
	return cos, sin
}

// rotate is x*cos + concat(-x[half:], x[:half])*sin along the head dimension of x, [1, tokens, heads, dim]. Elements of a head
// beyond the width of the table stay unchanged.
func (b *builder) rotate(name string, x value, r *arch.Rope, dim int) value {
	cos, sin := b.rotary(r)
	half := int32(r.Dim / 2)
	whole := x
	if r.Dim < dim {
		x = b.slice(name+"/part", x, b.list(0), int32(r.Dim), 3)
	}
	neg := b.unary(name+"/neg", mnn.UnaryNeg, b.slice(name+"/second", x, b.list(half), sliceEnd, 3))
	turned := b.concat(name+"/turned", 3, neg, b.slice(name+"/first", x, b.list(0), half, 3))
	cos, sin = b.binary(name+"/cos", mnn.BinaryMul, x, cos), b.binary(name+"/sin", mnn.BinaryMul, turned, sin)
	if r.Dim == dim {
		return b.binary(name, mnn.BinaryAdd, cos, sin)
	}
	rest := b.slice(name+"/rest", whole, b.list(int32(r.Dim)), sliceEnd, 3)
	return b.concat(name, 3, b.binary(name+"/sum", mnn.BinaryAdd, cos, sin), rest)
}
