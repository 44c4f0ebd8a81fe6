package quant

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// BenchmarkSearch encodes the chunk of BenchmarkEncode with the methods that try grids, on one core. Bytes are those of
// the BF16 source.
func BenchmarkSearch(b *testing.B) {
	const rows, cols = 16, 1024
	r := rand.New(rand.NewPCG(1, 2))
	w := Matrix{Rows: rows, Cols: cols, Data: make([]float32, rows*cols)}
	for i := range w.Data {
		w.Data[i] = kernel.F16Value(kernel.F16Bits(float32(0.02 * r.NormFloat64())))
	}
	fixed := NewHQQ()
	fixed.Scale = false
	for _, m := range []struct {
		name string
		q    Quantizer
		sym  bool
	}{
		{"hqq", NewHQQ(), true}, {"hqq-zero", fixed, false}, {"search", NewSearch(), true},
		{"search-12", &Search{Candidates: 12, Importance: ImportanceWeights}, false},
		{"search-40", &Search{Candidates: 40, Importance: ImportanceWeights}, false},
	} {
		for _, s := range []Spec{
			{4, 64, false, tensor.F16}, {2, 64, false, tensor.F16}, {4, 32, false, tensor.F16}, {4, WholeRow, false, tensor.F16}, {4, 64, true, tensor.F16},
		} {
			if s.Symmetric && !m.sym {
				continue
			}
			b.Run(fmt.Sprintf("%s/%v", m.name, s), func(b *testing.B) {
				l, err := s.Layout(rows, cols)
				if err != nil {
					b.Fatal(err)
				}
				e, err := m.q.Prepare(s, cols, nil, 1)
				if err != nil {
					b.Fatal(err)
				}
				blocks := NewBlocks(l, s)
				b.SetBytes(2 * rows * cols)
				for b.Loop() {
					if err := e.Encode(blocks, w); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(rows*cols), "ns/weight")
			})
		}
	}
}
