package kernel

import (
	"math"
	"math/rand/v2"
	"testing"
)

// sincosBound: the reduced argument has an error of 2^-53 or so, each series a few roundings of numbers below 1.
// math.Sincos is as good up to its own limit of 2^29 and is what we compare with, so both errors add.
const sincosBound = 1e-15

func TestSincos(t *testing.T) {
	worst := 0.
	check := func(x float64) {
		s, c := Sincos(x)
		ws, wc := math.Sincos(x)
		worst = max(worst, math.Abs(s-ws), math.Abs(c-wc))
		if !(math.Abs(s-ws) <= sincosBound && math.Abs(c-wc) <= sincosBound) {
			t.Fatalf("Sincos(%v) = %v, %v, want %v, %v", x, s, c, ws, wc)
		}
	}
	r := rand.New(rand.NewPCG(1, 2))
	for _, limit := range []float64{1, 10, 1e4, 1e6, 1e7, SincosLimit} {
		for range 50_000 {
			check((2*r.Float64() - 1) * limit)
		}
	}
	for n := range 20_000 { // where the reduction cancels most
		x := float64(n) * (math.Pi / 2)
		check(x)
		check(-math.Nextafter(x, 1e9))
		check(float64(n))
	}
	for _, x := range []float64{0, math.SmallestNonzeroFloat64, SincosLimit, -SincosLimit, math.Pi / 4, 1e-8} {
		check(x)
	}
	t.Logf("largest difference from math.Sincos: %.2g", worst)
}

// The digest holds every bit still, on every architecture.
func TestSincosIsTheSameEverywhere(t *testing.T) {
	sum := uint64(14695981039346656037)
	for i := range 200_000 {
		s, c := Sincos(float64(i) * 0.37)
		for _, v := range []float64{s, c} {
			sum = (sum ^ math.Float64bits(v)) * 1099511628211
		}
	}
	const want = 0x954543d1d85cb714
	if sum != want {
		t.Errorf("digest %#x, want %#x", sum, uint64(want))
	}
}

func TestSincosPanics(t *testing.T) {
	for _, x := range []float64{math.NaN(), math.Inf(1), math.Nextafter(SincosLimit, math.Inf(1)), -1e300} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("no panic for %g", x)
				}
			}()
			Sincos(x)
		}()
	}
}

func BenchmarkSincos(b *testing.B) {
	x := 0.
	for b.Loop() {
		s, _ := Sincos(x)
		x += 1 + s
		if x > 1e6 {
			x = 0
		}
	}
}
