package cuda

import (
	"bytes"
	"math"
	goruntime "runtime"
	"slices"
	"time"

	"github.com/llmexport/llmexport/quant"
	"github.com/llmexport/llmexport/runtime/kernel"
)

// MeasuredWork is how fast work other than a product is. Rates are in TFLOP/s.
type MeasuredWork struct {
	// factor, tokens, windows, recurrence, gradients, experts of each, feedback, feedbacks, descent, choice, refinement, moves, divergences, labels or draws
	Work   string  `json:"work"`
	Shape  Shape   `json:"shape"`
	Card   float64 `json:"card"` // with copies
	CPU    float64 `json:"cpu"`
	Differ int     `json:"differ"` // elements with other bits
}

// measuredRows is how many rows are encoded at most, because the CPU takes long for them.
const measuredRows = 512

// measureWork times work that changes what it is given: each call of fresh returns it, results are what it changed.
func (e *Engine) measureWork(name string, s Shape, fresh func() kernel.Work, cpu func(kernel.Work), results func(kernel.Work) []float32,
	times int) MeasuredWork {
	m := MeasuredWork{Work: name, Shape: s}
	want := fresh()
	flop := 2e-12 * float64(want.Multiplications())
	at := time.Now()
	cpu(want)
	m.CPU = flop / time.Since(at).Seconds()
	for range times {
		got := fresh()
		at := time.Now()
		if !e.sampled(got) {
			m.Card, m.Differ = 0, len(results(want))
			break
		}
		m.Card = max(m.Card, flop/time.Since(at).Seconds())
		m.Differ = max(m.Differ, differ(results(got), results(want)))
	}
	return m
}

// definite returns a positive definite matrix.
func definite(n int) []float32 {
	a := drawn(n*n, 3)
	for i := range n {
		for j := range i {
			a[j*n+i] = a[i*n+j]
		}
		a[i*n+i] = float32(n)
	}
	return a
}

func (e *Engine) measureFactor(n, times int) MeasuredWork {
	a := definite(n)
	return e.measureWork("factor", Shape{n, n}, func() kernel.Work { return quant.NewFactoring(slices.Clone(a), n) },
		func(w kernel.Work) { quant.Factor(w.(*kernel.Factoring), goruntime.GOMAXPROCS(0)) },
		func(w kernel.Work) []float32 {
			x := w.(*kernel.Factoring).A
			for i := range n { // what is above blocks of the diagonal is unknown
				if to := i/factorColumns*factorColumns + factorColumns; to < n {
					clear(x[i*n+to : (i+1)*n])
				}
			}
			return x
		}, times)
}

// feedbacksMeasured is how many feedbacks are measured at the same time, with the rows of one that is measured by itself.
const feedbacksMeasured = 8

// measuredFeedback returns the shape of a feedback that is measured, and what makes it.
func measuredFeedback(s Shape) (Shape, func() *kernel.Feedback) {
	const block, bits, candidates = 64, 4, 24
	s = Shape{min(s.Rows, measuredRows), (s.Cols + block - 1) / block * block}
	n := s.Cols
	f := kernel.Feedback{Rows: s.Rows, Cols: n, Block: block, Candidates: candidates, Bits: bits, Importance: slices.Repeat([]float32{1}, n),
		Factor: kernel.Factor{Data: drawn(n*n, 2), Layout: kernel.ByPosition, Stride: n, Version: kernel.NewVersion()}, Order: backwards(n)}
	for i := range n {
		kernel.Scale(f.Factor.Data[i*n:(i+1)*n], f.Factor.Data[i*n:(i+1)*n], 1/float32(n))
		f.Factor.Data[i*n+i] = 1
	}
	return s, func() *kernel.Feedback {
		f := f
		f.Work, f.Codes, f.Scale, f.Zero = drawn(s.Rows*n, 1), make([]float32, s.Rows*n), make([]float32, s.Rows*n/block), make([]float32, s.Rows*n/block)
		return &f
	}
}

// measureFeedbacks times several feedbacks of few rows at the same time.
func (e *Engine) measureFeedbacks(s Shape, times int) MeasuredWork {
	s, fresh := measuredFeedback(s)
	return e.measureWork("feedbacks", s, func() kernel.Work {
		f, w := fresh(), &kernel.Feedbacks{}
		for i := range feedbacksMeasured {
			if lo, hi := i*f.Rows/feedbacksMeasured, (i+1)*f.Rows/feedbacksMeasured; lo < hi {
				w.Of = append(w.Of, feedbackOf(f, lo, hi))
			}
		}
		w.Left = make([]bool, len(w.Of))
		return w
	}, func(w kernel.Work) {
		of := w.(*kernel.Feedbacks).Of
		kernel.Parallel(0, len(of), func(i, end int) {
			for ; i < end; i++ {
				quant.Feed(of[i])
			}
		})
	}, func(w kernel.Work) (all []float32) {
		for _, f := range w.(*kernel.Feedbacks).Of {
			all = slices.Concat(all, f.Codes, f.Scale, f.Zero)
		}
		return all
	}, times)
}

func (e *Engine) measureFeedback(s Shape, times int) MeasuredWork {
	s, fresh := measuredFeedback(s)
	return e.measureWork("feedback", s, func() kernel.Work { return fresh() }, func(w kernel.Work) {
		kernel.Parallel(0, s.Rows, func(lo, hi int) { quant.Feed(feedbackOf(w.(*kernel.Feedback), lo, hi)) })
	}, func(w kernel.Work) []float32 {
		f := w.(*kernel.Feedback)
		return slices.Concat(f.Codes, f.Scale, f.Zero)
	}, times)
}

// blockSums are the sums of the rows of a damped matrix over the block of the row, and for every block the sum of them.
func blockSums(a []float32, n, block int, ridge float32) (sums []float32, totals []float64) {
	sums, totals = make([]float32, n), make([]float64, n/block)
	for i := range n {
		sum := float64(ridge)
		for _, v := range a[i*n+i/block*block:][:block] {
			sum += float64(v)
		}
		sums[i] = float32(sum)
		totals[i/block] += sum
	}
	return sums, totals
}

func (e *Engine) measureDescent(s Shape, times int) MeasuredWork {
	const block, bits = 64, 4
	s = Shape{min(s.Rows, measuredRows), (s.Cols + block - 1) / block * block}
	n := s.Cols
	d := kernel.Descent{Rows: s.Rows, Cols: n, Block: block, Sweeps: 1, Bits: bits, Target: drawn(s.Rows*n, 1), Ridge: 0.1 * float32(n),
		Hessian: kernel.Factor{Data: definite(n), Layout: kernel.ByPosition, Stride: n, Version: kernel.NewVersion()}}
	d.Sums, d.Totals = blockSums(d.Hessian.Data, n, block, d.Ridge)
	return e.measureWork("descent", s, func() kernel.Work {
		d := d
		d.Codes, d.Scale, d.Zero = make([]float32, s.Rows*n), slices.Repeat([]float32{1. / 16}, s.Rows*n/block), make([]float32, s.Rows*n/block)
		return &d
	}, func(w kernel.Work) {
		kernel.Parallel(0, s.Rows, func(lo, hi int) { quant.Descend(descentOf(w.(*kernel.Descent), lo, hi)) })
	}, func(w kernel.Work) []float32 {
		d := w.(*kernel.Descent)
		return slices.Concat(d.Codes, d.Scale, d.Zero)
	}, times)
}

// measureChoice chooses for all rows, in runs.
func (e *Engine) measureChoice(s Shape, times int) MeasuredWork {
	const block, bits, candidates = 64, 4, 24
	s.Cols = (s.Cols + block - 1) / block * block
	n := s.Cols
	c := kernel.Choice{Cols: n, Block: block, Candidates: candidates, Bits: bits, Importance: slices.Repeat([]float32{1}, n),
		Factor: kernel.Factor{Data: drawn(n*n, 2), Layout: kernel.ByPosition, Stride: n, Version: kernel.NewVersion()}, Order: backwards(n)}
	for i := range n {
		kernel.Scale(c.Factor.Data[i*n:(i+1)*n], c.Factor.Data[i*n:(i+1)*n], 1/float32(n))
		c.Factor.Data[i*n+i] = 1
	}
	for lo := 0; lo < s.Rows; lo += quant.CoupledRows {
		m := min(quant.CoupledRows, s.Rows-lo)
		x := kernel.Mixed{Rows: m, Target: drawn(m*n, uint64(lo)+1), Order: backwards(m), Mix: drawn(m*m, uint64(lo)+3)}
		kernel.Scale(x.Mix, x.Mix, 1/float32(m))
		c.Runs = append(c.Runs, x)
	}
	return e.measureWork("choice", s, func() kernel.Work {
		c := c
		c.Runs = slices.Clone(c.Runs)
		for i := range c.Runs {
			x := &c.Runs[i]
			x.Codes, x.Scale, x.Zero = make([]uint8, x.Rows*n), make([]float32, x.Rows*n/block), make([]float32, x.Rows*n/block)
		}
		return &c
	}, func(w kernel.Work) { quant.Choose(w.(*kernel.Choice), goruntime.GOMAXPROCS(0)) }, func(w kernel.Work) (all []float32) {
		for _, x := range w.(*kernel.Choice).Runs {
			if all = slices.Concat(all, floatsIn(x.Codes), x.Scale, x.Zero); x.Left {
				all = append(all, 1)
			}
		}
		return all
	}, times)
}

// backwards are n numbers, the last one first.
func backwards(n int) []int {
	x := make([]int, n)
	for i := range x {
		x[i] = n - 1 - i
	}
	return x
}

// measureRefinement refines all rows once, in runs. Rows move on the card, or here; that is called moves.
func (e *Engine) measureRefinement(s Shape, where seat, times int) MeasuredWork {
	const block, bits = 64, 4
	s.Cols = (s.Cols + block - 1) / block * block
	n := s.Cols
	d := kernel.Refinement{Cols: n, Block: block, Sweeps: 1, Bits: bits, Ridge: 0.1 * float32(n),
		Hessian: kernel.Factor{Data: definite(n), Layout: kernel.ByPosition, Stride: n, Version: kernel.NewVersion()}}
	d.Sums, d.Totals = blockSums(d.Hessian.Data, n, block, d.Ridge)
	for lo := 0; lo < s.Rows; lo += quant.CoupledRows {
		m := min(quant.CoupledRows, s.Rows-lo)
		x := kernel.Run{Rows: m, Errors: drawn(m*n, uint64(lo)), Outputs: definite(m)}
		kernel.Scale(x.Errors, x.Errors, 1.1/16) // one code in eleven has a better neighbor
		kernel.Scale(x.Outputs, x.Outputs, 1/float32(m))
		d.Runs = append(d.Runs, x)
	}
	name := "refinement"
	if where == here {
		name = "moves"
		defer func(before seat) { e.moving = before }(e.moving)
		e.moving = here
	}
	return e.measureWork(name, s, func() kernel.Work {
		d := d
		d.Runs = slices.Clone(d.Runs)
		for i := range d.Runs {
			x := &d.Runs[i]
			x.Codes, x.Scale, x.Zero = bytes.Repeat([]uint8{1 << bits / 2}, x.Rows*n), slices.Repeat([]float32{1. / 16}, x.Rows*n/block), make([]float32, x.Rows*n/block)
			for j := range x.Codes {
				x.Codes[j] += uint8(j*7%11) - 5
			}
		}
		if where == here {
			quant.MoveHere(&d, goruntime.GOMAXPROCS(0))
		}
		return &d
	}, func(w kernel.Work) { quant.Refine(w.(*kernel.Refinement), goruntime.GOMAXPROCS(0)) }, func(w kernel.Work) (all []float32) {
		for _, x := range w.(*kernel.Refinement).Runs {
			all = slices.Concat(all, floatsIn(x.Codes), x.Scale, x.Zero)
		}
		return all
	}, times)
}

// measuredLogits are logits of a spread of about one, with the matrix as the right-hand side of products with gradients.
type measuredLogits struct {
	kernel.Logits
	back kernel.Factor
}

// sampledLogits are few, of a vocabulary in several pieces.
func sampledLogits() measuredLogits { return drawnLogits(40, Shape{3001, 300}) }

// drawnLogits returns logits of so many rows for a head.
func drawnLogits(rows int, s Shape) measuredLogits {
	w := drawn(s.Rows*s.Cols, 2)
	x := drawn(rows*s.Cols, 1)
	kernel.Scale(x, x, float32(12/math.Sqrt(float64(s.Cols))))
	return measuredLogits{
		kernel.Logits{X: x, Rows: rows, Vocab: s.Rows, Width: s.Cols,
			Weights: kernel.Factor{Data: w, Layout: kernel.ByRow, Stride: s.Cols, Version: kernel.NewVersion()}},
		kernel.Factor{Data: w, Layout: kernel.ByPosition, Stride: s.Cols, Version: kernel.NewVersion()},
	}
}

func (l *measuredLogits) shape() Shape { return Shape{l.Vocab, l.Width} }

// measureDivergences compares logits with those of the rows in another order.
func (e *Engine) measureDivergences(l measuredLogits, times int) MeasuredWork {
	other := l.Logits
	other.X = append(slices.Clone(l.X[l.Width:]), l.X[:l.Width]...)
	return e.measureWork("divergences", l.shape(), func() kernel.Work {
		return &kernel.Divergences{Want: l.Logits, Got: other, KL: make([]float64, l.Rows)}
	}, func(w kernel.Work) { w.(*kernel.Divergences).Do() }, func(w kernel.Work) []float32 { return quarters(w.(*kernel.Divergences).KL) }, times)
}

// evenly are numbers from 0 to 1.
func evenly(n int) []float64 {
	x := make([]float64, n)
	for i := range x {
		x[i] = (float64(i) + .5) / float64(n)
	}
	return x
}

func (e *Engine) measureLabels(l measuredLogits, times int) MeasuredWork {
	return e.measureWork("labels", l.shape(), func() kernel.Work {
		return &kernel.Labels{Logits: l.Logits, Back: l.back, At: evenly(l.Rows), Squares: make([]float64, l.Rows), Gradient: make([]float32, len(l.X))}
	}, func(w kernel.Work) { w.(*kernel.Labels).Do() }, func(w kernel.Work) []float32 {
		x := w.(*kernel.Labels)
		return slices.Concat(x.Gradient, quarters(x.Squares))
	}, times)
}

func (e *Engine) measureDraws(l measuredLogits, times int) MeasuredWork {
	return e.measureWork("draws", l.shape(), func() kernel.Work {
		return &kernel.Draws{Logits: l.Logits, At: evenly(l.Rows), Tokens: make([]int32, l.Rows)}
	}, func(w kernel.Work) { w.(*kernel.Draws).Do() }, func(w kernel.Work) (tokens []float32) {
		for _, token := range w.(*kernel.Draws).Tokens {
			tokens = append(tokens, float32(token))
		}
		return tokens
	}, times)
}

// quarters are the bits of numbers, 16 at a time, or what is not a number.
func quarters(x []float64) (all []float32) {
	for _, v := range x {
		for shift := range 4 {
			quarter := float32(math.Float64bits(v) >> (16 * shift) & 0xffff)
			if v != v {
				quarter = float32(v)
			}
			all = append(all, quarter)
		}
	}
	return all
}
