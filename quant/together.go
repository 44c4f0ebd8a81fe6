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
	b := e.batch(step)
	for lo := 0; lo < w.Rows; lo += step {
		b.rows = min(step, w.Rows-lo)
		b.dst = dst.Slice(lo, lo+b.rows, w.Rows)
		if err := e.encodeTogether(b, w.Slice(lo, lo+b.rows), lo, threads); err != nil {
			return err
		}
	}
	return nil
}

// encodeTogether encodes the rows of a batch; first is the first one in the matrix.
func (e *feedback) encodeTogether(b *batch, w Matrix, first, threads int) error {
	n := e.cols
	each := func(f func(u int, p *batch, w Matrix)) {
		kernel.Parallel(threads, (b.rows+togetherRows-1)/togetherRows, func(u, end int) {
			p := new(batch)
			e.scratch(p, togetherRows)
			for ; u < end; u++ {
				lo, hi := u*togetherRows, min((u+1)*togetherRows, b.rows)
				p.rows, p.dst = hi-lo, b.dst.Slice(lo, hi, b.rows)
				p.target, p.work, p.code = b.target[lo*n:hi*n], b.work[lo*n:hi*n], b.code[lo*n:hi*n]
				f(u, p, w.Slice(lo, hi))
			}
		})
	}
	multiplied := e.multiplyOffload(b.target, w)
	failed := make([]error, (b.rows+togetherRows-1)/togetherRows)
	each(func(u int, p *batch, w Matrix) {
		failed[u] = e.prepare(p, w, multiplied, first+u*togetherRows)
	})
	if err := cmp.Or(failed...); err != nil {
		return err
	}
	if !kernel.Offload(&kernel.Feedback{Rows: b.rows, Cols: n, Block: e.block, Candidates: e.candidates, Bits: e.spec.Bits, Half: e.spec.Scale == tensor.F16,
		Work: b.work[:b.rows*n], Codes: b.code[:b.rows*n], Scale: b.dst.Scale, Zero: b.dst.Zero,
		Factor:     kernel.Factor{Data: e.factor, Layout: kernel.ByPosition, Stride: n, Version: e.versions.factor},
		Importance: e.importance, Order: e.order}) {
		each(func(u int, p *batch, _ Matrix) {
			if r := e.feed(p); r >= 0 {
				failed[u] = outgrown(first + u*togetherRows + r)
			}
		})
		if err := cmp.Or(failed...); err != nil {
			return err
		}
	}
	descended := kernel.Offload(&kernel.Descent{Rows: b.rows, Cols: n, Block: e.block, Sweeps: e.sweeps, Bits: e.spec.Bits, Half: e.spec.Scale == tensor.F16,
		Codes: b.code[:b.rows*n], Scale: b.dst.Scale, Zero: b.dst.Zero, Target: b.target[:b.rows*n],
		Hessian: kernel.Factor{Data: e.hessian, Layout: kernel.ByPosition, Stride: n, Version: e.versions.hessian}, Ridge: e.ridge, Sums: e.sums, Totals: e.total})
	each(func(_ int, p *batch, _ Matrix) {
		if !descended {
			e.descend(p)
		}
		e.store(p)
	})
	return nil
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
