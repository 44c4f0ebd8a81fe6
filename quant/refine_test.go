package quant

import (
	"fmt"
	"slices"
	"testing"

	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// coupled is tr((G + r I) E (H + ridge I) Eᵀ) of stored weights with errors E from t.
func coupled(b Blocks, t Matrix, s Spec, h, outputs []float32, r float64) float64 {
	m, n := t.Rows, t.Cols
	e := make([]float32, m*n)
	b.Dequantize(e, s)
	subtract(e, t.Data)
	var mean float64
	for i := range m {
		mean += float64(outputs[i*m+i]) / float64(m)
	}
	g := damped(outputs, m, float32(r*mean))
	ge, eh := make([]float32, m*n), make([]float32, m*n)
	kernel.MatMul(ge, g, e, m, n, m, n, m, n)
	kernel.MatMul(eh, e, h, m, n, n, n, n, n)
	var sum float64
	for i := range ge {
		sum += float64(ge[i]) * float64(eh[i])
	}
	return sum
}

func sameBlocks(a, b Blocks) bool {
	return slices.Equal(a.Codes, b.Codes) && slices.Equal(a.Scale, b.Scale) && slices.Equal(a.Zero, b.Zero)
}

// For every form of storage the objective of rows that make up for each other falls below that of rows by themselves, codes and
// scales stay on the stored grid, and the bits do not depend on threads.
func TestRefine(t *testing.T) {
	const rows, tokens = 72, 1024
	outputs := &Stats{Cols: rows, Tokens: 1 << 20, Hessian: hessian(rows, tokens, 9)}
	for bits := range 9 {
		for _, block := range []int{32, 64, 128, WholeRow} {
			cols := 256
			if block == WholeRow {
				cols = 160
			}
			in, w := statsOf(cols, tokens), gaussian(rows, cols, 5)
			for _, symmetric := range []bool{false, true} {
				for _, scale := range []tensor.DType{tensor.F16, tensor.F32} {
					s := Spec{Bits: bits, Block: block, Symmetric: symmetric, Scale: scale}
					if s.Validate() != nil || bits == 16 || (scale == tensor.F32 && block != 64) {
						continue
					}
					t.Run(s.String(), func(t *testing.T) {
						t.Parallel()
						q := NewGPTQ()
						q.Candidates, q.Mismatch = 4, 0
						e, err := q.Prepare(s, cols, in, 1)
						if err != nil {
							t.Fatal(err)
						}
						l, _ := s.Layout(rows, cols)
						first := NewBlocks(l, s)
						if err := e.Encode(first, w); err != nil {
							t.Fatal(err)
						}
						h := damped(in.Hessian, cols, ridgeOf(e))
						before := coupled(first, w, s, h, outputs.Hessian, q.Outputs)
						var want Blocks
						for _, threads := range []int{1, 3} {
							b := cloneBlocks(first)
							if err := e.(Refiner).Refine(b, w, outputs, threads); err != nil {
								t.Fatal(err)
							}
							if threads == 1 {
								want = b
							} else if !sameBlocks(want, b) {
								t.Errorf("%d threads: other blocks", threads)
							}
						}
						after := coupled(want, w, s, h, outputs.Hessian, q.Outputs)
						if bits < 8 && !(after < 0.97*before) || !(after <= before*(1+1e-5)) {
							t.Errorf("objective %g, was %g", after, before)
						}
						for _, c := range want.Codes {
							if int(c) >= 1<<bits {
								t.Fatalf("code %d", c)
							}
						}
						for i, v := range want.Scale {
							if !s.stores(v) || scale == tensor.F16 && kernel.RoundF16(v) != v {
								t.Fatalf("scale %g", v)
							}
							if !symmetric && scale == tensor.F16 && kernel.RoundF16(want.Zero[i]) != want.Zero[i] {
								t.Fatalf("zero %g", want.Zero[i])
							}
						}
						if block == WholeRow && !slices.Equal(want.Scale, first.Scale) {
							t.Error("the scale of a row has moved")
						}
					})
				}
			}
		}
	}
}

// Outputs that do not matter leave everything as it is, and the size of their gradients does not count.
func TestRefineScale(t *testing.T) {
	const rows, cols = 40, 128
	in, w, s := statsOf(cols, 512), gaussian(rows, cols, 5), Spec{Bits: 3, Block: 64, Scale: tensor.F16}
	q := NewGPTQ()
	q.Candidates = 4
	e, err := q.Prepare(s, cols, in, 1)
	if err != nil {
		t.Fatal(err)
	}
	first := encodeWith(t, q, w, s, in)
	refined := func(outputs []float32, tokens int64) Blocks {
		b := cloneBlocks(first)
		if err := e.(Refiner).Refine(b, w, &Stats{Cols: rows, Tokens: tokens, Hessian: outputs}, 1); err != nil {
			t.Fatal(err)
		}
		return b
	}
	if !sameBlocks(first, refined(make([]float32, rows*rows), 1000)) {
		t.Error("moved without gradients")
	}
	outputs := hessian(rows, 512, 9)
	want := refined(outputs, 16*rows)
	if sameBlocks(first, want) {
		t.Error("nothing moved")
	}
	for _, factor := range []float32{0x1p-40, 0x1p30} {
		x := make([]float32, len(outputs))
		kernel.Scale(x, outputs, factor)
		if !sameBlocks(want, refined(x, 17*rows)) {
			t.Errorf("gradients times %g: other blocks", factor)
		}
	}
	if sameBlocks(want, refined(outputs, rows)) {
		t.Error("few tokens have the ridge of many")
	}
	all := &Stats{Cols: rows, Tokens: 1000, Hessian: outputs}
	if err := e.(Refiner).Refine(first, Matrix{rows - 8, cols, w.Data[:(rows-8)*cols]}, all, 1); err == nil {
		t.Error("moments of other rows are accepted")
	}
	if err := e.(Refiner).Refine(first, Matrix{rows, 64, w.Data[:rows*64]}, all, 1); err == nil {
		t.Error("another number of columns is accepted")
	}
}

func BenchmarkRefine(b *testing.B) {
	for _, n := range [][2]int{{512, 512}, {1024, 512}, {512, 1536}} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			in, w, s := statsOf(n[1], 2048), gaussian(n[0], n[1], 5), Spec{Bits: 3, Block: 64, Scale: tensor.F16}
			q, outputs := NewGPTQ(), &Stats{Cols: n[0], Tokens: 1 << 20, Hessian: hessian(n[0], 2048, 9)}
			e, err := q.Prepare(s, n[1], in, 1)
			if err != nil {
				b.Fatal(err)
			}
			first := encodeWith(b, q, w, s, in)
			for b.Loop() {
				if err := e.(Refiner).Refine(cloneBlocks(first), w, outputs, 2); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
