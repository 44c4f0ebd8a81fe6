package cuda

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/llmexport/llmexport/runtime/kernel"
)

// TestMixtures takes tokens through mixtures of experts, and compares what comes out with the CPU's, bit by bit. Weights that were given up meanwhile may come
// back to other places.
func TestMixtures(t *testing.T) {
	e := engine(t)
	for s := range max(12, *shapes) {
		whole := s/2%2 == 1
		got, want := mixtureOf(uint64(s), whole), mixtureOf(uint64(s), whole)
		if s%2 == 1 {
			follow(got)
			follow(want)
		}
		states := slices.Clone(got.States)
		want.Do()
		e.crowded = []int{1 << 30, 0}[s%3%2]
		for i := range 2 {
			if got.States = slices.Clone(states); !e.Compute(got) {
				t.Fatalf("mixture %d: not computed, %v", s, e.Err())
			}
			out, all := got.States, want.States
			if whole {
				out, all = got.Out, want.Out
			}
			if n := differ(out, all); n > 0 {
				t.Fatalf("mixture %d of %d rows, widths %v, %+v: %d of %d elements differ", s, got.Rows, got.Widths, got.Steps[2], n, len(all))
			}
			for version, k := range e.kept.of {
				if (version+uint64(i))%2 == 0 {
					e.forget(k)
				}
			}
		}
		if !whole {
			e.Forget(got.Pasts)
		}
	}
}

// follow lets a mixture of half of the experts follow that of a chain.
func follow(c *kernel.Chain) {
	first := c.Steps[2].(*kernel.ExpertsStep)
	r, n, hidden := rand.New(rand.NewPCG(12, uint64(c.Rows))), (len(first.Gate)+1)/2, c.Widths[0]
	c.Widths = append(c.Widths, n, hidden)
	x := &kernel.ExpertsStep{Dst: 3, Src: 5, Scores: 4, Wide: first.Wide, Routing: kernel.Routing{TopK: 1, Scale: 1},
		Gate: first.Gate[:n], Up: first.Up[:n], Down: first.Down[:n]}
	router := kernel.Factor{Data: floats(r, n*hidden, false), Layout: kernel.ByRow, Stride: hidden, Version: kernel.NewVersion()}
	c.Steps = append(c.Steps, &kernel.NormStep{Dst: 5, Src: 0, Gamma: kernel.Vector(floats(r, hidden, false)), Eps: 1e-6},
		&kernel.LinearStep{Dst: 4, Src: 5, Weights: router}, x, &kernel.AddStep{Dst: 0, Src: 3})
}

// TestMixturesFail reports that nothing was computed where experts are too many, or memory does not suffice, and where any call of the driver fails.
func TestMixturesFail(t *testing.T) {
	for _, whole := range []bool{false, true} {
		c := mixtureOf(4, whole)
		c.Rows = mostBlocks*128/len(c.Steps[2].(*kernel.ExpertsStep).Gate) + 128
		if e := engine(t); e.Compute(c) || e.Err() != nil {
			t.Errorf("too many rows were computed, or failed: %v", e.Err())
		}
		c = mixtureOf(4, whole)
		e := engine(t)
		e.Bound(3000)
		if e.Compute(c) || e.Err() != nil {
			t.Errorf("a mixture that does not fit was computed, or failed: %v", e.Err())
		}
		calls := 0
		for failed := true; failed; calls++ {
			e, c := engine(t), mixtureOf(4, whole)
			e.crowded = calls % 2 << 30
			failed = !failAt(e, calls, func() bool { return e.Compute(c) })
			if failed && (e.Err() == nil || e.Compute(c)) {
				t.Fatalf("call %d failed: no error, or the card was used afterwards: %v", calls, e.Err())
			}
		}
		if calls < 20 {
			t.Errorf("a mixture made %d calls", calls-1)
		}
	}
}

// TestMixturesStay holds that a chain uses the weights of its experts that are on the card: what comes meanwhile does not take their place.
func TestMixturesStay(t *testing.T) {
	e, c := engine(t), mixtureOf(4, false)
	if !e.Compute(c) {
		t.Fatal(e.Err())
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.spent.Products += 9
	x := c.Steps[2].(*kernel.ExpertsStep)
	if !e.use(c) {
		t.Fatal(e.Err())
	}
	for _, w := range slices.Concat(x.Gate, x.Up, x.Down) {
		if k := e.kept.of[w.Version]; k == nil || k.used != e.spent.Products {
			t.Fatalf("%+v", k)
		}
	}
}
