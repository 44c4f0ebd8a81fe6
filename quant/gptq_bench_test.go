package quant

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// BenchmarkGPTQ is the encoding of matrices of a small model on one core, and what their rows share.
func BenchmarkGPTQ(b *testing.B) {
	s := Spec{4, 64, false, tensor.F16}
	for _, c := range []struct{ rows, cols int }{{1536, 512}, {512, 1536}} {
		in := &Stats{Cols: c.cols, Tokens: int64(2 * c.cols), Hessian: hessian(c.cols, 2*c.cols, 3)}
		r := rand.New(rand.NewPCG(1, 2))
		w := Matrix{c.rows, c.cols, make([]float32, c.rows*c.cols)}
		for i := range w.Data {
			w.Data[i] = float32(0.02 * r.NormFloat64())
		}
		b.Run(fmt.Sprintf("prepare/%d", c.cols), func(b *testing.B) {
			for b.Loop() {
				if _, err := NewGPTQ().Prepare(s, c.cols, in, 1); err != nil {
					b.Fatal(err)
				}
			}
		})
		for _, sweeps := range []int{0, 3} {
			b.Run(fmt.Sprintf("encode/%dx%d/sweeps=%d", c.rows, c.cols, sweeps), func(b *testing.B) {
				q := NewGPTQ()
				q.Sweeps = sweeps
				e, err := q.Prepare(s, c.cols, in, 1)
				if err != nil {
					b.Fatal(err)
				}
				l, _ := s.Layout(c.rows, c.cols)
				dst := NewBlocks(l, s)
				for b.Loop() {
					if err := e.Encode(dst, w); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(b.Elapsed().Seconds()/float64(b.N)*1e9/float64(c.rows*c.cols), "ns/weight")
			})
		}
	}
}
