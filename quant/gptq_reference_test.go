package quant

import (
	"math"
	"testing"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// textbook is GPTQ as its paper derives it, row by row in float64: a column is rounded, the columns that remain move by
// the error times its row of the inverse Hessian, and the column leaves that inverse. It chooses the grid of a block when
// it reaches it. h is damped.
func textbook(dst Blocks, w Matrix, s Spec, h []float32, order []int, grid func(w []float32, columns []int) (scale, zero float32)) {
	n := w.Cols
	l, _ := s.Layout(w.Rows, n)
	inverse := invert(h, n)
	// steps holds for every column what it hands on, which rows share.
	steps := make([][]float64, 0, n)
	for p := n - 1; p >= 0; p-- {
		c := order[p]
		step := make([]float64, n)
		for j := range step {
			step[j] = inverse[c*n+j] / inverse[c*n+c]
		}
		for i := range n {
			if v := inverse[i*n+c]; v != 0 {
				for j := range step {
					inverse[i*n+j] -= v * step[j]
				}
			}
		}
		steps = append(steps, step)
	}
	mid := float64(int(1) << (s.Bits - 1))
	for r := range w.Rows {
		row := make([]float64, n)
		for i, v := range w.Row(r) {
			row[i] = float64(v)
		}
		for i, step := range steps {
			p := n - 1 - i
			c := order[p]
			at := r*l.Blocks + c/l.BlockCols
			if i%l.BlockCols == 0 {
				columns := order[p+1-l.BlockCols : p+1]
				block := make([]float32, len(columns))
				for k, j := range columns {
					block[k] = float32(row[j])
				}
				var zero float32
				if dst.Scale[at], zero = grid(block, columns); dst.Zero != nil {
					dst.Zero[at] = zero
				}
			}
			scale, zero := float64(dst.Scale[at]), 0.0
			if dst.Zero != nil {
				zero = float64(dst.Zero[at])
			}
			q := min(max(math.RoundToEven((row[c]-zero)/scale), -mid), mid-1)
			dst.Codes[r*n+c] = uint8(q + mid)
			err := row[c] - scale*q - zero
			for j, v := range step {
				row[j] -= err * v
			}
		}
	}
}

// invert is Gauss-Jordan on a positive definite matrix.
func invert(h []float32, n int) []float64 {
	a := make([]float64, n*n)
	for i, v := range h {
		a[i] = float64(v)
	}
	for k := range n {
		pivot := a[k*n+k]
		a[k*n+k] = 1
		for j := range n {
			a[k*n+j] /= pivot
		}
		for i := range n {
			if i == k {
				continue
			}
			f := a[i*n+k]
			a[i*n+k] = 0
			for j := range n {
				a[i*n+j] -= f * a[k*n+j]
			}
		}
	}
	return a
}

// spans is the grid of rtn.
func spans(s Spec) func(w []float32, _ []int) (float32, float32) {
	return func(w []float32, _ []int) (float32, float32) {
		b := Blocks{Codes: make([]uint8, len(w)), Scale: make([]float32, 1), Zero: make([]float32, 1)}
		var g grid
		g.encode(&b, w, s, len(w), 0, 1)
		return b.Scale[0], b.Zero[0]
	}
}

// The factor, the panels and the float32 of the encoder choose the codes of the textbook: nearly all of them, until a
// weight halfway between two codes goes the other way, and with the same error after that.
func TestGPTQIsTextbook(t *testing.T) {
	const rows, cols = 12, 256
	in := statsOf(cols, 600)
	w := gaussian(rows, cols, 12)
	for _, s := range []Spec{{4, 64, false, tensor.F16}, {3, 128, true, tensor.F32}, {2, 32, false, tensor.F16}, {6, WholeRow, false, tensor.F32}} {
		for _, order := range []string{OrderGroup, OrderNatural} {
			t.Run(s.String()+" "+order, func(t *testing.T) {
				q := NewGPTQ()
				q.Order, q.Sweeps = order, 0
				prepared, err := q.Prepare(s, cols, in, 1)
				if err != nil {
					t.Fatal(err)
				}
				e := prepared.(*feedback)
				l, _ := s.Layout(rows, cols)
				got, want := NewBlocks(l, s), NewBlocks(l, s)
				if err := e.Encode(got, w); err != nil {
					t.Fatal(err)
				}
				h := damped(in.Hessian, cols, e.ridge)
				textbook(want, w, s, h, e.order, func(w []float32, columns []int) (float32, float32) {
					importance := make([]float32, len(columns))
					for i, c := range columns {
						importance[i] = h[c*cols+c]
					}
					var scale, zero [1]float32
					searchGrids(scale[:], zero[:], w, importance, s, q.Candidates)
					return scale[0], zero[0]
				})
				same := 0
				for i, c := range got.Codes {
					if c == want.Codes[i] {
						same++
					}
				}
				if same < len(got.Codes)*9/10 {
					t.Errorf("%d of %d codes are those of the textbook", same, len(got.Codes))
				}
				a, b := total(objectives(got, w, s, h)), total(objectives(want, w, s, h))
				if math.Abs(a-b) > 0.02*b {
					t.Errorf("objective %g, of the textbook %g", a, b)
				}
			})
		}
	}
}
