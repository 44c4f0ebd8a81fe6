package lower

import (
	"strconv"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/runtime/mnn"
)

// interpolated adds learned positions to the patches of a picture of any size. They are a square that is stretched to the picture, corner
// to corner, and a patch takes the four nearest ones by their distance. The engine gives four indices and weights too, of which those of
// 3.5.0 are wrong, so they are computed here, from rows and columns.
func (b *builder) interpolated(t *arch.Tower, x value) value {
	const at = "/positions/"
	side := int32(t.PositionSide())
	table := b.constant(at+"table", t.Positions, side*side, int32(t.Hidden))
	taps := [2][2]tap{b.taps(0, side), b.taps(1, side)}
	for i, row := range taps[0] {
		for j, column := range taps[1] {
			name := at + "corner_" + strconv.Itoa(i) + "_" + strconv.Itoa(j)
			index := b.binary(name+"/index", mnn.BinaryAdd, b.binary(name+"/row", mnn.BinaryMul, row.at, b.scalar(side)), column.at)
			weight := b.reshape(name+"/weights", b.binary(name+"/weight", mnn.BinaryMul, row.weight, column.weight), 1, -1, 1)
			rows := b.reshape(name+"/rows", b.gather(name+"/gathered", table, index), 1, -1, int32(t.Hidden))
			x = b.binary(name, mnn.BinaryAdd, x, b.binary(name+"/weighed", mnn.BinaryMul, rows, weight))
		}
	}
	return x
}

// tap is the learned position for each patch on an axis, int32 [patches], and its weight, float [patches].
type tap struct{ at, weight value }

// taps are the two learned positions next to each patch on an axis that has so many. The last patch is in the last row and column.
func (b *builder) taps(axis int, side int32) [2]tap {
	at := "/positions/axis_" + strconv.Itoa(axis) + "/"
	place := b.place(axis)
	last := b.toFloat(at+"last_float", b.slice(at+"last", place, b.list(-1), sliceEnd, 0))
	stretched := b.times(at+"stretched", b.toFloat(at+"place", place), float64(side-1))
	exact := b.binary(at+"exact", mnn.BinaryRealDiv, stretched, last)
	low := b.op(at+"low", mnn.OpCast, &mnn.Cast{From: mnn.DTFloat, To: mnn.DTInt32}, exact)
	high := b.binary(at+"high", mnn.BinaryMinimum, b.binary(at+"next", mnn.BinaryAdd, low, b.scalar(1)), b.scalar(side-1))
	part := b.binary(at+"part", mnn.BinarySub, exact, b.toFloat(at+"low_float", low))
	return [2]tap{{low, b.binary(at+"rest", mnn.BinarySub, b.scalarFloat(1), part)}, {high, part}}
}
