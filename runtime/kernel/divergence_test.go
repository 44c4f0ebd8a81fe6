package kernel

import (
	"math"
	"math/rand/v2"
	"testing"
)

func sameBits64(a, b float64) bool {
	return math.Float64bits(a) == math.Float64bits(b) || a != a && b != b
}

func checkDivergenceParity(t *testing.T, p, q []float32, normP, normQ float64) {
	t.Helper()
	var got, want [8]float64
	divergence(&got, p, q, normP, normQ-normP)
	divergenceGeneric(&want, p, q, normP, normQ-normP)
	for l := range got {
		if !sameBits64(got[l], want[l]) {
			t.Fatalf("%d elements: lane %d is %x, want %x", len(p), l, got[l], want[l])
		}
	}
}

func TestDivergenceParity(t *testing.T) {
	forEachImpl(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(41, 42))
		for _, n := range parityLengths() {
			for _, size := range []float32{1, 8, 60} {
				for _, oneOf := range []int{1 << 30, 20} {
					p, q := spiced(r, n, oneOf), spiced(r, n, oneOf)
					for i := range p {
						p[i] *= size
					}
					checkDivergenceParity(t, p, q, LogSumExp(p), LogSumExp(q))
				}
			}
		}
		p, q := spiced(r, 100, 5), spiced(r, 100, 5)
		for _, norm := range []float64{math.Inf(1), math.NaN()} {
			checkDivergenceParity(t, p[:8], q[:8], norm, 1)
			checkDivergenceParity(t, p[:37], q[:37], norm, norm)
		}
	})
}

// exactKL adds ascending and compensated, from probabilities of package math.
func exactKL(p, q []float32, normP, normQ float64) float64 {
	var sum, rest float64
	for i, v := range p {
		lp := float64(v) - normP
		e := math.Exp(lp)
		if e == 0 {
			continue
		}
		term := e * (lp - (float64(q[i]) - normQ))
		t := sum + term
		if math.Abs(sum) > math.Abs(term) {
			rest += (sum - t) + term
		} else {
			rest += (term - t) + sum
		}
		sum = t
	}
	return sum + rest
}

func TestKL(t *testing.T) {
	forEachImpl(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(43, 44))
		for _, n := range []int{1, 2, 7, 8, 9, 100, 1000, 50257} {
			for _, size := range []float32{0.1, 3, 20} {
				p, q := random(r, n), random(r, n)
				for i := range p {
					p[i] *= size
					q[i] = p[i] + q[i]*0.1
				}
				np, nq := LogSumExp(p), LogSumExp(q)
				got, want := KL(p, q, np, nq), max(exactKL(p, q, np, nq), 0)
				// A term is off by a few roundings of logits and norms, weighed by its probability.
				if bound := 0x1p-50 * max(1, math.Abs(np), math.Abs(nq)); !(math.Abs(got-want) <= bound) {
					t.Errorf("%d logits up to %v: %v, want %v", n, size, got, want)
				}
				if got := KL(p, p, np, np); got != 0 {
					t.Errorf("KL of a row with itself is %v", got)
				}
			}
		}
		inf, nan := float32(math.Inf(1)), float32(math.NaN())
		kl := func(p, q []float32) float64 { return KL(p, q, LogSumExp(p), LogSumExp(q)) }
		if got := kl([]float32{0, -inf, 1}, []float32{0, -inf, 1}); got != 0 {
			t.Errorf("with an impossible token: %v", got)
		}
		if got := kl([]float32{0, 0}, []float32{0, -inf}); got != math.Inf(1) {
			t.Errorf("of a row that excludes a token: %v", got)
		}
		for _, bad := range []float32{nan, inf} {
			long := make([]float32, 21)
			long[11] = bad
			for _, got := range []float64{kl(long, make([]float32, 21)), kl(make([]float32, 21), long), kl(long, long)} {
				if got == got && !math.IsInf(got, 1) {
					t.Errorf("of a row with %v: %v", bad, got)
				}
			}
		}
		if got := KL(nil, nil, math.Inf(-1), math.Inf(-1)); got == got && got != 0 {
			t.Errorf("of nothing: %v", got)
		}
	})
}

func TestSumExpParity(t *testing.T) {
	forEachImpl(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(45, 46))
		for _, n := range parityLengths() {
			for _, scale := range []float64{1, 0.3, 200} {
				for _, oneOf := range []int{1 << 30, 6} {
					x := spiced(r, n, oneOf)
					top, _ := peaks(x)
					if math.IsInf(float64(top), 0) {
						top = 3
						for i, v := range x {
							x[i] = min(v, top)
						}
					}
					var got, want [8]float64
					sumExp(&got, x, float64(top), scale)
					sumExpGeneric(&want, x, float64(top), scale)
					for l := range got {
						if !sameBits64(got[l], want[l]) {
							t.Fatalf("%d elements, scale %v: lane %d is %x, want %x", n, scale, l, got[l], want[l])
						}
					}
					y, z := append([]float32{}, x...), append([]float32{}, x...)
					y, z = append(y, canaries(9)...), append(z, canaries(9)...)
					got, want = [8]float64{}, [8]float64{}
					softmaxExp(&got, y[:n:n], float64(top))
					softmaxExpGeneric(&want, z[:n], float64(top))
					if i := firstDifference(y, z); i >= 0 {
						t.Fatalf("softmax of %d elements: [%d] is %x, want %x", n, i, y[i], z[i])
					}
					for l := range got {
						if !sameBits64(got[l], want[l]) {
							t.Fatalf("softmax of %d elements: lane %d is %x, want %x", n, l, got[l], want[l])
						}
					}
				}
			}
		}
		checkParity(t, "SiLU", r, 1, func(d []float32, in [][]float32) { SiLU(d, in[0]) },
			func(d []float32, in [][]float32) { exactSiLUGeneric(d, in[0]) })
		checkParity(t, "scale", r, 1, func(d []float32, in [][]float32) { exactScale(d, in[0], 0.7) },
			func(d []float32, in [][]float32) { exactScaleGeneric(d, in[0], 0.7) })
		// Around every limit of the SIMD code.
		var edges []float32
		for _, v := range []float64{700, -700, 709.78, 745.13, 60, 103.97, 88.72, 87.33, math.Ln2, math.Ln2 / 2} {
			for d := -3; d <= 3; d++ {
				b := math.Float32bits(float32(v)) + uint32(d)
				edges = append(edges, math.Float32frombits(b), -math.Float32frombits(b))
			}
		}
		got, want := make([]float32, len(edges)), make([]float32, len(edges))
		SiLU(got, edges)
		exactSiLUGeneric(want, edges)
		if i := firstDifference(got, want); i >= 0 {
			t.Fatalf("SiLU(%x) is %x, want %x", edges[i], got[i], want[i])
		}
	})
}

// TestSoftmaxTiers runs the tests against package math in every tier.
func TestSoftmaxTiers(t *testing.T) {
	forEachImpl(t, func(t *testing.T) {
		TestSoftmax(t)
		TestLogSumExpSpecials(t)
		TestSiLU(t)
		r := rand.New(rand.NewPCG(47, 48))
		for n := range 70 {
			checkSoftmax(t, random(r, n))
		}
	})
}
