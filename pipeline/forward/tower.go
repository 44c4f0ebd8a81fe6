package forward

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// Tower computes what a tower makes of pictures. It is safe for concurrent use.
type Tower struct {
	tower *arch.Tower
	pass  *Model // of the layers
}

// NewTower is [New] for a tower.
func NewTower(t *arch.Tower, src tensor.Source, threads int) (*Tower, error) {
	frames := 1
	if t.Grid {
		frames = t.Frames
	}
	if t.Grid && (t.Patch < 1 || t.Frames < 1 || t.Cell < 1 || t.Class.Tensor != "" || t.Positions.Tensor != "" || t.DropFirst) {
		return nil, fmt.Errorf("a tower of patches of %d pixels, %d times, in cells of %d: %w", t.Patch, t.Frames, t.Cell, tensor.ErrCorrupt)
	}
	if !t.Grid && (t.Patch < 1 || t.Side() < 1 || t.Cell < 1 || t.Side()%t.Cell != 0 || t.Rows() < 1 || t.Cell > 1 && t.States()-1 != t.Rows()*t.Cell*t.Cell) {
		return nil, fmt.Errorf("a tower of %d pixels, patches of %d, cells of %d: %w", t.Size, t.Patch, t.Cell, tensor.ErrCorrupt)
	}
	m := unchecked(&arch.Decoder{Hidden: t.Hidden, Layers: t.Layers}, src, threads)
	cell := t.Cell * t.Cell * t.Hidden
	err := cmp.Or(
		m.checkLinear("patches", &t.Embedding, t.Hidden, 3*frames*t.Patch*t.Patch),
		m.checkVector("class", t.Class, t.Hidden),
		m.checkNorm("norm before the layers", t.PreNorm, t.Hidden),
		m.checkNorm("norm after the layers", t.PostNorm, t.Hidden),
		m.checkNorm("norm of the projector", t.Norm, cell),
		m.checkLinear("projector", &t.In, t.In.Weight.Rows, cell),
		m.checkLinear("second matrix of the projector", &t.Out, t.Out.Weight.Rows, t.In.Weight.Rows),
		m.checkLayers(),
	)
	if err == nil && t.Positions.Tensor != "" {
		err = m.checkWeight("positions", t.Positions, t.States(), t.Hidden)
	}
	if err != nil {
		return nil, err
	}
	return &Tower{t, m}, nil
}

// Keep lets the weights stay in memory once they have been read.
func (t *Tower) Keep() { t.pass.Keep(t.pass.weights.All) }

// Rows returns the rows that take the place of a picture's tokens. pixels are [3, Size, Size], normalised.
func (t *Tower) Rows(ctx context.Context, pixels []float32) ([]float32, error) {
	d := t.tower
	if len(pixels) != 3*d.Size*d.Size {
		return nil, fmt.Errorf("internal error: %d pixels for a tower of 3 x %d x %d", len(pixels), d.Size, d.Size)
	}
	x, err := t.embed(ctx, pixels)
	if err != nil {
		return nil, err
	}
	if err := t.layers(ctx, x, Equal(1, d.States())); err != nil {
		return nil, err
	}
	if d.DropFirst {
		x = x[d.Hidden:]
	}
	if d.Cell > 1 {
		x = t.cells(x)
	}
	return t.project(ctx, x)
}

// GridRows is Rows for a tower that reads patches: patches are those of a picture of height x width of them, in the order of cells.
func (t *Tower) GridRows(ctx context.Context, patches []float32, height, width int) ([]float32, error) {
	d := t.tower
	n := height * width
	if height < 1 || width < 1 || height%d.Cell != 0 || width%d.Cell != 0 || len(patches) != n*d.Embedding.Weight.Cols {
		return nil, fmt.Errorf("internal error: %d values for %d x %d patches of %d", len(patches), height, width, d.Embedding.Weight.Cols)
	}
	x, err := t.product(ctx, patches, &d.Embedding)
	if err != nil {
		return nil, err
	}
	w := Windows{Lengths: []int{n}, Places: [][]int{make([]int, n), make([]int, n)}}
	for i := range n {
		cell, within := i/(d.Cell*d.Cell), i%(d.Cell*d.Cell)
		w.Places[0][i] = cell/(width/d.Cell)*d.Cell + within/d.Cell
		w.Places[1][i] = cell%(width/d.Cell)*d.Cell + within%d.Cell
	}
	if err := t.layers(ctx, x, w); err != nil {
		return nil, err
	}
	return t.project(ctx, x)
}

// layers applies all layers, and the norm after them, in place.
func (t *Tower) layers(ctx context.Context, x []float32, w Windows) error {
	for i := range t.tower.Layers {
		if err := t.pass.Layer(i).Forward(ctx, x, w); err != nil {
			return err
		}
	}
	return t.norm(x, t.tower.PostNorm)
}

// project turns the states of a picture, with those of a cell next to each other, into rows.
func (t *Tower) project(ctx context.Context, x []float32) ([]float32, error) {
	d := t.tower
	if err := t.norm(x, d.Norm); err != nil {
		return nil, err
	}
	inner, err := t.product(ctx, x, &d.In)
	if err != nil {
		return nil, err
	}
	(&activation{Activation: d.Activation}).apply(inner, inner)
	return t.product(ctx, inner, &d.Out)
}

// embed returns the states before the first layer.
func (t *Tower) embed(ctx context.Context, pixels []float32) ([]float32, error) {
	d := t.tower
	x, err := t.product(ctx, patches(pixels, d.Size, d.Patch), &d.Embedding)
	if err != nil {
		return nil, err
	}
	if d.Class.Tensor != "" {
		class, err := t.pass.vector(d.Class)
		if err != nil {
			return nil, err
		}
		x = slices.Concat(class, x)
	}
	if d.Positions.Tensor != "" {
		table, err := t.pass.values(d.Positions)
		if err != nil {
			return nil, err
		}
		t.pass.addAll(x, table)
	}
	return x, t.norm(x, d.PreNorm)
}

// patches cuts [3, size, size] into rows of [3, edge, edge], from left to right and then from top to bottom.
func patches(pixels []float32, size, edge int) []float32 {
	side := size / edge
	out := make([]float32, 0, side*side*3*edge*edge)
	for p := range side * side {
		for channel := range 3 {
			for y := range edge {
				at := (channel*size+p/side*edge+y)*size + p%side*edge
				out = append(out, pixels[at:at+edge]...)
			}
		}
	}
	return out
}

// cells puts the rows of a cell side by side: from left to right and then from top to bottom.
func (t *Tower) cells(x []float32) []float32 {
	d := t.tower
	side := d.Side()
	out := make([]float32, 0, len(x))
	for top := 0; top < side; top += d.Cell {
		for left := 0; left < side; left += d.Cell {
			for y := top; y < top+d.Cell; y++ {
				out = append(out, x[(y*side+left)*d.Hidden:][:d.Cell*d.Hidden]...)
			}
		}
	}
	return out
}

func (t *Tower) product(ctx context.Context, x []float32, l *arch.Linear) ([]float32, error) {
	n := len(x) / l.Weight.Cols
	y := make([]float32, n*l.Weight.Rows)
	return y, t.pass.linear(ctx, x, n, output{l, y})
}

// norm normalises rows in place; nil leaves them as they are.
func (t *Tower) norm(x []float32, n *arch.Norm) error {
	if n == nil {
		return nil
	}
	norm, err := t.pass.readNorm(n, t.pass.vector)
	if err != nil {
		return err
	}
	norm.apply(x, x)
	return nil
}
