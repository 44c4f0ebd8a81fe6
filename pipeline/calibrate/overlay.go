package calibrate

import (
	"bytes"
	"fmt"
	"io"
	"os"

	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// Overlay is a [tensor.Source] that changes some tensors of another one: rows and columns are multiplied by factors, or the
// whole content is replaced. Changed tensors read as F32 and are computed from the base on every read, so that a model of any
// size is changed without a copy; all others read as in the base.
//
// A changed element is w*row*column, from left to right, each product rounded to float32; factors of several calls are
// multiplied first. It does not depend on the range of the read.
//
// Methods that change tensors must not run concurrently with any other method. A reader opened earlier keeps its content.
type Overlay struct {
	base    tensor.Source
	infos   []tensor.Info // of the base
	at      map[string]int
	changes map[string]*change
}

// change describes the changes of one tensor. It is replaced and never modified, because of open readers.
type change struct {
	// rows and columns are factors, nil for none. A vector is a matrix of one row.
	rows, columns []float32
	// values or file, if set, hold the content as little-endian F32 instead of the base.
	values []byte
	file   string
}

var _ tensor.Source = (*Overlay)(nil)

// NewOverlay returns an overlay without changes.
func NewOverlay(base tensor.Source) *Overlay {
	o := &Overlay{base: base, infos: base.Tensors(), at: map[string]int{}, changes: map[string]*change{}}
	for i, t := range o.infos {
		o.at[t.Name] = i
	}
	return o
}

// ScaleRows multiplies row r of a matrix by factors[r].
func (o *Overlay) ScaleRows(name string, factors []float32) error {
	c, shape, err := o.matrix(name, 2)
	if err != nil {
		return err
	}
	if c.rows, err = compose(name, c.rows, factors, shape[0]); err != nil {
		return err
	}
	o.changes[name] = c
	return nil
}

// ScaleColumns multiplies column c of a matrix by factors[c].
func (o *Overlay) ScaleColumns(name string, factors []float32) error {
	c, shape, err := o.matrix(name, 2)
	if err != nil {
		return err
	}
	if c.columns, err = compose(name, c.columns, factors, shape[1]); err != nil {
		return err
	}
	o.changes[name] = c
	return nil
}

// ScaleVector multiplies element i of a vector by factors[i].
func (o *Overlay) ScaleVector(name string, factors []float32) error {
	c, shape, err := o.matrix(name, 1)
	if err != nil {
		return err
	}
	if c.columns, err = compose(name, c.columns, factors, shape[0]); err != nil {
		return err
	}
	o.changes[name] = c
	return nil
}

// ReplaceValues replaces the content of a tensor, including factors. Use it for vectors: the values stay in memory and in the
// description.
func (o *Overlay) ReplaceValues(name string, values []float32) error {
	_, elements, err := o.content(name)
	if err != nil {
		return err
	}
	if int64(len(values)) != elements {
		return fmt.Errorf("%s: %d values for %d elements: %w", name, len(values), elements, tensor.ErrCorrupt)
	}
	if i := kernel.NonFinite(values); i >= 0 {
		return fmt.Errorf("%s: value %d is %v: %w", name, i, values[i], tensor.ErrCorrupt)
	}
	o.changes[name] = &change{values: putFloats(nil, values)}
	return nil
}

// ReplaceFile replaces the content of a tensor, including factors, by that of a file: its elements as little-endian F32. The
// file must not change while the overlay is in use.
func (o *Overlay) ReplaceFile(name, path string) error {
	_, elements, err := o.content(name)
	if err != nil {
		return err
	}
	info, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if info.Size() != 4*elements {
		return fmt.Errorf("%s: %d bytes in %s for %d elements: %w", name, info.Size(), path, elements, tensor.ErrCorrupt)
	}
	o.changes[name] = &change{file: path}
	return nil
}

// Changed reports whether a tensor differs from the base's.
func (o *Overlay) Changed(name string) bool { return o.changes[name] != nil }

// Tensors implements [tensor.Source].
func (o *Overlay) Tensors() []tensor.Info {
	infos := make([]tensor.Info, len(o.infos))
	for i, t := range o.infos {
		infos[i] = o.info(t)
	}
	return infos
}

// info returns the facts about a tensor with its changes.
func (o *Overlay) info(t tensor.Info) tensor.Info {
	if o.changes[t.Name] != nil {
		t.Size = t.Size / t.DType.Size() * 4
		t.DType, t.File = tensor.F32, ""
	}
	return t
}

// Open implements [tensor.Source].
func (o *Overlay) Open(name string) (*io.SectionReader, error) {
	c := o.changes[name]
	if c == nil {
		return o.base.Open(name)
	}
	t := o.infos[o.at[name]]
	size := o.info(t).Size
	d := &derived{name: name, change: c, dtype: tensor.F32, cols: int(t.Shape[len(t.Shape)-1]), size: size}
	switch {
	case c.values != nil:
		d.from = bytes.NewReader(c.values)
	case c.file != "":
		d.from = file(c.file)
	default:
		r, err := o.base.Open(name)
		if err != nil {
			return nil, err
		}
		if r.Size() != t.Size {
			return nil, fmt.Errorf("%s: %d bytes instead of %d: %w", name, r.Size(), t.Size, tensor.ErrCorrupt)
		}
		d.from, d.dtype = r, t.DType
	}
	return io.NewSectionReader(d, 0, size), nil
}

// content returns the facts about a tensor that may be changed, and the number of its elements.
func (o *Overlay) content(name string) (tensor.Info, int64, error) {
	i, ok := o.at[name]
	if !ok {
		return tensor.Info{}, 0, fmt.Errorf("no tensor %s: %w", name, tensor.ErrCorrupt)
	}
	t := o.infos[i]
	n, err := t.Shape.Elements()
	if err != nil {
		return tensor.Info{}, 0, fmt.Errorf("%s: %w", name, err)
	}
	if !t.DType.Float() {
		return tensor.Info{}, 0, fmt.Errorf("%s: %s cannot be scaled: %w", name, t.DType, tensor.ErrUnsupported)
	}
	if d := len(t.Shape); d < 1 || d > 2 || n == 0 || t.Size != n*t.DType.Size() {
		return tensor.Info{}, 0, fmt.Errorf("%s: %d bytes of shape %s: %w", name, t.Size, t.Shape, tensor.ErrCorrupt)
	}
	return t, n, nil
}

// matrix returns a copy of the changes of a tensor with the given number of dimensions.
func (o *Overlay) matrix(name string, dims int) (*change, tensor.Shape, error) {
	t, _, err := o.content(name)
	if err != nil {
		return nil, nil, err
	}
	if len(t.Shape) != dims {
		return nil, nil, fmt.Errorf("%s: shape %s does not have %d dimensions: %w", name, t.Shape, dims, tensor.ErrCorrupt)
	}
	c := &change{}
	if old := o.changes[name]; old != nil {
		*c = *old
	}
	return c, t.Shape, nil
}

// compose multiplies existing factors by further ones.
func compose(name string, old, by []float32, n int64) ([]float32, error) {
	if int64(len(by)) != n {
		return nil, fmt.Errorf("%s: %d factors for %d: %w", name, len(by), n, tensor.ErrCorrupt)
	}
	product := append([]float32(nil), by...)
	if old != nil {
		kernel.Mul(product, old, by)
	}
	if i := kernel.NonFinite(product); i >= 0 {
		return nil, fmt.Errorf("%s: factor %d is %v: %w", name, i, product[i], tensor.ErrCorrupt)
	}
	return product, nil
}
