package cpu

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/llmexport/llmexport/backends/internal/ops"
	"github.com/llmexport/llmexport/runtime/backend"
	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/mnn"
)

// A layer that is laid out in several pieces has the bits of a whole one.
func TestPieces(t *testing.T) {
	const rows, cols, blocks, tokens = pieceBytes/256 + 40, 256, 4, 5
	r := rand.New(rand.NewPCG(1, 1))
	for _, bits := range []int{3, 8} {
		m := &mnn.Matrix{Rows: rows, Cols: cols, Bits: bits, Blocks: blocks, Linear: true, Codes: make([]byte, rows*cols*bits/8),
			Scale: make([]float32, rows*blocks), Zero: make([]float32, rows*blocks), Bias: make([]float32, rows)}
		for i := range m.Codes {
			m.Codes[i] = byte(r.Uint32())
		}
		x := make([]float32, tokens*cols)
		for _, list := range [][]float32{m.Scale, m.Zero, m.Bias, x} {
			for i := range list {
				list[i] = r.Float32()
			}
		}
		var q kernel.QuantizedRows
		q.Reset(tokens, cols, cols/blocks, kernel.DynToken)
		q.Set(x, 0, tokens)
		whole, err := ops.Int8(m, kernel.DynToken, false, 2)
		if err != nil {
			t.Fatal(err)
		}
		want, got := make([]float32, tokens*rows), make([]float32, tokens*rows)
		whole.Mul(want, &q, 0, rows)
		p := &pieces{func() (*mnn.Matrix, error) { return m, nil }, &backend.Options{}}
		if err := p.run(&linear{m: m}, 2, got, &q, tokens); err != nil {
			t.Fatal(err)
		}
		if i := slices.Compare(got, want); i != 0 {
			t.Errorf("%d bits: pieces differ from the whole", bits)
		}
	}
}
