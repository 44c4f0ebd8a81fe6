package reference

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// buffer is what one goroutine needs; its slices grow to the largest use.
type buffer struct {
	raw []byte
	f32 []float32

	floats []float32 // of a block
	keys   kernel.Packed
}

// grow is a slice of n elements whose content is arbitrary.
func grow[T any](s *[]T, n int) []T {
	if cap(*s) < n {
		*s = make([]T, n)
	}
	return (*s)[:n]
}

// weight is an opened tensor: rows of cols elements, a vector being one row.
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

// rows widens len(dst)/cols rows from row lo on. A value that is no finite float32 is tensor.ErrCorrupt.
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

// vector reads a norm's gain or a bias.
func (m *Model) vector(w arch.Weight) ([]float32, error) {
	t, err := m.open(w)
	if err != nil {
		return nil, err
	}
	x := make([]float32, t.cols)
	return x, t.rows(x, 0, new(buffer))
}

// embed gathers the rows of all tokens, windows one after another.
func (m *Model) embed(ctx context.Context, windows [][]int32) ([]float32, error) {
	d := m.decoder
	starts, total := make([]int, len(windows)), 0
	for i, w := range windows {
		if d.MaxPositions > 0 && len(w) > d.MaxPositions {
			return nil, fmt.Errorf("window %d has %d tokens, the longest context of the checkpoint is %d: %w", i, len(w), d.MaxPositions, tensor.ErrUnsupported)
		}
		for _, token := range w {
			if token < 0 || int(token) >= d.Vocab {
				return nil, fmt.Errorf("window %d: token %d is not in a vocabulary of %d", i, token, d.Vocab)
			}
		}
		starts[i] = total
		total += len(w)
	}
	table, err := m.open(d.Embedding)
	if err != nil {
		return nil, err
	}
	h := make([]float32, total*d.Hidden)
	if err := m.each(ctx, len(windows), func(i int, b *buffer) error {
		at := starts[i] * d.Hidden
		for _, token := range windows[i] {
			if err := table.rows(h[at:at+d.Hidden], int(token), b); err != nil {
				return err
			}
			at += d.Hidden
		}
		return nil
	}); err != nil {
		return nil, err
	}
	if d.EmbeddingNorm != nil {
		if err := m.norm(h, h, d.EmbeddingNorm); err != nil {
			return nil, err
		}
	}
	m.scaleAll(h, d.EmbeddingScale)
	if d.Positions.Tensor != "" {
		return h, m.addPositions(ctx, h, windows, starts)
	}
	return h, nil
}

// addPositions adds the vectors of positions to windows, which begin at rows starts of h.
func (m *Model) addPositions(ctx context.Context, h []float32, windows [][]int32, starts []int) error {
	d := m.decoder
	table, err := m.open(d.Positions)
	if err != nil {
		return err
	}
	return m.each(ctx, len(windows), func(i int, b *buffer) error {
		row := grow(&b.f32, d.Hidden)
		for p := range windows[i] {
			if err := table.rows(row, d.FirstPosition+p, b); err != nil {
				return err
			}
			at := h[(starts[i]+p)*d.Hidden:][:d.Hidden]
			kernel.Add(at, at, row)
		}
		return nil
	})
}
