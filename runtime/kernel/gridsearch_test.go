package kernel

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// gridCase is a block with weights of its values, and grids of which some cut off most of it.
type gridCase struct{ x, importance, zero, scale, inverse []float32 }

func newGridCase(r *rand.Rand, n, grids int) gridCase {
	c := gridCase{x: random(r, n+1)[1:], importance: random(r, n+1)[1:], zero: random(r, grids+1)[1:]}
	for i, v := range c.importance {
		c.importance[i] = float32(math.Abs(float64(v)))
	}
	for range grids {
		s := float32(math.Exp(6*r.Float64()-4)) * float32(1-2*r.IntN(2))
		c.scale, c.inverse = append(c.scale, s), append(c.inverse, 1/s)
	}
	return c
}

func TestGridSearchParity(t *testing.T) {
	forEachImpl(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(51, 52))
		for _, n := range []int{0, 1, 2, 31, 32, 64, 127, 128, 129, 300, 1000} {
			for _, grids := range []int{0, 1, 7, 15, 16, 17, 31, 32, 33, 48, 72, 97} {
				bits := 1 + r.IntN(8)
				c := newGridCase(r, n, grids)
				want := make([]float64, 4*grids)
				for lo := 0; lo < n; lo += gridSpan {
					hi := min(lo+gridSpan, n)
					gridSumsGeneric(want[:3*grids], c.x[lo:hi], c.importance[lo:hi], c.zero, c.inverse, bits)
					gridErrorsGeneric(want[3*grids:], c.x[lo:hi], c.importance[lo:hi], c.zero, c.scale, c.inverse, bits)
				}
				got := make([]float64, 4*grids+1)
				got[4*grids] = float64(canary)
				GridSums(got[:3*grids:3*grids], c.x, c.importance, c.zero, c.inverse, bits)
				GridErrors(got[3*grids:4*grids:4*grids], c.x, c.importance, c.zero, c.scale, c.inverse, bits)
				for i, v := range want {
					if math.Float64bits(got[i]) != math.Float64bits(v) {
						t.Fatalf("%d values, %d grids, %d bits: sum %d is %v, want %v", n, grids, bits, i, got[i], v)
					}
				}
				if got[4*grids] != float64(canary) {
					t.Fatal("written past the end")
				}
			}
		}
	})
}

// The sums are those of the codes that GridCodes stores.
func TestGridSearchIsGridCodes(t *testing.T) {
	r := rand.New(rand.NewPCG(53, 54))
	const n, grids = 200, 40
	for bits := 1; bits <= 8; bits++ {
		c := newGridCase(r, n, grids)
		sums, errors := make([]float64, 3*grids), make([]float64, grids)
		GridSums(sums, c.x, c.importance, c.zero, c.inverse, bits)
		GridErrors(errors, c.x, c.importance, c.zero, c.scale, c.inverse, bits)
		codes := make([]uint8, n)
		for g := range grids {
			GridCodes(codes, c.x, c.zero[g:g+1], c.inverse[g:g+1], bits)
			var want, size [4]float64
			for i, u := range codes {
				q, x, p := float64(u)-float64(int(1)<<(bits-1)), float64(c.x[i]), float64(c.importance[i])
				d := x - float64(c.zero[g]) - q*float64(c.scale[g])
				for k, v := range [4]float64{p * q, p * q * q, p * q * x, p * d * d} {
					want[k] += v
					size[k] += math.Abs(v)
				}
			}
			for k, got := range [4]float64{sums[g], sums[grids+g], sums[2*grids+g], errors[g]} {
				if math.Abs(got-want[k]) > 1e-5*size[k] {
					t.Errorf("%d bits, grid %d: sum %d is %v, want %v", bits, g, k, got, want[k])
				}
			}
		}
	}
}

func TestGridSearchPanics(t *testing.T) {
	f, d := func(n int) []float32 { return make([]float32, n) }, func(n int) []float64 { return make([]float64, n) }
	for name, call := range map[string]func(){
		"sums of unequal values":   func() { GridSums(d(3), f(4), f(3), f(1), f(1), 4) },
		"sums of unequal grids":    func() { GridSums(d(6), f(4), f(4), f(2), f(1), 4) },
		"too few sums":             func() { GridSums(d(2), f(4), f(4), f(1), f(1), 4) },
		"sums of 9 bits":           func() { GridSums(d(3), f(4), f(4), f(1), f(1), 9) },
		"errors of unequal values": func() { GridErrors(d(1), f(4), f(3), f(1), f(1), f(1), 4) },
		"errors of unequal grids":  func() { GridErrors(d(2), f(4), f(4), f(2), f(1), f(2), 4) },
		"too many errors":          func() { GridErrors(d(2), f(4), f(4), f(1), f(1), f(1), 4) },
		"errors of 0 bits":         func() { GridErrors(d(1), f(4), f(4), f(1), f(1), f(1), 0) },
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

// BenchmarkGridSearch tries 96 grids on one block. Gtry/s counts values, once for each grid; a try takes 12 operations of
// float32 for the sums and 10 for the errors.
func BenchmarkGridSearch(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 1))
	const grids = 96
	sums := make([]float64, 3*grids)
	for _, n := range []int{32, 64, 128, 4096} {
		c := newGridCase(r, n, grids)
		run := func(name string, f func()) {
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				for b.Loop() {
					f()
				}
				b.ReportMetric(float64(n*grids)*float64(b.N)/float64(b.Elapsed().Nanoseconds()), "Gtry/s")
			})
		}
		run("sums", func() { GridSums(sums, c.x, c.importance, c.zero, c.inverse, 4) })
		run("errors", func() { GridErrors(sums[:grids], c.x, c.importance, c.zero, c.scale, c.inverse, 4) })
	}
}
