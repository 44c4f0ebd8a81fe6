package lower

import (
	"fmt"
	"strconv"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/runtime/mnn"
)

// paddedEngine is the oldest engine that gives pictures to such a tower.
const paddedEngine = "3.6.0"

// markPart is added to marks: engines multiply rows by a number that is rounded, and the text model drops what is after the point.
const markPart = 0.25

// paddedTower lowers a tower to which the engine gives a fixed number of patches, some of which are none. It makes a row for each Cell x Cell
// of them; the engine takes those of the picture.
func paddedTower(t *arch.Tower) (*Part, error) {
	b := newBuilder()
	b.g.Outputs, b.tower, b.axes = []string{mnn.PictureRows}, true, true
	b.split, b.high = rotarySplit(gridPositions)
	n, width := int32(t.Padded), int32(t.Hidden)
	x := b.input(mnn.PaddedInput, mnn.DTFloat, 1, n, int32(3*t.Patch*t.Patch))
	there := b.patchPlaces(b.input(mnn.PlacesInput, mnn.DTInt32, 1, n, 2))
	none := b.times("/mask/none", b.binary("/mask/there", mnn.BinarySub, there, b.scalarFloat(1)), hidden)
	every := b.times("/mask/every", b.reshape("/mask/queries", there, 1, 1, -1, 1), 0)
	mask := b.binary("/mask", mnn.BinaryAdd, b.reshape("/mask/keys", none, 1, 1, 1, -1), every)
	b.towerMask = &mask
	if t.Signed {
		x = b.times("/patches/signed", b.binary("/patches/centered", mnn.BinarySub, x, b.scalarFloat(.5)), 2)
	}
	x = b.linear("/patches/Linear", x, &t.Embedding, Slot{}, 1, -1, width)
	for axis, w := range t.Places {
		if w.Tensor == "" {
			continue
		}
		at := "/positions/axis_" + strconv.Itoa(axis)
		rows := b.gather(at+"/gathered", b.constant(at+"/table", w, int32(w.Rows), width), b.place(axis))
		x = b.binary(at, mnn.BinaryAdd, x, b.reshape(at+"/rows", rows, 1, -1, width))
	}
	x, err := b.towerLayers(t, x, nil)
	if err != nil {
		return nil, err
	}
	x = b.cellMeans(t, x, there)
	if x, err = b.joined("/projector/", t, &t.Projector, x); err != nil {
		return nil, fmt.Errorf("%s: %w", mnn.VisualPart, err)
	}
	scale := t.Scale
	if scale == 0 {
		scale = 1
	}
	x = b.times("/projector/scale", x, scale*mnn.PaddedDivisor)
	columns := t.In.Weight.Rows
	if t.Marks > 0 {
		x = b.concat("/marked", 2, x, b.paddedMarks(t, there))
		columns += t.Marks
	}
	if n := t.Tail.Rows; t.Tail.Tensor != "" {
		pad := b.times("/side/scale", b.constant("/side/row", t.Tail, 1, 1, int32(n)), mnn.PaddedDivisor)
		rows := b.zeros("/side/none", int32(t.Padded/(t.Cell*t.Cell)), 1, 1)
		x = b.concat("/with_side", 2, b.reshape("/stream", x, -1, 1, int32(columns)), b.binary("/side", mnn.BinaryAdd, rows, pad))
		columns += n
	}
	b.g.Tensors[b.reshape("/rows", x, 1, -1, int32(columns))] = mnn.PictureRows
	return &Part{Name: mnn.VisualPart, Graph: b.g, Slots: b.slots}, b.err
}

// patchPlaces divides places of patches, column and row or -1 for none, into axes, and returns 1 for each patch and 0 for none, float [patches].
func (b *builder) patchPlaces(places value) value {
	places = b.reshape("/places", b.toFloat("/places/float", places), -1, 2)
	var given value
	for axis, column := range []int32{1, 0} {
		name := "/places/axis_" + strconv.Itoa(axis)
		given = b.reshape(name+"/given", b.slice(name+"/column", places, b.list(column), column+1, 1), -1)
		some := b.binary(name+"/some", mnn.BinaryMaximum, given, b.scalarFloat(0))
		b.once[name] = b.op(name, mnn.OpCast, &mnn.Cast{From: mnn.DTFloat, To: mnn.DTInt32}, some)
	}
	return b.binary("/places/there", mnn.BinaryMinimum, b.binary("/places/numbered", mnn.BinaryAdd, given, b.scalarFloat(1)), b.scalarFloat(1))
}

// cellMeans returns the means of cells of patches that are in order of rows, cell by cell; states beyond the picture make none.
func (b *builder) cellMeans(t *arch.Tower, x, there value) value {
	const at = "/means/"
	hidden, rows := int32(t.Hidden), t.Padded/(t.Cell*t.Cell)
	cell := func(axis int) value {
		name := at + "axis_" + strconv.Itoa(axis)
		return b.toFloat(name+"_float", b.binary(name, mnn.BinaryRealDiv, b.place(axis), b.scalar(int32(t.Cell))))
	}
	column := cell(1)
	last := b.op(at+"last", mnn.OpReduction, &mnn.Reduction{Op: mnn.ReduceMaximum, Dims: []int32{0}, Keep: true, T: mnn.DTFloat}, column)
	index := b.binary(at+"before", mnn.BinaryMul, cell(0), b.binary(at+"wide", mnn.BinaryAdd, last, b.scalarFloat(1)))
	index = b.reshape(at+"index", b.binary(at+"cell", mnn.BinaryAdd, index, column), 1, -1)
	numbers := make([]float32, rows)
	for i := range numbers {
		numbers[i] = float32(i)
	}
	apart := b.unary(at+"distance", mnn.UnaryAbs, b.binary(at+"apart", mnn.BinarySub, b.floats(at+"numbers", numbers, int32(rows), 1), index))
	same := b.binary(at+"same", mnn.BinaryMaximum, b.binary(at+"near", mnn.BinarySub, b.scalarFloat(1), apart), b.scalarFloat(0))
	same = b.binary(at+"taken", mnn.BinaryMul, same, b.reshape(at+"there", there, 1, -1))
	x = b.op(at+"sums", mnn.OpBatchMatMul, &mnn.BatchMatMul{}, b.reshape(at+"weights", same, 1, int32(rows), -1), x)
	gain := t.Gain
	if gain == 0 {
		gain = 1
	}
	x = b.times("/means", x, gain/float64(t.Cell*t.Cell))
	if t.Center.Tensor != "" {
		x = b.binary(at+"centered", mnn.BinarySub, x, b.constant(at+"center", t.Center, 1, 1, hidden))
		x = b.binary(at+"spread", mnn.BinaryMul, x, b.constant(at+"factors", t.Spread, 1, 1, hidden))
	}
	return x
}

// paddedMarks are the columns of marks of the rows of a tower, times what the engine divides rows by.
func (b *builder) paddedMarks(t *arch.Tower, there value) value {
	cells, rows := t.Cell*t.Cell, t.Padded/(t.Cell*t.Cell)
	offsets := make([]float32, rows)
	for i := range offsets {
		offsets[i] = float32((float64(-1-i) + markPart) * mnn.PaddedDivisor)
	}
	sum := b.op("/marks/patches", mnn.OpReduction, &mnn.Reduction{Op: mnn.ReduceSum, Dims: []int32{0}, Keep: true, T: mnn.DTFloat}, there)
	sum = b.times("/marks/rows", sum, mnn.PaddedDivisor/float64(cells))
	marks := b.binary("/marks/follow", mnn.BinaryAdd, sum, b.floats("/marks/offsets", offsets, int32(rows)))
	return b.concat("/marks", 2, b.reshape("/marks/column", marks, -1, 1, 1), b.zeros("/marks/none", int32(rows), 1, int32(t.Marks-1)))
}

// paddedConditions are sentences about prompts with pictures for such a tower.
func paddedConditions(t *arch.Tower) []string {
	edge := t.Patch * t.Cell
	return []string{fmt.Sprintf("a picture takes a token for each %d x %d pixels, %d at most; the engine makes it as large as the height and width that a "+
		"call or <hw> in a prompt gives, rounded to multiples of %d, with less of the longer edge if it is too large, or without them %d x %d, whatever its shape, "+
		"and does not smooth it", edge, edge, t.Padded/(t.Cell*t.Cell), edge, GridDefault(t), GridDefault(t)),
		fmt.Sprintf("the tower computes %d patches for every picture, however small", t.Padded),
		"engines before " + paddedEngine + " cannot read pictures for this tower"}
}
