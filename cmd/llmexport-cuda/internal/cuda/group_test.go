package cuda

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/llmexport/llmexport/quant"
	"github.com/llmexport/llmexport/runtime/kernel"
)

// Two cards give the bits of the CPU, and if one does not do its part, what changes is as before.
func TestGroup(t *testing.T) {
	cards := []*Engine{engine(t), engine(t)}
	g := NewGroup(cards)
	for s := range *shapes {
		r := rand.New(rand.NewPCG(17, uint64(s)))
		f := randomFeedback(r)
		f.Rows = 33 + r.IntN(20)
		blocks := f.Cols / f.Block
		f.Work, f.Codes, f.Scale = floats(r, f.Rows*f.Cols, false), make([]float32, f.Rows*f.Cols), make([]float32, f.Rows*blocks)
		if f.Zero != nil {
			f.Zero = make([]float32, f.Rows*blocks)
		}
		got, want := cloneFeedback(f), cloneFeedback(f)
		finite := quant.Feed(want)
		if g.Compute(got) != finite {
			t.Fatalf("feedback %d: finite %v", s, finite)
		}
		if !finite {
			want = f
		}
		if n := differ(got.Codes, want.Codes) + differ(got.Scale, want.Scale) + differ(got.Zero, want.Zero); n > 0 {
			t.Fatalf("feedback %d: %d numbers differ", s, n)
		}

		const m, n, k = 300, 40, 70
		a, b := floats(r, m*k, false), floats(r, n*k, false)
		p := func() *kernel.Product {
			version := kernel.NewVersion()
			return &kernel.Product{Dst: make([]float32, m*n), Rows: m, Cols: n, Stride: n, Parts: []kernel.Part{{
				A: kernel.Factor{Data: a, Layout: kernel.ByRow, Stride: k, Version: version}, B: kernel.Factor{Data: b, Layout: kernel.ByRow, Stride: k}, K: k}}}
		}
		one, two := p(), p()
		kernel.MatMulT(one.Dst, a, b, m, n, k, n, k, k)
		for range 2 { // again with the rows that are there
			clear(two.Dst)
			if !g.Compute(two) || differ(two.Dst, one.Dst) > 0 {
				t.Fatalf("product %d: not computed or other bits", s)
			}
		}
	}
	// A result that stays is added to where it is.
	const n, k = 24, 30
	x := floats(rand.New(rand.NewPCG(18, 1)), n*k, false)
	sums := [3][]float32{make([]float32, n*n), make([]float32, n*n), make([]float32, n*n)}
	for range 3 {
		for _, dst := range sums {
			part := kernel.Part{A: kernel.Factor{Data: x, Layout: kernel.ByPosition, Stride: n}, B: kernel.Factor{Data: x, Layout: kernel.ByPosition, Stride: n}, K: k}
			if !g.Compute(&kernel.Product{Dst: dst, Rows: n, Cols: n, Stride: n, Sum: kernel.AddParts, Parts: []kernel.Part{part}, Stay: true}) {
				t.Fatal("moments were not computed")
			}
		}
	}
	for _, dst := range sums {
		if err := g.Settle(dst); err != nil {
			t.Fatal(err)
		}
	}
	if sums[0][0] == 0 || differ(sums[0], sums[1])+differ(sums[0], sums[2]) > 0 {
		t.Error("moments on two cards differ")
	}
	d := randomDescent(rand.New(rand.NewPCG(19, 1)), false)
	d.Rows = 60
	d.Codes, d.Target = make([]float32, d.Rows*d.Cols), floats(rand.New(rand.NewPCG(19, 2)), d.Rows*d.Cols, false)
	d.Scale = make([]float32, d.Rows*d.Cols/d.Block)
	for i := range d.Scale {
		d.Scale[i] = 0.25
	}
	if d.Zero != nil {
		d.Zero = make([]float32, len(d.Scale))
	}
	got, want := cloneDescent(d), cloneDescent(d)
	quant.Descend(want)
	if !g.Compute(got) || differ(got.Codes, want.Codes)+differ(got.Scale, want.Scale)+differ(got.Zero, want.Zero) > 0 || differ(got.Codes, d.Codes) == 0 {
		t.Error("a descent on two cards has other bits, or nothing moved")
	}
	r := randomRefinement(rand.New(rand.NewPCG(20, 3)), true, false)
	r.Runs = append(r.Runs, cloneRefinement(r).Runs...)
	gotten, wanted := cloneRefinement(r), cloneRefinement(r)
	quant.Refine(wanted, 1)
	if before := [2]int64{cards[0].Spent().Products, cards[1].Spent().Products}; !g.Compute(gotten) || !sameRuns(gotten, wanted) || sameRuns(gotten, r) ||
		cards[0].Spent().Products == before[0] || cards[1].Spent().Products == before[1] {
		t.Error("a refinement on two cards has other bits, or one did all, or nothing moved")
	}
	c := randomChoice(rand.New(rand.NewPCG(23, 1)), true, false)
	c.Runs = append(c.Runs, cloneChoice(c).Runs...)
	taken, chosen := cloneChoice(c), cloneChoice(c)
	quant.Choose(chosen, 1)
	if before := [2]int64{cards[0].Spent().Products, cards[1].Spent().Products}; !g.Compute(taken) || !sameChoice(taken, chosen) || sameChoice(taken, c) ||
		cards[0].Spent().Products == before[0] || cards[1].Spent().Products == before[1] {
		t.Error("a choice on two cards has other bits, or one did all, or nothing was chosen")
	}
	got = cloneDescent(d)
	if failAt(cards[1], 0, func() bool { return g.Compute(got) }) || differ(got.Codes, d.Codes)+differ(got.Scale, d.Scale)+differ(got.Zero, d.Zero) > 0 {
		t.Error("a card failed, and something changed")
	}
	gotten = cloneRefinement(r)
	if g.Compute(gotten) || !sameRuns(gotten, r) {
		t.Error("a card has failed, and a refinement changed something")
	}
	taken = cloneChoice(c)
	if g.Compute(taken) || !sameChoice(taken, c) {
		t.Error("a card has failed, and a choice changed something")
	}
}

// Two cards share out whole windows, forth and back, with the bits of the CPU.
func TestGroupWindows(t *testing.T) {
	for _, of := range []func(seed uint64) *kernel.Chain{wholeOf, backOf} {
		cards := []*Engine{engine(t), engine(t)}
		g, shared := NewGroup(cards), 0
		for s := range 9 {
			got, want := of(uint64(s)), of(uint64(s))
			want.Do()
			before := [2]int64{cards[0].Spent().Products, cards[1].Spent().Products}
			if s%2 == 1 { // with sums that stay on a card windows are not shared out
				got.Moments, want.Moments = nil, nil
			}
			if !g.Compute(got) {
				t.Fatalf("windows %d of %v tokens: not computed", s, got.Windows)
			}
			for _, x := range got.Moments {
				if err := g.Settle(x.Dst); err != nil {
					t.Fatal(err)
				}
			}
			if differ(cards[0].resultsOf(got), cards[0].resultsOf(want)) > 0 {
				t.Fatalf("windows %d of %v tokens: other bits", s, got.Windows)
			}
			if cards[0].Spent().Products > before[0] && cards[1].Spent().Products > before[1] {
				shared++
			}
		}
		if shared < 2 {
			t.Errorf("%d chains were shared out", shared)
		}
	}
}

// A mixture of several windows and its way back have the bits of the CPU, too, with several cards.
func TestGroupMixture(t *testing.T) {
	g := NewGroup([]*Engine{engine(t), engine(t)})
	for _, of := range []func(seed uint64) *kernel.Chain{func(seed uint64) *kernel.Chain { return mixtureOf(seed, true) }, mixtureBackOf} {
		got, want := of(2), of(2)
		for _, c := range []*kernel.Chain{got, want} {
			c.Windows = []int{c.Rows / 2, c.Rows - c.Rows/2}
		}
		want.Do()
		if !g.Compute(got) || differ(g.cards[0].resultsOf(got), g.cards[0].resultsOf(want)) > 0 {
			t.Errorf("windows %v: not computed, or other bits", got.Windows)
		}
	}
}

// Two cards share out rows of logits, and keep those with a name.
func TestGroupLogits(t *testing.T) {
	g := NewGroup([]*Engine{engine(t), engine(t)})
	l := drawnLogits(300, Shape{500, 30})
	l.Version = kernel.NewVersion()
	other := l.Logits
	other.X = drawn(len(l.X), 3)
	want := &kernel.Divergences{Want: l.Logits, Got: other, KL: make([]float64, l.Rows)}
	want.Do()
	for range 2 {
		got := *want
		if got.KL = make([]float64, l.Rows); !g.Compute(&got) || differ(quarters(got.KL), quarters(want.KL)) > 0 {
			t.Fatal("divergences were not computed, or differ")
		}
	}
	labels := func() *kernel.Labels {
		return &kernel.Labels{Logits: l.Logits, Back: l.back, At: evenly(l.Rows), Squares: make([]float64, l.Rows), Gradient: make([]float32, len(l.X))}
	}
	one, two := labels(), labels()
	if one.Do(); !g.Compute(two) || differ(two.Gradient, one.Gradient)+differ(quarters(two.Squares), quarters(one.Squares)) > 0 {
		t.Error("gradients for labels were not computed, or differ")
	}
	draws := func() *kernel.Draws {
		return &kernel.Draws{Logits: l.Logits, At: evenly(l.Rows), Tokens: make([]int32, l.Rows)}
	}
	first, second := draws(), draws()
	if first.Do(); !g.Compute(second) || !slices.Equal(first.Tokens, second.Tokens) {
		t.Error("tokens were not drawn, or differ")
	}
	for i, e := range g.cards {
		if n := e.Spent().Products; n != 4 {
			t.Errorf("card %d did %d pieces of work", i, n)
		}
	}
}
