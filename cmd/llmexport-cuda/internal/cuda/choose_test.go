package cuda

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/llmexport/llmexport/quant"
	"github.com/llmexport/llmexport/runtime/kernel"
)

// permutation returns the column of every position of blocks that lie together.
func permutation(r *rand.Rand, n, block int) []int {
	var p []int
	for _, b := range r.Perm(n / block) {
		for _, i := range r.Perm(block) {
			p = append(p, b*block+i)
		}
	}
	return p
}

// randomChoice returns a choice of random runs of rows. Their numbers are of like sizes, or those of floats.
func randomChoice(r *rand.Rand, like, infinite bool) *kernel.Choice {
	floats := func(n int, infinite bool) []float32 {
		if !like {
			return floats(r, n, infinite)
		}
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(r.NormFloat64()) / 4
		}
		return x
	}
	c := &kernel.Choice{Block: []int{8, 30, 32, 48, 64, 100, 128, 300, 200}[r.IntN(9)], Bits: 2 + r.IntN(7), Half: r.IntN(2) == 0,
		Candidates: 1 + r.IntN(mostCandidates)}
	c.Cols = c.Block
	if c.Block <= refineColumns {
		c.Cols *= 1 + r.IntN(4)
		if r.IntN(3) == 0 { // errors of more than two segments
			c.Cols += (600 + c.Block - 1) / c.Block * c.Block
		}
	}
	n, blocks, symmetric := c.Cols, c.Cols/c.Block, r.IntN(3) == 0
	if symmetric {
		c.Bits = 4
	}
	factor := floats(n*n, false)
	for i := range n {
		kernel.Scale(factor[i*n:(i+1)*n], factor[i*n:(i+1)*n], 0.3)
		factor[i*n+i] = 0.5 + r.Float32()
	}
	c.Factor = kernel.Factor{Data: factor, Layout: kernel.ByPosition, Stride: n, Version: uint64(r.IntN(2)) * kernel.NewVersion()}
	c.Order, c.Importance = permutation(r, n, c.Block), make([]float32, n)
	for i := range c.Importance {
		c.Importance[i] = r.Float32()
	}
	if r.IntN(8) == 0 {
		clear(c.Importance[:c.Block])
	}
	for range 1 + r.IntN(3) {
		m := 1 + r.IntN(60)
		x := kernel.Mixed{Rows: m, Codes: make([]uint8, m*n), Scale: make([]float32, m*blocks), Target: floats(m*n, infinite), Order: r.Perm(m),
			Mix: floats(m*m, false)}
		kernel.Scale(x.Mix, x.Mix, 0.3)
		for i := range x.Scale {
			x.Scale[i] = 0.125 + r.Float32()/4
		}
		if !symmetric {
			x.Zero = floats(m*blocks, false)
		}
		for _, terms := range [][]float32{x.Scale, x.Zero} {
			for i, v := range terms {
				if c.Half {
					terms[i] = kernel.RoundF16(0.1 * v)
				}
			}
		}
		c.Runs = append(c.Runs, x)
	}
	return c
}

// cloneChoice copies what a choice changes.
func cloneChoice(d *kernel.Choice) *kernel.Choice {
	c := *d
	c.Runs = slices.Clone(d.Runs)
	for i := range c.Runs {
		x := &c.Runs[i]
		x.Codes, x.Scale, x.Zero = slices.Clone(x.Codes), slices.Clone(x.Scale), slices.Clone(x.Zero)
	}
	return &c
}

// sameChoice reports whether codes and scales are the same.
func sameChoice(a, b *kernel.Choice) bool {
	return slices.EqualFunc(a.Runs, b.Runs, func(a, b kernel.Mixed) bool {
		return a.Left == b.Left && slices.Equal(a.Codes, b.Codes) && differ(a.Scale, b.Scale)+differ(a.Zero, b.Zero) == 0
	})
}

// TestChoose compares codes and scales with those of the CPU, bit by bit.
func TestChoose(t *testing.T) {
	e := engine(t)
	chosen, left := 0, 0
	for s := range 3 * *shapes {
		d := randomChoice(rand.New(rand.NewPCG(21, uint64(s))), s%4 != 3, s%8 == 7)
		got, want := cloneChoice(d), cloneChoice(d)
		quant.Choose(want, 1)
		e := e
		if s%3 == 2 { // one run fits at a time
			e = engine(t)
			e.limit = 0
			for _, x := range d.Runs {
				sum := uint64(0)
				for _, n := range e.choiceSizes(d, []kernel.Mixed{x}, true) {
					sum += sizeOf(n)
				}
				e.limit = max(e.limit, sum)
			}
		}
		if !e.Compute(got) {
			t.Fatalf("choice %d: not computed, %v", s, e.Err())
		}
		for i, w := range want.Runs {
			g := got.Runs[i]
			if c, a, z := differ(floatsIn(g.Codes), floatsIn(w.Codes)), differ(g.Scale, w.Scale), differ(g.Zero, w.Zero); c+a+z > 0 || g.Left != w.Left {
				t.Fatalf("choice %d, run %d of %d, %d x %d, blocks of %d, %d bits, left %v and %v: %d times 4 codes, %d scales and %d zero terms differ",
					s, i, len(want.Runs), w.Rows, d.Cols, d.Block, d.Bits, g.Left, w.Left, c, a, z)
			}
			if w.Left {
				left++
			} else {
				chosen++
			}
		}
	}
	t.Logf("%d runs, and %d are left", chosen, left)
	if chosen < *shapes || left == 0 {
		t.Errorf("%d runs were chosen for, %d were left", chosen, left)
	}
	d := randomChoice(rand.New(rand.NewPCG(21, 0)), true, false)
	d.Block, d.Candidates = 32, mostCandidates+1
	if e.Compute(d) || e.Err() != nil {
		t.Errorf("many candidates: %v", e.Err())
	}
}

// TestChooseFails leaves codes and scales as they were where memory does not suffice, and where any call of the driver fails.
func TestChooseFails(t *testing.T) {
	d := randomChoice(rand.New(rand.NewPCG(22, 1)), true, false)
	got := cloneChoice(d)
	failsWhole(t, "a choice", func(e *Engine) bool { return e.Compute(got) }, func() bool { return sameChoice(got, d) })
}
