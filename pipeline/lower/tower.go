package lower

import (
	"fmt"
	"math"
	"strconv"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/runtime/mnn"
)

// gridPositions is the largest edge of a picture, in patches, of a tower that reads patches.
const gridPositions = 1024

// gridTower lowers a tower that reads patches of pictures of any size.
func gridTower(t *arch.Tower) (*Part, error) {
	b := newBuilder()
	b.g.Outputs, b.tower, b.axes = []string{mnn.PictureRows}, true, true
	b.split, b.high = rotarySplit(gridPositions)
	x := b.input(mnn.PatchesInput, mnn.DTFloat, -1, int32(3*t.Frames*t.Patch*t.Patch))
	b.positions = b.input("position_ids", mnn.DTInt32, 2, -1)
	mask := b.input("attention_mask", mnn.DTFloat, 1, -1, -1)
	if t.Positions.Tensor != "" { // the engine knows by them that patches are of 16 pixels
		b.input(mnn.CornersInput, mnn.DTInt32, 4, -1)
		b.input(mnn.WeightsInput, mnn.DTFloat, 4, -1)
	}
	mask = b.op("/mask", mnn.OpUnsqueeze, &mnn.Squeeze{Dims: []int32{1}}, mask)
	b.towerMask = &mask
	hidden, cell := int32(t.Hidden), int32(t.Cell)
	if t.Pixels {
		area := int32(t.Patch * t.Patch)
		x = b.reshape("/patches/frames", x, -1, 3, int32(t.Frames), area)
		x = b.reshape("/patches/planes", b.slice("/patches/first_frame", x, b.list(0), 1, 2), -1, 3, area)
		x = b.permute("/patches/pixels", x, 0, 2, 1)
	}
	x = b.linear("/patches/Linear", x, &t.Embedding, Slot{}, 1, -1, hidden)
	switch {
	case t.Smooth:
		x = b.smoothed(t, x)
	case t.Positions.Tensor != "":
		x = b.interpolated(t, x)
	}
	var deep []value
	after := func(layer int, x value) error {
		for i := range t.Deep {
			if t.Deep[i].After != layer {
				continue
			}
			at := "/deep/" + strconv.Itoa(i) + "/"
			y, err := b.joined(at, t, &t.Deep[i].Projector, b.reshape(at+"cells", x, 1, -1, cell*cell*hidden))
			if err != nil {
				return err
			}
			deep = append(deep, b.reshape(at+"rows", y, 1, -1, int32(t.Out.Weight.Rows)))
		}
		return nil
	}
	x, err := b.towerLayers(t, x, after)
	if err != nil {
		return nil, err
	}
	if len(deep) > 0 {
		b.g.Outputs = append(b.g.Outputs, mnn.DeepRows)
		b.concat(mnn.DeepRows, 0, deep...)
	}
	x = b.reshape("/cells/rows", x, 1, -1, cell*cell*hidden)
	if x, err = b.joined("/projector/", t, &t.Projector, x); err != nil {
		return nil, fmt.Errorf("%s: %w", mnn.VisualPart, err)
	}
	b.g.Tensors[x] = mnn.PictureRows
	return &Part{Name: mnn.VisualPart, Graph: b.g, Slots: b.slots}, b.err
}

// tower lowers a tower that reads pictures of one size to a graph from [1, 3, Size, Size] to [Rows, 1, width], or for tiles, which are read
// several at a time, from [tiles, 3, Size, Size] to [tiles, Rows, 1, width].
func tower(t *arch.Tower) (*Part, error) {
	b := newBuilder()
	b.g.Outputs, b.tower = []string{mnn.PictureRows}, true
	hidden, side, patch := int32(t.Hidden), int32(t.Side()), int32(t.Patch)
	name, count := mnn.PicturesInput, int32(1)
	if t.Tiles != nil {
		name, count, b.tile = mnn.TilesInput, -1, t.States()
	}
	x := b.input(name, mnn.DTFloat, count, 3, int32(t.Size), int32(t.Size))
	if side*patch != int32(t.Size) {
		x = b.slice("/patches/rows_of_pixels", x, b.list(0), side*patch, 2)
		x = b.slice("/patches/columns_of_pixels", x, b.list(0), side*patch, 3)
	}
	if t.Tiles != nil {
		x = b.reshape("/patches/grid", x, -1, 3, side, patch, side, patch)
		x = b.permute("/patches/each", x, 0, 2, 4, 1, 3, 5)
		x = b.linear("/patches/Linear", x, &t.Embedding, Slot{}, -1, side*side, hidden)
	} else {
		x = b.reshape("/patches/grid", x, 3, side, patch, side, patch)
		x = b.permute("/patches/each", x, 1, 3, 0, 2, 4)
		x = b.linear("/patches/Linear", x, &t.Embedding, Slot{}, 1, -1, hidden)
	}
	if t.Class.Tensor != "" {
		x = b.concat("/with_class", 1, b.constant("/class", t.Class, 1, 1, hidden), x)
	}
	if t.Positions.Tensor != "" {
		x = b.binary("/with_positions", mnn.BinaryAdd, x, b.constant("/positions", t.Positions, 1, int32(t.States()), hidden))
	}
	if t.Tiles != nil {
		x = b.reshape("/tiles", x, 1, -1, hidden)
	}
	if t.PreNorm != nil {
		x = b.norm("/pre_norm", x, t.PreNorm)
	}
	x, err := b.towerLayers(t, x, nil)
	if err != nil {
		return nil, err
	}
	if t.DropFirst {
		x = b.slice("/without_first", x, b.list(1), sliceEnd, 1)
	}
	if t.Pool > 1 {
		x = b.means(t, x)
	}
	if x, err = b.projector(t, x); err != nil {
		return nil, fmt.Errorf("%s: %w", mnn.VisualPart, err)
	}
	if t.Scale != 0 {
		x = b.times("/projector/scale", x, t.Scale)
	}
	if t.Marks > 0 {
		x = b.marked(t, x)
	}
	b.g.Tensors[x] = mnn.PictureRows
	return &Part{Name: mnn.VisualPart, Graph: b.g, Slots: b.slots}, b.err
}

// towerLayers applies the layers of a tower, and the norm after them. After each layer it calls after, if that is not nil.
func (b *builder) towerLayers(t *arch.Tower, x value, after func(layer int, x value) error) (value, error) {
	var err error
	for i, l := range t.Layers {
		if x, err = b.layer(i, l, x); err != nil {
			return 0, fmt.Errorf("%s: layer %d: %w", mnn.VisualPart, i, err)
		}
		if after == nil {
			continue
		}
		if err := after(i, x); err != nil {
			return 0, fmt.Errorf("%s: rows after layer %d: %w", mnn.VisualPart, i, err)
		}
	}
	if t.PostNorm != nil {
		x = b.norm("/post_norm", x, t.PostNorm)
	}
	return x, nil
}

// projector turns the states of a tower into rows [Rows, 1, width].
func (b *builder) projector(t *arch.Tower, x value) (value, error) {
	if t.Cell > 1 {
		n, cell, hidden := int32(t.Side()/t.Cell), int32(t.Cell), int32(t.Hidden)
		rows := n
		if t.Tiles != nil {
			rows = -1 // of all tiles
		}
		x = b.reshape("/cells/grid", x, rows, cell, n, cell*hidden)
		x = b.op("/cells/each", mnn.OpPermute, &mnn.Permute{Dims: []int32{0, 2, 1, 3}}, x)
		x = b.reshape("/cells/rows", x, 1, -1, cell*cell*hidden)
	}
	return b.joined("/projector/", t, &t.Projector, x)
}

// joined applies a projector.
func (b *builder) joined(at string, t *arch.Tower, p *arch.Projector, x value) (value, error) {
	if p.Planes {
		x = b.reshape(at+"cells", x, -1, int32(t.Cell*t.Cell), int32(t.Hidden))
		x = b.op(at+"planes", mnn.OpPermute, &mnn.Permute{Dims: []int32{0, 2, 1}}, x)
	}
	for i := range p.Front {
		l := &p.Front[i]
		x = b.linear(at+"front_"+strconv.Itoa(i)+"/Linear", x, l, Slot{}, 1, -1, int32(l.Weight.Rows))
	}
	if p.Norm != nil {
		x = b.norm(at+"norm", x, p.Norm)
	}
	var err error
	if p.Between != "" {
		if x, err = b.activate(at+"between/", &arch.MLP{Activation: p.Between}, x); err != nil {
			return 0, err
		}
	}
	dims := []int32{-1, 1}
	if t.Tiles != nil {
		dims = []int32{-1, int32(t.Rows()), 1}
	}
	if p.Out.Weight.Tensor == "" {
		return b.linear(at+"Linear", x, &p.In, Slot{}, append(dims, int32(p.In.Weight.Rows))...), nil
	}
	y := b.linear(at+"in/Linear", x, &p.In, Slot{}, 1, -1, int32(p.In.Weight.Rows))
	act := &arch.MLP{Activation: p.Activation}
	if p.Gate.Weight.Tensor == "" {
		y, err = b.activate(at, act, y)
	} else {
		var gate value
		gate, err = b.activate(at, act, b.linear(at+"gate/Linear", x, &p.Gate, Slot{}, 1, -1, int32(p.Gate.Weight.Rows)))
		y = b.binary(at+"product", mnn.BinaryMul, gate, y)
	}
	if err != nil {
		return 0, err
	}
	return b.linear(at+"out/Linear", y, &p.Out, Slot{}, append(dims, int32(p.Out.Weight.Rows))...), nil
}

// towerConditions are sentences about prompts with pictures.
func towerConditions(t *arch.Tower) []string {
	if t.Padded > 0 {
		return paddedConditions(t)
	}
	if t.Slices != nil {
		return slicedConditions(t)
	}
	if t.Grid {
		edge := t.Patch * t.Cell
		return []string{fmt.Sprintf("a picture takes a token for each %d x %d pixels; the engine makes it as large as the height and width that a call or <hw> in a "+
			"prompt gives, rounded to multiples of %d and at most %d, or without them %d x %d, whatever its shape, and does not smooth it",
			edge, edge, edge, gridPositions*t.Patch, GridDefault(t), GridDefault(t))}
	}
	if t.Tiles != nil {
		return []string{fmt.Sprintf("a picture is one view of %d x %d pixels and takes %d tokens, unless the height or width that a call or <hw> in a prompt gives "+
			"is larger: then the engine rounds both to multiples of %d and reads a tile for each %d x %d pixels too, with %d tokens each; it does not smooth pictures",
			t.Size, t.Size, t.Rows()+3, t.Size, t.Size, t.Size, t.Rows()+2),
			"the engine reads all tiles of a picture at once: " + tileMemory(t, t.States())}
	}
	list := []string{fmt.Sprintf("a picture takes %d positions; the engine makes it %d x %d pixels, whatever its shape, and does not smooth it; "+
		"height and width, where a call or a prompt gives them, must both be %d", t.Rows(), t.Size, t.Size, t.Size)}
	if t.Start == "" {
		list = append(list, "two pictures need text between them, at least a space: the engine takes pictures that follow one another for one")
	}
	if t.Loss != "" {
		list = append(list, t.Loss)
	}
	return list
}

// tileMemory says what the scores of attention take in a view of n rows.
func tileMemory(t *arch.Tower, states int) string {
	heads := 0
	for _, l := range t.Layers {
		for b := range l.Blocks() {
			if a, ok := b.(*arch.Attention); ok {
				heads = max(heads, a.Heads)
			}
		}
	}
	n := int64(states)
	return fmt.Sprintf("attention takes %d MiB of memory for each", (4*int64(heads)*n*n+1<<20-1)>>20)
}

// GridDefault is the edge in pixels of a picture for which a prompt gives no size.
func GridDefault(t *arch.Tower) int {
	edge := t.Patch * t.Cell
	if t.Slices != nil {
		return 2 * viewEdge / edge * edge // four slices
	}
	if t.Padded > 0 {
		return int(math.Sqrt(float64(t.Padded))) / t.Cell * edge // the largest square
	}
	return 448 / edge * edge
}
