package quant

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// BenchmarkEncode is the whole way of a chunk of weights from BF16 rows to codes and alpha as they lie in
// the file, on one core. Bytes are those of the BF16 source. A chunk of 16 rows is what pipeline/plan encodes in one
// go for this width.
func BenchmarkEncode(b *testing.B) {
	const rows, cols = 16, 1024
	r := rand.New(rand.NewPCG(1, 2))
	src := make([]byte, 0, 2*rows*cols)
	for range rows * cols {
		h := uint16(0x3c00) | uint16(r.Uint32())&0x83ff // magnitudes from 2^-7 to 2^1
		src = append(src, byte(h), byte(h>>8))
	}
	for _, s := range specs() {
		if s.Scale != tensor.F16 {
			continue
		}
		b.Run(fmt.Sprint(s), func(b *testing.B) {
			l, err := s.Layout(rows, cols)
			if err != nil {
				b.Fatal(err)
			}
			w := Matrix{Rows: rows, Cols: cols, Data: make([]float32, rows*cols)}
			blocks := NewBlocks(l, s)
			codes, alpha := make([]byte, l.Codes), make([]byte, l.Alpha)
			b.SetBytes(int64(len(src)))
			for b.Loop() {
				kernel.BF16ToF32(w.Data, src)
				if err := Encode(RTN{}, blocks, w, s, nil); err != nil {
					b.Fatal(err)
				}
				Pack(codes, blocks.Codes, s.Bits)
				PackAlpha(alpha, blocks, s)
			}
		})
	}
}
