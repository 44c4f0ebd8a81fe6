package kernel

import (
	"fmt"
	"testing"
)

// The shape of BenchmarkCount, small enough that every instruction can be written down.
const (
	countRows, countCols = 64, 512
	countHeads, countDim = 4, 64
)

// BenchmarkCount runs kernels once, for testdata/arm64/count.py, which counts their instructions.
func BenchmarkCount(b *testing.B) {
	for _, tokens := range []int{1, 4, 8, 24} {
		for _, bits := range []int{4, 8} {
			for _, block := range []int{64, countCols} {
				b.Run(fmt.Sprintf("w%d-b%d-t%d", bits, block, tokens), func(b *testing.B) {
					m, err := NewInt8Matrix(dynquantWeights(countRows, countCols, block, bits), 1)
					if err != nil {
						b.Fatal(err)
					}
					var q QuantizedRows
					quantizeFor(&q, dynquantRows(tokens, countCols), tokens, countCols, block, DynToken)
					dst := make([]float32, tokens*countRows)
					for range b.N {
						m.Mul(dst, &q, 0, countRows)
					}
				})
			}
		}
		b.Run(fmt.Sprintf("float-t%d", tokens), func(b *testing.B) {
			var p Packed
			p.Pack(make([]float32, countRows*countCols), countRows, countCols, countCols)
			dst, x := make([]float32, tokens*countRows), make([]float32, tokens*countCols)
			for range b.N {
				p.MulT(dst, x, tokens, countRows, countCols, 0, countRows)
			}
		})
	}
	for _, tokens := range []int{1, 128} {
		b.Run(fmt.Sprintf("attention-t%d", tokens), func(b *testing.B) {
			cache := NewKVCache(1, countDim)
			kv := make([]float32, 128*countDim)
			cache.Append(kv, kv, 128)
			a := EngineAttention{Tokens: tokens, Heads: countHeads}
			q := make([]float32, tokens*countHeads*countDim)
			out := make([]float32, len(q))
			for range b.N {
				a.Attend(out, q, cache, 0, countHeads, 0, tokens)
			}
		})
	}
}
