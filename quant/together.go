package quant

import (
	"cmp"
	"fmt"

	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// Together is an [Encoder] that encodes many rows at once where a device helps.
type Together interface {
	Encoder
	// EncodeTogether is Encode on several threads. What it lets the device of this process do is done for many rows at a time.
	EncodeTogether(dst Blocks, w Matrix, threads int) error
}

const (
	// togetherWeights bounds the memory of rows that are encoded together: 12 bytes a weight.
	togetherWeights = 1 << 25
	// togetherRows is how many of them a thread takes at a time.
	togetherRows = 64
)

// EncodeTogether implements [Together].
func (e *feedback) EncodeTogether(dst Blocks, w Matrix, threads int) error {
	step := min(w.Rows, max(togetherRows, togetherWeights/e.cols/togetherRows*togetherRows))
	t := e.together(step, threads)
	for ; t.first < w.Rows; t.first += step {
		t.b.rows = min(step, w.Rows-t.first)
		t.b.dst, t.w = dst.Slice(t.first, t.first+t.b.rows, w.Rows), w.Slice(t.first, t.first+t.b.rows)
		if err := t.prepare(); err != nil {
			return err
		}
		if !kernel.Offload(t.feedback()) {
			if err := t.feed(); err != nil {
				return err
			}
		}
		t.finish()
	}
	return nil
}

// EncodeEach encodes a matrix by several encoders, each in one thread, and returns the error of each. What they let the device of this
// process do, it does for all of them at the same time, so that few rows are enough work for it. It takes 12 bytes for each weight and
// encoder.
func EncodeEach(encoders []Encoder, dst []Blocks, w Matrix, threads int) []error {
	all, failed := make([]*together, len(encoders)), make([]error, len(encoders))
	kernel.Parallel(threads, len(encoders), func(i, end int) {
		for ; i < end; i++ {
			e, ok := encoders[i].(*feedback)
			if !ok {
				failed[i] = encoders[i].Encode(dst[i], w)
				continue
			}
			t := e.together(w.Rows, 1)
			t.b.rows, t.b.dst, t.w = w.Rows, dst[i], w
			if failed[i] = t.prepare(); failed[i] == nil {
				all[i] = t
			}
		}
	})
	var work kernel.Feedbacks
	var of []int // encoders
	for i, t := range all {
		if t != nil {
			work.Of, of = append(work.Of, t.feedback()), append(of, i)
		}
	}
	work.Left = make([]bool, len(of))
	done := len(of) > 0 && kernel.Offload(&work)
	kernel.Parallel(threads, len(of), func(k, end int) {
		for ; k < end; k++ {
			i := of[k]
			if !done || work.Left[k] {
				failed[i] = all[i].feed()
			}
			if failed[i] == nil {
				all[i].finish()
			}
		}
	})
	return failed
}

// together are rows of a matrix that are encoded together.
type together struct {
	e       *feedback
	b       *batch
	w       Matrix
	first   int // the first row in the matrix
	threads int
}

// together has room for so many rows.
func (e *feedback) together(rows, threads int) *together {
	n := rows * e.cols
	return &together{e: e, b: &batch{target: kernel.Scratch(n), work: kernel.Scratch(n), code: kernel.Scratch(n)}, threads: threads}
}

// each calls f for runs of rows, of which row is the first, and returns the first error.
func (t *together) each(f func(row int, p *batch, w Matrix) error) error {
	b, n, runs := t.b, t.e.cols, (t.b.rows+togetherRows-1)/togetherRows
	failed := make([]error, runs)
	kernel.Parallel(t.threads, runs, func(u, end int) {
		p := new(batch)
		t.e.scratch(p, min(togetherRows, b.rows))
		for ; u < end; u++ {
			lo, hi := u*togetherRows, min((u+1)*togetherRows, b.rows)
			p.rows, p.dst = hi-lo, b.dst.Slice(lo, hi, b.rows)
			p.target, p.work, p.code = b.target[lo*n:hi*n], b.work[lo*n:hi*n], b.code[lo*n:hi*n]
			failed[u] = f(t.first+lo, p, t.w.Slice(lo, hi))
		}
	})
	return cmp.Or(failed...)
}

// prepare does what comes before the feedback.
func (t *together) prepare() error {
	multiplied := t.e.multiplyOffload(t.b.target, t.w)
	return t.each(func(row int, p *batch, w Matrix) error { return t.e.prepare(p, w, multiplied, row) })
}

// feedback is what a device does.
func (t *together) feedback() *kernel.Feedback {
	e, b, n := t.e, t.b, t.e.cols
	return &kernel.Feedback{Rows: b.rows, Cols: n, Block: e.block, Candidates: e.candidates, Bits: e.spec.Bits, Half: e.spec.Scale == tensor.F16,
		Work: b.work[:b.rows*n], Codes: b.code[:b.rows*n], Scale: b.dst.Scale, Zero: b.dst.Zero,
		Factor:     kernel.Factor{Data: e.factor, Layout: kernel.ByPosition, Stride: n, Version: e.versions.factor},
		Importance: e.importance, Order: e.order}
}

// feed does that on this CPU.
func (t *together) feed() error {
	return t.each(func(row int, p *batch, _ Matrix) error {
		if r := t.e.feed(p); r >= 0 {
			return outgrown(row + r)
		}
		return nil
	})
}

// finish moves scales and codes, and stores them.
func (t *together) finish() {
	e, b, n := t.e, t.b, t.e.cols
	descended := kernel.Offload(&kernel.Descent{Rows: b.rows, Cols: n, Block: e.block, Sweeps: e.sweeps, Bits: e.spec.Bits, Half: e.spec.Scale == tensor.F16,
		Codes: b.code[:b.rows*n], Scale: b.dst.Scale, Zero: b.dst.Zero, Target: b.target[:b.rows*n],
		Hessian: kernel.Factor{Data: e.hessian, Layout: kernel.ByPosition, Stride: n, Version: e.versions.hessian}, Ridge: e.ridge, Sums: e.sums, Totals: e.total})
	_ = t.each(func(_ int, p *batch, _ Matrix) error {
		if !descended {
			e.descend(p)
		}
		e.store(p)
		return nil
	})
}

// multiplyOffload is multiply by the device of this process, for rows whose targets are dst. It reports whether the device did it.
func (e *feedback) multiplyOffload(dst []float32, w Matrix) bool {
	n := e.cols
	return e.mismatch != nil && kernel.Offload(&kernel.Product{Dst: dst, Rows: w.Rows, Cols: n, Stride: n, Parts: []kernel.Part{{
		A: kernel.Factor{Data: w.Data, Layout: kernel.ByRow, Stride: n},
		B: kernel.Factor{Data: e.mismatch, Layout: kernel.ByPosition, Stride: n, Version: e.versions.mismatch}, K: n,
	}}})
}

// prepare does what Encode does before the feedback, for rows whose first one is row of the matrix.
func (e *feedback) prepare(b *batch, w Matrix, multiplied bool, row int) error {
	if err := (nearest{e.spec}).Encode(b.dst, w); err != nil {
		return fmt.Errorf("rows %d to %d: %w", row, row+w.Rows-1, err)
	}
	if !multiplied {
		e.multiply(b, w.Data)
	}
	if r := e.aim(b, w.Data); r >= 0 {
		return outgrown(row + r)
	}
	return nil
}
