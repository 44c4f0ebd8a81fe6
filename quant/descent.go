package quant

import (
	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// descentPanel is the number of columns whose codes move one by one between two products. It holds any block except a
// whole row.
const descentPanel = 128

// fit holds the coefficients of the objective for the scale and zero term of a block of a row. With the block's codes q,
// the gradient G = (ŵ - t)(H + ridge·I) and K the block's square of the damped Hessian, moving them by ds and dz changes
// the objective by
//
//	2 (gq·ds + g1·dz) + qq·ds² + 2·q1·ds·dz + ones·dz²,   gq = G·q, g1 = G·1, qq = q K qᵀ, q1 = q K 1ᵀ, ones = 1 K 1ᵀ
type fit struct{ gq, g1, qq, q1 float64 }

// Descend does on this CPU, in one thread, what a device does for a [kernel.Descent].
func Descend(d *kernel.Descent) {
	e := &feedback{spec: Spec{Bits: d.Bits, Symmetric: d.Zero == nil, Scale: tensor.F32}, cols: d.Cols, block: d.Block, blocks: d.Cols / d.Block,
		sweeps: d.Sweeps, hessian: d.Hessian.Data, ridge: d.Ridge, sums: d.Sums, total: d.Totals}
	if d.Half {
		e.spec.Scale = tensor.F16
	}
	b := &batch{rows: d.Rows, dst: Blocks{Scale: d.Scale, Zero: d.Zero}, target: d.Target, code: d.Codes, work: make([]float32, len(d.Codes))}
	e.scratch(b, d.Rows)
	e.descend(b)
}

// descend lowers the objective of every row, block by block: first the scale and zero term by least squares, then each
// code in turn by its best move. No step raises it, up to rounding. It stops early when nothing moves, because further
// sweeps would change nothing.
func (e *feedback) descend(b *batch) {
	if e.sweeps == 0 {
		return
	}
	for r := range b.rows {
		for at := range e.blocks {
			e.residual(b, r, at, at*e.block, (at+1)*e.block)
		}
	}
	for range e.sweeps {
		moved := false
		for at := range e.blocks {
			if e.refit(b, at) {
				moved = true
			}
			if e.move(b, at) {
				moved = true
			}
		}
		if !moved {
			return
		}
	}
}

// residual sets work to ŵ - t for columns lo to hi-1 of a block of row r.
func (e *feedback) residual(b *batch, r, at, lo, hi int) {
	scale, zero := b.terms(r, e.blocks, at)
	from, to := r*e.cols+lo, r*e.cols+hi
	code, target := b.code[from:to], b.target[from:to]
	for i := range b.work[from:to] {
		b.work[from+i] = float32(scale*code[i]) + zero - target[i]
	}
}

// gradient sets product to (ŵ - t)(H + ridge·I) for columns lo to hi-1.
func (e *feedback) gradient(b *batch, lo, hi int) {
	n, width := e.cols, hi-lo
	kernel.MatMul(b.product, b.work, e.hessian[lo:], b.rows, width, n, width, n, n) // symmetric: its columns are its rows
	for r := range b.rows {
		kernel.AddScaled(b.product[r*width:(r+1)*width], b.work[r*n+lo:][:width], e.ridge)
	}
}

// refit moves scales and zero terms of block at, and reports whether any moved. Where the block is a single panel,
// product is its gradient afterwards.
func (e *feedback) refit(b *batch, at int) bool {
	n, g := e.cols, e.block
	from, end := at*g, (at+1)*g
	clear(b.fit)
	for lo := from; lo < end; lo += descentPanel {
		hi := min(lo+descentPanel, end)
		width := hi - lo
		e.gradient(b, lo, hi)
		kernel.MatMul(b.second, b.code[from:], e.hessian[from*n+lo:], b.rows, width, g, width, n, n)
		for r := range b.rows {
			code, grad, kq := b.code[r*n+lo:r*n+hi], b.product[r*width:][:width], b.second[r*width:][:width]
			kernel.AddScaled(kq, code, e.ridge)
			b.fit[r].slope(code, grad)
			b.fit[r].curve(code, kq, e.sums[lo:hi])
		}
	}
	moved := false
	for r := range b.rows {
		scale, zero := b.terms(r, e.blocks, at)
		s, z := b.fit[r].solve(scale, zero, e.total[at], e.spec)
		if s == scale && z == zero {
			continue
		}
		moved = true
		b.dst.Scale[r*e.blocks+at] = s
		if b.dst.Zero != nil {
			b.dst.Zero[r*e.blocks+at] = z
		}
		if g <= descentPanel {
			kernel.AddScaled(b.product[r*g:(r+1)*g], b.second[r*g:(r+1)*g], s-scale)
			kernel.AddScaled(b.product[r*g:(r+1)*g], e.sums[from:end], z-zero)
		} else {
			e.residual(b, r, at, from, end)
		}
	}
	return moved
}

// slope sums over some columns of the block what depends on the gradient.
func (f *fit) slope(code, grad []float32) {
	gq, g1 := kernel.CodeSums(code, grad)
	f.gq += gq
	f.g1 += g1
}

// curve sums over some columns of the block what does not.
func (f *fit) curve(code, kq, sums []float32) {
	qq, _ := kernel.CodeSums(code, kq)
	q1, _ := kernel.CodeSums(code, sums)
	f.qq += qq
	f.q1 += q1
}

// solve returns the scale and zero term, rounded to their type, that minimise the objective, or the given ones if these
// do not lower it.
func (f *fit) solve(scale, zero float32, ones float64, s Spec) (float32, float32) {
	round := func(v float64) float32 {
		if s.Scale == tensor.F16 {
			return kernel.RoundF16(float32(v))
		}
		return float32(v)
	}
	newScale, newZero := scale, zero
	// Codes that hardly differ do not determine the scale.
	det := float64(f.qq*ones) - float64(f.q1*f.q1)
	switch {
	case s.Symmetric && f.qq > 0:
		newScale = round(float64(scale) - f.gq/f.qq)
	case !s.Symmetric && det > 1e-9*f.qq*ones:
		newScale = round(float64(scale) + (float64(f.g1*f.q1)-float64(f.gq*ones))/det)
	}
	if !s.stores(newScale) {
		newScale = scale
	}
	ds := float64(newScale) - float64(scale)
	if !s.Symmetric {
		// The best zero term for the scale as it is stored.
		newZero = round(float64(zero) - (f.g1+float64(ds*f.q1))/ones)
		if !isFinite(newZero) {
			return scale, zero
		}
	}
	dz := float64(newZero) - float64(zero)
	change := 2*(float64(f.gq*ds)+float64(f.g1*dz)) + float64(float64(ds*ds)*f.qq) + 2*float64(float64(ds*dz)*f.q1) + float64(float64(dz*dz)*ones)
	if !(change < 0) {
		return scale, zero
	}
	return newScale, newZero
}

// move gives every code of block at, one after the other, the value that minimises the objective, and reports whether
// any changed.
func (e *feedback) move(b *batch, at int) bool {
	n, g := e.cols, e.block
	grid := signed(e.spec.Bits)
	moved := false
	for lo := at * g; lo < (at+1)*g; lo += descentPanel {
		hi := min(lo+descentPanel, (at+1)*g)
		width := hi - lo
		if g > descentPanel {
			e.gradient(b, lo, hi)
		}
		h := b.panel[:width*width]
		for i := range width {
			copy(h[i*width:(i+1)*width], e.hessian[(lo+i)*n+lo:])
			h[i*width+i] += e.ridge
		}
		for r := range b.rows {
			scale, _ := b.terms(r, e.blocks, at)
			inverse := 1 / scale
			code, grad := b.code[r*n+lo:r*n+hi], b.product[r*width:][:width]
			for i, q := range code {
				slope, curve := grad[i], h[i*width+i]
				best := grid.nearest(q - float32(slope/curve*inverse))
				if best == q {
					continue
				}
				d := float32(scale * (best - q))
				if change := float64(d) * (2*float64(slope) + float64(float64(d)*float64(curve))); !(change < 0) {
					continue
				}
				code[i] = best
				moved = true
				kernel.AddScaled(grad[i+1:], h[i*width+i+1:(i+1)*width], d)
			}
			e.residual(b, r, at, lo, hi)
		}
	}
	return moved
}
