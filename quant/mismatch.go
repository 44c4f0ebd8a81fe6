package quant

import "github.com/llmexport/llmexport/runtime/kernel"

// deviceStrip is how many rows a device takes at a time.
const deviceStrip = 1024

// mismatch returns strength · (C - H) (H + ridge·I)⁻¹ [n, n], which multiplied by weights is the change of their target:
// w* - w = w (C + ridge·I) (H + ridge·I)⁻¹ - w. factor is M of [invertFactor] for H + ridge·I in the order of positions,
// so that the inverse is MᵀM.
func mismatch(in *Stats, order []int, factor []float32, strength float32, threads int) []float32 {
	n := in.Cols
	m := &mismatching{n: n, in: in, order: order, factor: factor, strength: strength, d: make([]float32, n*n)}
	from := 0
	if kernel.HasDevice() {
		from = m.offload(threads)
	}
	if from == n {
		return m.d
	}
	size := kernel.Span(threads, n-from, factorStrip, factorLay)
	kernel.Parallel(threads, (n-from+size-1)/size, func(u, to int) {
		x, y := make([]float32, size*n), make([]float32, size*n)
		for lo := from + u*size; lo < min(n, from+to*size); lo += size {
			rows := min(size, n-lo)
			m.differences(x, lo, rows)
			divide(x, y, factor, rows, n)
			m.store(x, lo, rows)
		}
	})
	return m.d
}

// mismatching is the state of mismatch.
type mismatching struct {
	n         int
	in        *Stats
	order     []int
	factor, d []float32
	strength  float32
}

// differences sets x to rows of C - H in the order of positions.
func (m *mismatching) differences(x []float32, lo, rows int) {
	n := m.n
	for i := range rows {
		c, h := m.in.Cross[(lo+i)*n:][:n], m.in.Hessian[(lo+i)*n:][:n]
		for p, j := range m.order {
			x[i*n+p] = c[j] - h[j]
		}
	}
}

// store makes x rows of the result, in the order of columns.
func (m *mismatching) store(x []float32, lo, rows int) {
	n := m.n
	for i := range rows {
		to := m.d[(lo+i)*n:][:n]
		for p, j := range m.order {
			to[j] = m.strength * x[i*n+p]
		}
	}
}

// offload lets the device compute rows, and returns the first one that it did not.
func (m *mismatching) offload(threads int) (from int) {
	n := m.n
	x, y := make([]float32, min(deviceStrip, n)*n), make([]float32, min(deviceStrip, n)*n)
	down, across := kernel.NewVersion(), kernel.NewVersion() // the same matrix in two layouts
	for ; from < n; from += deviceStrip {
		rows := min(deviceStrip, n-from)
		kernel.Parallel(threads, rows, func(lo, hi int) { m.differences(x[lo*n:], from+lo, hi-lo) })
		p := kernel.Product{Dst: y, Rows: rows, Cols: n, Stride: n, Parts: []kernel.Part{{
			A: kernel.Factor{Data: x, Layout: kernel.ByRow, Stride: n},
			B: kernel.Factor{Data: m.factor, Layout: kernel.ByRow, Stride: n, Version: across}, K: n, Reach: kernel.Until,
		}}}
		if !kernel.Offload(&p) {
			break
		}
		p.Dst, p.Parts = x, []kernel.Part{{
			A: kernel.Factor{Data: y, Layout: kernel.ByRow, Stride: n},
			B: kernel.Factor{Data: m.factor, Layout: kernel.ByPosition, Stride: n, Version: down}, K: n, Reach: kernel.From,
		}}
		if !kernel.Offload(&p) {
			break
		}
		kernel.Parallel(threads, rows, func(lo, hi int) { m.store(x[lo*n:], from+lo, hi-lo) })
	}
	return min(from, n)
}
