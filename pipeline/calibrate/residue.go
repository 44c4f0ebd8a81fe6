package calibrate

import (
	"fmt"

	"github.com/llmexport/llmexport/runtime/kernel"
)

// residue gathers, for a matrix whose outputs are added to the states, the sum over tokens of (r - r̂) x̂ᵀ: r and r̂ are the states of
// the float model and of the quantized one before the addition, x̂ is the input of the matrix. It tells how far the input of the
// matrix predicts what the states lack.
type residue struct {
	rows, cols int
	sum        []float32 // [rows, cols]
	missing    []float32 // r - r̂ of the tokens at hand
	packed     []kernel.Packed
}

func newResidue(rows, cols int) *residue {
	return &residue{rows: rows, cols: cols, sum: kernel.Floats(rows * cols)}
}

// add takes whole windows of so many tokens, without the first skip of each: inputs and states of the quantized model, and states of the
// float model. Tokens that m, to which the inputs have just been added, has made shorter count as little here.
func (r *residue) add(m *moments, inputs, quantized, float []float32, tokens, skip, threads int) {
	windows := len(inputs) / (tokens * r.cols)
	r.missing = grow(r.missing, windows*tokens*r.rows)
	kernel.Parallel(threads, windows*tokens, func(lo, hi int) {
		for i := lo; i < hi; i++ {
			row := r.missing[i*r.rows : (i+1)*r.rows]
			for j := range row {
				row[j] = float[i*r.rows+j] - quantized[i*r.rows+j]
			}
			if f, ok := m.shares[i]; ok {
				kernel.Scale(row, row, float32(f*f))
			}
		}
	})
	if r.offload(inputs, windows, tokens, skip) {
		return
	}
	r.packed = packWindows(r.packed, inputs, r.cols, tokens, skip, threads)
	strip := kernel.Span(max(1, threads), r.rows, momentRows, 0)
	kernel.Parallel(threads, (r.rows+strip-1)/strip, func(u, end int) {
		product := make([]float32, strip*r.cols)
		for ; u < end; u++ {
			from, to := u*strip, min((u+1)*strip, r.rows)
			sum := r.sum[from*r.cols : to*r.cols]
			for w := range windows {
				missing := r.missing[(w*tokens+skip)*r.rows : (w+1)*tokens*r.rows]
				r.packed[w].TMulT(product, missing[from:], to-from, r.cols, r.rows, 0, r.cols)
				kernel.Add(sum, sum, product[:len(sum)])
			}
		}
	})
}

// offload lets the device add to the sum, which may stay there until mean, and reports whether it did.
func (r *residue) offload(inputs []float32, windows, tokens, skip int) bool {
	if !kernel.HasDevice() || tokens == skip || windows == 0 {
		return false
	}
	p := kernel.Product{Dst: r.sum, Rows: r.rows, Cols: r.cols, Stride: r.cols, Sum: kernel.AddParts, Stay: true}
	for w := range windows {
		from := w*tokens + skip
		p.Parts = append(p.Parts, kernel.Part{A: kernel.Factor{Data: r.missing[from*r.rows:], Layout: kernel.ByPosition, Stride: r.rows},
			B: kernel.Factor{Data: inputs[from*r.cols:], Layout: kernel.ByPosition, Stride: r.cols}, K: tokens - skip})
	}
	return kernel.Offload(&p)
}

// mean divides by the number of tokens. The sum cannot be used afterwards.
func (r *residue) mean(tokens int64, threads int) ([]float32, error) {
	if err := kernel.Settle(r.sum); err != nil {
		return nil, err
	}
	kernel.Parallel(threads, r.rows, func(lo, hi int) {
		rows := r.sum[lo*r.cols : hi*r.cols]
		kernel.Scale(rows, rows, 1/float32(max(tokens, 1)))
	})
	if !kernel.Finite(threads, r.sum) {
		return nil, fmt.Errorf("states are NaN, infinite, or too large to be multiplied by activations")
	}
	return r.sum, nil
}
