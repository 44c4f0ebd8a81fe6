package forward

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/llmexport/llmexport/pipeline/arch"
)

// functionBound is the largest relative error of a function whose result is rounded to float32: far below 2^-24.
const functionBound = 1e-12

func TestFunctions(t *testing.T) {
	// Package math has no such function; this is a sum of one without cancellation.
	restExact := func(x float64) float64 {
		if math.Abs(x) > 1 {
			return math.Expm1(x) - x
		}
		sum, term := 0.0, x
		for n := 2.0; n < 30; n++ {
			term *= x / n
			sum += term
		}
		return sum
	}
	for _, c := range []struct {
		name   string
		f, as  func(float64) float64
		lo, hi float64
	}{
		{"sigmoid", sigmoid, func(x float64) float64 { return 1 / (1 + math.Exp(-x)) }, -80, 80},
		{"tanh", tanh, math.Tanh, -30, 30},
		{"erf", erf, math.Erf, -8, 8},
		{"exp(x)-1-x", expRest, restExact, -90, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			check := func(x float64) {
				got, want := c.f(x), c.as(x)
				if !(math.Abs(got-want) <= functionBound*math.Abs(want)) {
					t.Fatalf("of %v: %v, want %v", x, got, want)
				}
			}
			for i := range 20001 {
				check(c.lo + (c.hi-c.lo)*float64(i)/20000)
			}
			for x := 1.0; x > 1e-40; x /= 1.7 {
				check(min(x, c.hi))
				if c.lo < 0 {
					check(max(-x, c.lo))
				}
			}
			check(0)
		})
	}
	// Half of a small difference is lost in 1 + erf(x), as in the function's definition.
	for i := range 2001 {
		x := -10 + 0.01*float64(i)
		if got, want := gelu(x), 0.5*x*math.Erfc(-x/math.Sqrt2); math.Abs(got-want) > 1e-14 {
			t.Errorf("gelu(%v) = %v, want %v", x, got, want)
		}
		y := []float64{x}
		(&activation{Activation: arch.GELUTanh}).values(y)
		if got, want := y[0], 0.5*x*(1+math.Tanh(math.Sqrt(2/math.Pi)*(x+0.044715*x*x*x))); math.Abs(got-want) > 1e-14 {
			t.Errorf("GELU by tanh of %v is %v, want %v", x, got, want)
		}
	}
}

// Functions of many numbers have the bits of those of one.
func TestFunctionsOfMany(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	inf := float32(math.Inf(1))
	x := []float32{0, float32(math.Copysign(0, -1)), 1e-4, -1e-4, 1.0001e-4, 1e-30, 400, -400, 800, -800, inf, -inf, float32(math.NaN())}
	for i := range 3000 {
		v := float32(r.NormFloat64() * math.Exp2(float64(i%40-20)))
		x = append(x, v)
	}
	y := make([]float32, len(x))
	for _, c := range []struct {
		name string
		many func(block []float64)
		one  func(x float64) float64
	}{
		{"sigmoid", sigmoids, sigmoid},
		{"tanh", tanhs, tanh},
		{"cap", func(block []float64) { capped(block, 30) }, func(x float64) float64 { return 30 * tanh(x/30) }},
		{"QuickGELU", (&activation{Activation: arch.QuickGELU}).values, func(x float64) float64 { return x * sigmoid(float64(quickFactor*x)) }},
		{"slope of QuickGELU", (&activation{Activation: arch.QuickGELU}).slopesOf, func(x float64) float64 {
			sigma := sigmoid(float64(quickFactor * x))
			return sigma + float64(float64(quickFactor*x)*float64(sigma*(1-sigma)))
		}},
		{"clamped SwiGLU", (&activation{Activation: arch.ClampedSwiGLU, alpha: 1.7, limit: 7}).values, func(x float64) float64 {
			x = min(x, 7)
			return x * sigmoid(float64(1.7*x))
		}},
		{"slope of clamped SwiGLU", (&activation{Activation: arch.ClampedSwiGLU, alpha: 1.7, limit: 7}).slopesOf, func(x float64) float64 {
			if x > 7 {
				return 0
			}
			sigma := sigmoid(float64(1.7 * x))
			return sigma + float64(float64(1.7*x)*float64(sigma*(1-sigma)))
		}},
	} {
		inBlocks(y, x, c.many)
		for i, v := range x {
			if want := float32(c.one(float64(v))); y[i] != want && (y[i] == y[i] || want == want) {
				t.Fatalf("%s of %x is %x, want %x", c.name, v, y[i], want)
			}
		}
	}
}
