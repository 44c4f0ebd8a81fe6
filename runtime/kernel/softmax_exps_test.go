package kernel

import (
	"math"
	"math/rand/v2"
	"testing"
)

// expEdges are arguments around every limit of the exponentials.
func expEdges() (edges []float32) {
	for _, v := range []float64{
		700, 708.4, 709.78, 710, 744.44, 745.13, 746, 88.72, 103.97, math.Ln2 / 2, math.Ln2, 1.5 * math.Ln2, 0, math.MaxFloat32,
	} {
		for d := -4; d <= 4; d++ {
			x := math.Float32frombits(math.Float32bits(float32(v)) + uint32(d))
			edges = append(edges, x, -x)
		}
	}
	return append(edges, extremes...)
}

// Exps has the bits of Exp for numbers of every class, whatever is subtracted: subnormal results, infinities, and NaN.
func TestExpsParity(t *testing.T) {
	forEachImpl(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(51, 52))
		compare := func(x []float32, shift float64) {
			t.Helper()
			dst := make([]float64, len(x)+1)
			dst[len(x)] = float64(canary)
			Exps(dst[:len(x):len(x)], x, shift)
			for i, v := range x {
				if want := Exp(float64(v) - shift); !sameBits64(dst[i], want) {
					t.Fatalf("%d elements: exp(%x - %x) is %x, want %x", len(x), v, shift, dst[i], want)
				}
			}
			for i, v := range x {
				dst[i] = float64(v) - shift
			}
			ExpsInPlace(dst[:len(x):len(x)])
			for i, v := range x {
				if want := Exp(float64(v) - shift); !sameBits64(dst[i], want) {
					t.Fatalf("%d elements in place: exp(%x - %x) is %x, want %x", len(x), v, shift, dst[i], want)
				}
			}
			if dst[len(x)] != float64(canary) {
				t.Fatalf("%d elements: wrote past them", len(x))
			}
		}
		for _, n := range parityLengths() {
			compare(spiced(r, n, 6), 0.3)
		}
		for _, shift := range []float64{0, 1e-300, 0.1, -0.7, 44.25, -745.13321910194, 709.7827128933840, math.Inf(1), math.Inf(-1), math.NaN()} {
			compare(expEdges(), shift)
		}
		x := make([]float32, 1<<12)
		for range 200 {
			for i := range x {
				x[i] = math.Float32frombits(r.Uint32()) // every class
			}
			compare(x, 0)
			for i := range x {
				x[i] = float32((r.Float64() - 0.5) * 1500)
			}
			compare(x, r.NormFloat64())
		}
		compare(nil, 0)
	})
}

// Exponents are those of Softmax and LogSumExp.
func TestExponents(t *testing.T) {
	forEachImpl(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(53, 54))
		compare := func(x []float32) {
			t.Helper()
			dst := canaries(len(x) + 9)
			norm, factor := Exponents(dst[:len(x):len(x)], x)
			ScaleExact(dst[:len(x)], dst[:len(x)], factor)
			want := append(append([]float32{}, x...), canaries(9)...)
			Softmax(want[:len(x)])
			if i := firstDifference(dst, want); i >= 0 && factor == factor {
				t.Fatalf("%d elements: [%d] is %x, want %x", len(x), i, dst[i], want[i])
			}
			if len(x) > 0 && factor != factor && want[0] == want[0] {
				t.Fatalf("%d elements: no softmax", len(x))
			}
			if w := LogSumExp(x); !sameBits64(norm, w) {
				t.Fatalf("%d elements: norm %x, want %x", len(x), norm, w)
			}
		}
		for _, n := range append(parityLengths(), 3*elementPiece+5) {
			x := random(r, n)
			compare(x)
			for i := range x {
				x[i] *= 400
			}
			compare(x)
		}
		for _, at := range []int{0, 9, 40} {
			for _, v := range extremes {
				x := random(r, 41)
				x[at] = v
				compare(x)
			}
		}
		compare(nil)
	})
}

func BenchmarkExps(b *testing.B) {
	x := random(rand.New(rand.NewPCG(1, 1)), 4096)
	dst, exps := make([]float32, len(x)), make([]float64, len(x))
	b.Run("Exps", func(b *testing.B) {
		b.SetBytes(4 * 4096)
		for b.Loop() {
			Exps(exps, x, 0.5)
		}
	})
	b.Run("Exponents", func(b *testing.B) {
		b.SetBytes(4 * 4096)
		for b.Loop() {
			Exponents(dst, x)
		}
	})
}
