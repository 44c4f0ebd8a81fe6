package quant

import (
	"math"
	"slices"

	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// chooseRows is the number of rows whose grids are chosen at the same time, before any of them has codes.
const chooseRows = 8

// Of the grids around the one that a search finds, that one is taken which leaves the least of the objective after the feedback within
// the block. So many are tried in either direction, scales first and then zero terms; steps are in units of the scale.
const (
	gridTries = 3
	scaleStep = .03
	zeroStep  = .125
)

// chooser chooses the codes and grids of all rows of a refinement again, row after row and in every row column after column: Babai's way
// to a near point of a lattice, with the moments of inputs and of outputs as the metric.
//
// With (G + r I) = Uᵀ D U, U unit upper triangular, the objective is the sum over rows of D_i Z_i (H + ridge I) Z_iᵀ, Z = U E. So
// after the rows behind it, row i aims at a_i = t_i - Σ_j>i U_ij E_j = t_i + Σ_j>i V_ij Z_j, V the inverse of U, and what its codes
// leave of that, Z_i = ŵ_i - a_i, is all that counts: GPTQ with another target. Columns of a_i depend only on the same columns of
// other rows. So blocks of columns come one after the other, and in each of them the rows.
type chooser struct {
	*refinement
	rowOrder []int     // row of every position; the last position comes first
	mix      []float32 // V in the order of positions, above the diagonal [rows, rows]
	errors   []float32 // of columns, in units of the factor, in the order of positions [rows, cols]

	first, columns int       // the positions of columns at hand
	factor         []float32 // of these columns [columns, columns]
	aims, drawn    []float32 // of rows, and what the errors of earlier columns take from them [rows, columns]
	product        []float32
	missed         []float32 // Z of the rows at hand [chooseRows, columns]
	value, trial   []float32 // what the rows at hand choose codes for, and a copy [chooseRows, columns]
	importance     []float32 // the same for all rows at hand
	scale, zero    []float32 // of the rows at hand
}

// choose changes all codes, and the grids of blocks that are moved at once. It changes nothing where the moments of outputs are not
// positive definite, or numbers leave the range of float32.
func (r *refinement) choose() {
	m, width := r.rows, r.width
	c := &chooser{
		refinement: r, errors: r.pulled, factor: make([]float32, width*width),
		aims: make([]float32, m*width), drawn: make([]float32, m*width), product: make([]float32, m*width),
		missed: make([]float32, chooseRows*width), value: make([]float32, chooseRows*width), trial: make([]float32, chooseRows*width),
		importance: make([]float32, chooseRows*width), scale: make([]float32, chooseRows), zero: make([]float32, chooseRows),
	}
	if !c.decompose() {
		return
	}
	was := Blocks{slices.Clone(r.dst.Codes), slices.Clone(r.dst.Scale), slices.Clone(r.dst.Zero)}
	for c.first = r.cols; c.first > 0; {
		c.columns = min(width, c.first)
		c.first -= c.columns
		c.chooseColumns()
	}
	if !kernel.Finite(r.threads, c.errors) {
		copy(r.dst.Codes, was.Codes)
		copy(r.dst.Scale, was.Scale)
		copy(r.dst.Zero, was.Zero)
	}
}

// decompose sets the order of rows and mix, if the moments of outputs are positive definite.
func (c *chooser) decompose() bool {
	m := c.rows
	diagonal := make([]float32, m)
	for i := range diagonal {
		diagonal[i] = c.outputs[i*m+i]
	}
	c.rowOrder = positions(diagonal, m, c.ordering)
	c.mix = make([]float32, m*m)
	for i, a := range c.rowOrder {
		for j, b := range c.rowOrder[:i+1] {
			c.mix[i*m+j] = c.outputs[a*m+b]
		}
	}
	if !invertFactor(c.mix, m, c.threads) {
		return false
	}
	for j := range m { // row j is that of the inverse of the factor of Uᵀ D U, column j of V times a number
		for i := range j {
			c.mix[i*m+j] = c.mix[j*m+i] / c.mix[j*m+j]
		}
	}
	return true
}

// chooseColumns chooses the codes of the columns at hand.
func (c *chooser) chooseColumns() {
	m, n, width, end := c.rows, c.cols, c.columns, c.first+c.columns
	all := c.feedback.factor
	for i := range width {
		copy(c.factor[i*width:(i+1)*width], all[(c.first+i)*n+c.first:])
	}
	for i := range chooseRows {
		copy(c.importance[i*width:(i+1)*width], c.feedback.importance[c.first:])
	}
	c.each(0, m, func(lo, hi int) {
		for i := lo; i < hi; i++ {
			target := c.target[c.rowOrder[i]*n:][:n]
			for j, col := range c.order[c.first:end] {
				c.aims[i*width+j] = target[col]
			}
		}
		clear(c.drawn[lo*width : hi*width])
		if end < n {
			kernel.MatMul(c.drawn[lo*width:], c.errors[lo*n+end:], all[end*n+c.first:], hi-lo, width, n-end, width, n, n)
		}
	})
	for hi := m; hi > 0; hi -= chooseRows {
		lo := max(0, hi-chooseRows)
		if width == c.feedback.block {
			c.chooseGrids(lo, hi)
		}
		for i := hi - 1; i >= lo; i-- {
			c.chooseCodes(i, lo, hi)
		}
		c.each(0, lo, func(from, to int) {
			kernel.MatMul(c.product[from*width:], c.mix[from*m+lo:], c.missed, to-from, width, hi-lo, width, m, width)
			kernel.Add(c.aims[from*width:to*width], c.aims[from*width:to*width], c.product[from*width:to*width])
		})
	}
}

// chooseGrids chooses the grids of positions lo to hi-1 of rows, as if none of them erred.
func (c *chooser) chooseGrids(lo, hi int) {
	width := c.columns
	kernel.Parallel(c.threads, hi-lo, func(from, to int) {
		value := c.value[from*width : to*width]
		difference(value, c.aims[(lo+from)*width:], c.drawn[(lo+from)*width:])
		scale, zero := c.scale[from:to], c.zero[from:to]
		searchGrids(scale, zero, value, c.importance[from*width:to*width], c.spec, c.candidates)
		for i := range scale {
			if !c.spec.stores(scale[i]) || !isFinite(zero[i]) {
				continue
			}
			part := value[i*width : (i+1)*width]
			s, z := c.better(part, c.trial[(from+i)*width:(from+i+1)*width], scale[i], zero[i])
			at := c.rowOrder[lo+from+i]*c.blocks + c.order[c.first]/c.feedback.block
			c.dst.Scale[at] = s
			if c.dst.Zero != nil {
				c.dst.Zero[at] = z
			}
		}
	})
}

// better returns the best of the grids around a given one for some values.
func (c *chooser) better(value, trial []float32, scale, zero float32) (s, z float32) {
	round := func(v float32) float32 {
		if c.spec.Scale == tensor.F16 {
			return kernel.RoundF16(v)
		}
		return v
	}
	s, z = scale, zero
	least := c.left(value, trial, s, z, math.Inf(1))
	try := func(scale, zero float32) {
		if !c.spec.stores(scale) || !isFinite(zero) {
			return
		}
		if sum := c.left(value, trial, scale, zero, least); sum < least {
			least, s, z = sum, scale, zero
		}
	}
	for i := range 2 * gridTries {
		step := float32(i/2+1) * float32(1-2*(i%2)) // 1, -1, 2, -2, ...
		try(round(scale+float32(scale*float32(step*scaleStep))), zero)
	}
	if c.spec.Symmetric {
		return s, z
	}
	scale = s
	for i := range 2 * gridTries {
		step := float32(i/2+1) * float32(1-2*(i%2))
		try(scale, round(zero+float32(scale*float32(step*zeroStep))))
	}
	return s, z
}

// left is what codes of a grid leave of the objective, in units of the row, or more than most if it is more. It overwrites trial.
func (c *chooser) left(value, trial []float32, scale, zero float32, most float64) (sum float64) {
	copy(trial, value)
	grid, inverse, width := signed(c.spec.Bits), 1/scale, c.columns
	for j := width - 1; j >= 0 && !(sum > most); j-- {
		q := grid.nearest(float32((trial[j] - zero) * inverse))
		err := (trial[j] - (float32(scale*q) + zero)) / c.factor[j*width+j]
		sum += float64(float64(err) * float64(err))
		kernel.AddScaled(trial[:j], c.factor[j*width:j*width+j], -err)
	}
	return sum
}

// chooseCodes chooses the codes of position i of rows, after positions i+1 to hi-1. lo is the first of the rows at hand.
func (c *chooser) chooseCodes(i, lo, hi int) {
	n, width, row := c.cols, c.columns, c.rowOrder[i]
	aim, value, missed := c.aims[i*width:(i+1)*width], c.value[:width], c.missed[(i-lo)*width:][:width]
	for j := i + 1; j < hi; j++ {
		kernel.AddScaled(aim, c.missed[(j-lo)*width:][:width], c.mix[i*c.rows+j])
	}
	difference(value, aim, c.drawn[i*width:])
	scale, zero := c.terms(row, c.order[c.first]/c.feedback.block*c.feedback.block)
	grid, inverse, mid := signed(c.spec.Bits), 1/scale, float32(int(1)<<(c.spec.Bits-1))
	codes, errors := c.dst.Codes[row*n:(row+1)*n], c.errors[i*n+c.first:][:width]
	for j := width - 1; j >= 0; j-- {
		q := grid.nearest(float32((value[j] - zero) * inverse))
		hat := float32(scale*q) + zero
		err := (value[j] - hat) / c.factor[j*width+j]
		codes[c.order[c.first+j]], missed[j], errors[j] = uint8(q+mid), hat-aim[j], err
		kernel.AddScaled(value[:j], c.factor[j*width:j*width+j], -err)
	}
}

// difference sets dst to x - y.
func difference(dst, x, y []float32) {
	x, y = x[:len(dst)], y[:len(dst)]
	for i := range dst {
		dst[i] = x[i] - y[i]
	}
}
