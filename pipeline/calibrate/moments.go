package calibrate

import (
	"fmt"

	"github.com/llmexport/llmexport/quant"
	"github.com/llmexport/llmexport/runtime/kernel"
)

// moments gathers second moments of the inputs of an op: the lower half of the sum of x̂ x̂ᵀ and, if a float stream runs next to
// the quantized one, the sum of x x̂ᵀ. Windows are added one by one, in order, so that the sums depend neither on threads nor on
// how many windows are in memory.
type moments struct {
	cols    int
	tokens  int64
	hessian []float32
	cross   []float32 // or nil

	turned, part []float32 // scratch of cross
}

func newMoments(cols int, cross bool) *moments {
	m := &moments{cols: cols, hessian: make([]float32, cols*cols)}
	if cross {
		m.cross = make([]float32, cols*cols)
	}
	return m
}

// rowsAtATime rows of a moment are one unit of work; the last rows cost most, so units are small.
const rowsAtATime = 16

// add takes the inputs of one window without its first skip tokens: quantized [tokens, cols], and those of the float model,
// which are not read if there is no cross moment.
func (m *moments) add(quantized, float []float32, tokens, skip, threads int) {
	x := quantized[skip*m.cols : tokens*m.cols]
	n := tokens - skip
	m.tokens += int64(n)
	units := (m.cols + rowsAtATime - 1) / rowsAtATime
	kernel.Parallel(threads, units, func(lo, hi int) {
		kernel.SyrkRows(m.hessian, x, n, m.cols, lo*rowsAtATime, min(hi*rowsAtATime, m.cols), m.cols, m.cols)
	})
	if m.cross == nil {
		return
	}
	f := float[skip*m.cols : tokens*m.cols]
	m.turned, m.part = grow(m.turned, len(f)), grow(m.part, m.cols*m.cols)
	kernel.Parallel(threads, units, func(lo, hi int) {
		from, to := lo*rowsAtATime, min(hi*rowsAtATime, m.cols)
		transpose(m.turned[from*n:to*n], f[from:], n, to-from, m.cols)
		kernel.MatMul(m.part[from*m.cols:], m.turned[from*n:], x, to-from, m.cols, n, m.cols, n, m.cols)
		kernel.Add(m.cross[from*m.cols:to*m.cols], m.cross[from*m.cols:to*m.cols], m.part[from*m.cols:to*m.cols])
	})
}

// transpose writes the first cols columns of n rows of src, ld apart, as rows of dst [cols, n].
func transpose(dst, src []float32, n, cols, ld int) {
	for t := range n {
		for j, v := range src[t*ld : t*ld+cols] {
			dst[j*n+t] = v
		}
	}
}

// stats divides by the number of tokens and fills the upper half. The moments cannot be used afterwards.
func (m *moments) stats() (*quant.Stats, error) {
	n := m.cols
	factor := 1 / float32(max(m.tokens, 1))
	kernel.Scale(m.hessian, m.hessian, factor)
	for i := range n {
		for j := range i {
			m.hessian[j*n+i] = m.hessian[i*n+j]
		}
	}
	if m.cross != nil {
		kernel.Scale(m.cross, m.cross, factor)
	}
	if kernel.NonFinite(m.hessian) >= 0 || kernel.NonFinite(m.cross) >= 0 {
		return nil, fmt.Errorf("activations are NaN, infinite, or too large to be squared")
	}
	return &quant.Stats{Cols: n, Tokens: m.tokens, Hessian: m.hessian, Cross: m.cross}, nil
}

func grow(b []float32, n int) []float32 {
	if cap(b) < n {
		return make([]float32, n)
	}
	return b[:n]
}
