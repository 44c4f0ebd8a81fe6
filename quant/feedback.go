package quant

import (
	"fmt"

	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/tensor"
)

const (
	// feedbackRows is the number of rows that are encoded together: enough to make packing for the matrix products cheap.
	feedbackRows = 256
	// feedbackPanel is the number of columns that propagate their errors one by one, row by row, before a product does
	// it for the columns after them.
	feedbackPanel = 32
)

// feedback is GPTQ for one spec and the inputs of one site.
type feedback struct {
	spec       Spec
	cols       int
	block      int // columns of a block
	blocks     int // of a row
	candidates int
	sweeps     int
	coupling   float64 // GPTQ.Outputs
	ordering   string  // GPTQ.Order
	strength   float32 // GPTQ.Mismatch

	hessian    []float32 // [cols, cols], not damped
	damping    float64   // as requested, in units of the mean of the diagonal
	ridge      float32
	dead       []int     // columns without input
	order      []int     // column of every position; the last position comes first
	factor     []float32 // [cols, cols], M of invertFactor in the order of positions
	importance []float32 // damped diagonal, in the order of positions
	mismatch   []float32 // [cols, cols], or nil
	versions   versions  // for devices
	sums       []float32 // sums of the rows of the damped Hessian over the block of the row
	total      []float64 // for every block the sum of sums
}

// versions name the content of matrices, see [kernel.NewVersion]. The factor has one for each of two layouts: by position and by row.
type versions struct{ hessian, mismatch, factor, rows uint64 }

// batch is a group of rows in progress. Values are [rows, cols].
type batch struct {
	rows   int
	dst    Blocks    // the batch's part
	target []float32 // t
	work   []float32 // what is left of the target and, where a position is done, its error; later ŵ - t
	code   []float32 // signed codes

	product, second []float32 // [rows, columns of a panel or block]
	panel           []float32 // a square of the factor or the damped Hessian
	importance      []float32 // [rows, block]
	scale, zero     []float32 // [rows]
	fit             []fit     // [rows]
}

// Encode implements Encoder.
func (e *feedback) Encode(dst Blocks, w Matrix) error {
	if w.Cols != e.cols {
		return fmt.Errorf("internal error: %d columns for an encoder of %d", w.Cols, e.cols)
	}
	// Rows without a grid are rejected as in every method; others keep theirs where the search finds nothing to
	// store.
	if err := (nearest{e.spec}).Encode(dst, w); err != nil {
		return err
	}
	groups := (w.Rows + feedbackRows - 1) / feedbackRows
	step := (w.Rows + groups - 1) / groups
	b := e.batch(step)
	for lo := 0; lo < w.Rows; lo += step {
		b.rows = min(step, w.Rows-lo)
		part := w.Slice(lo, lo+b.rows)
		b.dst = dst.Slice(lo, lo+b.rows, w.Rows)
		e.multiply(b, part.Data)
		if r := e.choose(b, part.Data); r >= 0 {
			return outgrown(lo + r)
		}
		e.descend(b)
		e.store(b)
	}
	return nil
}

// outgrown is the error of a row.
func outgrown(row int) error {
	return fmt.Errorf("row %d: weights outgrow float32 as they make up for errors: %w", row, tensor.ErrUnsupported)
}

func (e *feedback) batch(rows int) *batch {
	b := &batch{target: make([]float32, rows*e.cols), work: make([]float32, rows*e.cols), code: make([]float32, rows*e.cols)}
	e.scratch(b, rows)
	return b
}

// scratch allocates what is not kept of rows.
func (e *feedback) scratch(b *batch, rows int) {
	b.product, b.importance = make([]float32, rows*e.block), make([]float32, rows*e.block)
	b.second, b.panel = make([]float32, rows*descentPanel), make([]float32, descentPanel*descentPanel)
	b.scale, b.zero, b.fit = make([]float32, rows), make([]float32, rows), make([]fit, rows)
}

// choose chooses grids and codes by feedback. It returns the first row whose numbers left the range of float32, or -1.
func (e *feedback) choose(b *batch, w []float32) int {
	if r := e.aim(b, w); r >= 0 {
		return r
	}
	return e.feed(b)
}

// Feed does on this CPU, in one thread, what a device does for a [kernel.Feedback]. It reports whether all numbers are finite.
func Feed(f *kernel.Feedback) bool {
	e := &feedback{spec: Spec{Bits: f.Bits, Symmetric: f.Zero == nil, Scale: tensor.F32}, cols: f.Cols, block: f.Block, blocks: f.Cols / f.Block,
		candidates: f.Candidates, factor: f.Factor.Data, importance: f.Importance, order: f.Order}
	if f.Half {
		e.spec.Scale = tensor.F16
	}
	b := &batch{rows: f.Rows, dst: Blocks{Scale: f.Scale, Zero: f.Zero}, work: f.Work, code: f.Codes}
	e.scratch(b, f.Rows)
	return e.feed(b) < 0
}

// feed is choose after the target has been set.
func (e *feedback) feed(b *batch) int {
	n := e.cols
	for end := n; end > 0; end -= e.block {
		start := end - e.block
		e.pull(b, start, end, end, n)
		e.search(b, start)
		for hi := end; hi > start; hi -= feedbackPanel {
			lo := max(start, hi-feedbackPanel)
			e.pull(b, lo, hi, hi, end)
			e.handOn(b, lo, hi)
		}
	}
	if i := kernel.NonFinite(b.work[:b.rows*n]); i >= 0 {
		return i / n
	}
	return -1
}

// store writes the codes as they are stored.
func (e *feedback) store(b *batch) {
	mid := float32(int(1) << (e.spec.Bits - 1))
	for i, c := range b.code[:b.rows*e.cols] {
		b.dst.Codes[i] = uint8(c + mid)
	}
}

// multiply makes the target, where there is a mismatch, the product of weights with it.
func (e *feedback) multiply(b *batch, w []float32) {
	if n := e.cols; e.mismatch != nil {
		kernel.MatMul(b.target, w, e.mismatch, b.rows, n, n, n, n, n)
	}
}

// aim sets the target after multiply, and work to the target in the order of positions.
func (e *feedback) aim(b *batch, w []float32) int {
	n := e.cols
	t := b.target[:b.rows*n]
	if e.mismatch == nil {
		copy(t, w)
	} else {
		kernel.Add(t, t, w)
	}
	if i := kernel.NonFinite(t); i >= 0 {
		return i / n
	}
	for r := range b.rows {
		row, work := t[r*n:(r+1)*n], b.work[r*n:(r+1)*n]
		for _, c := range e.dead {
			row[c] = 0
		}
		for p, c := range e.order {
			work[p] = row[c]
		}
	}
	return -1
}

// pull applies the errors of positions from to to-1 to positions lo to hi-1.
func (e *feedback) pull(b *batch, lo, hi, from, to int) {
	if from == to {
		return
	}
	n, width := e.cols, hi-lo
	kernel.MatMul(b.product, b.work[from:], e.factor[from*n+lo:], b.rows, width, to-from, width, n, n)
	for r := range b.rows {
		subtract(b.work[r*n+lo:r*n+hi], b.product[r*width:])
	}
}

// search chooses the grids of the block whose positions begin at start, for its weights as they are now.
func (e *feedback) search(b *batch, start int) {
	n, g := e.cols, e.block
	for r := range b.rows {
		copy(b.product[r*g:(r+1)*g], b.work[r*n+start:])
		copy(b.importance[r*g:(r+1)*g], e.importance[start:])
	}
	searchGrids(b.scale[:b.rows], b.zero[:b.rows], b.product[:b.rows*g], b.importance[:b.rows*g], e.spec, e.candidates)
	at := e.order[start] / g
	for r, scale := range b.scale[:b.rows] {
		if !e.spec.stores(scale) || !isFinite(b.zero[r]) {
			continue
		}
		b.dst.Scale[r*e.blocks+at] = scale
		if b.dst.Zero != nil {
			b.dst.Zero[r*e.blocks+at] = b.zero[r]
		}
	}
}

// stores reports whether a scale, rounded to its type, can be a divisor. Zero terms need only be finite.
func (s Spec) stores(scale float32) bool {
	least := float32(0x1p-120)
	if s.Scale == tensor.F16 {
		least = 0x1p-24
	}
	return isFinite(scale) && (scale >= least || s.Symmetric && scale <= -least)
}

// terms returns the scale and zero term of block at of row r.
func (b *batch) terms(r, blocks, at int) (scale, zero float32) {
	scale = b.dst.Scale[r*blocks+at]
	if b.dst.Zero != nil {
		zero = b.dst.Zero[r*blocks+at]
	}
	return scale, zero
}

// handOn chooses codes for positions hi-1 down to lo. Each propagates its error to those below it in the
// panel.
func (e *feedback) handOn(b *batch, lo, hi int) {
	n, width := e.cols, hi-lo
	at := e.order[lo] / e.block
	m := b.panel[:width*width]
	for i := range width {
		copy(m[i*width:(i+1)*width], e.factor[(lo+i)*n+lo:])
	}
	grid := signed(e.spec.Bits)
	for r := range b.rows {
		scale, zero := b.terms(r, e.blocks, at)
		inverse := 1 / scale
		w, code := b.work[r*n+lo:r*n+hi], b.code[r*n:(r+1)*n]
		for i := width - 1; i >= 0; i-- {
			v := w[i]
			q := grid.nearest(float32((v - zero) * inverse))
			code[e.order[lo+i]] = q
			err := (v - (float32(scale*q) + zero)) / m[i*width+i]
			w[i] = err
			below := w[:i]
			for j, u := range m[i*width : i*width+i] {
				below[j] -= float32(err * u)
			}
		}
	}
}

// codeRange is the range of signed codes.
type codeRange struct{ least, most float32 }

func signed(bits int) codeRange {
	mid := float32(int(1) << (bits - 1))
	return codeRange{-mid, mid - 1}
}

// nearest returns the code nearest to x, the even one of two.
func (c codeRange) nearest(x float32) float32 {
	const shift = 0x1.8p23 // leaves no room for a fraction
	switch {
	case x <= c.least:
		return c.least
	case x >= c.most:
		return c.most
	}
	return x + shift - shift
}
