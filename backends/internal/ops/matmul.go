package ops

import (
	"fmt"

	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/mnn"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// MatMul is a BatchMatMul: matrices of the last two dimensions, one product for each position in the broadcast shape of the
// dimensions before them.
type MatMul struct {
	// Shape of the output.
	Shape   []int
	p       *mnn.BatchMatMul
	f       func(dst, a, b []float32, e, l, h int, transposeA, transposeB bool)
	e, l, h int
	a, b    []int // matrix by product
}

// NewMatMul prepares a BatchMatMul of tensors of these shapes.
func NewMatMul(p *mnn.BatchMatMul, a, b []int) (*MatMul, error) {
	wrong := func() error { return fmt.Errorf("matrices %v and %v: %w", a, b, tensor.ErrCorrupt) }
	if len(a) < 2 || len(b) < 2 {
		return nil, fmt.Errorf("matrices %v and %v: %w", a, b, tensor.ErrUnsupported)
	}
	na, nb := len(a)-2, len(b)-2
	m := &MatMul{p: p, f: kernel.EngineMatMul, e: a[na], l: a[na+1], h: b[nb+1]}
	l := b[nb]
	if p.TransposeX {
		m.e, m.l = m.l, m.e
	}
	if p.TransposeY {
		l, m.h = m.h, l
	}
	if l != m.l || m.e < 1 || m.l < 1 || m.h < 1 {
		return nil, wrong()
	}
	batch, sa, sb, err := broadcast(a[:na], b[:nb])
	if err != nil {
		return nil, err
	}
	m.Shape = append(batch, m.e, m.h)
	if err := Limited(m.Shape); err != nil {
		return nil, err
	}
	for i := range Count(batch) {
		x, y, rest := 0, 0, i
		for k := len(batch) - 1; k >= 0; k-- {
			x, y = x+rest%batch[k]*sa[k], y+rest%batch[k]*sb[k]
			rest /= batch[k]
		}
		m.a, m.b = append(m.a, x), append(m.b, y)
	}
	return m, nil
}

// Products is how many matrices are multiplied.
func (m *MatMul) Products() int { return len(m.a) }

// Do writes products lo to hi-1 to out, which holds all of them.
func (m *MatMul) Do(out, a, b []float32, lo, hi int) {
	for i := lo; i < hi; i++ {
		m.f(out[i*m.e*m.h:], a[m.a[i]*m.e*m.l:], b[m.b[i]*m.l*m.h:], m.e, m.l, m.h, m.p.TransposeX, m.p.TransposeY)
	}
}

func runMatMul(p *mnn.BatchMatMul, in []Tensor, threads int) (Tensor, error) {
	return multiply(p, in, threads, kernel.EngineMatMul)
}

// HalfMatMul runs a BatchMatMul in half precision.
func HalfMatMul(p *mnn.BatchMatMul, in []Tensor, threads int) (Tensor, error) {
	return multiply(p, in, threads, kernel.HalfMatMul)
}

func multiply(
	p *mnn.BatchMatMul, in []Tensor, threads int, f func(dst, a, b []float32, e, l, h int, transposeA, transposeB bool),
) (Tensor, error) {
	if len(in) != 2 {
		return Tensor{}, fmt.Errorf("matrix product with %d inputs: %w", len(in), tensor.ErrUnsupported)
	}
	if in[0].Ints != nil || in[1].Ints != nil {
		return Tensor{}, fmt.Errorf("matrix product of integers: %w", tensor.ErrUnsupported)
	}
	m, err := NewMatMul(p, in[0].Shape, in[1].Shape)
	if err != nil {
		return Tensor{}, err
	}
	m.f = f
	out := NewFloats(m.Shape...)
	kernel.Parallel(threads, m.Products(), func(lo, hi int) { m.Do(out.Floats, in[0].Floats, in[1].Floats, lo, hi) })
	return out, nil
}
