package cuda

import (
	"math"
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

// TestMixturesBack takes windows through mixtures and back, and compares gradients with the CPU's, bit by bit.
func TestMixturesBack(t *testing.T) {
	e := engine(t)
	for s := range max(8, *shapes) {
		got, want := mixtureBackOf(uint64(s)), mixtureBackOf(uint64(s))
		if s%5 == 3 {
			for _, c := range []*kernel.Chain{got, want} {
				c.Given[0].Data[len(c.States)/3] = float32(math.Inf(-1))
			}
		}
		want.Do()
		e.crowded = []int{1 << 30, 0}[s%3%2]
		if !e.Compute(got) {
			t.Fatalf("mixture %d: not computed, %v", s, e.Err())
		}
		if n := differ(e.resultsOf(got), e.resultsOf(want)); n > 0 {
			t.Errorf("mixture %d of %d rows, widths %v: %d gradients differ", s, got.Rows, got.Widths, n)
		}
	}
	c, weights, before := measuredExperts(64, 30, []int{30}, true), int64(0), e.Spent().Sent
	b := c.Steps[2].(*kernel.ExpertsBackStep)
	for _, w := range slices.Concat(b.GateBack, b.UpBack, b.DownBack) {
		weights += 4 * int64(len(w.Data))
	}
	if !e.Compute(c) || e.Spent().Sent-before > weights*3/2 {
		t.Errorf("weights of %d bytes travelled twice: %d bytes were sent, %v", weights, e.Spent().Sent-before, e.Err())
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

// TestMixtureLanes compares gradients of weights of which other orders of sums give other numbers: large summands cancel each other. With one element of
// states what an expert reads is 1, and so is the gradient of its output.
func TestMixtureLanes(t *testing.T) {
	e := engine(t)
	for seed := range uint64(8) {
		r := rand.New(rand.NewPCG(14, seed))
		const rows, count = 5, 24
		wide := 9 + r.IntN(60)
		chain := func() *kernel.Chain {
			r := rand.New(rand.NewPCG(15, seed))
			x, plain := &kernel.ExpertsStep{Dst: 3, Src: 0, Scores: 2, Wide: wide, Routing: kernel.Routing{TopK: 2 + int(seed)*3, Scale: 1,
				Scoring: kernel.Scoring(seed % 4), Normalize: seed/4 == 1}}, map[uint64][]float32{}
			matrix := func(w []float32, k int) kernel.Factor {
				f := kernel.Factor{Data: w, Layout: kernel.ByRow, Stride: k, Version: kernel.NewVersion()}
				plain[f.Version] = w
				return f
			}
			for range count {
				gate, up, down := smallOf(r, wide), smallOf(r, wide), smallOf(r, wide)
				for n := range 3 { // in other lanes, too
					i, j := r.IntN(wide), r.IntN(wide)
					if i != j {
						gate[i], gate[j], up[i], up[j] = 1, 1, 1, 1
						down[i], down[j] = float32(int(1)<<(30+10*n)), -float32(int(1)<<(30+10*n))
					}
				}
				x.Gate, x.Up, x.Down = append(x.Gate, matrix(gate, 1)), append(x.Up, matrix(up, 1)), append(x.Down, matrix(down, wide))
			}
			ones := slices.Repeat([]float32{1}, rows)
			c := &kernel.Chain{Rows: rows, Widths: []int{1, 1, count, 1}, Windows: []int{rows}, States: ones, Out: make([]float32, rows), Steps: []kernel.Step{
				&kernel.NormStep{Dst: 1, Src: 0, Gamma: kernel.Vector(ones[:1])}, &kernel.LinearStep{Dst: 2, Src: 0, Weights: matrix(smallOf(r, count), 1)}, x}}
			b := mixtureBack(c, plain, ones)
			c.Steps = slices.Delete(c.Steps, 2, 3)
			c.Taken = []kernel.Carried{{Matrix: b.DScores, Data: make([]float32, rows*count)}}
			return c
		}
		got, want := chain(), chain()
		want.Do()
		if !e.Compute(got) {
			t.Fatal(e.Err())
		}
		if n := differ(e.resultsOf(got), e.resultsOf(want)); n > 0 {
			t.Errorf("mixture %d: %d elements differ", seed, n)
		}
	}
}

// TestMixturesFail reports that nothing was computed where experts are too many, or memory does not suffice, and where any call of the driver fails.
func TestMixturesFail(t *testing.T) {
	for _, of := range []func() *kernel.Chain{
		func() *kernel.Chain { return mixtureOf(4, false) }, func() *kernel.Chain { return mixtureOf(4, true) }, func() *kernel.Chain { return mixtureBackOf(4) },
	} {
		many := of()
		x, _ := expertsOf(many.Steps[2])
		many.Rows = mostBlocks*128/len(x.Gate) + 128
		if e := engine(t); e.Compute(many) || e.Err() != nil {
			t.Errorf("too many rows were computed, or failed: %v", e.Err())
		}
		want := of()
		want.Do()
		for bound, done := uint64(3000), false; !done; bound += bound / 3 {
			c, e := of(), engine(t)
			e.Bound(bound)
			done = e.Compute(c)
			if bound == 3000 && done || e.Err() != nil || bound > 1<<30 {
				t.Fatalf("with %d bytes a mixture was computed: %v; %v", bound, done, e.Err())
			}
			if done && (differ(c.States, want.States) > 0 || differ(e.resultsOf(c), e.resultsOf(want)) > 0) {
				t.Errorf("with %d bytes a mixture has other bits", bound)
			}
		}
		calls := 0
		for failed := true; failed; calls++ {
			e, c := engine(t), of()
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
