package estimate

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/llmexport/llmexport/pipeline/effort"
	"github.com/llmexport/llmexport/quant"
	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// BenchmarkMethods times the parts of gptq on one core and reports by what factor they are estimated too high, with the rates of
// this machine: estimate/time.
func BenchmarkMethods(b *testing.B) {
	for _, c := range []struct{ bits, block, rows, cols int }{{3, 64, 512, 512}, {3, 128, 1024, 512}, {4, 64, 512, 1536}} {
		s := quant.Spec{Bits: c.bits, Block: c.block, Scale: tensor.F16}
		q := quant.NewGPTQ()
		in := correlated(c.cols, 1)
		in.Cross = in.Hessian
		out := correlated(c.rows, 5)
		w := quant.Matrix{Rows: c.rows, Cols: c.cols, Data: make([]float32, c.rows*c.cols)}
		random := rand.New(rand.NewPCG(1, 2))
		for i := range w.Data {
			w.Data[i] = float32(.02 * random.NormFloat64())
		}
		l, err := s.Layout(c.rows, c.cols)
		if err != nil {
			b.Fatal(err)
		}
		dst, residue := quant.NewBlocks(l, s), make([]float32, c.rows*c.cols)
		var e quant.Encoder
		for _, part := range []struct {
			name string
			work effort.Work
			do   func() error
		}{
			{"prepare", Prepare(q, c.cols, true), func() (err error) { e, err = q.Prepare(s, c.cols, in, 1); return err }},
			{"encode", Encode(q, c.rows, c.cols, true), func() error { return e.Encode(dst, w) }},
			{"refine", Refine(q, c.rows, c.cols, true), func() error { return e.(quant.Refiner).Refine(dst, w, out, 1) }},
			{"aim", Aim(c.rows, c.cols), func() error { e.(quant.Aimer).Aim(w, residue, 1); return nil }},
		} {
			b.Run(fmt.Sprintf("%v/%dx%d/%s", s, c.rows, c.cols, part.name), func(b *testing.B) {
				rates := Probe(b.TempDir(), 1, c.cols)
				start := time.Now()
				n := 0
				for b.Loop() {
					if err := part.do(); err != nil {
						b.Fatal(err)
					}
					n++
				}
				b.ReportMetric(part.work.Seconds(rates)*float64(n)/time.Since(start).Seconds(), "estimate/time")
			})
		}
	}
}

// correlated are moments of vectors of n elements, each of which is correlated with the one before it.
func correlated(n int, seed uint64) *quant.Stats {
	tokens := 2 * n
	random := rand.New(rand.NewPCG(seed, 2))
	x := make([]float32, n*tokens) // [n, tokens]
	for i := range x {
		x[i] = float32(random.NormFloat64())
		if i >= tokens {
			x[i] += x[i-tokens] / 2
		}
	}
	s := &quant.Stats{Cols: n, Tokens: int64(tokens), Hessian: make([]float32, n*n)}
	kernel.MatMulT(s.Hessian, x, x, n, n, tokens, n, tokens, tokens)
	kernel.Scale(s.Hessian, s.Hessian, 1/float32(tokens))
	return s
}
