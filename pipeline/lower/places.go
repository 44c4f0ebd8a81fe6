package lower

import (
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/runtime/mnn"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// places is the number of axes of the positions of a text model that sees: time, row and column.
const places = 3

// turnsByAxes reports whether rotary tables have several axes.
func turnsByAxes(d *arch.Decoder) bool {
	return slices.ContainsFunc(ropes(d), func(r *arch.Rope) bool { return r.Axes != nil })
}

// plainPositions fails where the index of a token is needed and positions have several axes.
func (b *builder) plainPositions() {
	if b.axes {
		b.fail(fmt.Errorf("positions of several axes together with masks, windows or vectors of positions: %w", tensor.ErrUnsupported))
	}
}

// turnedByAxes is turned for pairs that turn by different axes of the position, [tokens, pairs].
func (b *builder) turnedByAxes(at string, r *arch.Rope) (cos, sin value) {
	if !slices.IsSorted(r.Axes) {
		return b.turnedByTurns(at, r)
	}
	var all [2][]value
	for lo := 0; lo < len(r.Axes); {
		axis, hi := r.Axes[lo], lo
		for hi < len(r.Axes) && r.Axes[hi] == axis {
			hi++
		}
		name := "/axis_" + strconv.Itoa(axis)
		q, low := b.rotaryRows("/rotary"+name, func() value { return b.place(axis) })
		c, s := b.turned(at+"/pairs_"+strconv.Itoa(lo), [][]float64{r.InvFreq[lo:hi]}, r.Scale, q, low)
		all[0], all[1] = append(all[0], c), append(all[1], s)
		lo = hi
	}
	return b.concat(at+"/cos", 1, all[0]...), b.concat(at+"/sin", 1, all[1]...)
}

// turnedByTurns is turnedByAxes where the axes of pairs alternate. The tables of an axis are 0 for the pairs of others.
func (b *builder) turnedByTurns(at string, r *arch.Rope) (cos, sin value) {
	for axis := range places {
		freq := slices.Clone(r.InvFreq)
		for j := range freq {
			if r.Axes[j] != axis {
				freq[j] = math.NaN()
			}
		}
		name := "/axis_" + strconv.Itoa(axis)
		q, low := b.rotaryRows("/rotary"+name, func() value { return b.place(axis) })
		c, s := b.turned(at+name, [][]float64{freq}, r.Scale, q, low)
		if axis == 0 {
			cos, sin = c, s
		} else {
			cos, sin = b.binary(at+name+"/all_cos", mnn.BinaryAdd, cos, c), b.binary(at+name+"/all_sin", mnn.BinaryAdd, sin, s)
		}
	}
	return cos, sin
}

// place returns the positions of the call on an axis, int32 [tokens].
func (b *builder) place(axis int) value {
	name := "/places/axis_" + strconv.Itoa(axis)
	if b.tower {
		return b.shares(name, func() value { return b.given(name, axis) })
	}
	return b.shares(name, func() value {
		at := b.began()
		if axis > 0 {
			at = b.binary(name+"/moved", mnn.BinaryAdd, at, b.offset(axis))
		}
		at = b.binary(name+"/rounded", mnn.BinaryAdd, at, b.scalarFloat(0.5))
		return b.op(name, mnn.OpCast, &mnn.Cast{From: mnn.DTFloat, To: mnn.DTInt32}, at)
	})
}

// given returns the positions on an axis as the engine gives them, int32 [tokens].
func (b *builder) given(name string, axis int) value {
	return b.reshape(name+"/given", b.slice(name+"/row", b.positions, b.list(int32(axis)), int32(axis+1), 0), -1)
}

// offset is the distance of the tokens of a picture from its beginning on an axis, float [tokens]; 0 for text.
func (b *builder) offset(axis int) value {
	name := "/places/offset_" + strconv.Itoa(axis)
	return b.shares(name, func() value { return b.binary(name, mnn.BinarySub, b.float(axis), b.float(0)) })
}

func (b *builder) float(axis int) value {
	name := "/places/given_" + strconv.Itoa(axis)
	return b.shares(name, func() value { return b.toFloat(name, b.given(name, axis)) })
}

// inside is 1 for a token of a picture that is not its first, else 0, float [tokens].
func (b *builder) inside() value {
	return b.shares("/places/inside", func() value {
		const at = "/places/"
		row, column := b.unary(at+"abs_row", mnn.UnaryAbs, b.offset(1)), b.unary(at+"abs_column", mnn.UnaryAbs, b.offset(2))
		return b.binary(at+"inside", mnn.BinaryMinimum, b.binary(at+"moved", mnn.BinaryAdd, row, column), b.scalarFloat(1))
	})
}

// nothing is 0 for every token, float [tokens].
func (b *builder) nothing() value {
	return b.shares("/places/zero", func() value { return b.binary("/places/zero", mnn.BinaryMul, b.inside(), b.scalarFloat(0)) })
}

// opens is 1 for the first token of the conversation, else 0, float [tokens].
func (b *builder) opens() value {
	return b.shares("/places/first", func() value {
		const at = "/places/"
		begins := b.slice(at+"begins", b.concat(at+"with_begins", 0, b.ones(1), b.nothing()), b.list(0), -1, 0)
		fresh := b.binary(at+"fresh", mnn.BinarySub, b.scalarFloat(1), b.binary(at+"old", mnn.BinaryMinimum, b.float(0), b.scalarFloat(1)))
		return b.binary(at+"first", mnn.BinaryMul, begins, fresh)
	})
}

// began returns the position at which a token of text is, or the picture of a token begins, float [tokens].
//
// Engines up to 3.6.1 count on at the wrong position after a picture, in steps and in later turns. What they give right is the place of a
// token within its picture. So positions are counted here: text takes one position, the first token of a picture one, and its last the
// rest of the longer edge. An Attention op whose keys are equal gives for every token the mean over the conversation up to it: of a 1
// at its first token, which is one divided by the number of tokens, and of what tokens take less one, whose sum follows.
func (b *builder) began() value {
	return b.shares("/places/began", func() value {
		const at = "/places/"
		one := b.scalarFloat(1)
		inside := b.inside()
		plain := b.binary(at+"plain", mnn.BinarySub, one, inside)
		next := b.slice(at+"next", b.concat(at+"with_next", 0, plain, b.ones(1)), b.list(1), sliceEnd, 0)
		edge := b.binary(at+"edge", mnn.BinaryMaximum, b.offset(1), b.offset(2))
		rest := b.binary(at+"rest", mnn.BinaryMul, b.binary(at+"last", mnn.BinaryMul, inside, next), edge)
		taken := b.binary(at+"taken", mnn.BinarySub, rest, inside) // less one
		zero := b.nothing()
		first := b.opens()

		const width = 8
		column := func(name string, x value) value { return b.reshape(at+name, x, 1, -1, 1, 1) }
		nothing := column("nothing", zero)
		keys := b.concat(at+"keys", 3, slices.Repeat([]value{nothing}, width)...)
		list := append([]value{column("first_column", first), column("taken_column", taken)}, slices.Repeat([]value{nothing}, width-2)...)
		mean := b.attend(at+"memory", 1, 1, width, keys, keys, b.concat(at+"values", 3, list...), b.causal(false))
		mean = b.reshape(at+"means", mean, -1, width)
		part := func(name string, k int32) value {
			return b.reshape(at+name, b.slice(at+name+"_part", mean, b.list(k), k+1, 1), -1)
		}
		tokens := b.binary(at+"tokens", mnn.BinaryRealDiv, one, part("mean_first", 0))
		sum := b.binary(at+"sum", mnn.BinaryAdd, tokens, b.binary(at+"saved", mnn.BinaryMul, tokens, part("mean_taken", 1)))
		b.atLeast("normal")
		return b.binary(at+"began", mnn.BinarySub, b.binary(at+"before", mnn.BinarySub, sum, one), rest)
	})
}
