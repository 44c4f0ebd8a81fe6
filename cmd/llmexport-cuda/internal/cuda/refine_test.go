package cuda

import (
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/llmexport/llmexport/quant"
	"github.com/llmexport/llmexport/runtime/kernel"
)

// randomRefinement returns a refinement of random runs of rows. Their numbers are of like sizes, or those of floats.
func randomRefinement(r *rand.Rand, like, infinite bool) *kernel.Refinement {
	floats := func(r *rand.Rand, n int, infinite bool) []float32 {
		if !like {
			return floats(r, n, infinite)
		}
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(r.NormFloat64()) / 4
		}
		return x
	}
	moments := func(n int) []float32 { return symmetric(r, floats(r, n*n, infinite), n, 0.3) }
	d := &kernel.Refinement{Block: []int{8, 30, 32, 48, 64, 100, 128}[r.IntN(7)], Sweeps: 1 + r.IntN(3), Bits: 2 + r.IntN(7), Half: r.IntN(2) == 0}
	d.Cols = d.Block * (1 + r.IntN(3))
	if r.IntN(2) == 0 { // several segments of a sum
		d.Cols += (1 + r.IntN(2)) * kernel.Segment / d.Block * d.Block
	}
	n, blocks, symmetric := d.Cols, d.Cols/d.Block, r.IntN(3) == 0
	if symmetric {
		d.Bits = 4
	}
	h := moments(n)
	d.Hessian = kernel.Factor{Data: h, Layout: kernel.ByPosition, Stride: n, Version: uint64(r.IntN(2)) * kernel.NewVersion()}
	d.Ridge = r.Float32()
	d.Sums, d.Totals = blockSums(h, n, d.Block, d.Ridge)
	for range 1 + r.IntN(3) {
		m := 1 + r.IntN(120)
		x := kernel.Run{Rows: m, Codes: make([]uint8, m*n), Scale: floats(r, m*blocks, false), Errors: floats(r, m*n, infinite), Outputs: moments(m)}
		if !symmetric {
			x.Zero = floats(r, m*blocks, false)
		}
		for i := range x.Codes {
			x.Codes[i] = uint8(r.IntN(1 << d.Bits))
		}
		for _, terms := range [][]float32{x.Scale, x.Zero} {
			for i, v := range terms {
				if v = 0.1 * v; &terms[0] == &x.Scale[0] {
					v += 0.3
				}
				if terms[i] = v; d.Half {
					terms[i] = kernel.RoundF16(v)
				}
			}
		}
		d.Runs = append(d.Runs, x)
	}
	return d
}

// cloneRefinement copies what a refinement changes.
func cloneRefinement(d *kernel.Refinement) *kernel.Refinement {
	c := *d
	c.Runs = slices.Clone(d.Runs)
	for i := range c.Runs {
		x := &c.Runs[i]
		x.Codes, x.Scale, x.Zero = slices.Clone(x.Codes), slices.Clone(x.Scale), slices.Clone(x.Zero)
	}
	return &c
}

// sameRuns reports whether codes and scales are the same.
func sameRuns(a, b *kernel.Refinement) bool {
	return slices.EqualFunc(a.Runs, b.Runs, func(a, b kernel.Run) bool {
		return slices.Equal(a.Codes, b.Codes) && slices.Equal(a.Scale, b.Scale) && slices.Equal(a.Zero, b.Zero)
	})
}

// moving lets the rows of a refinement move on the card or here.
func moving(e *Engine, d *kernel.Refinement, where seat, threads int) {
	if e.moving = where; where == here {
		quant.MoveHere(d, threads)
	}
}

// TestRefine compares codes and scales after refinements with those of the CPU, bit by bit.
func TestRefine(t *testing.T) {
	e := engine(t)
	changed := 0
	for s := range 2 * *shapes {
		d := randomRefinement(rand.New(rand.NewPCG(14, uint64(s))), s%2 == 0, s%5 == 4)
		if s == 1 { // nothing moves
			for _, x := range d.Runs {
				clear(x.Errors)
			}
		}
		got, want := cloneRefinement(d), cloneRefinement(d)
		quant.Refine(want, 1)
		e, where := e, []seat{there, here}[s/2%2]
		if s%3 == 2 { // one run fits at a time
			e = engine(t)
			e.limit = max(fewRuns(e, d, there, true), fewRuns(e, d, where, true))
		} else if s%3 == 1 { // a card whose blocks have less shared memory
			e = engine(t)
			e.added[moves] = 0
		}
		if moving(e, got, where, 1+5*(s%4)); !e.Compute(got) {
			t.Fatalf("refinement %d: not computed, %v", s, e.Err())
		}
		for i, w := range want.Runs {
			g, before := got.Runs[i], d.Runs[i]
			if c, a, z := differ(floatsIn(g.Codes), floatsIn(w.Codes)), differ(g.Scale, w.Scale), differ(g.Zero, w.Zero); c+a+z > 0 {
				t.Fatalf("refinement %d, run %d of %d, %d x %d, blocks of %d, %d sweeps: %d codes, %d scales and %d zero terms differ",
					s, i, len(want.Runs), w.Rows, d.Cols, d.Block, d.Sweeps, c, a, z)
			}
			if !slices.Equal(w.Codes, before.Codes) {
				changed++
			}
		}
	}
	if changed < *shapes {
		t.Errorf("codes of %d runs have changed", changed)
	}
	d := randomRefinement(rand.New(rand.NewPCG(14, 0)), true, false)
	d.Block = refineColumns + 32
	if e.Compute(d) || e.Err() != nil {
		t.Errorf("wide blocks: %v", e.Err())
	}
}

// TestAhead compares refinements whose rows move here while the card computes sums of gradients of the next columns.
func TestAhead(t *testing.T) {
	e := engine(t)
	for s, left := uint64(0), *shapes; left > 0; s++ {
		d := randomRefinement(rand.New(rand.NewPCG(18, s)), true, false)
		if !ahead(d) || d.Sweeps == 1 {
			continue
		}
		left--
		got, want := cloneRefinement(d), cloneRefinement(d)
		quant.Refine(want, 1)
		if moving(e, got, here, 16); !e.Compute(got) || !sameRuns(got, want) {
			t.Errorf("refinement %d, %d runs of %d columns, blocks of %d, is not that of the CPU: %v", s, len(d.Runs), d.Cols, d.Block, e.Err())
		}
	}
}

// TestRefineMeanwhile refines several matrices while the card computes products: all of them have the bits of the CPU.
func TestRefineMeanwhile(t *testing.T) {
	e := engine(t)
	e.moving = here
	var wait sync.WaitGroup
	for s := range *shapes / 2 {
		r := rand.New(rand.NewPCG(16, uint64(s)))
		d := randomRefinement(r, true, false)
		d.Hessian.Version = kernel.NewVersion()
		wait.Go(func() {
			got, want := cloneRefinement(d), cloneRefinement(d)
			quant.Refine(want, 1)
			if s%2 == 0 {
				quant.MoveHere(got, 12)
			}
			if !e.Compute(got) || !sameRuns(got, want) {
				t.Errorf("refinement %d is not that of the CPU, %v", s, e.Err())
			}
		})
		m, n, k := 1+r.IntN(200), 1+r.IntN(200), 1+r.IntN(300)
		a, b := floats(r, m*k, false), floats(r, k*n, false)
		wait.Go(func() {
			got, want := make([]float32, m*n), make([]float32, m*n)
			kernel.MatMul(want, a, b, m, n, k, n, k, n)
			for range 20 {
				clear(got)
				if !e.Compute(&kernel.Product{Dst: got, Rows: m, Cols: n, Stride: n, Parts: []kernel.Part{part(a, kernel.ByRow, k,
					kernel.Factor{Data: b, Layout: kernel.ByPosition, Stride: n, Version: kernel.NewVersion()}, k)}}) || differ(got, want) > 0 {
					t.Errorf("product %d is not that of the CPU, %v", s, e.Err())
				}
			}
		})
	}
	wait.Wait()
	if e.taken != 0 {
		t.Errorf("%d bytes are still taken", e.taken)
	}
}

// fewRuns is the memory for the longest run of a refinement, with the Hessian if that is brought for it.
func fewRuns(e *Engine, d *kernel.Refinement, where seat, hessian bool) (most uint64) {
	for _, x := range d.Runs {
		own, sizes := e.refinementSizes(d, []kernel.Run{x}, where, hessian)
		sum := sizeOf(own)
		for _, n := range sizes {
			sum += sizeOf(n)
		}
		most = max(most, sum)
	}
	return most
}

// TestRefineFails leaves codes and scales as they were where memory does not suffice, and where any call of the driver fails.
func TestRefineFails(t *testing.T) {
	d := randomRefinement(rand.New(rand.NewPCG(15, 143)), true, false)
	d.Hessian.Version = kernel.NewVersion()
	if len(d.Runs) < 2 {
		t.Fatalf("%d runs", len(d.Runs))
	}
	for _, c := range []struct {
		where seat
		few   bool // one run fits at a time
	}{{there, false}, {here, false}, {here, true}} {
		got := cloneRefinement(d)
		failsWhole(t, "a refinement", func(e *Engine) bool {
			if c.few {
				e.Bound(fewRuns(e, d, c.where, false) + sizeOf(bytesOf(d.Hessian, d.Cols, d.Cols)))
			}
			moving(e, got, c.where, 2)
			return e.Compute(got)
		}, func() bool { return sameRuns(got, d) })
	}
}

// failsWhole requires that work changes nothing where memory does not suffice, and where any call of the driver fails.
func failsWhole(t *testing.T, what string, compute func(*Engine) bool, same func() bool) {
	t.Helper()
	e := engine(t)
	e.Bound(1000)
	if compute(e) || e.Err() != nil || !same() {
		t.Errorf("%s that does not fit was computed, or failed, or changed something: %v", what, e.Err())
	}
	calls := 0
	for failed := true; failed; calls++ {
		e := engine(t)
		failed = !failAt(e, calls, func() bool { return compute(e) })
		if failed && (e.Err() == nil || !same() || compute(e)) {
			t.Fatalf("call %d failed: no error, or something changed, or the card was used afterwards: %v", calls, e.Err())
		}
	}
	if calls < 40 || same() {
		t.Errorf("%s made %d calls, and did nothing: %v", what, calls-1, same())
	}
}

// TestCheapest lets rows move where it takes the least time, by the number of runs, their size, and the threads of the CPU.
func TestCheapest(t *testing.T) {
	e := engine(t)
	for _, tt := range []struct {
		runs, rows, cols, threads int
		want                      seat
	}{
		{1, 512, 512, 16, without}, {1, 512, 1536, 16, without}, {1, 576, 576, 2, here},
		{4, 1024, 4096, 16, here}, {4, 1024, 12288, 16, here}, {4, 1024, 12288, 4, here}, {24, 1024, 4096, 16, there}, {4, 1024, 12288, 1, there},
	} {
		d := &kernel.Refinement{Cols: tt.cols, Block: 64, Threads: tt.threads}
		for range tt.runs {
			d.Runs = append(d.Runs, kernel.Run{Rows: tt.rows})
		}
		if got := e.cheapest(d); got != there {
			t.Errorf("%+v: %d without moves here", tt, got)
		}
		for i := range d.Runs {
			d.Runs[i].Moves = idle{}
		}
		if got := e.cheapest(d); got != tt.want {
			t.Errorf("%+v: %d", tt, got)
		}
	}
	d := randomRefinement(rand.New(rand.NewPCG(17, 0)), true, false)
	before := cloneRefinement(d)
	e.moving = without
	quant.MoveHere(d, 16)
	if e.Compute(d) || e.Err() != nil || !sameRuns(d, before) {
		t.Errorf("a refinement that the CPU does sooner was computed, or changed: %v", e.Err())
	}
}

type idle struct{}

func (idle) Begin(lo int, changes []float32) {}

func (idle) Move(gradients []float32, next int, changes []float32) bool { return false }
