package quant

import (
	"cmp"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"sync/atomic"

	"github.com/llmexport/llmexport/runtime/kernel"
)

// Refiner is an [Encoder] that can encode rows together, if it knows which combinations of their outputs matter.
type Refiner interface {
	Encoder
	// Refine is Encode for rows that make up for each other's errors. outputs are the second moments of the gradients of the
	// log-likelihood at the outputs, one column for each row of w; they are not changed. threads bounds the parallelism, not the
	// result.
	Refine(dst Blocks, w Matrix, outputs *Stats, threads int) error
}

// CoupledRows is the most rows of a matrix that callers should refine together: it bounds the moments of their gradients.
const CoupledRows = 1024

// refinePanel is the number of rows that move one after the other between two products.
const refinePanel = 32

// refineTokens is how many tokens for each row determine the moments of outputs well enough. With fewer the ridge grows.
const refineTokens = 16

// Refine implements [Refiner].
//
// To second order, an error E = ŵ - w of a matrix costs half of the mean of (gᵀ E x)², with the inputs x and the gradients g of
// the log-likelihood of labels drawn from the model: its Fisher information. With g independent of x (K-FAC, ICML 2015) that is
// half of tr(G E H Eᵀ), G = E[g gᵀ]. Encode lowers E H Eᵀ of every row by itself. Refine lets rows make up for the errors of
// other rows (compare YAQA, arXiv 2505.22988), by coordinate descent on
//
//	tr((G + r I) E (H + ridge I) Eᵀ),   E = ŵ - t,   r = outputs · mean(diag G) · max(1, 16 m / tokens)
//
// with the target t of [GPTQ]. First codes and grids are chosen, see chooser; then they move: block of columns by block of columns,
// row by row, first scale and zero term by least squares, then the codes. No move raises the objective, up to rounding. Of blocks of
// more than 128 columns only codes are chosen and move, on the grids that Encode finds; Encode also chooses everything if no output
// matters, and what moves if G + r I is not positive definite. The choice costs m n² + m² n operations and the search, a sweep over m
// rows of n columns 2 (m n² + 2 m² n); 3 m n + 2 m² values are in memory.
func (e *feedback) Refine(dst Blocks, w Matrix, outputs *Stats, threads int) error {
	r, err := e.refinement(dst, w, outputs, threads)
	if err != nil {
		return err
	}
	if r.needsCodes() {
		if err := r.encode(); err != nil {
			return err
		}
	}
	if !r.coupled {
		return nil
	}
	if err := r.chooseAlone(); err != nil {
		return err
	}
	r.run()
	return nil
}

// refinement is the state of Refine for m rows of n columns, of which width move at a time.
type refinement struct {
	*feedback
	dst     Blocks
	w       Matrix
	rows    int
	width   int
	threads int
	coupled bool      // whether any output matters
	outputs []float32 // (G + r I) / mean(diag G) [m, m]
	target  []float32 // t [m, n], until there are errors
	pulled  []float32 // E, then (G + r I) E [m, n]

	definite bool      // whether the moments of outputs are positive definite
	rowOrder []int     // row of every position; the last position comes first
	mix      []float32 // V of chooser in the order of positions, above the diagonal [m, m]

	*columns                    // those that move
	next           *columns     // those that move after them, if they are prepared meanwhile
	turned, spread []float32    // change · square, and what changes of all rows do to each row [m, width]
	later          []float32    // see goAhead
	moved          []uint32     // of panels of rows: a bit for every row that has moved
	done           atomic.Int32 // panels of rows
	pushes         []lane       // what rows know of the panels before theirs, each lane for step of them
	spreads        []lane       // segments of the sums of spread, each lane for so many rows
	aheads         []lane       // what is done for the next columns, likewise
	unit, step     int
	remote         bool // whether a device computes gradients and passes on changes, see moves
}

// columns are a panel of columns, and what their moves need.
type columns struct {
	lo, count        int
	square, diagonal []float32     // of the damped Hessian [count, count]
	ordinary         bool          // whether all of the diagonal is
	packed           kernel.Packed // the square, as factor of products with rows
	grad, change     []float32     // [m, count]
	code             []float32     // signed codes [m, count]
	refits           []float32     // products of codes with the square, and sums of its rows: what scales and zero terms do [m, 2, count]
	fits             []fit         // of each row, for its block
}

// lane is work in steps, which are done in their order, each by any goroutine.
type lane struct {
	done atomic.Int32 // how many are; -1 while a goroutine is at it
	_    [60]byte     // lanes do not share a line of the cache
}

// refinement returns the refinement of rows that have no codes yet.
func (e *feedback) refinement(dst Blocks, w Matrix, outputs *Stats, threads int) (*refinement, error) {
	if w.Cols != e.cols || outputs.Cols != w.Rows || len(outputs.Hessian) != w.Rows*w.Rows {
		return nil, fmt.Errorf("internal error: moments of %d outputs for a matrix of %d x %d", outputs.Cols, w.Rows, w.Cols)
	}
	r := &refinement{feedback: e, dst: dst, w: w, rows: w.Rows, width: min(e.block, descentPanel), threads: threads}
	if r.coupled = r.couple(outputs); !r.coupled {
		return r, nil
	}
	r.definite = r.decompose()
	return r, r.point()
}

// needsCodes reports whether rows have to be encoded by themselves first.
func (r *refinement) needsCodes() bool { return !r.coupled || !r.definite || !r.choosesGrids() }

// encode encodes rows by themselves.
func (r *refinement) encode() error {
	if kernel.HasDevice() {
		return r.EncodeTogether(r.dst, r.w, r.threads)
	}
	failed := make([]error, (r.rows+togetherRows-1)/togetherRows)
	kernel.Parallel(r.threads, len(failed), func(u, end int) {
		for ; u < end; u++ {
			lo, hi := u*togetherRows, min((u+1)*togetherRows, r.rows)
			if err := r.Encode(r.dst.Slice(lo, hi, r.rows), r.w.Slice(lo, hi)); err != nil {
				failed[u] = fmt.Errorf("rows %d to %d: %w", lo, hi-1, err)
			}
		}
	})
	return cmp.Or(failed...)
}

// chooseAlone chooses codes on this CPU, if there is a choice, and computes E.
func (r *refinement) chooseAlone() error {
	if r.definite {
		if err := r.choose(); err != nil {
			return err
		}
	}
	r.mistake()
	return nil
}

// couple sets the damped moments of the outputs, and reports whether there are any.
func (r *refinement) couple(outputs *Stats) bool {
	m := r.rows
	var sum float64
	for _, v := range outputs.Diagonal() {
		sum += float64(v)
	}
	if !(sum > 0x1p-100) || math.IsInf(sum, 0) {
		return false
	}
	r.outputs = make([]float32, m*m)
	kernel.Scale(r.outputs, outputs.Hessian, float32(float64(m)/sum)) // their size does not matter, but products are float32
	ridge := r.coupling * max(1, refineTokens*float64(m)/float64(max(outputs.Tokens, 1)))
	for i := range m {
		r.outputs[i*m+i] += float32(ridge)
	}
	return true
}

// point computes where rows aim. It returns an error for rows that Encode refuses before it chooses codes.
func (r *refinement) point() error {
	m, n := r.rows, r.cols
	r.target, r.pulled = kernel.Scratch(m*n), kernel.Scratch(m*n)
	multiplied := r.multiplyOffload(r.target, r.w)
	failed := make([]error, m)
	r.each(func(lo, hi int) {
		b := &batch{rows: hi - lo, dst: r.dst.Slice(lo, hi, m), target: r.target[lo*n : hi*n], work: r.pulled[lo*n : hi*n]}
		failed[lo] = r.prepare(b, r.w.Slice(lo, hi), multiplied, lo)
	})
	return cmp.Or(failed...)
}

// mistake computes E.
func (r *refinement) mistake() {
	m, n := r.rows, r.cols
	r.each(func(lo, hi int) {
		r.dst.Slice(lo, hi, m).Dequantize(r.pulled[lo*n:hi*n], r.spec)
		subtract(r.pulled[lo*n:hi*n], r.target[lo*n:])
	})
	r.target = nil
}

// run sweeps over all columns until nothing moves.
func (r *refinement) run() {
	r.width = min(r.block, descentPanel)
	r.start()
	ready := false // whether columns are prepared
	for sweep := range r.sweeps {
		moved := false
		for lo := 0; lo < r.cols; lo += r.width {
			if !ready {
				r.prepareAll(lo)
			}
			next := lo + r.width
			if next >= r.cols {
				next = 0
			}
			ready = r.next != nil && (next > 0 || sweep+1 < r.sweeps)
			if r.moveAll(next, ready) {
				moved = true
			}
		}
		if !moved {
			break
		}
	}
}

// start computes (G + r I) E.
func (r *refinement) start() {
	m, n, width := r.rows, r.cols, r.width
	r.reserve()
	r.grad, r.change, r.spread = make([]float32, m*width), make([]float32, m*width), make([]float32, m*width)
	r.spreads = make([]lane, (m+r.unit-1)/r.unit)
	if r.threads > 2 && n > width {
		r.next, r.later, r.aheads = newColumns(m, width), make([]float32, (kernel.Segments(n)-1)*m*width), make([]lane, len(r.spreads))
		r.next.grad, r.next.change = make([]float32, m*width), make([]float32, m*width)
	}
	for at := 0; at < n; at += width {
		width := min(width, n-at)
		for i := range m {
			copy(r.change[i*width:(i+1)*width], r.pulled[i*n+at:])
		}
		r.each(func(lo, hi int) {
			kernel.MatMul(r.pulled[lo*n+at:], r.outputs[lo*m:], r.change, hi-lo, width, m, n, m, width)
		})
	}
}

// reserve makes what moves of rows need besides gradients and changes.
func (r *refinement) reserve() {
	m := r.rows
	r.columns, r.turned = newColumns(m, r.width), make([]float32, m*r.width)
	r.unit, r.step = r.share(), refinePanel
	if r.threads > 2 { // with fewer no thread waits for work
		r.step /= 2
	}
	r.moved, r.pushes = make([]uint32, r.panels()), make([]lane, (m+r.step-1)/r.step)
}

// newColumns makes columns of m rows, without gradients and changes.
func newColumns(m, width int) *columns {
	return &columns{square: make([]float32, width*width), diagonal: make([]float32, width), code: make([]float32, m*width),
		refits: make([]float32, m*2*width), fits: make([]fit, m)}
}

// refineRows is the most rows of a product that a thread computes at a time, refineLay the cost of laying out the other factor, in
// rows.
const refineRows, refineLay = 64, 4

// share is how many rows of a product a thread computes at a time.
func (r *refinement) share() int {
	if r.threads <= 1 {
		return r.rows
	}
	return kernel.Span(r.threads, r.rows, refineRows, refineLay)
}

// each calls f for runs of rows, lo to hi-1, in parallel.
func (r *refinement) each(f func(lo, hi int)) {
	unit := r.share()
	kernel.Parallel(max(1, r.threads), (r.rows+unit-1)/unit, func(a, z int) { f(a*unit, min(z*unit, r.rows)) })
}

// panels is the number of panels of rows.
func (r *refinement) panels() int { return (r.rows + refinePanel - 1) / refinePanel }

// prepareAll prepares the columns from lo on, which move then.
func (r *refinement) prepareAll(lo int) {
	c, n := r.columns, r.cols
	r.begin(c, lo)
	r.each(func(from, to int) {
		kernel.MatMul(c.grad[from*c.count:], r.pulled[from*n:], r.hessian[lo:], to-from, c.count, n, c.count, n, n)
		r.ridgeOf(c, from, to)
		r.prepareMoves(c, from, to)
	})
}

// begin sets the columns, and lays out their square.
func (r *refinement) begin(c *columns, lo int) {
	c.lo, c.count, c.ordinary = lo, min(r.width, r.cols-lo), true // fewer at the end of a row that is one block
	for i := range c.count {
		copy(c.square[i*c.count:(i+1)*c.count], r.hessian[(lo+i)*r.cols+lo:])
		c.square[i*c.count+i] += r.ridge
		c.diagonal[i] = c.square[i*c.count+i]
		c.ordinary = c.ordinary && ordinary(c.diagonal[i])
	}
	c.packed.Resize(c.count, c.count)
	c.packed.PackColumns(c.square, 0, c.count, c.count)
}

// ridgeOf adds what the ridge does to the gradients of rows from to to-1.
func (r *refinement) ridgeOf(c *columns, from, to int) {
	for i := from; i < to; i++ {
		kernel.AddScaled(c.grad[i*c.count:(i+1)*c.count], r.pulled[i*r.cols+c.lo:][:c.count], r.ridge)
	}
}

// prepareMoves computes what the moves of rows from to to-1 need, and does not depend on the moves of other rows or columns.
func (r *refinement) prepareMoves(c *columns, from, to int) {
	width := c.count
	mid := float32(int(1) << (r.spec.Bits - 1))
	for row := from; row < to; row++ {
		scale, zero := r.terms(row, c.lo)
		code, change := c.code[row*width:(row+1)*width], c.change[row*width:(row+1)*width]
		for i, q := range r.dst.Codes[row*r.cols+c.lo:][:width] {
			code[i] = float32(q) - mid
		}
		kernel.Scale(change, code, scale)
		kernel.Shift(change, change, zero)
		kernel.Scale(change, change, -1)
	}
	if width != r.feedback.block {
		return
	}
	c.packed.MulT(c.refits[from*2*width:], c.code[from*width:], to-from, 2*width, width, 0, width)
	for row := from; row < to; row++ {
		kq, sums := c.refits[row*2*width:][:width], c.refits[(row*2+1)*width:][:width]
		copy(sums, r.sums[c.lo:])
		c.fits[row] = fit{}
		c.fits[row].curve(c.code[row*width:(row+1)*width], kq, sums)
	}
}

// terms are the scale and the zero term of a row for column lo.
func (r *refinement) terms(row, lo int) (scale, zero float32) {
	at := row*r.blocks + lo/r.feedback.block
	if r.dst.Zero != nil {
		zero = r.dst.Zero[at]
	}
	return r.dst.Scale[at], zero
}

// moveAll moves the columns of all rows, and reports whether anything moved. While one thread moves the rows, one after the other, others let
// the rows below know what panels of rows did, and all rows what segments of sums of them did, and prepare the next columns, which then move,
// if they are asked to.
func (r *refinement) moveAll(next int, ahead bool) bool {
	r.done.Store(0)
	if ahead {
		r.begin(r.next, next)
	} else if r.next != nil {
		r.next.count = 0
	}
	for _, lanes := range [][]lane{r.pushes, r.spreads, r.aheads} {
		for i := range lanes {
			lanes[i].done.Store(0)
		}
	}
	threads := max(1, r.threads)
	kernel.Parallel(threads, threads, func(u, end int) {
		for ; u < end; u++ {
			if u == 0 {
				r.chain()
			}
			r.help()
		}
	})
	if ahead {
		r.columns, r.next = r.next, r.columns
	}
	return r.any()
}

// patience is how often a thread looks for work while another one moves rows, which takes less time unless that one has lost its CPU.
const patience = 5000

// help does all work but moving rows, until none is left or the thread that moves them seems to have lost its CPU.
func (r *refinement) help() {
	for i := 0; i < patience; {
		switch done := int(r.done.Load()); {
		case r.pushAhead(done), r.spreadOut(done), r.goAhead():
			i = 0
		case done == r.panels():
			return
		default:
			kernel.Pause(i)
			i++
		}
	}
}

// any reports whether any row has moved.
func (r *refinement) any() bool {
	return slices.ContainsFunc(r.moved, func(rows uint32) bool { return rows != 0 })
}

// chain moves all panels of rows. What it needs and no other thread has begun it does itself.
func (r *refinement) chain() {
	for k := range r.panels() {
		r.movePanel(k)
		r.done.Store(int32(k) + 1)
	}
}

// learn returns when the gradient of a row, the first of its lane, knows all of the panels before k.
func (r *refinement) learn(k, row int) {
	for i := 0; !r.pushes[row/r.step].advance(k, func(at int) { r.push(row/r.step, at, k) }); i++ {
		kernel.Pause(i)
	}
}

// advance calls f with the number of steps that are done, for f to do those up to end-1. It reports whether these are done, and not whether
// another goroutine is at it.
func (l *lane) advance(end int, f func(at int)) bool {
	at := l.done.Load()
	if at < 0 || at < int32(end) && !l.done.CompareAndSwap(at, -1) {
		return false
	}
	if at < int32(end) {
		f(int(at))
		l.done.Store(int32(end))
	}
	return true
}

// pushAhead adds what the finished panels did to a lane of rows that lacks it, and reports whether there was one. The first lane of the next panel
// is left to chain.
func (r *refinement) pushAhead(done int) bool {
	for u := done*refinePanel/r.step + 1; u < len(r.pushes); u++ {
		l := &r.pushes[u]
		if at := l.done.Load(); at >= 0 && at < int32(done) && l.advance(done, func(at int) { r.push(u, at, done) }) {
			return true
		}
	}
	return false
}

// push adds to the gradients of lane u of rows what the moves of panels from to to-1 do to them, one after the other.
func (r *refinement) push(u, from, to int) {
	m, width, row := r.rows, r.count, u*r.step
	for ; from < to; from++ {
		end := from // of a run of panels that have moved
		for end < to && r.moved[end] != 0 {
			end++
		}
		kernel.MatMulAddSpans(r.grad[row*width:], r.outputs[row*m+from*refinePanel:], r.turned[from*refinePanel*width:],
			min(r.step, m-row), width, (end-from)*refinePanel, width, m, width, refinePanel)
		from = end
	}
}

// spreadOut adds to what changes do to all rows those segments of the sums whose rows are done, for some rows, and reports whether there
// were any. With the last one the errors change.
func (r *refinement) spreadOut(done int) bool {
	m, width := r.rows, r.count
	ready, all := done*refinePanel/kernel.Segment, kernel.Segments(m)
	if done == r.panels() {
		ready = all
	}
	for u := range r.spreads {
		l, from, to := &r.spreads[u], u*r.unit, min((u+1)*r.unit, m)
		if at := l.done.Load(); at >= 0 && at < int32(ready) && l.advance(ready, func(at int) {
			multiply, first := kernel.MatMul, at*kernel.Segment
			if at > 0 {
				multiply = kernel.MatMulAdd
			}
			multiply(r.spread[from*width:], r.outputs[from*m+first:], r.change[first*width:], to-from, width, min(ready*kernel.Segment, m)-first, width, m, width)
			for i := from; i < to && ready == all && r.any(); i++ {
				at := r.pulled[i*r.cols+r.lo:][:width]
				kernel.Add(at, at, r.spread[i*width:(i+1)*width])
			}
		}) {
			return true
		}
	}
	return false
}

// goAhead does a step of what the moves of the next columns need, for some rows, and reports whether there was one. All but one segment of the
// sums of gradients does not depend on the columns that move, which all lie in that one. Sums of segments after it are kept apart until it is
// added.
func (r *refinement) goAhead() bool {
	c, n, last := r.next, r.cols, kernel.Segments(r.cols)+1
	if c == nil || c.count == 0 {
		return false
	}
	if r.remote { // nothing after the first step
		last = 0
	}
	present := r.lo / kernel.Segment
	product := func(dst []float32, s, from, to int) {
		multiply, first := kernel.MatMul, s*kernel.Segment
		if s > 0 && s <= present {
			multiply = kernel.MatMulAdd
		}
		multiply(dst[from*c.count:], r.pulled[from*n+first:], r.hessian[first*n+c.lo:], to-from, c.count, min(kernel.Segment, n-first), c.count, n, n)
	}
	later := func(s int) []float32 { return r.later[(s-1)*r.rows*c.count:][:r.rows*c.count] }
	for u := range r.aheads {
		l, from, to := &r.aheads[u], u*r.unit, min((u+1)*r.unit, r.rows)
		at := int(l.done.Load())
		if at < 0 || at > last || at == last && !r.remote && int(r.spreads[u].done.Load()) < kernel.Segments(r.rows) {
			continue
		}
		if l.advance(at+1, func(at int) {
			switch s := at - 1; {
			case at == 0:
				r.prepareMoves(c, from, to)
			case at == last:
				product(c.grad, present, from, to)
				for s := present + 1; s < kernel.Segments(n); s++ {
					kernel.Add(c.grad[from*c.count:to*c.count], c.grad[from*c.count:to*c.count], later(s)[from*c.count:to*c.count])
				}
				r.ridgeOf(c, from, to)
			case s < present:
				product(c.grad, s, from, to)
			case s > present:
				product(later(s), s, from, to)
			}
		}) {
			return true
		}
	}
	return false
}

// movePanel moves the rows of panel k, one after the other. While a product with one row is computed, which takes as long as its sums, the
// next row learns what the rows before that one did.
func (r *refinement) movePanel(k int) {
	from, to, width := k*refinePanel, min((k+1)*refinePanel, r.rows), r.count
	r.moved[k] = 0
	r.learn(k, from)
	for row := from; row < to; row++ {
		moved := r.moveRow(row)
		if row+1 < to {
			if (row+1)%r.step == 0 {
				r.learn(k, row+1)
			}
			r.follow(r.moved[k], from, row+1)
		}
		turned := r.turned[row*width : (row+1)*width]
		if !moved {
			clear(turned)
			continue
		}
		r.moved[k] |= 1 << (row - from)
		r.packed.MulT(turned, r.change[row*width:], 1, width, width, 0, width)
		if row+1 < to {
			kernel.AddScaled(r.grad[(row+1)*width:(row+2)*width], turned, r.outputs[(row+1)*r.rows+row])
		}
	}
}

// follow adds to the gradient of a row what the moves of some rows from at on do to it, one after the other.
func (r *refinement) follow(moved uint32, at, row int) {
	width := r.count
	gradient, outputs := r.grad[row*width:(row+1)*width], r.outputs[row*r.rows:]
	for moved != 0 { // runs of rows that have moved
		skip := bits.TrailingZeros32(moved)
		n := bits.TrailingZeros32(^(moved >> skip))
		at += skip
		kernel.AddScaledRows(gradient, r.turned[at*width:(at+n)*width], outputs[at:at+n])
		at += n
		moved >>= skip + n
	}
}

// moveRow moves the columns of a row, stores the change of its weights, and reports whether anything moved.
func (r *refinement) moveRow(row int) bool {
	at := row*r.blocks + r.lo/r.feedback.block
	change, code := r.change[row*r.count:(row+1)*r.count], r.code[row*r.count:(row+1)*r.count]
	scale, zero := r.terms(row, r.lo)
	s, z := r.refitRow(row, scale, zero)
	moved := r.moveCodes(row, s)
	if s == scale && z == zero && !moved {
		clear(change)
		return false
	}
	if r.count == r.feedback.block {
		if r.dst.Scale[at] = s; r.dst.Zero != nil {
			r.dst.Zero[at] = z
		}
	}
	kernel.AddShifted(change, code, s, z)
	return true
}

// refitRow returns the best scale and zero term of a block for the codes that it has.
func (r *refinement) refitRow(row int, scale, zero float32) (s, z float32) {
	if r.count != r.feedback.block {
		return scale, zero
	}
	width, curve := r.count, r.outputs[row*r.rows+row]
	grad := r.grad[row*width : (row+1)*width]
	f := r.fits[row]
	f.slope(r.code[row*width:(row+1)*width], grad)
	f.gq, f.g1 = f.gq/float64(curve), f.g1/float64(curve)
	s, z = f.solve(scale, zero, r.total[r.lo/width], r.spec)
	if s != scale || z != zero {
		by := [2]float32{(s - scale) * curve, (z - zero) * curve}
		kernel.AddScaledRows(grad, r.refits[row*2*width:(row+1)*2*width], by[:])
	}
	return s, z
}

// moveCodes gives every code of a row in the panel, one after the other, the value that minimises the objective, and reports
// whether any changed.
func (r *refinement) moveCodes(row int, scale float32) (moved bool) {
	width, curve, code := r.count, r.outputs[row*r.rows+row], r.code[row*r.count:(row+1)*r.count]
	grad, diagonal := r.grad[row*width:(row+1)*width], r.diagonal[:width]
	grid, inverse, mid := signed(r.spec.Bits), 1/scale, float32(int(1)<<(r.spec.Bits-1))
	// A step of less than half keeps the code. Few steps are larger, and only for those it is computed.
	var half float32
	if r.ordinary && ordinary(curve) && ordinary(float32(math.Abs(float64(scale)))) {
		half = float32(math.Abs(float64(0.499 * float32(curve*scale))))
	}
	for i := kernel.Beyond(grad, diagonal, half); i < width; i += 1 + kernel.Beyond(grad[i+1:], diagonal[i+1:], half) {
		q, slope, bend := code[i], grad[i], curve*diagonal[i]
		best := grid.nearest(q - float32(slope/bend*inverse))
		if best == q {
			continue
		}
		d := float32(scale * (best - q))
		if cost := float64(d) * (2*float64(slope) + float64(float64(d)*float64(bend))); !(cost < 0) {
			continue
		}
		code[i], moved = best, true
		r.dst.Codes[row*r.cols+r.lo+i] = uint8(best + mid)
		kernel.AddScaled(grad[i+1:], r.square[i*width+i+1:(i+1)*width], d*curve)
	}
	return moved
}

// ordinary reports whether products of three such numbers, or their inverses, are neither infinite nor denormal.
func ordinary(x float32) bool { return x >= 0x1p-40 && x <= 0x1p40 }
