package quant

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// formats are the storage forms that items of the tests choose from: 36.
func formats() []Spec {
	var all []Spec
	for _, bits := range []int{2, 3, 4, 5, 6, 8} {
		for _, block := range []int{32, 64, 128} {
			for _, symmetric := range []bool{false, true} {
				all = append(all, Spec{bits, block, symmetric, tensor.F16})
			}
		}
	}
	return all
}

// randomItems are matrices whose divergence falls as that of quantized ones does: by four with every bit, less for
// larger blocks, with noise. Bytes are multiples of grain.
func randomItems(rng *rand.Rand, n int, specs []Spec, grain int64) []Item {
	items := make([]Item, n)
	for i := range items {
		cols := 128 * (1 + rng.IntN(8))
		rows := 64 * (1 + rng.IntN(24))
		gain := math.Exp(rng.NormFloat64()*1.5) * 1e-2
		items[i].Members = []string{fmt.Sprintf("layers.%d", i)}
		for _, s := range specs {
			l, err := s.Layout(rows, cols)
			if err != nil {
				panic(err)
			}
			kl := gain * math.Pow(4, float64(-s.Bits)) * math.Pow(float64(s.Block), 0.25) * math.Exp(rng.NormFloat64()*0.1)
			if s.Symmetric {
				kl *= 1.3
			}
			items[i].Options = append(items[i].Options, Option{s, (l.Bytes() + grain - 1) / grain * grain, kl, int64(rows * cols)})
		}
	}
	return items
}

// extent is the smallest and the largest sum of bytes.
func extent(items []Item) (least, most int64) {
	for _, it := range items {
		lo, hi := it.Options[0].Bytes, it.Options[0].Bytes
		for _, o := range it.Options {
			lo, hi = min(lo, o.Bytes), max(hi, o.Bytes)
		}
		least, most = least+lo, most+hi
	}
	return least, most
}

// sums adds an allocation up, and checks that every choice is an option of its item.
func sums(t *testing.T, items []Item, a *Allocation) (bytes, ram int64, kl float64) {
	t.Helper()
	for i, o := range a.Options {
		if !slices.Contains(items[i].Options, o) {
			t.Fatalf("%v is no option of item %d", o, i)
		}
		bytes, ram, kl = bytes+o.Bytes, ram+o.RAM, kl+o.KL
	}
	if bytes != a.Bytes || ram != a.RAM || math.Abs(kl-a.KL) > klUnit*float64(len(items)+1) {
		t.Fatalf("sums are %d, %d, %g, the allocation says %d, %d, %g", bytes, ram, kl, a.Bytes, a.RAM, a.KL)
	}
	return bytes, ram, kl
}

// optimal bounds the relative difference of two sums of the same divergences: one in units of 2^-40 nats, one in floats.
const optimal = 1e-6

// Against all allocations of a few items.
func TestAllocateExhaustive(t *testing.T) {
	const instances, itemCount = 200, 5
	specs := formats()
	for seed := range uint64(instances) {
		rng := rand.New(rand.NewPCG(seed, 1))
		rng.Shuffle(len(specs), func(i, j int) { specs[i], specs[j] = specs[j], specs[i] })
		items := randomItems(rng, itemCount, specs[:6], 1)
		least, most := extent(items)
		budget := least + rng.Int64N(most-least+1)
		bestKL := math.Inf(1)
		target, bestBytes := math.Exp(rng.NormFloat64())*1e-3, int64(math.MaxInt64)
		var all func(i int, bytes int64, kl float64)
		all = func(i int, bytes int64, kl float64) {
			if i == len(items) {
				if bytes <= budget {
					bestKL = min(bestKL, kl)
				}
				if kl <= target {
					bestBytes = min(bestBytes, bytes)
				}
				return
			}
			for _, o := range items[i].Options {
				all(i+1, bytes+o.Bytes, kl+o.KL)
			}
		}
		all(0, 0, 0)

		a, err := Allocate(items, Budget{Bytes: budget})
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		bytes, _, kl := sums(t, items, a)
		if bytes > budget || math.Abs(kl/bestKL-1) > optimal {
			t.Errorf("seed %d: %d bytes of %d, KL %g, the best is %g", seed, bytes, budget, kl, bestKL)
		}

		a, err = Allocate(items, Budget{KL: target})
		if bestBytes == math.MaxInt64 {
			if low := (*BudgetError)(nil); !errors.As(err, &low) {
				t.Errorf("seed %d: a divergence of %g: %v", seed, target, err)
			}
			continue
		}
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		bytes, _, kl = sums(t, items, a)
		if kl > target || a.KL > target || bytes != bestBytes {
			t.Errorf("seed %d: KL %g of %g in %d bytes, the best are %d", seed, kl, target, bytes, bestBytes)
		}
	}
}

// Against dynamic programming over bytes, with 50 items of 36 options; and no budget gives more than a larger one.
func TestAllocateOptimum(t *testing.T) {
	const grain = 1 << 12
	for seed := range uint64(3) {
		items := randomItems(rand.New(rand.NewPCG(seed, 2)), 50, formats(), grain)
		least, most := extent(items)
		size := int((most-least)/grain) + 1
		best := make([]float64, size) // by bytes above the least
		next := make([]float64, size)
		for _, it := range items {
			low := slices.MinFunc(it.Options, func(a, b Option) int { return int(a.Bytes - b.Bytes) }).Bytes
			for c := range next {
				next[c] = math.Inf(1)
				for _, o := range it.Options {
					if k := c - int((o.Bytes-low)/grain); k >= 0 {
						next[c] = min(next[c], best[k]+o.KL)
					}
				}
			}
			best, next = next, best
		}
		last := math.Inf(1)
		for at := 1; at < 40; at++ {
			c := (size - 1) * at / 40
			a, err := Allocate(items, Budget{Bytes: least + int64(c)*grain})
			if err != nil {
				t.Fatal(err)
			}
			_, _, kl := sums(t, items, a)
			if math.Abs(kl/best[c]-1) > optimal {
				t.Errorf("seed %d: %d of %d: KL %g, the best is %g", seed, at, 40, kl, best[c])
			}
			if kl > last {
				t.Errorf("seed %d: a larger budget gives %g instead of %g", seed, kl, last)
			}
			last = kl
		}
	}
}

// A large model, against the frontier.
func TestAllocateLarge(t *testing.T) {
	items := randomItems(rand.New(rand.NewPCG(5, 5)), 250, formats(), 1)
	points, err := frontier(items)
	if err != nil {
		t.Fatal(err)
	}
	for k := 1; k < len(points); k++ {
		if points[k].Bytes <= points[k-1].Bytes || points[k].KL >= points[k-1].KL {
			t.Fatalf("point %d of the frontier, %v, follows %v", k, points[k], points[k-1])
		}
	}
	least, most := extent(items)
	if points[0].Bytes != least || points[len(points)-1].Bytes > most {
		t.Errorf("the frontier goes from %d to %d bytes, options from %d to %d", points[0].Bytes, points[len(points)-1].Bytes, least, most)
	}
	last := math.Inf(1)
	for at := 1; at < 20; at++ {
		budget := least + (points[len(points)-1].Bytes-least)*int64(at)/20
		a, err := Allocate(items, Budget{Bytes: budget})
		if err != nil {
			t.Fatal(err)
		}
		sums(t, items, a)
		k := slices.IndexFunc(points, func(p point) bool { return p.Bytes > budget })
		p, q := points[k-1], points[k]
		below := p.KL + (q.KL-p.KL)*float64(budget-p.Bytes)/float64(q.Bytes-p.Bytes)
		if a.KL > p.KL || a.KL < below*(1-optimal) || a.KL > last {
			t.Errorf("%d bytes: KL %g, between %g and %g; with fewer bytes %g", budget, a.KL, below, p.KL, last)
		}
		last = a.KL
	}
}

// Where every byte is worth the same, a search has no end: it must stop, and still be no worse than the frontier.
func TestAllocateProportional(t *testing.T) {
	rng := rand.New(rand.NewPCG(6, 6))
	items := make([]Item, 250)
	for i := range items {
		items[i].Members = []string{fmt.Sprint(i)}
		for _, s := range formats() {
			n := 1_000_000 + rng.Int64N(9_000_000)
			items[i].Options = append(items[i].Options, Option{Spec: s, Bytes: n, KL: float64(10_000_000-n)*1e-10 + rng.Float64()*1e-9})
		}
	}
	points, err := frontier(items)
	if err != nil {
		t.Fatal(err)
	}
	p := points[len(points)/2]
	a, err := Allocate(items, Budget{Bytes: p.Bytes + 7})
	if err != nil {
		t.Fatal(err)
	}
	if a.KL > p.KL {
		t.Errorf("KL %g, the frontier has %g", a.KL, p.KL)
	}
}

// The order of items and options changes nothing, nor do copies of options.
func TestAllocateOrder(t *testing.T) {
	rng := rand.New(rand.NewPCG(8, 8))
	items := randomItems(rng, 30, formats(), 256)
	for i := range items { // many equally good options
		for k := range items[i].Options {
			o := &items[i].Options[k]
			o.KL = math.Ceil(o.KL*1e6) / 1e6
		}
	}
	least, most := extent(items)
	for _, b := range []Budget{{Bytes: (least + most) / 3}, {RAM: 1 << 40}, {KL: 0.01}} {
		want, err := Allocate(items, b)
		if err != nil {
			t.Fatal(err)
		}
		for range 5 {
			at := rng.Perm(len(items))
			shuffled := make([]Item, len(items))
			for i, k := range at {
				shuffled[i] = Item{items[k].Members, append(slices.Clone(items[k].Options), items[k].Options[rng.IntN(36)])}
				rng.Shuffle(37, func(x, y int) {
					o := shuffled[i].Options
					o[x], o[y] = o[y], o[x]
				})
			}
			got, err := Allocate(shuffled, b)
			if err != nil {
				t.Fatal(err)
			}
			for i, k := range at {
				if got.Options[i] != want.Options[k] {
					t.Fatalf("%v: item %d is stored as %v, and in another order as %v", b, k, want.Options[k].Spec, got.Options[i].Spec)
				}
			}
		}
	}
}

// Choices that hold still: the same on every machine, in this version of the program and in the next. Divergences are
// dyadic, so that the instance is the same everywhere, too.
func TestAllocateDigest(t *testing.T) {
	const want = "3465d768e5df4bd8"
	rng := rand.New(rand.NewPCG(7, 11))
	items := make([]Item, 60)
	for i := range items {
		items[i].Members = []string{fmt.Sprintf("m%02d", i)}
		rows, cols, gain := 32*(1+rng.IntN(40)), 128*(1+rng.IntN(8)), float64(1+rng.IntN(1000))*0x1p-16
		for _, s := range formats() {
			l, err := s.Layout(rows, cols)
			if err != nil {
				t.Fatal(err)
			}
			kl := gain * float64(s.Block+100+rng.IntN(20)) / float64(int(1)<<(2*s.Bits))
			items[i].Options = append(items[i].Options, Option{s, l.Bytes(), kl, int64(rows * cols)})
		}
	}
	least, most := extent(items)
	h := sha256.New()
	for at := range int64(10) {
		a, err := Allocate(items, Budget{Bytes: least + (most-least)*at/10})
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range a.Options {
			fmt.Fprintln(h, o.Spec)
		}
	}
	if got := fmt.Sprintf("%x", h.Sum(nil)[:8]); got != want {
		t.Errorf("choices have digest %s, want %s", got, want)
	}
}

// What nobody should have to look up.
func TestAllocateExtremes(t *testing.T) {
	items := randomItems(rand.New(rand.NewPCG(9, 9)), 12, formats(), 1)
	least, most := extent(items)
	points, err := frontier(items)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name          string
		budget        Budget
		bytes         int64 // wanted if not 0
		kl            float64
		wantSmallest  Budget
		wantSomething bool
	}{
		{name: "exactly the least", budget: Budget{Bytes: least}, bytes: least},
		{name: "one byte too few", budget: Budget{Bytes: least - 1}, wantSmallest: Budget{Bytes: least}},
		{name: "more than all", budget: Budget{Bytes: 2 * most}, kl: points[len(points)-1].KL},
		{name: "most of what there is", budget: Budget{Bytes: math.MaxInt64}, kl: points[len(points)-1].KL},
		{name: "the least divergence", budget: Budget{KL: points[len(points)-1].KL}, kl: points[len(points)-1].KL},
		{name: "less than the least divergence", budget: Budget{KL: points[len(points)-1].KL / 2}, wantSmallest: Budget{KL: points[len(points)-1].KL}},
		{name: "any divergence", budget: Budget{KL: 1e6}, bytes: least},
		{name: "little memory", budget: Budget{RAM: 1}, wantSmallest: Budget{RAM: 1}, wantSomething: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, err := Allocate(items, c.budget)
			if c.wantSmallest != (Budget{}) {
				low := (*BudgetError)(nil)
				if !errors.As(err, &low) || a != nil {
					t.Fatalf("got %v, %v", a, err)
				}
				if low.Budget != c.budget || !c.wantSomething && low.Smallest != c.wantSmallest {
					t.Errorf("%+v, want %v", low, c.wantSmallest)
				}
				if _, err := Allocate(items, low.Smallest); err != nil {
					t.Errorf("with the smallest budget: %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			sums(t, items, a)
			if c.bytes != 0 && a.Bytes != c.bytes || c.kl != 0 && a.KL != c.kl {
				t.Errorf("%d bytes, KL %g, want %d, %g", a.Bytes, a.KL, c.bytes, c.kl)
			}
		})
	}
}

func TestAllocateRefuses(t *testing.T) {
	ok := Option{Spec: Half, Bytes: 2, KL: 1, RAM: 3}
	with := func(change func(o *Option)) []Item {
		o := ok
		change(&o)
		return []Item{{[]string{"a"}, []Option{ok, o}}}
	}
	good := with(func(*Option) {})
	for _, c := range []struct {
		name    string
		items   []Item
		budget  Budget
		corrupt bool
	}{
		{"no items", nil, Budget{Bytes: 9}, true},
		{"no members", []Item{{nil, []Option{ok}}}, Budget{Bytes: 9}, true},
		{"no options", []Item{{[]string{"a"}, nil}}, Budget{Bytes: 9}, true},
		{"one name twice", append(good, good...), Budget{Bytes: 9}, true},
		{"negative bytes", with(func(o *Option) { o.Bytes = -1 }), Budget{Bytes: 9}, true},
		{"negative memory", with(func(o *Option) { o.RAM = -1 }), Budget{Bytes: 9}, true},
		{"negative divergence", with(func(o *Option) { o.KL = -1 }), Budget{Bytes: 9}, true},
		{"NaN", with(func(o *Option) { o.KL = math.NaN() }), Budget{Bytes: 9}, true},
		{"infinity", with(func(o *Option) { o.KL = math.Inf(1) }), Budget{Bytes: 9}, true},
		{"too many bytes", with(func(o *Option) { o.Bytes = math.MaxInt64 }), Budget{Bytes: 9}, true},
		{"no budget", good, Budget{}, false},
		{"two budgets", good, Budget{Bytes: 9, KL: 1}, false},
		{"negative budget", good, Budget{Bytes: -9}, false},
		{"NaN as a budget", good, Budget{KL: math.NaN()}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, err := Allocate(c.items, c.budget)
			if a != nil || err == nil || errors.Is(err, tensor.ErrCorrupt) != c.corrupt {
				t.Errorf("got %v, %v", a, err)
			}
		})
	}
}

func TestFuse(t *testing.T) {
	w4, w8 := Spec{Bits: 4, Block: 64, Scale: tensor.F16}, Spec{Bits: 8, Block: 64, Scale: tensor.F16}
	q := Item{[]string{"q"}, []Option{{w4, 10, 0.5, 11}, {Half, 40, 0, 80}, {w8, 20, 0.25, 21}}}
	k := Item{[]string{"k"}, []Option{{w8, 2, 1, 3}, {w4, 1, 2, 2}}}
	want := Item{[]string{"q", "k"}, []Option{{w4, 11, 2.5, 13}, {w8, 22, 1.25, 24}}}
	if diff := cmp.Diff(want, Fuse(q, k)); diff != "" {
		t.Error(diff)
	}
	if len(q.Options) != 3 || q.Options[0].Bytes != 10 {
		t.Errorf("the first item has changed: %v", q)
	}
}

func BenchmarkAllocate(b *testing.B) {
	items := randomItems(rand.New(rand.NewPCG(5, 5)), 250, formats(), 1)
	least, most := extent(items)
	for b.Loop() {
		if _, err := Allocate(items, Budget{Bytes: (least + most) / 2}); err != nil {
			b.Fatal(err)
		}
	}
}
