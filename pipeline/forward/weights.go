package forward

import (
	"cmp"
	"errors"
	"fmt"
	"io"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// buffer is the scratch memory of one goroutine; its slices grow to the largest use.
type buffer struct {
	raw []byte
	f32 []float32

	floats []float32 // for a block
	keys   kernel.Packed
}

// grow returns a slice of n elements with arbitrary content.
func grow[T any](s *[]T, n int) []T {
	if cap(*s) < n {
		*s = make([]T, n)
	}
	return (*s)[:n]
}

// weight is an opened tensor: rows of cols elements; a vector is one row.
type weight struct {
	name  string
	dtype tensor.DType
	cols  int
	r     *io.SectionReader
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
	cols := w.Cols
	if cols == 0 {
		cols = w.Rows
	}
	return &weight{name: w.Tensor, dtype: info.DType, cols: cols, r: r}, nil
}

// rows widens len(dst)/cols rows from row lo on. A value that is not a finite float32 is tensor.ErrCorrupt.
func (w *weight) rows(dst []float32, lo int, b *buffer) error {
	size := int(w.dtype.Size())
	raw := grow(&b.raw, len(dst)*size)
	n, err := w.r.ReadAt(raw, int64(lo)*int64(w.cols)*int64(size))
	switch {
	case n == len(raw): // with or without io.EOF
	case err == nil || errors.Is(err, io.EOF):
		return fmt.Errorf("%s: ends within row %d: %w", w.name, lo+n/size/w.cols, tensor.ErrCorrupt)
	default:
		return fmt.Errorf("%s: %w", w.name, err)
	}
	if err := widen(dst, raw, w.dtype); err != nil {
		return fmt.Errorf("%s: %w", w.name, err)
	}
	if i := kernel.NonFinite(dst); i >= 0 {
		return fmt.Errorf("%s: element [%d %d] is %v in float32: %w", w.name, lo+i/w.cols, i%w.cols, dst[i], tensor.ErrCorrupt)
	}
	return nil
}

// values reads a whole tensor.
func (m *Model) values(w arch.Weight) ([]float32, error) {
	x := make([]float32, w.Rows*max(w.Cols, 1))
	if err := m.read(x, w, 0); err != nil {
		return nil, err
	}
	return x, nil
}

// read fills x with whole rows of a tensor from row first on.
func (m *Model) read(x []float32, w arch.Weight, first int) error {
	t, err := m.open(w)
	if err != nil {
		return err
	}
	rows := len(x) / t.cols
	step := max(1, min(readBytes/4/t.cols, (rows+unitsPerThread*m.threads-1)/(unitsPerThread*m.threads)))
	failed := make([]error, (rows+step-1)/step)
	kernel.Parallel(m.threads, len(failed), func(u, end int) {
		b := m.buffers.Get().(*buffer)
		defer m.buffers.Put(b)
		for ; u < end; u++ {
			lo, hi := u*step, min((u+1)*step, rows)
			failed[u] = t.rows(x[lo*t.cols:hi*t.cols], first+lo, b)
		}
	})
	return cmp.Or(failed...)
}

// vector returns a vector that must not be changed, such as a norm's gain or a bias.
func (m *Model) vector(w arch.Weight) ([]float32, error) {
	m.lock.Lock()
	x := m.vectors[w.Tensor]
	m.lock.Unlock()
	if x != nil {
		return x, nil
	}
	x, err := m.values(w)
	if err == nil && m.keeping {
		m.lock.Lock()
		m.vectors[w.Tensor] = x
		m.lock.Unlock()
	}
	return x, err
}
