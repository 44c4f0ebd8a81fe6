package calibrate

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/quant"
)

// Inputs beyond the bound count as inputs of its length, in both streams by one factor; skipped ones and those of ordinary length
// are as they were, to the bit.
func TestLongInputs(t *testing.T) {
	const tokens, skip, cols = 65, 1, 8
	r := rand.New(rand.NewPCG(1, 2))
	x := make([]float32, 2*tokens*cols)
	for i := range x {
		x[i] = float32(r.NormFloat64())
	}
	f := slices.Clone(x)
	sum := func(x, f []float32, sinks bool) *quant.Stats {
		m := newMoments(cols, true)
		m.sinks = sinks
		before := slices.Clone(x)
		m.add(x, f, tokens, skip, 2)
		if !slices.Equal(x, before) {
			t.Error("the inputs have changed")
		}
		st, err := m.stats(2)
		check(t, err)
		return st
	}
	same := func(a, b *quant.Stats) bool {
		return slices.Equal(a.Hessian, b.Hessian) && slices.Equal(a.Cross, b.Cross)
	}
	if !same(sum(x, f, false), sum(x, f, true)) {
		t.Error("ordinary inputs have other moments")
	}
	scaled := func(factor float32, tokens ...int) (a, b []float32) {
		a, b = slices.Clone(x), slices.Clone(f)
		for _, token := range tokens {
			for i := token * cols; i < (token+1)*cols; i++ {
				a[i], b[i] = a[i]*factor, b[i]*factor
			}
		}
		return a, b
	}
	a, b := scaled(1e4, 0, tokens) // both skipped
	if !same(sum(x, f, false), sum(a, b, true)) {
		t.Error("skipped inputs count")
	}
	a, b = scaled(1e4, 20)
	far, farther := scaled(1e6, 20)
	first, second := sum(a, b, true), sum(far, farther, true)
	for i, v := range first.Hessian {
		w := second.Hessian[i]
		if math.Abs(float64(v-w)) > 1e-4*math.Abs(float64(v))+1e-4 || math.Abs(float64(first.Cross[i]-v)) > 1e-4*math.Abs(float64(v))+1e-4 {
			t.Fatalf("element %d: %g of a long input, %g of one a hundred times as long, cross %g", i, v, w, first.Cross[i])
		}
	}
	// The mean of the squared lengths: 8 for ordinary inputs, and one of 2000 medians, which are a little less.
	var trace float64
	for _, v := range first.Diagonal() {
		trace += float64(v)
	}
	if want := 8 + sinkLength*7.3/(2*(tokens-skip)); math.Abs(trace-want) > want/5 {
		t.Errorf("squared length %g, want about %g", trace, want)
	}
}

// Moments are the same however many inputs come at a time: an input is compared with those before and those of its chunk.
func TestLongInputsAtOnce(t *testing.T) {
	const tokens, cols = 256, 6
	per := windowsOf(chunkTokens, tokens) * tokens * cols
	r := rand.New(rand.NewPCG(3, 4))
	x := make([]float32, 3*per-tokens*cols)
	for i := range x {
		x[i] = float32(r.NormFloat64())
		if i/cols%700 == 9 {
			x[i] *= 300
		}
		if i > per { // later inputs make the median larger
			x[i] *= 3
		}
	}
	f := slices.Clone(x)
	sums := func(most int) *quant.Stats {
		m := newInputMoments(cols, true)
		shortened := 0
		for at := 0; at < len(x); at += most {
			end := min(at+most, len(x))
			m.add(x[at:end], f[at:end], tokens, 1, 2)
			shortened += len(m.shares)
		}
		if shortened == 0 || shortened > 20 {
			t.Errorf("%d inputs are shortened", shortened)
		}
		st, err := m.stats(2)
		check(t, err)
		return st
	}
	want := sums(per)
	for _, n := range []int{2, 4} {
		if got := sums(n * per); !slices.Equal(got.Hessian, want.Hessian) || !slices.Equal(got.Cross, want.Cross) {
			t.Errorf("%d chunks at a time have other moments", n)
		}
	}
}

// What a down projection reads is not swamped by tokens of its largest inputs, with and without experts, and the column that only
// they use is not taken for an unused one.
func TestSinkInputs(t *testing.T) {
	const sink, mark, neuron = 7, 5, 3
	for _, family := range []string{"qwen3-tied", "qwen3_moe", "qwen2_moe"} {
		t.Run(family, func(t *testing.T) {
			d, src := openCheckpoint(t, familyDir(family))
			src = edited(t, src, d.Embedding, func(x []float32) {
				for i := mark; i < len(x); i += d.Hidden {
					x[i] /= 64
				}
				x[sink*d.Hidden+mark] = 32
			})
			for b := range d.Layers[0].Blocks() {
				if a, ok := b.(*arch.Attention); ok {
					src = edited(t, src, a.O.Weight, func(x []float32) {
						clear(x[mark*a.O.Weight.Cols : (mark+1)*a.O.Weight.Cols])
					})
				}
			}
			for _, w := range sinkReaders(d) {
				src = edited(t, src, w, func(x []float32) {
					clear(x[neuron*w.Cols : (neuron+1)*w.Cols])
					x[neuron*w.Cols+mark] = 16
				})
			}
			text := randomText(d, 40, 64)
			for i, w := range text {
				for k, v := range w {
					if v == sink {
						w[k]++
					}
				}
				if i%4 == 0 {
					w[11+i] = sink
				}
			}
			o := Options{Decoder: d, Source: src, Windows: text, Skip: 4, Threads: 2, Memory: plenty}
			list, err := walked(t, o, func(*walk) {})
			check(t, err)
			found := false
			for _, s := range list {
				if !strings.Contains(s.name, "layers.0.") || !strings.HasSuffix(s.name, "down_proj.weight") {
					continue
				}
				diagonal := s.stats.Diagonal()
				rest := 0.0
				for i, v := range diagonal {
					if i != neuron {
						rest += float64(v)
					}
				}
				if v := float64(diagonal[neuron]); v > 0 {
					found = true
					t.Logf("%s: mean square %g of the neuron, %g of all others", s.name, v, rest)
					if v > 100*rest {
						t.Errorf("%s is swamped: mean square %g of a neuron, %g of all others", s.name, v, rest)
					}
				}
			}
			if !found {
				t.Error("no expert reads the sink")
			}
		})
	}
}

// sinkReaders are the matrices gate and up of the MLP, or of all experts, of the first layer.
func sinkReaders(d *arch.Decoder) (all []arch.Weight) {
	mlp := func(m *arch.MLP) { all = append(all, m.Gate.Weight, m.Up.Weight) }
	for b := range d.Layers[0].Blocks() {
		switch x := b.(type) {
		case *arch.MLP:
			mlp(x)
		case *arch.Experts:
			for i := range x.Experts {
				mlp(&x.Experts[i])
			}
			if x.Shared != nil {
				mlp(x.Shared)
			}
		}
	}
	return all
}

func TestSortTail(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 9))
	for range 200 {
		list := make([]float32, r.IntN(40))
		for i := range list {
			list[i] = float32(r.IntN(12)) // with equal values
		}
		known := r.IntN(len(list) + 1)
		slices.Sort(list[:known])
		want := slices.Sorted(slices.Values(list))
		if sortTail(list, known); !slices.Equal(list, want) {
			t.Fatalf("%d known: %v, want %v", known, list, want)
		}
	}
}

// Counting finds sinks as sorting does.
func TestAllShort(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 3))
	short := 0
	for range 2000 {
		m := &moments{}
		for range 1 + r.IntN(9) {
			m.note([]float32{0, 1, 2, float32(math.NaN())}[r.IntN(4)] * r.Float32())
		}
		length := []float32{0, 1, sinkLength, float32(math.Inf(1)), float32(math.NaN())}[r.IntN(5)] * r.Float32()
		got := m.allShort(length)
		slices.Sort(m.lengths)
		median := float64(m.lengths[(len(m.lengths)-1)/2])
		if want := float64(length) <= sinkLength*median; got != want {
			t.Fatalf("%v next to %v: %v", length, m.lengths, got)
		}
		if got {
			short++
		}
	}
	if short < 100 {
		t.Errorf("%d lengths are short", short)
	}
}
