package quant

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// chooseRows is the number of rows whose grids are chosen at the same time, before any of them has codes; chooseGroups is how many times
// as many a thread takes at a time at most. So many rows of the factor as chooseLay take as long to lay out as one to choose for.
const chooseRows, chooseGroups, chooseLay = 8, 4, 256

// Of the grids around the one that a search finds, that one is taken which leaves the least of the objective after the feedback within
// the block. So many are tried in either direction, scales first and then zero terms; steps are in units of the scale. Those of some rows are
// tried at the same time, each in a lane.
const (
	gridTries = 3
	scaleStep = .03
	zeroStep  = .125
	gridLanes = chooseRows * (2*gridTries + 2)
)

// chooser chooses the codes and grids of all rows of a refinement, row after row and in every row column after column: Babai's way
// to a near point of a lattice, with the moments of inputs and of outputs as the metric.
//
// With (G + r I) = Uᵀ D U, U unit upper triangular, the objective is the sum over rows of D_i Z_i (H + ridge I) Z_iᵀ, Z = U E. So
// after the rows behind it, row i aims at a_i = t_i - Σ_j>i U_ij E_j = t_i + Σ_j>i V_ij Z_j, V the inverse of U, and what its codes
// leave of that, Z_i = ŵ_i - a_i, is all that counts: GPTQ with another target. Columns of a_i depend only on the same columns of
// other rows. So blocks of columns come one after the other, and in each of them the rows: rows of a block need those behind them in the
// block, and the blocks behind, and what has both at the same time can be done at the same time. Codes that there are do not count, nor
// do grids of blocks that are chosen for.
type chooser struct {
	*refinement
	errors  []float32   // of columns, in units of the factor, in the order of positions [rows, cols]
	missed  []float32   // Z, chooseRows after the other from the last ones on: for every block of columns [rows, columns]
	lacking atomic.Bool // whether a block has the grid that it had, because the search found none
}

// choosing are rows and a block of columns for which a chooser chooses.
type choosing struct {
	*chooser
	share          int       // of the threads
	lo, hi         int       // positions of rows
	first, columns int       // the first position of columns, and how many
	factor         []float32 // of these columns [columns, columns]
	aims, drawn    []float32 // of rows, and what the errors of earlier columns take from them [rows, columns]
	missed         []float32 // Z of all rows and these columns
	mixed          []float32 // mix of rows, with columns in the order of missed [rows, chooser.rows]
	value          []float32 // what some rows choose codes for [chooseRows, columns]
	importance     []float32 // the same for all rows
	scale, zero    []float32 // of some rows
	tries          tries
}

// tries are grids that rows try. A lane is a row, and after all rows follow those of their next grid.
type tries struct {
	value  []float32 // what rows choose codes for [columns, chooseRows]
	back   []float32 // what is left of every column of the factor, from the last row to the one below the diagonal [columns, columns]
	errors []float32 // of columns, from the last one on, in units of the factor, with the other sign [columns, gridLanes]

	aim, scale, zero, inverse [gridLanes]float32
	left                      [gridLanes]float64 // of the objective, in units of the row
	stored                    [gridLanes]bool    // whether the grid can be stored
}

// choose chooses all codes, and the grids of blocks that are moved at once. If the search finds no grid for some block, rows are encoded
// by themselves first and it has the one that it has then; if numbers leave the range of float32, that is the result.
func (r *refinement) choose() error {
	for encoded := !r.choosesGrids(); ; encoded = true {
		var was Blocks
		if encoded {
			was = cloneBlocks(r.dst)
		}
		finite, lacking := r.chooseOnce()
		switch {
		case encoded && !finite:
			r.restore(was)
			return nil
		case encoded, finite && !lacking:
			return nil
		}
		if err := r.encode(); err != nil || !lacking {
			return err
		}
	}
}

// chooseOnce reports whether all numbers were finite, and whether some block had no grid of its own.
func (r *refinement) chooseOnce() (finite, lacking bool) {
	m, width := r.rows, r.width
	c := &chooser{refinement: r, errors: r.pulled, missed: make([]float32, m*r.cols)}
	blocks := (r.cols + width - 1) / width
	rows := r.rowsAtATime(blocks)
	scratch := sync.Pool{New: func() any {
		return &choosing{
			chooser: c, factor: make([]float32, width*width), aims: make([]float32, rows*width), drawn: make([]float32, rows*width),
			mixed: make([]float32, rows*m), value: make([]float32, chooseRows*width), importance: make([]float32, chooseRows*width),
			scale: make([]float32, chooseRows), zero: make([]float32, chooseRows),
			tries: tries{value: make([]float32, width*chooseRows), back: make([]float32, width*width), errors: make([]float32, width*gridLanes)},
		}
	}}
	pieces := (m + rows - 1) / rows
	for turn := range pieces + blocks - 1 { // pieces of a turn lie on a diagonal
		from, to := max(0, turn-pieces+1), min(turn, blocks-1)+1
		kernel.Parallel(r.threads, to-from, func(a, z int) {
			p := scratch.Get().(*choosing)
			defer scratch.Put(p)
			p.share = max(1, (r.threads+(to-from)/2)/(to-from))
			for b := from + a; b < from+z; b++ {
				end := r.cols - b*width
				p.first = max(0, end-width)
				p.columns = end - p.first
				p.hi = m - (turn-b)*rows
				p.lo = max(0, p.hi-rows)
				p.choose()
			}
		})
	}
	return kernel.Finite(r.threads, c.errors), c.lacking.Load()
}

// rowsAtATime is how many rows a thread takes at a time, so that the turns of as many blocks of columns end soonest.
func (r *refinement) rowsAtATime(blocks int) (best int) {
	threads, lay := max(1, r.threads), 1+r.cols/chooseLay
	for rows, least := chooseRows*chooseGroups, 0; rows >= chooseRows; rows /= 2 {
		cost, pieces := 0, (r.rows+rows-1)/rows
		for turn := range pieces + blocks - 1 {
			some := min(turn, blocks-1) + 1 - max(0, turn-pieces+1)
			cost += (some + threads - 1) / threads * (rows + lay)
		}
		if best == 0 || cost < least {
			best, least = rows, cost
		}
	}
	return best
}

func cloneBlocks(b Blocks) Blocks {
	return Blocks{slices.Clone(b.Codes), slices.Clone(b.Scale), slices.Clone(b.Zero)}
}

// restore makes the blocks what they were.
func (r *refinement) restore(was Blocks) {
	copy(r.dst.Codes, was.Codes)
	copy(r.dst.Scale, was.Scale)
	copy(r.dst.Zero, was.Zero)
}

// choosesGrids reports whether the choice is that of grids, too: blocks of more columns are not moved at once.
func (r *refinement) choosesGrids() bool { return r.width == r.feedback.block }

// decompose sets the order of rows and mix, and reports whether the moments of outputs are positive definite.
func (r *refinement) decompose() bool {
	m := r.rows
	diagonal := make([]float32, m)
	for i := range diagonal {
		diagonal[i] = r.outputs[i*m+i]
	}
	r.rowOrder = positions(diagonal, m, r.ordering)
	r.mix = make([]float32, m*m)
	kernel.Parallel(r.threads, m, func(i, end int) {
		for ; i < end; i++ {
			row := r.outputs[r.rowOrder[i]*m:][:m]
			for j, b := range r.rowOrder[:i+1] {
				r.mix[i*m+j] = row[b]
			}
		}
	})
	if !invertFactor(r.mix, m, r.threads) {
		return false
	}
	kernel.Parallel(r.threads, m, func(j, end int) {
		for ; j < end; j++ { // row j is that of the inverse of the factor of Uᵀ D U, column j of V times a number
			for i := range j {
				r.mix[i*m+j] = r.mix[j*m+i] / r.mix[j*m+j]
			}
		}
	})
	return true
}

// choice is what a device does for some refinements.
func (e *feedback) choice(list []*refinement) *kernel.Choice {
	d := &kernel.Choice{Cols: e.cols, Block: e.block, Candidates: e.candidates, Bits: e.spec.Bits, Half: e.spec.Scale == tensor.F16,
		Factor:     kernel.Factor{Data: e.factor, Layout: kernel.ByPosition, Stride: e.cols, Version: e.versions.factor},
		Importance: e.importance, Order: e.order}
	for _, r := range list {
		d.Runs = append(d.Runs, kernel.Mixed{Rows: r.rows, Codes: r.dst.Codes, Scale: r.dst.Scale, Zero: r.dst.Zero, Target: r.target, Order: r.rowOrder, Mix: r.mix})
	}
	return d
}

// Choose does on threads of this CPU what a device does for a [kernel.Choice].
func Choose(d *kernel.Choice, threads int) {
	e := &feedback{spec: Spec{Bits: d.Bits, Scale: tensor.F32}, cols: d.Cols, block: d.Block, blocks: d.Cols / d.Block, candidates: d.Candidates,
		factor: d.Factor.Data, importance: d.Importance, order: d.Order}
	if d.Half {
		e.spec.Scale = tensor.F16
	}
	threads = (max(1, threads) + len(d.Runs) - 1) / max(1, len(d.Runs))
	e.spec.Symmetric = len(d.Runs) > 0 && d.Runs[0].Zero == nil
	var wait sync.WaitGroup
	for i := range d.Runs {
		run := &d.Runs[i]
		r := &refinement{feedback: e, dst: Blocks{Codes: run.Codes, Scale: run.Scale, Zero: run.Zero}, rows: run.Rows, width: min(d.Block, descentPanel),
			threads: threads, target: run.Target, rowOrder: run.Order, mix: run.Mix, pulled: make([]float32, run.Rows*d.Cols)}
		wait.Go(func() {
			was := cloneBlocks(r.dst)
			finite, lacking := r.chooseOnce()
			if run.Left = !finite || lacking; run.Left {
				r.restore(was)
			}
		})
	}
	wait.Wait()
}

// choose chooses the codes of the rows and columns at hand.
func (c *choosing) choose() {
	m, n, width, end, rows := c.rows, c.cols, c.columns, c.first+c.columns, c.hi-c.lo
	all := c.feedback.factor
	for i := range width {
		copy(c.factor[i*width:(i+1)*width], all[(c.first+i)*n+c.first:])
	}
	for i := range width {
		for j := range i {
			c.tries.back[j*width+width-1-i] = c.factor[i*width+j]
		}
	}
	for i := range chooseRows {
		copy(c.importance[i*width:(i+1)*width], c.feedback.importance[c.first:])
	}
	for i := range rows {
		target := c.target[c.rowOrder[c.lo+i]*n:][:n]
		for j, col := range c.order[c.first:end] {
			c.aims[i*width+j] = target[col]
		}
	}
	clear(c.drawn[:rows*width])
	if end < n {
		kernel.MatMul(c.drawn, c.errors[c.lo*n+end:], all[end*n+c.first:], rows, width, n-end, width, n, n)
	}
	c.missed = c.chooser.missed[c.first*m:][:m*width]
	for hi := m; hi > c.hi; hi -= chooseRows {
		for i := range rows {
			*(*[chooseRows]float32)(c.mixed[i*m+m-hi:]) = *(*[chooseRows]float32)(c.mix[(c.lo+i)*m+hi-chooseRows:])
		}
	}
	kernel.MatMulAddSpans(c.aims, c.mixed, c.missed, rows, width, m-c.hi, width, m, width, chooseRows)
	for hi := c.hi; hi > c.lo; hi -= chooseRows {
		lo := max(c.lo, hi-chooseRows)
		if c.choosesGrids() {
			c.chooseGrids(lo, hi)
		}
		for i := hi - 1; i >= lo; i-- {
			c.chooseCodes(i, lo, hi)
		}
		if rows := lo - c.lo; rows > 0 {
			kernel.MatMulAdd(c.aims, c.mix[c.lo*m+lo:], c.missed[(m-hi)*width:], rows, width, hi-lo, width, m, width)
		}
	}
}

// chooseGrids chooses the grids of positions lo to hi-1 of rows, as if none of them erred.
func (c *choosing) chooseGrids(lo, hi int) {
	rows, width, t := hi-lo, c.columns, &c.tries
	value, scale, zero := c.value[:rows*width], c.scale[:rows], c.zero[:rows]
	difference(value, c.aims[(lo-c.lo)*width:], c.drawn[(lo-c.lo)*width:])
	kernel.Parallel(c.share, rows, func(a, z int) {
		searchGrids(scale[a:z], zero[a:z], value[a*width:z*width], c.importance[a*width:z*width], c.spec, c.candidates)
	})
	for i := range rows {
		for j, v := range value[i*width : (i+1)*width] {
			t.value[j*chooseRows+i] = v
		}
	}
	round := func(v float32) float32 {
		if c.spec.Scale == tensor.F16 {
			return kernel.RoundF16(v)
		}
		return v
	}
	step := func(k int) float32 { return float32((k+1)/2) * float32(2*(k%2)-1) } // 0, 1, -1, 2, -2, ...
	var least [chooseRows]float64                                                // 0 without a grid: then no other is taken
	try := func(first int, of func(i, k int) (scale, zero float32)) {
		for i := range rows {
			for k := first; k <= 2*gridTries; k++ {
				t.scale[k*chooseRows+i], t.zero[k*chooseRows+i] = of(i, k)
			}
		}
		c.try(rows)
		for i := range rows {
			for k := first; k <= 2*gridTries; k++ {
				if at := k*chooseRows + i; t.stored[at] && (k == 0 || t.left[at] < least[i]) {
					least[i], scale[i], zero[i] = t.left[at], t.scale[at], t.zero[at]
				}
			}
		}
	}
	try(0, func(i, k int) (float32, float32) {
		return round(scale[i] + float32(scale[i]*float32(step(k)*scaleStep))), zero[i]
	})
	if !c.spec.Symmetric {
		try(1, func(i, k int) (float32, float32) {
			return scale[i], round(zero[i] + float32(scale[i]*float32(step(k)*zeroStep)))
		})
	}
	for i := range scale {
		if !c.spec.stores(scale[i]) || !isFinite(zero[i]) {
			c.lacking.Store(true)
			continue
		}
		at := c.rowOrder[lo+i]*c.blocks + c.order[c.first]/c.feedback.block
		c.dst.Scale[at] = scale[i]
		if c.dst.Zero != nil {
			c.dst.Zero[at] = zero[i]
		}
	}
}

// try sets what the grids of so many rows leave of the objective.
func (c *choosing) try(rows int) {
	t, width := &c.tries, c.columns
	for at := range gridLanes {
		t.stored[at] = at%chooseRows < rows && at < gridLanes-chooseRows && c.spec.stores(t.scale[at]) && isFinite(t.zero[at])
		if !t.stored[at] { // any other
			t.scale[at], t.zero[at] = 1, 0
		}
		t.inverse[at] = 1 / t.scale[at]
	}
	clear(t.left[:])
	for j := width - 1; j >= 0; j-- {
		for k := 0; k < gridLanes; k += chooseRows {
			*(*[chooseRows]float32)(t.aim[k:]) = *(*[chooseRows]float32)(t.value[j*chooseRows:])
		}
		done := width - 1 - j
		kernel.AddScaledRows(t.aim[:], t.errors[:done*gridLanes], t.back[j*width:][:done])
		errors := t.errors[done*gridLanes : (done+1)*gridLanes]
		kernel.CodeErrors(errors, t.left[:], t.aim[:], t.zero[:], t.scale[:], t.inverse[:], c.factor[j*width+j], c.spec.Bits)
	}
}

// chooseCodes chooses the codes of position i of rows, after positions i+1 to hi-1 of those from lo to hi-1.
func (c *choosing) chooseCodes(i, lo, hi int) {
	n, width, row := c.cols, c.columns, c.rowOrder[i]
	all := c.missed[(c.rows-hi)*width:][:(hi-lo)*width]
	aim, value, missed := c.aims[(i-c.lo)*width:][:width], c.value[:width], all[(i-lo)*width:][:width]
	kernel.AddScaledRows(aim, all[(i+1-lo)*width:], c.mix[i*c.rows+i+1:i*c.rows+hi])
	difference(value, aim, c.drawn[(i-c.lo)*width:])
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
