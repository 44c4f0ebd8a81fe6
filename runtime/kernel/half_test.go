package kernel

import (
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"
)

// halves are n random numbers that half precision holds, of about that size.
func halves(r *rand.Rand, n int, size float64) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = RoundF16(float32(r.NormFloat64() * size))
	}
	return x
}

// roundExactly rounds a sum to half precision by way of integers: the nearest multiple of the last place, ties to even.
func roundExactly(v *big.Float) float64 {
	f, _ := v.Float64()
	place := math.Ldexp(1, max(math.Ilogb(f), -14)-10)
	q := new(big.Float).SetPrec(200).Quo(v, big.NewFloat(place))
	n, _ := q.Int(nil)
	rest, _ := new(big.Float).SetPrec(200).Sub(q, new(big.Float).SetInt(n)).Float64()
	up := int64(0)
	if a := math.Abs(rest); a > .5 || a == .5 && n.Bit(0) == 1 {
		up = int64(math.Copysign(1, rest))
	}
	k, _ := new(big.Float).SetInt(n).Float64()
	return (k + float64(up)) * place
}

// A sum and a product are rounded once.
func TestHalf64(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	for i := range 20000 {
		size := math.Ldexp(1, i%30-20)
		x := halves(r, 3, size)
		if v := float64(x[0]) + float64(x[1])*float64(x[2]); v != 0 && math.Abs(v) < 60000 {
			exact := new(big.Float).SetPrec(200).Mul(big.NewFloat(float64(x[1])), big.NewFloat(float64(x[2])))
			if want := roundExactly(exact.Add(exact, big.NewFloat(float64(x[0])))); half64(v) != want {
				t.Fatalf("%g + %g*%g = %g, want %g", x[0], x[1], x[2], half64(v), want)
			}
		}
	}
	for v, want := range map[float64]float64{65519: 65504, 65520: math.Inf(1), -1e9: math.Inf(-1), 0x1p-25: 0, 0x1.8p-25: 0x1p-24, math.Inf(1): math.Inf(1)} {
		if got := half64(v); got != want {
			t.Errorf("%g becomes %g, want %g", v, got, want)
		}
	}
	if v := half64(math.NaN()); v == v {
		t.Errorf("NaN becomes %g", v)
	}
}

// All implementations give the sums that one after the other gives, beyond the range, too.
func TestHalfLinear(t *testing.T) {
	forEachImpl(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(3, 4))
		for _, c := range []struct {
			tokens, rows, cols int
			size               float64
		}{{1, 1, 1, 1}, {3, 35, 70, 1}, {2, 33, 40, 200}, {1, 32, 1930, .1}, {12, 5, 1180, .1}} {
			x, w, bias := halves(r, c.tokens*c.cols, c.size), halves(r, c.rows*c.cols, c.size), halves(r, c.rows, c.size)
			got := make([]float32, c.tokens*c.rows)
			(&HalfLinear{Tokens: c.tokens, Cols: c.cols, X: x}).Panel(got, w, bias, c.rows, c.rows)
			limit := 32768 / (min(c.tokens, 12) + 16) / 8 * 8
			for i := range got {
				var want float32
				for from := 0; from < c.cols; from += limit {
					var s float64
					for k := from; k < min(from+limit, c.cols); k++ {
						s = half64(s + float64(x[i/c.rows*c.cols+k])*float64(w[i%c.rows*c.cols+k]))
					}
					if want = RoundF16(want + float32(s)); from == 0 {
						want = float32(s)
					}
				}
				if want = RoundF16(want + bias[i%c.rows]); got[i] != want && (got[i] == got[i] || want == want) {
					t.Fatalf("%+v: sum %d is %g, want %g", c, i, got[i], want)
				}
			}
		}
	})
}

// Strassen's rule gives the product up to rounding, on matrices that it does not divide evenly, too.
func TestHalfStrassen(t *testing.T) {
	t.Parallel()
	const tokens, cols, rows = 247, 192, 200
	r := rand.New(rand.NewPCG(5, 6))
	x, w, bias := halves(r, tokens*cols, 1), halves(r, rows*cols, 1), halves(r, rows, 1)
	p := HalfLinear{Tokens: tokens, Cols: cols, X: x}
	if (&HalfLinear{Tokens: 23, Cols: cols}).Strassen(rows) || !(&HalfLinear{Tokens: 4096, Cols: 1024}).Strassen(1024) {
		t.Error("which products are divided")
	}
	got, want := make([]float32, tokens*rows), make([]float32, tokens*rows)
	c := halfMatrix{got, rows}
	halfStrassenOnce(c, halfMatrix{x, cols}, halfMatrix{w, cols}, bias, tokens, cols, rows, halfDepth)
	p.Panel(want, w, bias, rows, rows)
	var d, n float64
	for i, v := range want {
		d, n = d+math.Pow(float64(got[i]-v), 2), n+float64(v)*float64(v)
	}
	if d/n > 1e-4 || slices.Equal(got, want) {
		t.Errorf("relative squared difference %.2g", d/n)
	}
}

// The estimate of a reciprocal has the values that the architecture defines.
func TestEstimatedReciprocal(t *testing.T) {
	t.Parallel()
	for x, want := range map[float32]float32{1: 0.998046875, 2: 0.4990234375, 1.5: 0.666015625, 3: 0.3330078125, 1e20: 1e-20} {
		if got := estimatedReciprocal(x); math.Abs(float64(got/want-1)) > 1./512 {
			t.Errorf("1/%g is about %g, want %g", x, got, want)
		}
	}
	if got := estimatedReciprocal(1); got != 0.998046875 {
		t.Errorf("1/1 is about %v", got)
	}
}
