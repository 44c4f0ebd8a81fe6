package lower

import (
	"fmt"
	"math"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/runtime/mnn"
)

// viewEdge is the root of the area of a view in pixels, which engines have built in.
const viewEdge = 448

// slicedTower lowers a tower that reads an overview and slices of a picture: from the patches of each view side by side [views, 3, patch,
// patches*patch], their positions and the height and width of each view in patches, to [views, rows, width]. Patches beyond those of a view
// are hidden. The engine gives a mask of them too, which the graph makes itself from the sizes.
func slicedTower(t *arch.Tower) (*Part, error) {
	b := newBuilder()
	b.g.Outputs, b.tower, b.axes = []string{mnn.PictureRows}, true, true
	b.split, b.high = rotarySplit(gridPositions)
	width, edge := int32(t.Hidden), int32(t.Patch)
	x := b.input(mnn.TilesInput, mnn.DTFloat, -1, 3, edge, -1)
	positions := b.input("position_ids", mnn.DTInt32, -1, -1)
	b.input("attention_mask", mnn.DTFloat, -1, -1)
	b.viewPlaces(positions, b.input(mnn.SizesInput, mnn.DTInt32, -1, 2))
	x = b.reshape("/patches/lines", b.permute("/patches/columns", x, 0, 3, 1, 2), -1, edge, 3, edge)
	x = b.linear("/patches/Linear", b.permute("/patches/each", x, 0, 2, 3, 1), &t.Embedding, Slot{}, 1, -1, width)
	table := b.constant("/positions/table", t.Positions, int32(t.Positions.Rows), width)
	rows := b.gather("/positions/gathered", table, b.reshape("/positions/index", positions, -1))
	x = b.binary("/with_positions", mnn.BinaryAdd, x, b.reshape("/positions/rows", rows, 1, -1, width))
	x, err := b.towerLayers(t, x, nil)
	if err != nil {
		return nil, err
	}
	if x, err = b.joined("/projector/", t, &t.Projector, b.gathered(t.Slices, x)); err != nil {
		return nil, fmt.Errorf("%s: %w", mnn.VisualPart, err)
	}
	b.g.Tensors[b.reshape("/rows", x, -1, int32(t.Slices.Queries.Rows), int32(t.In.Weight.Rows))] = mnn.PictureRows
	return &Part{Name: mnn.VisualPart, Graph: b.g, Slots: b.slots}, b.err
}

// viewPlaces finds the row and column of every patch in its view, and what hides those that are none.
func (b *builder) viewPlaces(positions, sizes value) {
	const at = "/places/"
	length := b.slice(at+"length", b.op(at+"shape", mnn.OpShape, nil, positions), b.list(1), 2, 0)
	number := b.op(at+"number", mnn.OpSqueeze, &mnn.Squeeze{Dims: []int32{0}}, length)
	each := b.op(at+"each", mnn.OpRange, &mnn.Range{T: mnn.DTInt32}, b.scalar(0), number, b.scalar(1))
	index := b.binary(at+"index", mnn.BinaryAdd, b.binary(at+"none", mnn.BinaryMul, positions, b.scalar(0)), b.reshape(at+"row", each, 1, -1))
	high, wide := b.slice(at+"high", sizes, b.list(0), 1, 1), b.slice(at+"wide", sizes, b.list(1), 2, 1)
	rows := b.binary(at+"rows", mnn.BinaryRealDiv, index, wide)
	columns := b.binary(at+"columns", mnn.BinarySub, index, b.binary(at+"before", mnn.BinaryMul, rows, wide))
	b.once["/places/axis_0"], b.once["/places/axis_1"] = b.reshape("/places/axis_0", rows, -1), b.reshape("/places/axis_1", columns, -1)
	beyond := b.binary("/mask/beyond", mnn.BinarySub, index, b.binary("/mask/count", mnn.BinaryMul, high, wide))
	beyond = b.binary("/mask/next", mnn.BinaryAdd, beyond, b.scalar(1))
	beyond = b.binary("/mask/some", mnn.BinaryMinimum, b.binary("/mask/positive", mnn.BinaryMaximum, beyond, b.scalar(0)), b.scalar(1))
	padding := b.op("/mask", mnn.OpUnsqueeze, &mnn.Squeeze{Dims: []int32{1, 2}}, b.times("/mask/scores", b.toFloat("/mask/float", beyond), -hidden))
	b.length, b.padding = &length, &padding
}

// gathered is what queries gather from the states of each view, [1, views*rows, width]. The queries are those of every view, so that a head has
// products with the keys of all views, of which softmax then takes one at a time.
func (b *builder) gathered(s *arch.Slices, x value) value {
	const at = "/gather/"
	a, width, rows := &s.Attention, int32(s.Queries.Cols), int32(s.Queries.Rows)
	heads, dim := int32(a.Heads), int32(a.HeadDim)
	x = b.norm(at+"key_norm", b.linear(at+"enter/Linear", x, &s.Enter, Slot{}, 1, -1, width), s.KeyNorm)
	v := b.linear(at+"v_proj/Linear", x, &a.V, Slot{}, 1, -1, heads, dim)
	k := b.linear(at+"k_proj/Linear", b.binary(at+"placed", mnn.BinaryAdd, x, b.viewPositions(s)), &a.K, Slot{}, -1, heads, dim)
	q := b.norm(at+"query_norm", b.constant(at+"queries", s.Queries, 1, rows, width), s.QueryNorm)
	q = b.times(at+"q_scale", b.linear(at+"q_proj/Linear", q, &a.Q, Slot{}, -1, heads, dim), 1/math.Sqrt(float64(dim)))
	scores := b.op(at+"scores", mnn.OpBatchMatMul, &mnn.BatchMatMul{TransposeY: true}, b.permute(at+"q_heads", q, 1, 0, 2), b.permute(at+"k_heads", k, 1, 0, 2))
	shape := b.concat(at+"scores_shape", 0, b.list(heads, rows, -1), *b.length)
	scores = b.op(at+"scores_views", mnn.OpReshape, &mnn.Reshape{DimType: mnn.NCHW}, scores, shape)
	scores = b.permute(at+"scores_heads", scores, 2, 0, 1, 3)
	scores = b.op(at+"probabilities", mnn.OpSoftmax, &mnn.Axis{Axis: -1}, b.binary(at+"scores_masked", mnn.BinaryAdd, scores, *b.padding))
	v = b.permute(at+"v_heads", b.perText(at+"v_views", v, a.Heads, a.HeadDim), 0, 2, 1, 3)
	o := b.permute(at+"mixed", b.op(at+"mix", mnn.OpBatchMatMul, &mnn.BatchMatMul{}, scores, v), 0, 2, 1, 3)
	return b.linear(at+"o_proj/Linear", b.reshape(at+"mixed_rows", o, 1, -1, width), &a.O, Slot{}, 1, -1, width)
}

// viewPositions are the sines and cosines of the column and of the row of every patch, [1, patches, width].
func (b *builder) viewPositions(s *arch.Slices) value {
	var parts []value
	for _, axis := range []int{1, 0} {
		name := fmt.Sprintf("/gather/axis_%d", axis)
		q, low := b.rotaryRows(name, func() value { return b.place(axis) })
		cos, sin := b.turned(name+"/turned", [][]float64{s.Frequencies}, 1, q, low)
		parts = append(parts, sin, cos)
	}
	return b.reshape("/gather/positions", b.concat("/gather/waves", 1, parts...), 1, -1, int32(s.Queries.Cols))
}

// slicedConditions are sentences about prompts with pictures.
func slicedConditions(t *arch.Tower) []string {
	rows := t.Slices.Queries.Rows
	return []string{
		fmt.Sprintf("a picture is an overview and 1 to 9 slices and takes %d tokens for each of them; the engine divides the height and width that a call or "+
			"<hw> in a prompt gives, or without them %d x %d, whatever its shape; it does not smooth pictures", rows+2, GridDefault(t), GridDefault(t)),
		"engines up to 3.6.1 spoil the overview of a picture whose height and width give it more patches than a slice, as 1080 x 1920: " +
			"generate refuses them and names others, such as 1085 x 1920; chat and serve take those",
		"engines count pictures from the first one that they read to the last, and write the number before each; the library begins again with each conversation: " +
			"load the package again for the same numbers",
		"all views of a picture are read at once: " + tileMemory(t, (viewEdge/t.Patch)*(viewEdge/t.Patch)),
	}
}
