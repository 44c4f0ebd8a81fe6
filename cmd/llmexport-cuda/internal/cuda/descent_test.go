package cuda

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/llmexport/llmexport/quant"
	"github.com/llmexport/llmexport/runtime/kernel"
)

// symmetric makes a matrix symmetric, by the lower triangle times a factor, with a diagonal from 4 to 5.
func symmetric(r *rand.Rand, h []float32, n int, factor float32) []float32 {
	for i := range n {
		h[i*n+i] = 4 + r.Float32()
		for j := range i {
			h[i*n+j] *= factor
			h[j*n+i] = h[i*n+j]
		}
	}
	return h
}

// randomDescent returns a descent of random rows.
func randomDescent(r *rand.Rand, infinite bool) *kernel.Descent {
	block := []int{8, 32, 48, 64, 128, 150, 300}[r.IntN(7)]
	d := &kernel.Descent{Rows: 1 + r.IntN(70), Block: block, Sweeps: 1 + r.IntN(3), Bits: 2 + r.IntN(3), Half: r.IntN(2) == 0}
	d.Cols = d.Block * (1 + r.IntN(300/d.Block))
	n, blocks := d.Cols, d.Cols/d.Block
	h := symmetric(r, floats(r, n*n, infinite), n, 0.1)
	d.Hessian = kernel.Factor{Data: h, Layout: kernel.ByPosition, Stride: n, Version: uint64(r.IntN(2)) * kernel.NewVersion()}
	d.Ridge, d.Target, d.Codes = r.Float32(), floats(r, d.Rows*n, infinite), make([]float32, d.Rows*n)
	for i := range d.Codes {
		d.Codes[i] = float32(r.IntN(1<<d.Bits) - 1<<(d.Bits-1))
	}
	round := func(n int, least float32) []float32 {
		x := floats(r, n, false)
		for i := range x {
			if x[i] = x[i]*0.1 + least; d.Half {
				x[i] = kernel.RoundF16(x[i])
			}
		}
		return x
	}
	d.Scale = round(d.Rows*blocks, 0.3)
	if r.IntN(3) > 0 {
		d.Zero = round(d.Rows*blocks, 0)
	}
	d.Sums, d.Totals = blockSums(h, n, d.Block, d.Ridge)
	return d
}

// cloneDescent copies what a descent changes.
func cloneDescent(d *kernel.Descent) *kernel.Descent {
	c := *d
	c.Codes, c.Scale, c.Zero = slices.Clone(d.Codes), slices.Clone(d.Scale), slices.Clone(d.Zero)
	return &c
}

// TestDescent compares codes and scales after the descent of gptq with those of the CPU, bit by bit.
func TestDescent(t *testing.T) {
	e := engine(t)
	changed := 0
	for s := range *shapes {
		d := randomDescent(rand.New(rand.NewPCG(11, uint64(s))), s%5 == 4)
		got, want := cloneDescent(d), cloneDescent(d)
		quant.Descend(want)
		if !e.Compute(got) {
			t.Fatalf("shape %d: not computed, %v", s, e.Err())
		}
		if c, a, z := differ(got.Codes, want.Codes), differ(got.Scale, want.Scale), differ(got.Zero, want.Zero); c+a+z > 0 {
			t.Fatalf("shape %d, %d x %d, blocks of %d, %d sweeps: %d codes, %d scales and %d zero terms differ", s, d.Rows, d.Cols, d.Block, d.Sweeps, c, a, z)
		}
		changed += differ(d.Codes, want.Codes) + differ(d.Scale, want.Scale)
	}
	if changed == 0 {
		t.Error("nothing moved")
	}
}
