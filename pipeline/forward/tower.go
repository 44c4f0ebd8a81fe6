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
	outer
	tower  *arch.Tower
	square int // Attention.Square of the layers that have it
	stages []stage
}

// NewTower is [New] for a tower.
func NewTower(t *arch.Tower, src tensor.Source, threads int) (*Tower, error) {
	frames := 1
	if t.Grid && !t.Pixels {
		frames = t.Frames
	}
	if t.Grid && (t.Patch < 1 || t.Frames < 1 || t.Cell < 1 || t.Class.Tensor != "" || t.DropFirst) {
		return nil, fmt.Errorf("a tower of patches of %d pixels, %d times, in cells of %d: %w", t.Patch, t.Frames, t.Cell, tensor.ErrCorrupt)
	}
	if pool := max(t.Pool, 1); t.Grid && pool > 1 && pool != t.Cell ||
		!t.Grid && t.Patch > 0 && (t.Side()%pool != 0 || pool > 1 && (t.Cell > 1 || t.Class.Tensor != "")) {
		return nil, fmt.Errorf("a tower of means of %d x %d rows: %w", pool, pool, tensor.ErrCorrupt)
	}
	if t.Tiles != nil && (t.Grid || t.Class.Tensor != "" || t.DropFirst) {
		return nil, fmt.Errorf("a tower of tiles with a class: %w", tensor.ErrCorrupt)
	}
	if !t.Grid && (t.Patch < 1 || t.Side() < 1 || t.Cell < 1 || t.Side()%t.Cell != 0 || t.Rows() < 1 ||
		t.Cell > 1 && t.Side()*t.Side() != t.Rows()*t.Cell*t.Cell) {
		return nil, fmt.Errorf("a tower of %d pixels, patches of %d, cells of %d: %w", t.Size, t.Patch, t.Cell, tensor.ErrCorrupt)
	}
	m := unchecked(&arch.Decoder{Hidden: t.Hidden, Layers: t.Layers}, src, threads)
	cell := t.Cell * t.Cell * t.Hidden
	if t.Pool > 1 {
		cell = t.Hidden
	}
	if t.Slices != nil {
		cell = t.Slices.Queries.Cols
	}
	if len(t.Stages) > 0 {
		stages, err := newStages(t, m, src, threads)
		if err = cmp.Or(err, m.checkProjector(&t.Projector, cell)); err != nil {
			return nil, err
		}
		return &Tower{outer{pass: m}, t, 0, stages}, nil
	}
	err := cmp.Or(
		m.checkLinear("patches", &t.Embedding, t.Hidden, 3*frames*t.Patch*t.Patch),
		m.checkVector("class", t.Class, t.Hidden),
		m.checkVector("what is subtracted from means", t.Center, t.Hidden),
		m.checkVector("factors of means", t.Spread, t.Hidden),
		m.checkNorm("norm before the layers", t.PreNorm, t.Hidden),
		m.checkNorm("norm after the layers", t.PostNorm, t.Hidden),
		m.checkSlices(t),
		m.checkProjector(&t.Projector, cell),
		m.checkDeep(t, cell),
		m.checkLayers(),
	)
	if err == nil && t.Positions.Tensor != "" {
		rows := t.States()
		if t.Grid {
			rows = t.PositionSide() * t.PositionSide()
		}
		err = m.checkWeight("positions", t.Positions, rows, t.Hidden)
	}
	for _, w := range t.Places {
		if err == nil && w.Tensor != "" {
			err = m.checkWeight("positions of an axis", w, w.Rows, t.Hidden)
		}
	}
	if err != nil {
		return nil, err
	}
	square := 0
	for i, l := range t.Layers {
		n := squareOf(l)
		if n == 0 {
			continue
		}
		if n < 0 || !t.Grid || n%t.Cell != 0 || square != 0 && n != square {
			return nil, fmt.Errorf("layer %d: attention within squares of %d patches, in cells of %d, others within %d: %w",
				i, n, t.Cell, square, tensor.ErrCorrupt)
		}
		square = n
	}
	return &Tower{outer{pass: m}, t, square, nil}, nil
}

// squareOf is Attention.Square of a layer.
func squareOf(l arch.Layer) int {
	for b := range l.Blocks() {
		if a, ok := b.(*arch.Attention); ok && a.Square != 0 {
			return a.Square
		}
	}
	return 0
}

// Keep lets the weights stay in memory once they have been read.
func (t *Tower) Keep() { t.pass.Keep(t.pass.weights.All) }

// Rows returns the rows that take the place of the tokens of a picture, or of a tile. pixels are [3, Size, Size], normalised.
func (t *Tower) Rows(ctx context.Context, pixels []float32) ([]float32, error) {
	d := t.tower
	if len(pixels) != 3*d.Size*d.Size {
		return nil, fmt.Errorf("internal error: %d pixels for a tower of 3 x %d x %d", len(pixels), d.Size, d.Size)
	}
	if t.stages != nil {
		x, err := t.staged(ctx, pixels)
		if err != nil {
			return nil, err
		}
		return t.project(ctx, &d.Projector, x)
	}
	x, err := t.embed(ctx, pixels)
	if err != nil {
		return nil, err
	}
	if err := t.layers(ctx, x, Equal(1, d.States()), Windows{}, func(int) error { return nil }); err != nil {
		return nil, err
	}
	return t.finish(ctx, x)
}

// finish returns the rows of a picture of one size for its states after the layers, which it changes.
func (t *Tower) finish(ctx context.Context, x []float32) ([]float32, error) {
	d := t.tower
	if err := t.norm(x, d.PostNorm); err != nil {
		return nil, err
	}
	if d.DropFirst {
		x = x[d.Hidden:]
	}
	if d.Cell > 1 {
		x = t.cells(x)
	}
	if d.Pool > 1 {
		x = t.means(x)
	}
	rows, err := t.project(ctx, &d.Projector, x)
	t.pass.scaleAll(rows, d.Scale)
	return rows, err
}

// GridRows is Rows for a tower that reads patches: patches are those of a picture, or of a view of it, of height x width of them, in the order
// of cells. A row is followed by what is added to it after layers of the text model.
func (t *Tower) GridRows(ctx context.Context, patches []float32, height, width int) ([]float32, error) {
	g, err := t.grid(height, width)
	if err != nil {
		return nil, err
	}
	x, err := t.gridStates(ctx, g, patches)
	if err != nil {
		return nil, err
	}
	var deep [][]float32
	after := func(layer int) error {
		y, err := t.deepRows(ctx, layer, x)
		if y != nil {
			deep = append(deep, y)
		}
		return err
	}
	if err := t.layers(ctx, x, g.whole, g.squares, after); err != nil {
		return nil, err
	}
	return t.gridFinish(ctx, g, x, deep)
}

// grid is a picture of height x width patches.
type grid struct {
	height, width  int
	order          []int   // of the patches, see squares
	whole, squares Windows // of layers that attend to the whole picture, and of others
}

// grid returns the order of the patches of a picture and their places.
func (t *Tower) grid(height, width int) (*grid, error) {
	d := t.tower
	n := height * width
	if height < 1 || width < 1 || height%d.Cell != 0 || width%d.Cell != 0 {
		return nil, fmt.Errorf("internal error: %d x %d patches in cells of %d", height, width, d.Cell)
	}
	rows, columns := make([]int, n), make([]int, n)
	for i := range n {
		cell, within := i/(d.Cell*d.Cell), i%(d.Cell*d.Cell)
		rows[i] = cell/(width/d.Cell)*d.Cell + within/d.Cell
		columns[i] = cell%(width/d.Cell)*d.Cell + within%d.Cell
	}
	order, lengths := t.squares(rows, columns)
	w := Windows{Lengths: []int{n}, Places: [][]int{ordered(rows, order, 1), ordered(columns, order, 1)}}
	return &grid{height, width, order, w, Windows{Lengths: lengths, Places: w.Places}}, nil
}

// gridStates returns the states of patches before the layers, in the order of the grid.
func (t *Tower) gridStates(ctx context.Context, g *grid, patches []float32) ([]float32, error) {
	d := t.tower
	if n := g.height * g.width; len(patches) != n*3*d.Frames*d.Patch*d.Patch {
		return nil, fmt.Errorf("internal error: %d values for %d x %d patches of %d", len(patches), g.height, g.width, 3*d.Frames*d.Patch*d.Patch)
	}
	if d.Pixels {
		patches = pixels(patches, d)
	}
	if d.Signed {
		for i, v := range patches {
			patches[i] = 2 * (v - .5)
		}
	}
	x, err := t.product(ctx, ordered(patches, g.order, d.Embedding.Weight.Cols), &d.Embedding)
	return x, cmp.Or(err, t.interpolate(x, g.whole.Places, g.height, g.width), t.placed(x, g.whole.Places))
}

// deepRows returns what a layer adds to the rows of a picture for the states after it; nil if it adds nothing.
func (t *Tower) deepRows(ctx context.Context, layer int, x []float32) ([]float32, error) {
	for i := range t.tower.Deep {
		if d := &t.tower.Deep[i]; d.After == layer {
			return t.project(ctx, &d.Projector, slices.Clone(x))
		}
	}
	return nil, nil
}

// gridFinish returns the rows of patches for their states after the layers, which it changes, next to those after earlier ones.
func (t *Tower) gridFinish(ctx context.Context, g *grid, x []float32, deep [][]float32) ([]float32, error) {
	d := t.tower
	if err := t.norm(x, d.PostNorm); err != nil {
		return nil, err
	}
	if d.Pool > 1 {
		var err error
		if x, err = t.cellMeans(x); err != nil {
			return nil, err
		}
	}
	if d.Slices != nil {
		x, err := t.gather(ctx, g, x)
		if err != nil {
			return nil, err
		}
		return t.project(ctx, &d.Projector, x)
	}
	y, err := t.project(ctx, &d.Projector, x)
	if err != nil {
		return nil, err
	}
	t.pass.scaleAll(y, d.Scale)
	n := cmp.Or(d.Out.Weight.Rows, d.In.Weight.Rows)
	return restored(sideBySide(n, append([][]float32{y}, deep...)...), g.order, d.Cell*d.Cell, (1+len(deep))*n), nil
}

// pixels returns the first frame of patches, [y, x, channel] each.
func pixels(patches []float32, t *arch.Tower) []float32 {
	area := t.Patch * t.Patch
	out := make([]float32, 0, len(patches)/t.Frames)
	for patch := range slices.Chunk(patches, 3*t.Frames*area) {
		for i := range area {
			for channel := range 3 {
				out = append(out, patch[channel*t.Frames*area+i])
			}
		}
	}
	return out
}

// sideBySide puts the rows of lists next to each other.
func sideBySide(width int, lists ...[]float32) []float32 {
	out := make([]float32, 0, len(lists)*len(lists[0]))
	for at := 0; at < len(lists[0]); at += width {
		for _, x := range lists {
			out = append(out, x[at:at+width]...)
		}
	}
	return out
}

// squares returns the patches in an order in which those of a square follow one another, and the sizes of the squares; cells stay whole.
// Without squares it is the order in which they are.
func (t *Tower) squares(rows, columns []int) (order, lengths []int) {
	order = make([]int, len(rows))
	for i := range order {
		order[i] = i
	}
	if t.square == 0 {
		return order, nil
	}
	at := func(i int) [2]int { return [2]int{rows[i] / t.square, columns[i] / t.square} }
	slices.SortStableFunc(order, func(i, j int) int { a, b := at(i), at(j); return slices.Compare(a[:], b[:]) })
	for k, i := range order {
		if k == 0 || at(i) != at(order[k-1]) {
			lengths = append(lengths, 0)
		}
		lengths[len(lengths)-1]++
	}
	return order, lengths
}

// ordered returns rows of width elements in another order.
func ordered[T any](x []T, order []int, width int) []T {
	out := make([]T, 0, len(x))
	for _, i := range order {
		out = append(out, x[i*width:(i+1)*width]...)
	}
	return out
}

// restored undoes the order of patches for rows of which each stands for a cell of so many.
func restored(x []float32, order []int, cell, width int) []float32 {
	out := make([]float32, len(x))
	for k := 0; k < len(order); k += cell {
		copy(out[order[k]/cell*width:], x[k/cell*width:(k/cell+1)*width])
	}
	return out
}

// layers applies all layers in place. Those that attend within squares have other windows. After each
// layer it calls after.
func (t *Tower) layers(ctx context.Context, x []float32, whole, squares Windows, after func(layer int) error) error {
	for i, l := range t.tower.Layers {
		w := whole
		if squareOf(l) > 0 {
			w = squares
		}
		if err := t.pass.Layer(i).Forward(ctx, x, w); err != nil {
			return err
		}
		if err := after(i); err != nil {
			return err
		}
	}
	return nil
}

// means returns the means of squares of adjacent rows.
func (t *Tower) means(x []float32) []float32 {
	d := t.tower
	side, n := d.Side()/d.Pool, d.Side()
	out := make([]float32, side*side*d.Hidden)
	for i := range out {
		row, k, sum := i/d.Hidden, i%d.Hidden, 0.0
		for y := range d.Pool {
			for c := range d.Pool {
				sum += float64(x[((row/side*d.Pool+y)*n+row%side*d.Pool+c)*d.Hidden+k])
			}
		}
		out[i] = float32(sum / float64(d.Pool*d.Pool))
	}
	return out
}

// cellMeans returns the means of the states of cells, which follow one another, in the form in which the projector takes them.
func (t *Tower) cellMeans(x []float32) ([]float32, error) {
	d := t.tower
	n := d.Cell * d.Cell
	out := make([]float32, 0, len(x)/n)
	for cell := range slices.Chunk(x, n*d.Hidden) {
		for k := range d.Hidden {
			sum := 0.0
			for i := range n {
				sum += float64(cell[i*d.Hidden+k])
			}
			out = append(out, float32(sum/float64(n)))
		}
	}
	t.pass.scaleAll(out, d.Gain)
	if d.Center.Tensor == "" {
		return out, nil
	}
	center, err := t.pass.vector(d.Center)
	if err != nil {
		return nil, err
	}
	spread, err := t.pass.vector(d.Spread)
	if err != nil {
		return nil, err
	}
	for i, v := range out {
		out[i] = (v - center[i%d.Hidden]) * spread[i%d.Hidden]
	}
	return out, nil
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
