package quant

import (
	"fmt"
	"runtime"
	"slices"
	"testing"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// BenchmarkMoves is what the rows of matrices of a small model cost that make up for each other's errors: the choice of their codes
// and grids, and the sweeps after it.
func BenchmarkMoves(b *testing.B) {
	s := Spec{Bits: 4, Block: 64, Scale: tensor.F16}
	for _, n := range [][2]int{{576, 576}, {768, 576}, {576, 1536}, {192, 576}} {
		rows, cols := n[0], n[1]
		in, w := statsOf(cols, 2048), gaussian(rows, cols, 5)
		outputs := &Stats{Cols: rows, Tokens: 1 << 20, Hessian: hessian(rows, 2048, 9)}
		l, _ := s.Layout(rows, cols)
		for threads := 1; threads <= max(2, runtime.NumCPU()); threads *= 2 {
			of := func() *refinement {
				e, err := NewGPTQ().Prepare(s, cols, in, threads)
				if err != nil {
					b.Fatal(err)
				}
				r, err := e.(*feedback).refinement(NewBlocks(l, s), w, outputs, threads)
				if err != nil || !r.definite {
					b.Fatal("moments are not positive definite: ", err)
				}
				return r
			}
			b.Run(fmt.Sprintf("choose/%dx%d/threads=%d", rows, cols, threads), func(b *testing.B) {
				r := of()
				for b.Loop() {
					r.chooseOnce()
				}
			})
			b.Run(fmt.Sprintf("sweeps/%dx%d/threads=%d", rows, cols, threads), func(b *testing.B) {
				r := of()
				if err := r.chooseAlone(); err != nil {
					b.Fatal(err)
				}
				first, errors := cloneBlocks(r.dst), slices.Clone(r.pulled)
				for b.Loop() {
					r.restore(first)
					copy(r.pulled, errors)
					r.run()
				}
			})
		}
	}
}
