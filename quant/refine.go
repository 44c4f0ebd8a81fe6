package quant

import (
	"cmp"
	"fmt"
	"math"
	"math/bits"

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

	gradient, change, product []float32     // [m, width]
	code, kq                  []float32     // signed codes, and their products with the square [m, width]
	fits                      []fit         // of each row, for its block
	square, diagonal          []float32     // of the damped Hessian [width, width]
	ordinary                  bool          // whether all of the diagonal is
	weights                   []float32     // of a row [width]
	packed                    kernel.Packed // the square, as factor of products with rows
	factor                    kernel.Packed // of a product that goroutines share
	effects                   [2]effect     // of a panel of rows, and the one before it
}

// effect is what a panel of rows passes on to the rows below it.
type effect struct {
	turned []float32     // change · square [refinePanel, width]
	packed kernel.Packed // turned, as factor
	moved  uint32        // a bit for every row that has moved
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
	r.target, r.pulled = kernel.Floats(m*n), kernel.Floats(m*n)
	multiplied := r.multiplyOffload(r.target, r.w)
	failed := make([]error, m)
	r.each(0, m, func(lo, hi int) {
		b := &batch{rows: hi - lo, dst: r.dst.Slice(lo, hi, m), target: r.target[lo*n : hi*n], work: r.pulled[lo*n : hi*n]}
		failed[lo] = r.prepare(b, r.w.Slice(lo, hi), multiplied, lo)
	})
	return cmp.Or(failed...)
}

// mistake computes E.
func (r *refinement) mistake() {
	m, n := r.rows, r.cols
	r.each(0, m, func(lo, hi int) {
		r.dst.Slice(lo, hi, m).Dequantize(r.pulled[lo*n:hi*n], r.spec)
		subtract(r.pulled[lo*n:hi*n], r.target[lo*n:])
	})
	r.target = nil
}

// run sweeps over all columns until nothing moves.
func (r *refinement) run() {
	width := min(r.block, descentPanel)
	r.width = width
	r.start()
	for range r.sweeps {
		moved := false
		for lo := 0; lo < r.cols; lo += width {
			r.width = min(width, r.cols-lo) // the end of a row that is one block
			if r.panel(lo) {
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
	m, n := r.rows, r.cols
	r.gradient, r.change, r.product = make([]float32, m*r.width), make([]float32, m*r.width), make([]float32, m*r.width)
	r.code, r.kq, r.fits = make([]float32, m*r.width), make([]float32, m*r.width), make([]fit, m)
	r.square, r.diagonal, r.weights = make([]float32, r.width*r.width), make([]float32, r.width), make([]float32, r.width)
	for i := range r.effects {
		r.effects[i].turned = make([]float32, refinePanel*r.width)
	}
	for at := 0; at < n; at += r.width {
		width := min(r.width, n-at)
		for i := range m {
			copy(r.change[i*width:(i+1)*width], r.pulled[i*n+at:])
		}
		r.pack(r.change, m, width)
		r.each(0, m, func(lo, hi int) { r.factor.MulT(r.pulled[lo*n+at:], r.outputs[lo*m:], hi-lo, n, m, 0, width) })
	}
}

// refineRows is the most rows of a product that a thread computes at a time, refineLay the cost of laying out the other factor, in
// rows.
const refineRows, refineLay = 64, 4

// each calls f for runs of rows from lo to hi-1, in parallel.
func (r *refinement) each(lo, hi int, f func(lo, hi int)) {
	if lo < hi {
		unit := kernel.Span(r.threads, hi-lo, refineRows, refineLay)
		kernel.Parallel(r.threads, (hi-lo+unit-1)/unit, func(a, z int) { f(lo+a*unit, min(lo+z*unit, hi)) })
	}
}

// pack makes x [rows, width] the right-hand side of products.
func (r *refinement) pack(x []float32, rows, width int) {
	r.factor.Resize(width, rows)
	r.panels(width, func(from, n int) { r.factor.PackColumns(x, from, n, width) })
}

// panels calls f for the panels of a factor of so many rows: the first row, and how many.
func (r *refinement) panels(rows int, f func(from, n int)) {
	const panel = kernel.PanelRows
	kernel.Parallel(r.threads, (rows+panel-1)/panel, func(a, z int) { f(a*panel, min(z*panel, rows)-a*panel) })
}

// panel moves columns lo to lo+width-1 of all rows, and reports whether anything moved.
func (r *refinement) panel(lo int) bool {
	m, n, width := r.rows, r.cols, r.width
	r.ordinary = true
	for i := range width {
		copy(r.square[i*width:(i+1)*width], r.hessian[(lo+i)*n+lo:])
		r.square[i*width+i] += r.ridge
		r.diagonal[i] = r.square[i*width+i]
		r.ordinary = r.ordinary && ordinary(r.diagonal[i])
	}
	r.packed.Resize(width, width)
	r.packed.PackColumns(r.square, 0, width, width)
	r.factor.Resize(width, n)
	r.panels(width, func(from, rows int) { r.factor.PackRows(r.hessian[(lo+from)*n:], from, rows, n) })
	r.each(0, m, func(from, to int) {
		r.factor.MulT(r.gradient[from*width:], r.pulled[from*n:], to-from, width, n, 0, width)
		for i := from; i < to; i++ {
			kernel.AddScaled(r.gradient[i*width:(i+1)*width], r.pulled[i*n+lo:][:width], r.ridge)
		}
		r.prepareMoves(lo, from, to)
	})
	if !r.moveAll(lo) {
		return false
	}
	r.pack(r.change, m, width)
	r.each(0, m, func(from, to int) {
		r.factor.MulT(r.product[from*width:], r.outputs[from*m:], to-from, width, m, 0, width)
		for i := from; i < to; i++ {
			at := r.pulled[i*n+lo:][:width]
			kernel.Add(at, at, r.product[i*width:(i+1)*width])
		}
	})
	return true
}

// prepareMoves computes what the moves of rows from to to-1 need, and does not depend on the moves of other rows.
func (r *refinement) prepareMoves(lo, from, to int) {
	width := r.width
	mid := float32(int(1) << (r.spec.Bits - 1))
	for row := from; row < to; row++ {
		scale, zero := r.terms(row, lo)
		code, change := r.code[row*width:(row+1)*width], r.change[row*width:(row+1)*width]
		for i, c := range r.dst.Codes[row*r.cols+lo:][:width] {
			code[i] = float32(c) - mid
		}
		kernel.Scale(change, code, scale)
		kernel.Shift(change, change, zero)
		kernel.Scale(change, change, -1)
	}
	if width != r.feedback.block {
		return
	}
	r.packed.MulT(r.kq[from*width:], r.code[from*width:], to-from, width, width, 0, width)
	for row := from; row < to; row++ {
		r.fits[row] = fit{}
		r.fits[row].curve(r.code[row*width:(row+1)*width], r.kq[row*width:(row+1)*width], r.sums[lo:lo+width])
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

// moveAll moves columns lo to lo+width-1 of all rows, and reports whether anything moved. While one thread moves the rows of a panel, one
// after the other, the others let the rows below it know what the panel before it did.
func (r *refinement) moveAll(lo int) bool {
	moved := r.movePanel(lo, 0)
	for from := 0; from+refinePanel < r.rows; from += refinePanel {
		next := from + refinePanel
		below, units, unit := next+refinePanel, 0, refineRows
		if r.effects[from/refinePanel%2].moved != 0 && below < r.rows {
			unit = kernel.Span(r.threads, r.rows-below, refineRows, refineLay)
			units = (r.rows - below + unit - 1) / unit
		}
		kernel.Parallel(r.threads, 1+units, func(u, end int) {
			for ; u < end; u++ {
				if u > 0 {
					r.push(from, below+(u-1)*unit, min(below+u*unit, r.rows))
					continue
				}
				r.push(from, next, min(below, r.rows))
				if r.movePanel(lo, next) {
					moved = true
				}
			}
		})
	}
	return moved
}

// push adds to the gradients of rows lo to hi-1 what the moves of the panel that begins with row from do to them.
func (r *refinement) push(from, lo, hi int) {
	s, width := &r.effects[from/refinePanel%2], r.width
	if s.moved == 0 {
		return
	}
	s.packed.MulT(r.product[lo*width:], r.outputs[lo*r.rows+from:], hi-lo, width, r.rows, 0, width)
	kernel.Add(r.gradient[lo*width:hi*width], r.gradient[lo*width:hi*width], r.product[lo*width:hi*width])
}

// movePanel moves the rows of the panel that begins with row from, one after the other, and reports whether anything moved.
func (r *refinement) movePanel(lo, from int) bool {
	s, to, width := &r.effects[from/refinePanel%2], min(from+refinePanel, r.rows), r.width
	s.moved = 0
	for row := from; row < to; row++ {
		r.follow(s, from, row)
		turned := s.turned[(row-from)*width : (row-from+1)*width]
		if !r.moveRow(row, lo) {
			clear(turned)
			continue
		}
		s.moved |= 1 << (row - from)
		r.packed.MulT(turned, r.change[row*width:], 1, width, width, 0, width)
	}
	if s.moved != 0 && to < r.rows {
		s.packed.Resize(width, to-from)
		s.packed.PackColumns(s.turned, 0, width, width)
	}
	return s.moved != 0
}

// follow adds to the gradient of a row what the moves of the rows before it in the panel do to it, one after the other.
func (r *refinement) follow(s *effect, from, row int) {
	width, outputs := r.width, r.outputs[row*r.rows+from:]
	gradient := r.gradient[row*width : (row+1)*width]
	for left, at := s.moved, 0; left != 0; { // runs of rows that have moved
		skip := bits.TrailingZeros32(left)
		lo := at + skip
		left >>= skip
		n := bits.TrailingZeros32(^left)
		left >>= n
		at = lo + n
		kernel.AddScaledRows(gradient, s.turned[lo*width:at*width], outputs[lo:at])
	}
}

// moveRow moves columns lo to lo+width-1 of a row, stores the change of its weights, and reports whether anything moved.
func (r *refinement) moveRow(row, lo int) bool {
	at := row*r.blocks + lo/r.feedback.block
	change, code := r.change[row*r.width:(row+1)*r.width], r.code[row*r.width:(row+1)*r.width]
	scale, zero := r.terms(row, lo)
	s, z := r.refitRow(row, lo, scale, zero)
	moved := r.moveCodes(row, lo, s)
	if s == scale && z == zero && !moved {
		clear(change)
		return false
	}
	r.dst.Scale[at] = s
	if r.dst.Zero != nil {
		r.dst.Zero[at] = z
	}
	weights := r.weights[:r.width]
	kernel.Scale(weights, code, s)
	kernel.Shift(weights, weights, z)
	kernel.Add(change, change, weights)
	return true
}

// refitRow returns the best scale and zero term of a block for the codes that it has.
func (r *refinement) refitRow(row, lo int, scale, zero float32) (s, z float32) {
	if r.width != r.feedback.block {
		return scale, zero
	}
	width, curve := r.width, r.outputs[row*r.rows+row]
	grad, kq, sums := r.gradient[row*width:(row+1)*width], r.kq[row*width:(row+1)*width], r.sums[lo:lo+width]
	f := r.fits[row]
	f.slope(r.code[row*width:(row+1)*width], grad)
	f.gq, f.g1 = f.gq/float64(curve), f.g1/float64(curve)
	s, z = f.solve(scale, zero, r.total[lo/width], r.spec)
	if s != scale || z != zero {
		kernel.AddScaled(grad, kq, (s-scale)*curve)
		kernel.AddScaled(grad, sums, (z-zero)*curve)
	}
	return s, z
}

// moveCodes gives every code of a row in the panel, one after the other, the value that minimises the objective, and reports
// whether any changed.
func (r *refinement) moveCodes(row, lo int, scale float32) (moved bool) {
	width, curve, code := r.width, r.outputs[row*r.rows+row], r.code[row*r.width:(row+1)*r.width]
	grad, diagonal := r.gradient[row*width:(row+1)*width], r.diagonal[:width]
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
		r.dst.Codes[row*r.cols+lo+i] = uint8(best + mid)
		kernel.AddScaled(grad[i+1:], r.square[i*width+i+1:(i+1)*width], d*curve)
	}
	return moved
}

// ordinary reports whether products of three such numbers, or their inverses, are neither infinite nor denormal.
func ordinary(x float32) bool { return x >= 0x1p-40 && x <= 0x1p40 }
