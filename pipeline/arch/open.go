package arch

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"sync"

	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// Open shows the tensors of a checkpoint and, computed when they are read, the views of its description. Without views it
// is src itself.
//
// Rows that are taken as they are have the element type and the bits of the checkpoint; what is computed is F32, in
// float32, with the same bits on every machine. A transposed view is held in memory as a whole while it is read, the last
// few of them at a time.
func Open(d *Decoder, src tensor.Source) (tensor.Source, error) {
	if len(d.Views) == 0 {
		return src, nil
	}
	infos := src.Tensors()
	base := tensor.ByName(infos)
	s := &views{src: src, byName: make(map[string]*openView, len(d.Views)), infos: make([]tensor.Info, len(infos), len(infos)+len(d.Views))}
	copy(s.infos, infos)
	all := make([]openView, len(d.Views))
	for i := range d.Views {
		v := &all[i]
		*v = openView{View: &d.Views[i], of: base[d.Views[i].Tensor], plus: base[d.Views[i].Plus]}
		if err := v.check(base); err != nil {
			return nil, fmt.Errorf("%s: %w", v.Name, err)
		}
		s.byName[v.Name] = v
		s.infos = append(s.infos, v.info())
	}
	slices.SortFunc(s.infos, func(a, b tensor.Info) int { return strings.Compare(a.Name, b.Name) })
	return s, nil
}

// views is a source with views.
type views struct {
	src    tensor.Source
	byName map[string]*openView
	infos  []tensor.Info

	mu   sync.Mutex
	kept []*turned // transposed views, the last read one last
}

// keptViews is how many transposed views are kept: as many as there are matrices of an expert.
const keptViews = 3

// turned is a transposed view in memory.
type turned struct {
	name string
	once sync.Once
	b    []byte
	err  error
}

// Tensors implements tensor.Source.
func (s *views) Tensors() []tensor.Info { return s.infos }

// Open implements tensor.Source.
func (s *views) Open(name string) (*io.SectionReader, error) {
	v := s.byName[name]
	if v == nil {
		return s.src.Open(name)
	}
	size := v.info().Size
	r := &viewReader{openView: v, s: s}
	if v.Tensor != "" {
		var err error
		if r.base, err = s.src.Open(v.Tensor); err != nil {
			return nil, err
		}
	}
	return io.NewSectionReader(r, 0, size), nil
}

// openView is a view and the tensors it is made of.
type openView struct {
	*View
	of, plus *tensor.Info // or nil
}

// matrix gives the shape of a tensor as views see it.
func matrix(shape tensor.Shape) (rows, cols int64) {
	if len(shape) == 0 {
		return 1, 1
	}
	last := len(shape) - 1
	if last == 0 {
		return shape[0], 1
	}
	rows = 1
	for _, d := range shape[:last] {
		rows *= d // a checked header: the product of all dimensions does not overflow
	}
	return rows, shape[last]
}

// matrix gives the shape of a tensor as the view sees it: for a vector that is not transposed every element is a row.
func (v *View) matrix(shape tensor.Shape) (rows, cols int64) {
	rows, cols = matrix(shape)
	if v.Cols == 0 && !v.Transposed {
		rows, cols = rows*cols, 1
	}
	return rows, cols
}

// width is the number of elements of a row of the view, 1 for a vector.
func (v *View) width() int { return max(v.Cols, 1) }

// runs are those of the view, or one for all rows.
func (v *View) runs() []Run {
	if v.Runs == nil {
		return []Run{{Count: v.Rows}}
	}
	return v.Runs
}

// turnedRows is the number of rows of a transposed view, and of rows of the tensor that are its columns.
func (v *View) turnedShape() (rows, cols int) {
	if v.Cols == 0 {
		return 1, v.Rows
	}
	return v.Rows, v.Cols
}

// check demands that the tensors have what the view takes.
func (v *openView) check(base map[string]*tensor.Info) error {
	if _, ok := base[v.Name]; ok {
		return fmt.Errorf("the checkpoint has a tensor of this name: %w", tensor.ErrUnsupported)
	}
	if v.Tensor == "" {
		return nil
	}
	if v.of == nil {
		return fmt.Errorf("the checkpoint has no tensor %q: %w", v.Tensor, tensor.ErrCorrupt)
	}
	if err := kernel.ToF32(nil, nil, v.of.DType); err != nil {
		return fmt.Errorf("%s: %w", v.Tensor, err)
	}
	rows, cols := v.matrix(v.of.Shape)
	wrong := func() error {
		return fmt.Errorf("%s has shape %v, which does not hold %d x %d: %w", v.Tensor, v.of.Shape, v.Rows, v.width(), tensor.ErrCorrupt)
	}
	limit, want := rows, v.Rows
	switch {
	case v.Transposed:
		n, taken := v.turnedShape()
		if v.From < 0 || int64(v.From)+int64(taken) > rows {
			return wrong()
		}
		limit, want = cols, n
	case cols != int64(v.width()):
		return wrong()
	}
	count := 0
	for _, r := range v.Runs {
		step := max(r.Step, 1)
		if r.Start < 0 || r.Count < 1 || int64(r.Start)+int64(r.Count-1)*int64(step) >= limit {
			return wrong()
		}
		count += r.Count
	}
	if v.Runs == nil {
		count = int(limit)
	}
	if count != want {
		return wrong()
	}
	if v.Plus != "" {
		if v.plus == nil {
			return fmt.Errorf("the checkpoint has no tensor %q: %w", v.Plus, tensor.ErrCorrupt)
		}
		n, err := v.plus.Shape.Elements()
		if err != nil || n != int64(v.Rows)*int64(v.width()) {
			return fmt.Errorf("%s is not of the same size: %w", v.Plus, tensor.ErrCorrupt)
		}
		return kernel.ToF32(nil, nil, v.plus.DType)
	}
	return nil
}

// computed says that elements are not taken as they are.
func (v *View) computed() bool {
	if v.Tensor == "" || v.Map != "" || v.Plus != "" {
		return true
	}
	for _, r := range v.Runs {
		if r.Scale != 0 {
			return true
		}
	}
	return false
}

func (v *openView) info() tensor.Info {
	info := tensor.Info{Name: v.Name, DType: tensor.F32, Shape: tensor.Shape{int64(v.Rows)}}
	if v.Cols > 0 {
		info.Shape = tensor.Shape{int64(v.Rows), int64(v.Cols)}
	}
	if v.of != nil {
		info.File = v.of.File
	}
	if !v.computed() {
		info.DType = v.of.DType
	}
	info.Size = int64(v.Rows) * int64(v.width()) * info.DType.Size()
	return info
}

// viewReader reads a view.
type viewReader struct {
	*openView
	s    *views
	base *io.SectionReader
}

// ReadAt implements io.ReaderAt. Rows that are read in part are computed as a whole.
func (r *viewReader) ReadAt(p []byte, off int64) (int, error) {
	info := r.info()
	if off < 0 || off >= info.Size {
		return 0, io.EOF
	}
	n := int(min(int64(len(p)), info.Size-off))
	if r.Transposed {
		b, err := r.s.turned(r)
		if err != nil {
			return 0, err
		}
		copy(p[:n], b[off:])
	} else if err := r.rows(p[:n], off, info.DType.Size()*int64(r.width())); err != nil {
		return 0, err
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// rows fills p from offset off; a row of the view has width bytes.
func (r *viewReader) rows(p []byte, off, width int64) error {
	first := 0 // row of the view with which the run begins
	for _, run := range r.runs() {
		lo, hi := int64(first)*width, int64(first+run.Count)*width
		first += run.Count
		from, to := max(off, lo), min(off+int64(len(p)), hi)
		if from >= to {
			continue
		}
		part := p[from-off : to-off]
		var err error
		if r.computed() {
			err = r.compute(part, run, from-lo, lo/width, width)
		} else {
			err = r.copy(part, run, from-lo, width)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// copy fills p from offset off of a run.
func (r *viewReader) copy(p []byte, run Run, off, width int64) error {
	if run.Step <= 1 {
		return readFull(r.base, p, int64(run.Start)*width+off)
	}
	for len(p) > 0 {
		row, in := off/width, off%width
		n := min(int64(len(p)), width-in)
		if err := readFull(r.base, p[:n], (int64(run.Start)+row*int64(run.Step))*width+in); err != nil {
			return err
		}
		p, off = p[n:], off+n
	}
	return nil
}

// compute is copy for elements that are computed; the run begins at row first of the view.
func (r *viewReader) compute(p []byte, run Run, off, first, width int64) error {
	lo, hi := off/width, (off+int64(len(p))+width-1)/width
	cols := int64(r.width())
	x := make([]float32, (hi-lo)*cols)
	if r.Tensor == "" {
		for i := range x {
			x[i] = 1
		}
	} else {
		size := r.of.DType.Size()
		raw := make([]byte, int64(len(x))*size)
		if err := r.copy(raw, run, lo*cols*size, cols*size); err != nil {
			return err
		}
		if err := kernel.ToF32(x, raw, r.of.DType); err != nil {
			return err
		}
		r.apply(x, run)
	}
	if r.Plus != "" {
		if err := r.add(x, (first+lo)*cols); err != nil {
			return err
		}
	}
	b := floatBytes(x)
	copy(p, b[off-lo*width:])
	return nil
}

// apply computes map and scale.
func (v *View) apply(x []float32, run Run) {
	if v.Map == UnitRows {
		for row := range slices.Chunk(x, v.width()) {
			unit(row)
		}
	}
	for i, w := range x {
		switch v.Map {
		case OnePlus:
			w = 1 + w
		case NegExp:
			w = -float32(kernel.Exp(float64(w)))
		case Softplus:
			t := float64(w)
			w = float32(max(t, 0) + kernel.Log(1+kernel.Exp(-math.Abs(t))))
		}
		if run.Scale != 0 {
			w = float32(float64(w) * run.Scale)
		}
		x[i] = w
	}
}

// unit divides a row by its length, or by 1e-12 if that is more.
func unit(row []float32) {
	sum := 0.0
	for _, w := range row {
		sum += float64(float64(w) * float64(w)) // not fused, which would differ between machines
	}
	length := max(math.Sqrt(sum), 1e-12)
	for i, w := range row {
		row[i] = float32(float64(w) / length)
	}
}

// add adds the elements of Plus from element at on.
func (r *viewReader) add(x []float32, at int64) error {
	t, err := r.s.src.Open(r.Plus)
	if err != nil {
		return err
	}
	raw, y := make([]byte, int64(len(x))*r.plus.DType.Size()), make([]float32, len(x))
	if err := readFull(t, raw, at*r.plus.DType.Size()); err != nil {
		return err
	}
	if err := kernel.ToF32(y, raw, r.plus.DType); err != nil {
		return err
	}
	for i, v := range y {
		x[i] += v
	}
	return nil
}

// turned gives a transposed view, made once as long as it is kept.
func (s *views) turned(r *viewReader) ([]byte, error) {
	s.mu.Lock()
	var t *turned
	for _, k := range s.kept {
		if k.name == r.Name {
			t = k
		}
	}
	if t == nil {
		t = &turned{name: r.Name}
		if s.kept = append(s.kept, t); len(s.kept) > keptViews {
			s.kept = s.kept[1:]
		}
	}
	s.mu.Unlock()
	t.once.Do(func() { t.b, t.err = r.turn() })
	return t.b, t.err
}

// turn reads a transposed view as a whole, some rows of the tensor at a time.
func (r *viewReader) turn() ([]byte, error) {
	const atOnce = 4 << 20
	_, cols := matrix(r.of.Shape)
	size := r.of.DType.Size()
	_, n := r.turnedShape()
	out := make([]byte, int64(r.Rows)*int64(r.width())*size)
	step := int(max(1, atOnce/(cols*size)))
	raw := make([]byte, int64(min(step, n))*cols*size)
	for lo := 0; lo < n; lo += step {
		count := min(step, n-lo)
		raw := raw[:int64(count)*cols*size]
		if err := readFull(r.base, raw, int64(r.From+lo)*cols*size); err != nil {
			return nil, err
		}
		row := 0
		for _, run := range r.columns(int(cols)) {
			for k := range run.Count {
				at := int64(run.Start + k*max(run.Step, 1))
				to := (int64(row)*int64(n) + int64(lo)) * size
				for i := range int64(count) {
					copy(out[to+i*size:to+(i+1)*size], raw[(i*cols+at)*size:])
				}
				row++
			}
		}
	}
	if !r.computed() {
		return out, nil
	}
	x := make([]float32, int64(len(out))/size)
	if err := kernel.ToF32(x, out, r.of.DType); err != nil {
		return nil, err
	}
	row := 0
	for _, run := range r.columns(int(cols)) {
		r.apply(x[row*n:(row+run.Count)*n], run)
		row += run.Count
	}
	if r.Plus != "" {
		if err := r.add(x, 0); err != nil {
			return nil, err
		}
	}
	return floatBytes(x), nil
}

// columns are the runs of a transposed view.
func (v *View) columns(all int) []Run {
	if v.Runs == nil {
		return []Run{{Count: all}}
	}
	return v.Runs
}

// readFull fills p from offset at.
func readFull(r io.ReaderAt, p []byte, at int64) error {
	n, err := r.ReadAt(p, at)
	if n == len(p) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		return fmt.Errorf("tensor ends early: %w", tensor.ErrCorrupt)
	}
	return err
}

func floatBytes(x []float32) []byte {
	b := make([]byte, 0, 4*len(x))
	for _, v := range x {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}
	return b
}
