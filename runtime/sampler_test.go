package runtime

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/llmexport/llmexport/runtime/kernel"
)

func newRand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 1)) }

// shares draws often and returns how often each token came.
func shares(s *Sampler, logits []float32) []float64 {
	const draws = 20000
	rng, n := newRand(1), make([]float64, len(logits))
	for range draws {
		n[s.Next(logits, nil, rng)] += 1.0 / draws
	}
	return n
}

// logs turns probabilities into logits, shifted by a constant that must not matter.
func logs(p ...float64) []float32 {
	l := make([]float32, len(p))
	for i, v := range p {
		l[i] = float32(math.Log(v) + 50)
	}
	return l
}

func TestSampler(t *testing.T) {
	for _, c := range []struct {
		name   string
		s      *Sampler
		logits []float32
		want   []float64
	}{
		{"nil is greedy", nil, logs(.2, .5, .3), []float64{0, 1, 0}},
		{"temperature 0 is greedy", &Sampler{}, logs(.2, .5, .3), []float64{0, 1, 0}},
		{"ties go to the smaller token", nil, logs(.2, .4, .4), []float64{0, 1, 0}},
		{"all", &Sampler{Temperature: 1}, logs(.2, .5, .3), []float64{.2, .5, .3}},
		{"temperature 2", &Sampler{Temperature: 2}, logs(.04, .16, .8), []float64{.2 / 1.4944, .4 / 1.4944, .8944 / 1.4944}},
		{"temperature 1e-9", &Sampler{Temperature: 1e-9}, logs(.2, .5, .3), []float64{0, 1, 0}},
		{"top 1", &Sampler{Temperature: 1, TopK: 1}, logs(.2, .5, .3), []float64{0, 1, 0}},
		{"top 2", &Sampler{Temperature: 1, TopK: 2}, logs(.2, .5, .3), []float64{0, .625, .375}},
		{"top 9 of 3", &Sampler{Temperature: 1, TopK: 9}, logs(.2, .5, .3), []float64{.2, .5, .3}},
		{"top p, just enough", &Sampler{Temperature: 1, TopP: .7}, logs(.2, .5, .3), []float64{0, .625, .375}},
		{"top p, one", &Sampler{Temperature: 1, TopP: .1}, logs(.2, .5, .3), []float64{0, 1, 0}},
		{"top p 1", &Sampler{Temperature: 1, TopP: 1}, logs(.2, .5, .3), []float64{.2, .5, .3}},
		{"min p", &Sampler{Temperature: 1, MinP: .25}, logs(.2, .5, .3), []float64{0, .625, .375}},
		{"min p above all", &Sampler{Temperature: 1, MinP: .9}, logs(.2, .5, .3), []float64{0, 1, 0}},
		{"top k before top p", &Sampler{Temperature: 1, TopK: 2, TopP: .6}, logs(.2, .5, .3), []float64{0, 1, 0}},
		{"large logits", &Sampler{Temperature: 1}, []float32{-1e4, 1e4, 1e4}, []float64{0, .5, .5}},
		{"one token", &Sampler{Temperature: 1, TopK: 40, TopP: .9, MinP: .1}, []float32{3}, []float64{1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := shares(c.s, c.logits)
			for i, w := range c.want {
				// Four standard deviations of a share of 20,000 draws are at most 1.4 %; a share of 0 or 1 is exact.
				if d := math.Abs(got[i] - w); d > .015 || (w == 0 && got[i] != 0) {
					t.Fatalf("shares %.3f, want %.3f", got, c.want)
				}
			}
		})
	}
}

func TestSamplerSeeds(t *testing.T) {
	logits := make([]float32, 1000)
	for i := range logits {
		logits[i] = float32(i%17) / 5
	}
	s := &Sampler{Temperature: 1, TopK: 500, TopP: .95}
	draw := func(seed uint64) (out []int32) {
		rng := newRand(seed)
		for range 20 {
			out = append(out, s.Next(logits, nil, rng))
		}
		return out
	}
	if a, b, c := draw(1), draw(1), draw(2); !slices.Equal(a, b) || slices.Equal(a, c) {
		t.Errorf("%v, %v, %v", a, b, c)
	}
}

// sortedNext is Next by sorting the whole vocabulary.
func sortedNext(s *Sampler, logits []float32, rng *rand.Rand) int32 {
	c, p := make([]int32, len(logits)), make([]float64, len(logits))
	for i := range c {
		c[i] = int32(i)
	}
	slices.SortFunc(c, func(a, b int32) int { return cmp.Or(cmp.Compare(logits[b], logits[a]), cmp.Compare(a, b)) })
	if s.TopK > 0 && s.TopK < len(c) {
		c = c[:s.TopK]
	}
	sum := 0.0
	for i, t := range c {
		p[i] = kernel.Exp(float64(logits[t]-logits[c[0]]) / s.Temperature)
		sum += p[i]
	}
	kept, mass := 0, 0.0
	for kept < len(c) {
		q := p[kept] / sum
		if kept > 0 && (q < s.MinP || (s.TopP > 0 && s.TopP < 1 && mass >= s.TopP)) {
			break
		}
		mass += q
		kept++
	}
	u := rng.Float64() * mass * sum
	for i := range kept {
		if u -= p[i]; u < 0 {
			return c[i]
		}
	}
	return c[kept-1]
}

// A seed draws what it draws from the sorted vocabulary.
func TestSamplerSorted(t *testing.T) {
	r := newRand(3)
	logits := make([]float32, 3001)
	for _, scale := range []float64{0.01, 1, 5} {
		for i := range logits {
			logits[i] = float32(r.NormFloat64() * scale)
			if i%7 == 0 { // ties
				logits[i] = float32(math.Round(r.NormFloat64())) * float32(scale)
			}
			if i%31 == 0 {
				logits[i] = float32(math.Inf(-1))
			}
		}
		for _, s := range []Sampler{
			{Temperature: 1}, {Temperature: .7, TopK: 40}, {Temperature: 1, TopP: .9}, {Temperature: 1.3, MinP: .001},
			{Temperature: 1, TopK: 100, TopP: .8, MinP: .002}, {Temperature: 2, TopK: 2999, TopP: .99}, {Temperature: .05},
		} {
			a, b := newRand(9), newRand(9)
			for range 12 {
				if got, want := s.Next(logits, nil, a), sortedNext(&s, logits, b); got != want {
					t.Fatalf("%+v, logits of %v: token %d, want %d", s, scale, got, want)
				}
			}
		}
	}
}

// A draw allocates nothing once the memory is there.
func TestSamplerAllocates(t *testing.T) {
	logits, seen, rng := make([]float32, 5000), Seen{3: 0, 9999: 2}, newRand(1)
	for i := range logits {
		logits[i] = float32(rng.NormFloat64())
	}
	before := slices.Clone(logits)
	for _, s := range []*Sampler{nil, {}, {Temperature: 1, TopK: 40, TopP: .9, Penalty: 1.1}, {Temperature: 1}} {
		// The collector may empty the pool; the race detector makes it lose things.
		if n := testing.AllocsPerRun(100, func() { s.Next(logits, seen, rng) }); n > 2 {
			t.Errorf("%+v: %v allocations", s, n)
		}
	}
	if !slices.Equal(logits, before) {
		t.Error("logits were changed")
	}
}

func BenchmarkSampler(b *testing.B) {
	logits, rng := make([]float32, 151936), newRand(1)
	for i := range logits {
		logits[i] = float32(rng.NormFloat64() * 3)
	}
	for name, s := range map[string]*Sampler{
		"greedy": nil, "top-k": {Temperature: .7, TopK: 40, TopP: .9}, "top-p": {Temperature: .7, TopP: .9}, "all": {Temperature: .7},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				s.Next(logits, nil, rng)
			}
		})
	}
}

// Logits that are no numbers give some token and no panic.
func TestSamplerNaN(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for _, logits := range [][]float32{{nan, nan}, {1, nan, 2}, {inf, 1}, {inf, inf}, {-inf, -inf}} {
		for _, s := range []*Sampler{nil, {Temperature: 1}, {Temperature: 1, TopK: 1}, {Temperature: 1, TopP: .5, MinP: .1}} {
			if id := s.Next(logits, nil, newRand(1)); id < 0 || int(id) >= len(logits) {
				t.Errorf("%v, %v: token %d", s, logits, id)
			}
		}
	}
}

func TestConfigSampler(t *testing.T) {
	if s := (&Config{SamplerType: "greedy", Temperature: 1}).Sampler(); s != nil {
		t.Errorf("greedy: %+v", s)
	}
	s := (&Config{SamplerType: "mixed", Temperature: .7, TopK: 20, TopP: .8, MinP: .05}).Sampler()
	if *s != (Sampler{Temperature: .7, TopK: 20, TopP: .8, MinP: .05}) {
		t.Errorf("mixed: %+v", s)
	}
}

// The engine applies the samplers that mixed_samplers names and no other.
func TestConfigMixedSamplers(t *testing.T) {
	c := &Config{SamplerType: "mixed", MixedSamplers: []string{"topK", "temperature"}, Temperature: .7, TopK: 20, TopP: .9, MinP: .1}
	if s := c.Sampler(); *s != (Sampler{Temperature: .7, TopK: 20}) {
		t.Errorf("%+v", s)
	}
}

// TestSamplerPenalties: each penalty makes the likeliest token give way to the next one.
func TestSamplerPenalties(t *testing.T) {
	logits := []float32{0, 5, 4.5, -1}
	for _, c := range []struct {
		name string
		s    Sampler
		seen Seen
		want int32
	}{
		{"none", Sampler{}, Seen{1: 3}, 1},
		{"repetition", Sampler{Penalty: 1.5}, Seen{1: 0}, 2},
		{"presence", Sampler{Presence: .6}, Seen{1: 1}, 2},
		{"presence, not enough", Sampler{Presence: .4}, Seen{1: 9}, 1},
		{"presence of the prompt", Sampler{Presence: 2}, Seen{1: 0}, 1},
		{"frequency", Sampler{Frequency: .2}, Seen{1: 3}, 2},
		{"frequency, not enough", Sampler{Frequency: .2}, Seen{1: 2}, 1},
		{"a reward", Sampler{Presence: -1}, Seen{2: 1}, 2},
	} {
		if got := c.s.Next(logits, c.seen, newRand(1)); got != c.want {
			t.Errorf("%s: token %d, want %d", c.name, got, c.want)
		}
	}
}
