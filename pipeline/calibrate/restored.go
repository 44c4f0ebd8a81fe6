package calibrate

import (
	"fmt"
	"io"
	"slices"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/quant"
	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// restored is a source in which every encoded matrix is F32: the weights that its codes stand for. They are decoded row by row
// when they are read, so a model of any size is run without a copy of them.
type restored struct {
	tensor.Source // of all other tensors
	infos         []tensor.Info
	codes         map[string]*codes
}

// restore returns the model that f stands for: foldings and tuned norms applied, and every matrix as its codes say, also those of towers
// and ears that f has.
func (f *Finished) restore(d *arch.Decoder, base tensor.Source, s *Scheme, shown ...*Showing) (tensor.Source, error) {
	src, err := f.Source(base)
	if err != nil {
		return nil, err
	}
	var list []arch.Weight
	add := func(w arch.Weight) {
		if !s.Floats[w.Tensor] {
			list = append(list, w)
		}
	}
	add(d.Embedding)
	d.Linears(func(_ string, l *arch.Linear) { add(l.Weight) })
	for _, x := range shown {
		if err := x.linears(src, func(l *arch.Linear) {
			if f.Has(l.Weight.Tensor) {
				add(l.Weight)
			}
		}); err != nil {
			return nil, err
		}
	}
	return f.replace(src, s.Specs, list...)
}

// replace returns src with the given matrices as their codes say.
func (f *Finished) replace(src tensor.Source, specs map[string]quant.Spec, list ...arch.Weight) (tensor.Source, error) {
	r := &restored{Source: src, infos: slices.Clone(src.Tensors()), codes: map[string]*codes{}}
	for _, w := range list {
		c, err := f.codes(w, specs)
		if err != nil {
			return nil, err
		}
		r.codes[w.Tensor] = c
	}
	for i, t := range r.infos {
		if r.codes[t.Name] != nil {
			r.infos[i] = tensor.Info{Name: t.Name, DType: tensor.F32, Shape: t.Shape, Size: t.Size / t.DType.Size() * tensor.F32.Size()}
		}
	}
	return r, nil
}

// codes opens the codes of a matrix.
func (f *Finished) codes(w arch.Weight, specs map[string]quant.Spec) (*codes, error) {
	spec, ok := specs[w.Tensor]
	switch {
	case !ok:
		return nil, fmt.Errorf("internal error: no spec for %s", w.Tensor)
	case !f.Has(w.Tensor):
		return nil, fmt.Errorf("%s is not encoded", w.Tensor)
	}
	layout, err := spec.Layout(w.Rows, w.Cols)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", w.Tensor, err)
	}
	return &codes{file(f.path(w.Tensor)), spec, layout}, nil
}

// Tensors implements [tensor.Source].
func (r *restored) Tensors() []tensor.Info { return r.infos }

// Open implements [tensor.Source].
func (r *restored) Open(name string) (*io.SectionReader, error) {
	c := r.codes[name]
	if c == nil {
		return r.Source.Open(name)
	}
	return io.NewSectionReader(c, 0, 4*int64(c.layout.Rows)*int64(c.layout.Cols)), nil
}

// codes reads the file of an encoded matrix as F32.
type codes struct {
	file   file
	spec   quant.Spec
	layout quant.Layout
}

// ReadAt implements io.ReaderAt. It decodes the rows that the range touches.
func (c *codes) ReadAt(p []byte, off int64) (int, error) {
	row := 4 * int64(c.layout.Cols)
	end := min(off+int64(len(p)), row*int64(c.layout.Rows))
	if off < 0 || off >= end {
		return 0, io.EOF
	}
	first, last := off/row, (end-1)/row
	x, err := c.rows(int(first), int(last-first)+1)
	if err != nil {
		return 0, err
	}
	b := putFloats(make([]byte, 0, 4*len(x)), x)
	n := copy(p, b[off-first*row:end-first*row])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// rows decodes n rows.
func (c *codes) rows(first, n int) ([]float32, error) {
	r, err := c.file.open()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	x := make([]float32, n*c.layout.Cols)
	// part reads the share of the rows of a region of so many bytes.
	part := func(at, size int64) ([]byte, error) {
		one := size / int64(c.layout.Rows)
		b := make([]byte, one*int64(n))
		_, err := r.ReadAt(b, at+one*int64(first))
		return b, err
	}
	b, err := part(0, c.layout.Codes)
	if err != nil {
		return nil, err
	}
	if c.spec.Bits == 16 {
		kernel.F16ToF32(x, b)
		return x, nil
	}
	alpha, err := part(c.layout.Codes, c.layout.Alpha)
	if err != nil {
		return nil, err
	}
	layout := c.layout
	layout.Rows = n
	quant.Unpacked(b, alpha, layout, c.spec).Dequantize(x, c.spec)
	return x, nil
}
