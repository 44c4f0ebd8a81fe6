package kernel

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// codesOf are random codes of 8 bits.
func codesOf(r *rand.Rand, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(r.IntN(256) - 128)
	}
	return x
}

func TestCodeSumsParity(t *testing.T) {
	forEachImpl(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(61, 62))
		for n := range codeSumsMost + 1 {
			for _, oneOf := range []int{1 << 30, 40, 3} {
				for range 20 {
					code, x := codesOf(r, n), spiced(r, n, oneOf)
					size := float32(math.Exp(8 * r.NormFloat64()))
					for i := range x {
						x[i] *= size
						if r.IntN(8) == 0 { // of another size, so that some sums are exact and others are not
							x[i] = float32(math.Ldexp(float64(x[i]), -r.IntN(20)))
						}
					}
					wantProducts, wantSum := codeSumsGeneric(code, x)
					products, sum := CodeSums(code, x)
					for i, v := range [][2]float64{{products, wantProducts}, {sum, wantSum}} {
						if math.Float64bits(v[0]) != math.Float64bits(v[1]) && (v[0] == v[0] || v[1] == v[1]) {
							t.Fatalf("%d codes: sum %d is %x, want %x", n, i, v[0], v[1])
						}
					}
				}
			}
		}
		// The largest sums of the widest range that is exact, with a step of the least element left over.
		for _, span := range []int{15, 16} {
			code, x := make([]float32, 128), make([]float32, 128)
			for i := range x {
				code[i], x[i] = -128, math.Nextafter32(1, 0)
			}
			x[77] = float32(math.Ldexp(1+0x1p-23, -span-1))
			products, sum := CodeSums(code, x)
			if p, s := codeSumsGeneric(code, x); p != products || s != sum {
				t.Errorf("a span of %d: %x, %x, want %x, %x", span, products, sum, p, s)
			}
		}
	})
}

func TestBeyondParity(t *testing.T) {
	forEachImpl(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(63, 64))
		for _, n := range parityLengths() {
			for _, oneOf := range []int{1 << 30, 4, max(n/2, 2)} {
				x, limits := spiced(r, n, oneOf), spiced(r, n, max(oneOf, 12))
				for i, v := range limits {
					limits[i] = float32(math.Abs(float64(v)))
				}
				for _, factor := range []float32{0, 1, 100, 1e4, float32(math.Inf(1)), float32(math.NaN())} {
					if got, want := Beyond(x, limits, factor), beyondGeneric(x, limits, factor); got != want {
						t.Fatalf("%d elements times %g: %d, want %d", n, factor, got, want)
					}
				}
			}
			for range min(n, 70) { // each position can hold the only one
				x, limits := make([]float32, n), make([]float32, n)
				for i := range limits {
					limits[i] = 1
				}
				at := r.IntN(n)
				if x[at] = -1; r.IntN(2) == 0 {
					x[at] = float32(math.NaN())
				}
				if got := Beyond(x, limits, 1); got != at {
					t.Fatalf("%d elements: %d, want %d", n, got, at)
				}
			}
		}
	})
}

func TestCodeErrorsParity(t *testing.T) {
	forEachImpl(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(65, 66))
		for n := range 140 {
			for _, oneOf := range []int{1 << 30, 10} {
				c, value, bits := newGridCase(r, 1, n), spiced(r, n, oneOf), 1+r.IntN(8)
				divisor := float32(math.Exp(r.NormFloat64()))
				want, got, wantSquares, gotSquares := canaries(n+9), canaries(n+9), make([]float64, n+1), make([]float64, n+1)
				for i := range gotSquares {
					wantSquares[i] = r.Float64()
					gotSquares[i] = wantSquares[i]
				}
				codeErrorsGeneric(want[:n], wantSquares[:n], value, c.zero, c.scale, c.inverse, divisor, bits)
				CodeErrors(got[:n:n], gotSquares[:n:n], value, c.zero, c.scale, c.inverse, divisor, bits)
				if i := firstDifference(got, want); i >= 0 {
					t.Fatalf("%d values: error %d is %x, want %x", n, i, got[i], want[i])
				}
				for i, v := range wantSquares {
					if v == v && math.Float64bits(gotSquares[i]) != math.Float64bits(v) || v != v && gotSquares[i] == gotSquares[i] {
						t.Fatalf("%d values: sum %d is %x, want %x", n, i, gotSquares[i], v)
					}
				}
			}
		}
	})
}

func TestAddScaledRowsParity(t *testing.T) {
	forEachImpl(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(67, 68))
		for _, n := range append(parityLengths()[:140], 160, 192, 256, 1000, 4096) {
			for _, rows := range []int{0, 1, 2, 3, 31, 32} {
				for _, oneOf := range []int{1 << 30, 20} {
					x, factors, dst := spiced(r, n*rows, oneOf), spiced(r, rows, oneOf), spiced(r, n, oneOf)
					want, got := append(append([]float32{}, dst...), canary), append(append([]float32{}, dst...), canary)
					for i, f := range factors {
						addScaledGeneric(want[:n], x[i*n:][:n], f)
					}
					AddScaledRows(got[:n:n], x, factors)
					if i := firstDifference(got, want); i >= 0 {
						t.Fatalf("%d rows of %d: element %d is %x, want %x", rows, n, i, got[i], want[i])
					}
				}
			}
		}
	})
}

func TestCodesPanics(t *testing.T) {
	f, d := func(n int) []float32 { return make([]float32, n) }, func(n int) []float64 { return make([]float64, n) }
	for name, call := range map[string]func(){
		"unequal codes":    func() { CodeSums(f(3), f(4)) },
		"too many codes":   func() { CodeSums(f(129), f(129)) },
		"unequal limits":   func() { Beyond(f(3), f(4), 1) },
		"too few rows":     func() { AddScaledRows(f(3), f(5), f(2)) },
		"unequal squares":  func() { CodeErrors(f(2), d(3), f(2), f(2), f(2), f(2), 1, 4) },
		"unequal values":   func() { CodeErrors(f(2), d(2), f(1), f(2), f(2), f(2), 1, 4) },
		"unequal zeros":    func() { CodeErrors(f(2), d(2), f(2), f(1), f(2), f(2), 1, 4) },
		"unequal scales":   func() { CodeErrors(f(2), d(2), f(2), f(2), f(1), f(2), 1, 4) },
		"unequal inverses": func() { CodeErrors(f(2), d(2), f(2), f(2), f(2), f(1), 1, 4) },
		"errors of 9 bits": func() { CodeErrors(f(2), d(2), f(2), f(2), f(2), f(2), 1, 9) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			call()
		})
	}
}

func BenchmarkCodes(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 1))
	for _, n := range []int{32, 64, 128} {
		code, x, limits, dst := codesOf(r, n), random(r, n), make([]float32, n), make([]float32, n)
		for i := range limits {
			limits[i] = 100
		}
		c, squares, rows, factors := newGridCase(r, 1, n), make([]float64, n), random(r, 32*n), random(r, 32)
		benchmarkTiers(b, fmt.Sprintf("CodeSums/%d", n), n, 8, func() { CodeSums(code, x) })
		benchmarkTiers(b, fmt.Sprintf("Beyond/%d", n), n, 8, func() { Beyond(x, limits, 1) })
		benchmarkTiers(b, fmt.Sprintf("CodeErrors/%d", n), n, 24, func() { CodeErrors(dst, squares, x, c.zero, c.scale, c.inverse, 2, 4) })
		benchmarkTiers(b, fmt.Sprintf("AddScaledRows/32x%d", n), 32*n, 4, func() { AddScaledRows(dst, rows, factors) })
		var p Packed
		p.Pack(random(r, n*n), n, n, n)
		benchmarkTiers(b, fmt.Sprintf("MulT/1x%dx%d", n, n), n*n, 4, func() { p.MulT(dst, x, 1, n, n, 0, n) })
	}
}
