package net

import (
	"errors"
	"fmt"
	"io"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// readElements is how many stored values are read and widened at a time.
const readElements = 1 << 18

// weight is an opened tensor: rows of cols elements, a vector being one row.
type weight struct {
	name       string
	dtype      tensor.DType
	rows, cols int
	r          *io.SectionReader
	raw        []byte
}

func (m *Model) open(w arch.Weight) (*weight, error) {
	info := m.infos[w.Tensor]
	r, err := m.source.Open(w.Tensor)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", w.Tensor, err)
	}
	if r.Size() != info.Size {
		return nil, fmt.Errorf("%s: %d bytes instead of %d: %w", w.Tensor, r.Size(), info.Size, tensor.ErrCorrupt)
	}
	t := &weight{name: w.Tensor, dtype: info.DType, rows: w.Rows, cols: w.Cols, r: r}
	if w.Cols == 0 {
		t.rows, t.cols = 1, w.Rows
	}
	return t, nil
}

// read widens len(dst)/cols rows from row lo on. A value that is no finite float32 is tensor.ErrCorrupt.
func (w *weight) read(dst []float32, lo int) error {
	size := int(w.dtype.Size())
	raw := grow(&w.raw, len(dst)*size)
	n, err := w.r.ReadAt(raw, int64(lo)*int64(w.cols)*int64(size))
	switch {
	case n == len(raw): // with or without io.EOF
	case err == nil || errors.Is(err, io.EOF):
		return fmt.Errorf("%s: ends within row %d: %w", w.name, lo+n/size/w.cols, tensor.ErrCorrupt)
	default:
		return fmt.Errorf("%s: %w", w.name, err)
	}
	if err := kernel.ToF32(dst, raw, w.dtype); err != nil {
		return fmt.Errorf("%s: %w", w.name, err)
	}
	if i := kernel.NonFinite(dst); i >= 0 {
		return fmt.Errorf("%s: element [%d %d] is %v in float32: %w", w.name, lo+i/w.cols, i%w.cols, dst[i], tensor.ErrCorrupt)
	}
	return nil
}

// values reads a whole tensor.
func (m *Model) values(w arch.Weight) ([]float32, error) {
	t, err := m.open(w)
	if err != nil {
		return nil, err
	}
	all := make([]float32, t.rows*t.cols)
	step := max(1, readElements/t.cols)
	for lo := 0; lo < t.rows; lo += step {
		hi := min(lo+step, t.rows)
		if err := t.read(all[lo*t.cols:hi*t.cols], lo); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// linear reads a linear layer; there may be none.
func (m *Model) linear(d *arch.Linear) (*Linear, error) {
	if d.Weight.Tensor == "" {
		return nil, nil
	}
	l := &Linear{Weight: d.Weight, Rows: d.Weight.Rows, Cols: d.Weight.Cols, threads: m.threads}
	var err error
	if m.room == nil {
		l.W, err = m.values(d.Weight)
	} else {
		err = m.keepOrStream(l)
	}
	if err != nil {
		return nil, err
	}
	if d.Bias.Tensor != "" {
		if l.Bias, err = m.values(d.Bias); err != nil {
			return nil, err
		}
	}
	return l, nil
}

// norm reads a norm; there may be none.
func (m *Model) norm(d *arch.Norm) (*Norm, error) {
	if d == nil {
		return nil, nil
	}
	gamma, err := m.values(d.Gamma)
	if err != nil {
		return nil, err
	}
	n := &Norm{Weight: d.Gamma, Gamma: gamma, Eps: float32(d.Eps), Centered: d.Centered, model: m}
	if d.Beta.Tensor != "" {
		n.Beta, err = m.values(d.Beta)
	}
	return n, err
}
