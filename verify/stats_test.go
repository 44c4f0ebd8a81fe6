package verify

import (
	"math"
	"math/rand/v2"
	"testing"
)

// naive computes a divergence and a negative log-likelihood in float64 with the textbook's formulas.
func naive(p, q []float32, token int) (kl, nll float64) {
	soft := func(x []float32) []float64 {
		top := math.Inf(-1)
		for _, v := range x {
			top = max(top, float64(v))
		}
		out, sum := make([]float64, len(x)), 0.0
		for i, v := range x {
			out[i] = math.Exp(float64(v) - top)
			sum += out[i]
		}
		for i := range out {
			out[i] /= sum
		}
		return out
	}
	a, b := soft(p), soft(q)
	for i := range a {
		if a[i] > 0 {
			kl += a[i] * (math.Log(a[i]) - math.Log(b[i]))
		}
	}
	return kl, -math.Log(a[token])
}

// statTolerance is relative to what is compared: float64 sums of some thousand terms of both signs.
const statTolerance = 1e-9

func TestRows(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{1, 2, 320, 8192} {
		for _, spread := range []float64{0.01, 1, 10} {
			p, q := make([]float32, n), make([]float32, n)
			for i := range p {
				p[i] = float32(spread * rng.NormFloat64())
				q[i] = p[i] + float32(0.1*spread*rng.NormFloat64())
			}
			kl, nll := naive(p, q, n/2)
			a, b := newRow(p), newRow(q)
			if got := a.kl(b); math.Abs(got-kl) > statTolerance*max(1, kl) {
				t.Errorf("%d logits, spread %g: KL %g, want %g", n, spread, got, kl)
			}
			if got := a.nll(int32(n / 2)); math.Abs(got-nll) > statTolerance*max(1, nll) {
				t.Errorf("%d logits, spread %g: NLL %g, want %g", n, spread, got, nll)
			}
			if got := a.kl(a); got != 0 {
				t.Errorf("%d logits, spread %g: KL to itself %g", n, spread, got)
			}
		}
	}
}

// Logits of any size neither overflow nor lose the answer.
func TestLargeLogits(t *testing.T) {
	for _, c := range []struct {
		name string
		p, q []float32
		kl   float64
	}{
		{"shifted up", []float32{1e4, 1e4 + 1}, []float32{0, 1}, 0},
		{"shifted down", []float32{-1e4, -1e4 + 1}, []float32{1e4, 1e4 + 1}, 0},
		{"certain", []float32{1e4, -1e4}, []float32{1e4, -1e4}, 0},
		{"opposite", []float32{1e4, -1e4}, []float32{-1e4, 1e4}, 2e4},
		{"certain against even", []float32{1e4, -1e4}, []float32{0, 0}, math.Ln2},
		{"even against certain", []float32{0, 0}, []float32{1e4, -1e4}, 1e4 - math.Ln2},
	} {
		p, q := newRow(c.p), newRow(c.q)
		if got := p.kl(q); math.Abs(got-c.kl) > statTolerance*max(1, c.kl) {
			t.Errorf("%s: KL %g, want %g", c.name, got, c.kl)
		}
		if !p.finite() || !q.finite() {
			t.Errorf("%s: not finite", c.name)
		}
	}
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for _, bad := range [][]float32{{0, nan}, {nan, 0}, {0, inf}, {inf, inf}, {-inf, -inf}} {
		if newRow(bad).finite() {
			t.Errorf("%v counts as finite", bad)
		}
	}
}

func TestTop(t *testing.T) {
	for want, logits := range [][]float32{{3, 3, 1}, {0, 2, 2}, {-3, -2, -1}} {
		if got := newRow(logits).top(); got != want {
			t.Errorf("%v: %d, want %d", logits, got, want)
		}
	}
}

func sampleOf(windows ...[]float64) *Sample {
	s := &Sample{}
	for _, w := range windows {
		s.begin()
		for _, v := range w {
			s.add(v)
		}
	}
	return s
}

func TestMean(t *testing.T) {
	for _, c := range []struct {
		name         string
		s            *Sample
		mean, stderr float64
	}{
		{"nothing", sampleOf(), math.NaN(), math.NaN()},
		{"one", sampleOf([]float64{7}), 7, 0},
		// Fewer than four windows: the spread of positions, sqrt(((1)^2+(1)^2+...)/3/4).
		{"one window", sampleOf([]float64{1, 3, 1, 3}), 2, math.Sqrt(4.0 / 3 / 4)},
		{"three windows", sampleOf([]float64{1, 3}, []float64{1}, []float64{3}), 2, math.Sqrt(4.0 / 3 / 4)},
		// From four on the spread of their means, 1.5 2.5 1.5 2.5.
		{"four windows", sampleOf([]float64{1, 2}, []float64{2, 3}, []float64{0, 3}, []float64{2.5, 2.5}), 2, math.Sqrt(4 * .25 / 3 / 4)},
		{"constant", sampleOf([]float64{5, 5}, []float64{5, 5}, []float64{5, 5}, []float64{5, 5}), 5, 0},
	} {
		mean, stderr := c.s.Mean()
		same := func(a, b float64) bool { return math.IsNaN(a) && math.IsNaN(b) || math.Abs(a-b) < statTolerance }
		if !same(mean, c.mean) || !same(stderr, c.stderr) {
			t.Errorf("%s: %g ± %g, want %g ± %g", c.name, mean, stderr, c.mean, c.stderr)
		}
	}
}

// A window in which no position was finite must not make the error of the others NaN.
func TestMeanOfEmptyWindow(t *testing.T) {
	s := sampleOf([]float64{1, 2}, nil, []float64{2, 3}, []float64{0, 3}, []float64{2, 3})
	if mean, stderr := s.Mean(); mean != 2 || math.IsNaN(stderr) {
		t.Errorf("%g ± %g", mean, stderr)
	}
}

// The standard error covers the truth about as often as it should.
func TestStandardError(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	hit := 0
	const trials = 1000
	for range trials {
		s := &Sample{}
		for range 16 {
			s.begin()
			shared := rng.NormFloat64() // what positions of a window have in common
			for range 8 {
				s.add(shared + rng.NormFloat64())
			}
		}
		if mean, stderr := s.Mean(); math.Abs(mean) < 2*stderr {
			hit++
		}
	}
	// Student's t with 15 degrees of freedom has 93.6 % within 2; three standard deviations of the count are 2.3 %.
	if share := float64(hit) / trials; share < .91 || share > .96 {
		t.Errorf("two standard errors cover the mean in %.1f %%", 100*share)
	}
}

func TestQuantile(t *testing.T) {
	s := sampleOf([]float64{5, 1, 4, 2, 3, 10, 9, 8, 7, 6})
	for _, c := range []struct{ q, want float64 }{{0, 1}, {0.1, 1}, {0.11, 2}, {0.5, 5}, {0.51, 6}, {0.99, 10}, {1, 10}} {
		if got := s.Quantile(c.q); got != c.want {
			t.Errorf("quantile %g is %g, want %g", c.q, got, c.want)
		}
	}
	if !math.IsNaN((&Sample{}).Quantile(0.5)) {
		t.Error("nothing has a quantile")
	}
	if s.values[0] != 5 {
		t.Error("Quantile sorted the sample")
	}
}

// The error of a difference is that of the differences of windows, which is far below those of both samples.
func TestDifference(t *testing.T) {
	a := sampleOf([]float64{1, 2}, []float64{3, 4}, []float64{10, 20}, []float64{100, 200})
	b := sampleOf([]float64{0, 1}, []float64{2, 3}, []float64{9, 19}, []float64{99, 199})
	if mean, stderr := Difference(a, b); mean != 1 || stderr != 0 {
		t.Errorf("%g ± %g, want 1 ± 0", mean, stderr)
	}
	for _, other := range []*Sample{sampleOf([]float64{1}), sampleOf([]float64{1, 2, 3, 4, 10, 20, 100, 200})} {
		if mean, _ := Difference(a, other); !math.IsNaN(mean) {
			t.Errorf("samples of other positions differ by %g", mean)
		}
	}
}
