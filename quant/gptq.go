package quant

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/llmexport/llmexport/runtime/kernel"
)

// GPTQ chooses codes column by column and lets later columns compensate for the errors of earlier ones (GPTQ/OPTQ,
// ICLR 2023), on grids searched when a block is reached, and then improves scales, zero terms and codes by descent on
// the same objective: for weights w, stored weights ŵ and the Hessian H of the inputs,
//
//	(ŵ - t) (H + ridge·I) (ŵ - t)ᵀ,   ridge = damping · mean(diag H),   t = w + mismatch · (w* - w)
//
// where w* = w (C + ridge·I) (H + ridge·I)⁻¹ compensates for inputs that are already off (GPTAQ, ICML 2025; C
// is Stats.Cross). A channel whose input is always 0 has t = 0.
//
// For n columns Prepare costs 2/3 n³ operations (2 n³ more with a mismatch) and keeps n² float32 values (twice as many with
// a mismatch); it also keeps the Stats, which must not change while the Encoder is in use. Encode costs about
// (1 + 2·sweeps) n² operations a row (2 n² more with a mismatch) and the search, and holds 12 bytes for each weight of up
// to 256 rows.
type GPTQ struct {
	// Damping is the ridge in units of the mean of the Hessian's diagonal; 0 selects a default for the bits.
	Damping float64 `json:"damping" jsonschema:"minimum=0,maximum=10" jsonschema_description:"Ridge of the Hessian in units of its mean diagonal; 0 means .15 at 2 bits, .10 at 3 and 4, .05 at 5 and 6, .02 at 8."`
	// Mismatch is the share, from 0 to 1, of the distance that the target moves towards weights that
	// compensate for earlier errors.
	Mismatch float64 `json:"mismatch" jsonschema:"minimum=0,maximum=1" jsonschema_description:"How far the target moves towards weights that make up for the errors of earlier layers."`
	// Sweeps of least squares and coordinate descent.
	Sweeps int `json:"sweeps" jsonschema:"minimum=0,maximum=100" jsonschema_description:"Sweeps of refitting scales and moving codes after the feedback."`
	// Outputs is the ridge of the moments of output gradients in units of their mean diagonal, see [Refiner]; 0 leaves every
	// row to itself.
	Outputs float64 `json:"outputs" jsonschema:"minimum=0,maximum=100" jsonschema_description:"Ridge of the moments of the gradients at outputs, in units of their mean diagonal, for rows that make up for each other's errors; 0 leaves every row to itself."`
	// Candidates of the search for the grid of a block.
	Candidates int `json:"candidates" jsonschema:"minimum=1,maximum=200" jsonschema_description:"Scales tried for every block."`
	// Order is OrderGroup or OrderNatural.
	Order string `json:"order" jsonschema:"enum=group,enum=natural" jsonschema_description:"Which columns come first: group takes blocks and columns inside blocks by falling mean square of their inputs, natural takes them as they lie."`
}

// Orders of GPTQ.
const (
	// OrderGroup takes blocks by falling largest diagonal element of the Hessian, and columns inside a block by falling
	// diagonal element (group-aware reordering of GPTQModel); the stored order does not change.
	OrderGroup = "group"
	// OrderNatural takes columns in their stored order.
	OrderNatural = "natural"
)

// NewGPTQ returns the defaults.
func NewGPTQ() *GPTQ {
	return &GPTQ{Mismatch: 0.5, Sweeps: 3, Outputs: 1, Candidates: 24, Order: OrderGroup}
}

// Name implements Method.
func (*GPTQ) Name() string { return "gptq" }

// Closeness implements Method.
func (*GPTQ) Closeness() Closeness { return Closeness{Weights: Fitted} }

// Needs implements Method.
func (*GPTQ) Needs() Needs { return Text }

// Validate implements Method.
func (q *GPTQ) Validate() error {
	switch {
	case !(q.Damping >= 0 && q.Damping <= 10):
		return fmt.Errorf("damping must be from 0 to 10, not %v", q.Damping)
	case !(q.Mismatch >= 0 && q.Mismatch <= 1):
		return fmt.Errorf("mismatch must be from 0 to 1, not %v", q.Mismatch)
	case q.Sweeps < 0 || q.Sweeps > 100:
		return fmt.Errorf("sweeps must be from 0 to 100, not %d", q.Sweeps)
	case !(q.Outputs >= 0 && q.Outputs <= 100):
		return fmt.Errorf("outputs must be from 0 to 100, not %v", q.Outputs)
	case q.Candidates < 1 || q.Candidates > 200:
		return fmt.Errorf("candidates must be from 1 to 200, not %d", q.Candidates)
	case q.Order != OrderGroup && q.Order != OrderNatural:
		return fmt.Errorf("order must be %s or %s, not %q", OrderGroup, OrderNatural, q.Order)
	}
	return nil
}

// dampings are the defaults by bits, in units of the mean diagonal: measured on whole packages calibrated with
// self-generated text, where more costs little and less overfits.
var dampings = [9]float64{2: 0.15, 3: 0.10, 4: 0.10, 5: 0.05, 6: 0.05, 8: 0.02}

// Each failed factorisation multiplies the damping by ten, at most this many times.
const dampingRetries = 3

// Prepare implements Quantizer. Where all inputs were 0 it searches grids
// without weights. It fails without statistics, and if the Hessian stays
// indefinite with a thousand times the damping.
func (q *GPTQ) Prepare(s Spec, cols int, in *Stats, threads int) (Encoder, error) {
	return q.PrepareLike(nil, s, cols, in, threads)
}

// PrepareLike is Prepare, and takes over the factor of an encoder that was prepared for the same statistics, if this one would
// compute the same: both have the same damping, and columns come in the same order. like may be nil.
func (q *GPTQ) PrepareLike(like Encoder, s Spec, cols int, in *Stats, threads int) (Encoder, error) {
	if s.Bits == 16 {
		return nil, fmt.Errorf("internal error: 16-bit weights are not encoded by a method")
	}
	l, err := s.Layout(8, cols) // 8 rows end on a byte, whatever the bits
	if err != nil {
		return nil, err
	}
	if err := checkInputs(in, cols); err != nil {
		return nil, err
	}
	other, ok := like.(*feedback)
	ok = ok && &other.hessian[0] == &in.Hessian[0]
	if !ok && !kernel.Finite(threads, in.Hessian) || !kernel.Finite(threads, in.Cross) {
		return nil, fmt.Errorf("internal error: statistics are not finite")
	}
	e := &feedback{spec: s, cols: cols, block: l.BlockCols, blocks: l.Blocks, candidates: q.Candidates, sweeps: q.Sweeps,
		coupling: q.Outputs, ordering: q.Order, strength: float32(q.Mismatch), hessian: in.Hessian,
		versions: versions{in.Factor().Version, kernel.NewVersion(), kernel.NewVersion(), kernel.NewVersion()}}
	diagonal := in.Diagonal()
	sum := 0.0
	for i, v := range diagonal {
		sum += float64(v)
		if v == 0 {
			e.dead = append(e.dead, i)
		}
	}
	if sum == 0 { // no column has inputs
		return (&Search{Candidates: q.Candidates, Importance: ImportanceUniform}).Prepare(s, cols, nil, threads)
	}
	damping := q.Damping
	if damping == 0 {
		damping = dampings[s.Bits]
	}
	e.order = positions(diagonal, e.block, q.Order)
	e.damping = damping
	if ok && other.damping == damping && slices.Equal(other.order, e.order) {
		e.ridge, e.factor, e.mismatch, e.versions = other.ridge, other.factor, other.mismatch, other.versions
		e.share(diagonal, threads)
		return e, nil
	}
	e.factor = kernel.Floats(cols * cols)
	for try := 0; ; try++ {
		e.ridge = float32(damping * (sum / float64(cols)))
		if e.invert(threads) {
			break
		}
		if try == dampingRetries {
			return nil, fmt.Errorf("the Hessian of %d inputs is not positive definite, even with a damping of %g", in.Tokens, damping)
		}
		damping *= 10
	}
	e.share(diagonal, threads)
	if in.Cross != nil && q.Mismatch > 0 {
		e.mismatch = e.mismatched(in, threads)
	}
	return e, nil
}

// Quick returns a much cheaper variant: without sweeps, with columns in their stored order, and with one damping for all bits, so
// that all specs share a factor, see [GPTQ.PrepareLike].
func (q *GPTQ) Quick() Quantizer {
	x := *q
	x.Sweeps, x.Order, x.Candidates = 0, OrderNatural, min(q.Candidates, 12)
	if x.Damping == 0 {
		x.Damping = dampings[3]
	}
	return &x
}

// Couples reports whether encoders implement [Refiner] and want to be called.
func (q *GPTQ) Couples() bool { return q.Outputs > 0 && q.Sweeps > 0 }

// Crosses reports whether Prepare needs Stats.Cross.
func (q *GPTQ) Crosses() bool { return q.Mismatch > 0 }

// checkInputs rejects statistics that calibration must not produce.
func checkInputs(s *Stats, cols int) error {
	switch {
	case s == nil:
		return fmt.Errorf("internal error: gptq has no statistics of the inputs")
	case s.Cols != cols || len(s.Hessian) != cols*cols || s.Cross != nil && len(s.Cross) != cols*cols:
		return fmt.Errorf("internal error: statistics of %d columns for a matrix of %d", s.Cols, cols)
	}
	return nil
}

// positions returns the column of every position. Columns are taken from the last position to the first, because the
// factor of the Hessian is then a lower triangle whose rows hold the weights with which a column propagates its
// error. A block keeps its columns together.
func positions(diagonal []float32, block int, order string) []int {
	n := len(diagonal)
	p := make([]int, n)
	if order == OrderNatural {
		for i := range p {
			p[i] = n - 1 - i
		}
		return p
	}
	blocks := make([]int, n/block)
	for i := range blocks {
		blocks[i] = i
	}
	top := func(b int) float32 { return slices.Max(diagonal[b*block : (b+1)*block]) }
	slices.SortStableFunc(blocks, func(a, b int) int { return cmp.Compare(top(a), top(b)) })
	for i, b := range blocks {
		columns := p[i*block : (i+1)*block]
		for j := range columns {
			columns[j] = b*block + j
		}
		slices.SortStableFunc(columns, func(a, b int) int { return cmp.Compare(diagonal[a], diagonal[b]) })
	}
	return p
}

// invert sets the factor, if the damped Hessian is positive definite.
func (e *feedback) invert(threads int) bool {
	e.gather(threads)
	if kernel.HasDevice() {
		f := NewFactoring(e.factor, e.cols)
		f.Version = e.versions.factor
		if kernel.Offload(f) {
			return true
		}
		e.gather(threads)
	}
	return invertFactor(e.factor, e.cols, threads)
}

// gather fills the lower triangle of the factor with the damped Hessian in the order of positions.
func (e *feedback) gather(threads int) {
	n := e.cols
	kernel.Parallel(threads, n, func(lo, hi int) {
		for i := lo; i < hi; i++ {
			row, from := e.factor[i*n:i*n+i+1], e.hessian[e.order[i]*n:][:n]
			for j := range row {
				row[j] = from[e.order[j]]
			}
			row[i] += e.ridge
		}
	})
}

// share computes the sums of the damped Hessian that the search and the descent need.
func (e *feedback) share(diagonal []float32, threads int) {
	n := e.cols
	e.importance = make([]float32, n)
	for p, c := range e.order {
		e.importance[p] = diagonal[c] + e.ridge
	}
	sums := make([]float64, n)
	e.sums, e.total = make([]float32, n), make([]float64, e.blocks)
	kernel.Parallel(threads, n, func(i, end int) {
		for ; i < end; i++ {
			sum := float64(e.ridge)
			for _, v := range e.hessian[i*n+i/e.block*e.block:][:e.block] {
				sum += float64(v)
			}
			sums[i], e.sums[i] = sum, float32(sum)
		}
	})
	for i, sum := range sums {
		e.total[i/e.block] += sum
	}
}
