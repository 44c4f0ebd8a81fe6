package net

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/llmexport/llmexport/runtime/kernel"
)

func sample(t testing.TB, m *Model, s Sampling) [][]int32 {
	t.Helper()
	windows, err := m.Sample(t.Context(), s, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(windows) != s.Windows {
		t.Fatalf("%d windows instead of %d", len(windows), s.Windows)
	}
	for _, w := range windows {
		if len(w) != s.Length || !slices.Equal(w[:len(s.First)], s.First) {
			t.Fatalf("window %v", w)
		}
	}
	return windows
}

// The text of a window depends on its number and the seed, and on nothing else.
func TestSampleIndependence(t *testing.T) {
	s := Sampling{Windows: 5, Length: 70, First: []int32{8191, 12}, Temperature: 1, Seed: 3}
	want := sample(t, openModel(t, tinyDir, 1), s)
	m := openModel(t, tinyDir, 7)
	for _, c := range []struct {
		name   string
		change func(*Sampling)
	}{
		{"threads", func(*Sampling) {}},
		{"windows", func(s *Sampling) { s.Windows = 2 }},
		{"batches", func(s *Sampling) { s.Memory = 1 << 20 }},
		{"no weights in memory", func(s *Sampling) { s.Windows, s.Length, s.Weights = 2, 20, 1 }},
		{"some weights in memory", func(s *Sampling) { s.Windows, s.Length, s.Weights = 2, 20, 9<<20 }},
		{"length", func(s *Sampling) { s.Length = 20 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := s
			c.change(&s)
			for i, w := range sample(t, m, s) {
				if !slices.Equal(w, want[i][:s.Length]) {
					t.Errorf("window %d differs", i)
				}
			}
		})
	}
	s.Seed++
	if other := sample(t, m, s); slices.Equal(other[0], want[0]) || slices.Equal(want[0], want[1]) {
		t.Error("the same text from other random numbers")
	}
}

// Greedy text is what the forward pass finds likeliest, one position after the other.
func TestSampleGreedy(t *testing.T) {
	m := openModel(t, tinyDir, 2)
	p := load(t, m)
	windows := sample(t, m, Sampling{Windows: 1, Length: 80, First: []int32{8191, 300, 12}, Temperature: 1, TopK: 1})
	logits, vocab := p.logits(t, windows), m.decoder.Vocab
	for pos := 2; pos < 79; pos++ {
		row := logits[pos*vocab : (pos+1)*vocab]
		best, got := row[kernel.ArgMax(row)], row[windows[0][pos+1]]
		if best-got > logitBound { // both compute in float32, in different orders
			t.Errorf("token %d has the logit %v, the likeliest %v", pos+1, got, best)
		}
	}
}

// The likelihood of text that the model draws itself is that of its own distribution: the mean over tokens of the
// difference between likelihood and entropy vanishes.
func TestSampleDistribution(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	m := openModel(t, tinyDir, 2)
	p := load(t, m)
	for _, s := range []Sampling{
		{Windows: 16, Length: 64, First: []int32{8191}, Temperature: 1, Seed: 1},
		{Windows: 16, Length: 64, First: []int32{8191}, Temperature: 0.7, Seed: 2},
	} {
		windows := sample(t, m, s)
		logits, vocab := p.logits(t, windows), m.decoder.Vocab
		var sum, squares float64
		n := 0.0
		for i, w := range windows {
			for pos := range s.Length - 1 {
				row := logits[(i*s.Length+pos)*vocab:][:vocab]
				kernel.Scale(row, row, float32(1/s.Temperature))
				norm := kernel.LogSumExp(row)
				entropy := 0.0
				for _, x := range row {
					entropy += math.Exp(float64(x)-norm) * (norm - float64(x))
				}
				d := norm - float64(row[w[pos+1]]) - entropy
				sum, squares, n = sum+d, squares+d*d, n+1
			}
		}
		deviations := math.Abs(sum) / math.Sqrt(squares)
		t.Logf("temperature %v: %.2f standard deviations, mean %.3f", s.Temperature, deviations, sum/n)
		if deviations > 3 {
			t.Errorf("temperature %v: off by %v standard deviations", s.Temperature, deviations)
		}
	}
}

// Draws come as often as their probabilities say, whether or not they are limited to the likeliest.
func TestDraw(t *testing.T) {
	row := make([]float32, 700)
	for i := range row {
		row[i] = -30
	}
	row[0], row[256], row[699], row[300] = 1, 2, 1.5, -2
	for _, c := range []struct {
		name string
		s    Sampling
	}{
		{"all", Sampling{Temperature: 1}},
		{"hot", Sampling{Temperature: 3}},
		{"cold", Sampling{Temperature: 0.25}},
		{"likeliest", Sampling{Temperature: 1, TopK: 2}},
		{"more than there are", Sampling{Temperature: 1, TopK: 1000}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w, b, random := sampler{Sampling: c.s}, new(drawBuffer), rand.NewPCG(1, 2)
			const draws = 20000
			counts := make([]float64, len(row))
			for range draws {
				token, err := w.draw(b, row, random)
				if err != nil {
					t.Fatal(err)
				}
				counts[token]++
			}
			var sum float64
			p := make([]float64, len(row))
			for i, x := range row {
				if c.s.TopK == 2 && i != 256 && i != 699 {
					continue
				}
				p[i] = math.Exp(float64(x) / c.s.Temperature)
				sum += p[i]
			}
			for i := range p {
				want := p[i] / sum * draws
				if math.Abs(counts[i]-want) > 4*math.Sqrt(want)+1 {
					t.Errorf("token %d came %v times, expected %v", i, counts[i], want)
				}
			}
		})
	}
	row[5] = float32(math.NaN())
	if _, err := (&sampler{Sampling: Sampling{Temperature: 1}}).draw(new(drawBuffer), row, rand.NewPCG(1, 2)); err == nil {
		t.Error("a draw from NaN")
	}
}

// However u is rounded, what is drawn has a probability above 0.
func TestPickEnds(t *testing.T) {
	row := make([]float32, 600)
	for i := range row {
		row[i] = -2000
	}
	row[3], row[590] = 1, 1
	b := new(drawBuffer)
	for u, want := range map[float64]int{0: 3, 0.49: 3, 0.51: 590, 1 - 0x1p-53: 590, 1: 590} {
		if got := b.pick(row, 1, u); got != want {
			t.Errorf("%v: %d, want %d", u, got, want)
		}
	}
}

func TestSampleRefused(t *testing.T) {
	d, src := randomModel(features{heads: 2, kvHeads: 1})
	d.MaxPositions = 20
	m := newModel(t, d, src, 1)
	good := Sampling{Windows: 2, Length: 10, First: []int32{1}, Temperature: 1}
	for _, c := range []struct {
		name   string
		change func(*Sampling)
	}{
		{"length", func(s *Sampling) { s.Length = 0 }},
		{"too long", func(s *Sampling) { s.Length = 21 }},
		{"windows", func(s *Sampling) { s.Windows = -1 }},
		{"no first token", func(s *Sampling) { s.First = nil }},
		{"first token", func(s *Sampling) { s.First = []int32{50} }},
		{"many first tokens", func(s *Sampling) { s.First = make([]int32, 11) }},
		{"no temperature", func(s *Sampling) { s.Temperature = 0 }},
		{"NaN", func(s *Sampling) { s.Temperature = math.NaN() }},
		{"subnormal", func(s *Sampling) { s.Temperature = 5e-324 }},
		{"top k", func(s *Sampling) { s.TopK = -1 }},
	} {
		s := good
		c.change(&s)
		if _, err := m.Sample(t.Context(), s, nil); err == nil {
			t.Errorf("%s is accepted", c.name)
		}
	}
	var steps []int
	if _, err := m.Sample(t.Context(), good, func(done, total int) { steps = append(steps, done, total) }); err != nil {
		t.Fatal(err)
	}
	if len(steps) != 18 || steps[0] != 4 || steps[16] != 20 || steps[17] != 20 {
		t.Errorf("progress %v", steps)
	}
	ctx, cancel := context.WithCancel(t.Context())
	_, err := m.Sample(ctx, good, func(int, int) { cancel() })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}
