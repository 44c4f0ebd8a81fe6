package arch

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// Open returns a source with the tensors of a checkpoint and the views of its description, which are computed when they
// are read. Without views it is src itself.
//
// Rows that are only moved keep the element type and the bits of the checkpoint; computed elements are F32, in float32,
// with the same bits on every machine. A transposed view is in memory as a whole while it is read; the last few of them
// are cached.
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
		*v = newOpenView(&d.Views[i], base)
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
	kept []*turned // cached transposed views, the newest last
}

// keptViews is the number of cached transposed views: as many as there are matrices of an expert.
const keptViews = 3

// turned is a transposed view in memory.
type turned struct {
	name string
	once sync.Once
	b    []byte
	err  error
}

func (s *views) Tensors() []tensor.Info { return s.infos }

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
	side     *tensor.Info // or nil
	then     []*tensor.Info
	batch    []*tensor.Info // of Batch.parts
}

// whole lists the tensors of a view that stacks them.
func (v *openView) whole() []*tensor.Info {
	if v.then == nil {
		return nil
	}
	return append([]*tensor.Info{v.of}, v.then...)
}

func newOpenView(v *View, base map[string]*tensor.Info) openView {
	o := openView{View: v, of: base[v.Tensor], plus: base[v.Plus], side: base[v.Side]}
	for _, name := range v.Then {
		o.then = append(o.then, base[name])
	}
	for _, name := range v.Batch.parts(v.Cols == 0) {
		o.batch = append(o.batch, base[name])
	}
	return o
}

// matrix returns the shape of a tensor as views see it.
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

// matrix returns the shape of a tensor as the view uses it: for a vector that is not transposed, every element is a
// row.
func (v *View) matrix(shape tensor.Shape) (rows, cols int64) {
	rows, cols = matrix(shape)
	if width := int64(v.width()); v.Flat && rows*cols%width == 0 {
		return rows * cols / width, width
	}
	if v.Cols == 0 && !v.Transposed {
		rows, cols = rows*cols, 1
	}
	return rows, cols
}

// width returns the number of elements of a row of the view that are not Zeros, 1 for a vector.
func (v *View) width() int { return max(v.Cols-v.Zeros, 1) }

// runs returns those of the view, or one for all rows.
func (v *View) runs() []Run {
	if v.Runs == nil {
		return []Run{{Count: v.Rows}}
	}
	return v.Runs
}

// turnedRows returns the number of rows of a transposed view, and the number of rows of the tensor that are its
// columns.
func (v *View) turnedShape() (rows, cols int) {
	if v.Cols == 0 {
		return 1, v.Rows
	}
	return v.Rows, v.Cols
}

// check requires that the tensors have the elements that the view uses.
func (v *openView) check(base map[string]*tensor.Info) error {
	if _, ok := base[v.Name]; ok {
		return fmt.Errorf("the checkpoint already has a tensor of this name: %w", tensor.ErrUnsupported)
	}
	for i, t := range v.batch {
		name := v.Batch.parts(v.Cols == 0)[i]
		if t == nil {
			return fmt.Errorf("the checkpoint has no tensor %q: %w", name, tensor.ErrCorrupt)
		}
		if n, err := t.Shape.Elements(); err != nil || n != int64(v.Rows) {
			return fmt.Errorf("%s has shape %v, want %d: %w", name, t.Shape, v.Rows, tensor.ErrCorrupt)
		}
		if err := kernel.ToF32(nil, nil, t.DType); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	if v.Batch != nil && (v.Transposed || v.Runs != nil || v.Map != "" || v.Plus != "" || v.Zeros > 0 || v.Then != nil) {
		return fmt.Errorf("%s: a norm of batches for a part of it: %w", v.Tensor, tensor.ErrUnsupported)
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
		return fmt.Errorf("%s has shape %v, too small for %d x %d: %w", v.Tensor, v.of.Shape, v.Rows, v.width(), tensor.ErrCorrupt)
	}
	for i, t := range v.then {
		if t == nil {
			return fmt.Errorf("the checkpoint has no tensor %q: %w", v.Then[i], tensor.ErrCorrupt)
		}
		n, width := v.matrix(t.Shape)
		if width != cols || t.DType != v.of.DType || v.Runs != nil || v.Transposed || v.computed() {
			return fmt.Errorf("%s cannot follow %s: %w", v.Then[i], v.Tensor, tensor.ErrCorrupt)
		}
		rows += n
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
		if r.Start < 0 || r.Count < 1 || int64(r.Start)+int64(r.Count-1)*int64(step)+int64(r.Spare) >= limit {
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
	if v.Side != "" {
		if v.side == nil {
			return fmt.Errorf("the checkpoint has no tensor %q: %w", v.Side, tensor.ErrCorrupt)
		}
		if n, width := matrix(v.side.Shape); n != int64(v.Rows) || width != int64(v.Zeros) || v.side.DType != v.of.DType || v.computed() {
			return fmt.Errorf("%s, %v of %v, cannot lie next to %s, %v of %v: %w",
				v.Side, v.side.Shape, v.side.DType, v.Tensor, v.of.Shape, v.of.DType, tensor.ErrUnsupported)
		}
	}
	if v.Plus != "" {
		if v.plus == nil {
			return fmt.Errorf("the checkpoint has no tensor %q: %w", v.Plus, tensor.ErrCorrupt)
		}
		n, err := v.plus.Shape.Elements()
		if err != nil || n != int64(v.Rows)*int64(v.width()) {
			return fmt.Errorf("%s has a different size: %w", v.Plus, tensor.ErrCorrupt)
		}
		return kernel.ToF32(nil, nil, v.plus.DType)
	}
	return nil
}

// computed reports whether elements are computed rather than copied.
func (v *View) computed() bool {
	if v.Tensor == "" || v.Map != "" || v.Plus != "" || v.Batch != nil {
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
	info.Size = int64(v.Rows) * int64(v.width()+v.Zeros) * info.DType.Size()
	return info
}
