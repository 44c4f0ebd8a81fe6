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

// smoothed adds learned positions to the patches of a picture of any size: the square of positions, stretched as an antialiased bilinear
// filter stretches a picture. A patch takes each position by the product of its weights on the two axes.
func (b *builder) smoothed(t *arch.Tower, x value) value {
	const at = "/positions/"
	side := int32(t.PositionSide())
	rows := b.reshape(at+"rows", b.smoothTaps(0, side), -1, side, 1)
	columns := b.reshape(at+"columns", b.smoothTaps(1, side), -1, 1, side)
	weights := b.reshape(at+"weights", b.binary(at+"products", mnn.BinaryMul, rows, columns), 1, -1, side*side)
	table := b.constant(at+"table", t.Positions, 1, side*side, int32(t.Hidden))
	return b.binary("/with_positions", mnn.BinaryAdd, x, b.op(at+"stretched", mnn.OpBatchMatMul, &mnn.BatchMatMul{}, weights, table))
}

// smoothTaps are the weights of the positions of an axis for each patch, [patches, side]. The last patch is in the last row and column.
func (b *builder) smoothTaps(axis int, side int32) value {
	at := "/positions/axis_" + strconv.Itoa(axis) + "/"
	middles := make([]float32, side)
	for i := range middles {
		middles[i] = float32(i) + .5
	}
	place := b.place(axis)
	count := b.toFloat(at+"count", b.binary(at+"after_last", mnn.BinaryAdd, b.slice(at+"last", place, b.list(-1), sliceEnd, 0), b.scalar(1)))
	step := b.binary(at+"step", mnn.BinaryRealDiv, b.scalarFloat(float64(side)), count)
	middle := b.binary(at+"half", mnn.BinaryAdd, b.toFloat(at+"place", place), b.scalarFloat(.5))
	middle = b.reshape(at+"middle", b.binary(at+"scaled", mnn.BinaryMul, middle, step), -1, 1)
	far := b.unary(at+"distance", mnn.UnaryAbs, b.binary(at+"apart", mnn.BinarySub, b.floats(at+"middles", middles, 1, side), middle))
	far = b.binary(at+"far", mnn.BinaryRealDiv, far, b.binary(at+"wide", mnn.BinaryMaximum, step, b.scalarFloat(1)))
	w := b.binary(at+"near", mnn.BinaryMaximum, b.binary(at+"rest", mnn.BinarySub, b.scalarFloat(1), far), b.scalarFloat(0))
	sum := b.op(at+"sum", mnn.OpReduction, &mnn.Reduction{Op: mnn.ReduceSum, Dims: []int32{1}, Keep: true, T: mnn.DTFloat}, w)
	return b.binary(at+"weights", mnn.BinaryRealDiv, w, sum)
}
