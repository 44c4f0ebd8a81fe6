package quant

import (
	"sync"
	"sync/atomic"

	"github.com/llmexport/llmexport/runtime/kernel"
)

// deviceStrip is how many rows a device takes at a time.
const deviceStrip = 1024

// mismatched returns strength · (C - H) (H + ridge·I)⁻¹ [n, n], which multiplied by weights is the change of their target:
// w* - w = w (C + ridge·I) (H + ridge·I)⁻¹ - w.
func (e *feedback) mismatched(in *Stats, threads int) []float32 {
	n := e.cols
	d := kernel.Scratch(n * n)
	e.divide(n, threads, func(x []float32, r int) {
		c, h := in.Cross[r*n:][:n], in.Hessian[r*n:][:n]
		for p, j := range e.order {
			x[p] = c[j] - h[j]
		}
	}, func(x []float32, r int) {
		to := d[r*n:][:n]
		for p, j := range e.order {
			to[j] = e.strength * x[p]
		}
	})
	return d
}

// divide multiplies rows by (H + ridge·I)⁻¹ = MᵀM: load sets a row, in the order of positions, and store takes its product. Both are
// called for different rows at a time, store once for each.
func (e *feedback) divide(rows, threads int, load, store func(x []float32, row int)) {
	if !kernel.HasDevice() {
		e.divideHere(0, rows, threads, load, store)
		return
	}
	for _, lo := range e.divideOffload(rows, threads, load, store) {
		e.divideHere(lo, min(lo+deviceStrip, rows), threads, load, store)
	}
}

// divideHere is divide for rows from to to-1, on this CPU.
func (e *feedback) divideHere(from, to, threads int, load, store func(x []float32, row int)) {
	n := e.cols
	size := kernel.Span(max(1, threads), to-from, factorStrip, factorLay)
	kernel.Parallel(threads, (to-from+size-1)/size, func(u, end int) {
		x, y := make([]float32, size*n), make([]float32, size*n)
		for lo := from + u*size; lo < min(to, from+end*size); lo += size {
			many := min(size, to-lo)
			for i := range many {
				load(x[i*n:][:n], lo+i)
			}
			divide(x, y, e.factor, many, n)
			for i := range many {
				store(x[i*n:][:n], lo+i)
			}
		}
	})
}

// divideOffload lets the device multiply strips of rows, one while another one is loaded or stored, and returns the first rows of those that it
// did not.
func (e *feedback) divideOffload(rows, threads int, load, store func(x []float32, row int)) (left []int) {
	strips := (rows + deviceStrip - 1) / deviceStrip
	failed := make([]bool, strips)
	var next atomic.Int32
	var wait sync.WaitGroup
	for range min(2, strips) {
		wait.Go(func() {
			size := min(deviceStrip, rows) * e.cols
			x, y, done := kernel.Scratch(size), kernel.Scratch(size), true
			for i := int(next.Add(1)) - 1; i < strips; i = int(next.Add(1)) - 1 {
				done = done && e.divideStrip(x, y, i*deviceStrip, min((i+1)*deviceStrip, rows), threads, load, store)
				failed[i] = !done
			}
		})
	}
	wait.Wait()
	for i, f := range failed {
		if f {
			left = append(left, i*deviceStrip)
		}
	}
	return left
}

// divideStrip lets the device multiply rows from to to-1, and reports whether it did. x and y are scratch for them.
func (e *feedback) divideStrip(x, y []float32, from, to, threads int, load, store func(x []float32, row int)) bool {
	n, many := e.cols, to-from
	each := func(f func(x []float32, row int)) {
		kernel.Parallel(threads, many, func(i, end int) {
			for ; i < end; i++ {
				f(x[i*n:][:n], from+i)
			}
		})
	}
	each(load)
	p := kernel.Product{Dst: y, Rows: many, Cols: n, Stride: n, Parts: []kernel.Part{{
		A: kernel.Factor{Data: x, Layout: kernel.ByRow, Stride: n},
		B: kernel.Factor{Data: e.factor, Layout: kernel.ByRow, Stride: n, Version: e.versions.rows}, K: n, Reach: kernel.Until,
	}}}
	if !kernel.Offload(&p) {
		return false
	}
	p.Dst, p.Parts = x, []kernel.Part{{
		A: kernel.Factor{Data: y, Layout: kernel.ByRow, Stride: n},
		B: kernel.Factor{Data: e.factor, Layout: kernel.ByPosition, Stride: n, Version: e.versions.factor}, K: n, Reach: kernel.From,
	}}
	if !kernel.Offload(&p) {
		return false
	}
	each(store)
	return true
}

// divide replaces rows of x [rows, n] by their products with the inverse MᵀM of a matrix whose factor is M, see [invertFactor]. y is
// scratch of the same size.
func divide(x, y, factor []float32, rows, n int) {
	for p := 0; p < n; p += factorBlock {
		b := min(factorBlock, n-p)
		kernel.MatMulT(y[p:], x, factor[p*n:], rows, b, p+b, n, n, n)
	}
	for p := 0; p < n; p += factorBlock {
		b := min(factorBlock, n-p)
		kernel.MatMul(x[p:], y[p:], factor[p*n+p:], rows, b, n-p, n, n, n)
	}
}
