package kernel

import (
	"math"
	"math/rand/v2"
	"testing"
)

// normBound is half a unit in the last place of float32, and a little for the float64 before it.
const normBound = 1.01 * 0x1p-24

func checkNorm(t *testing.T, x, gamma []float32, eps float32) {
	t.Helper()
	var sum float64
	for _, v := range x {
		sum += float64(v) * float64(v)
	}
	scale := 1 / math.Sqrt(sum/float64(max(len(x), 1))+float64(eps))
	dst := make([]float32, len(x)+1)
	dst[len(x)] = canary
	RMSNorm(dst[:len(x)], x, gamma, eps)
	for i := range x {
		want := float64(x[i]) * scale * float64(gamma[i])
		if d := math.Abs(float64(dst[i]) - want); !(d <= normBound*math.Abs(want)+math.SmallestNonzeroFloat32*(1+math.Abs(float64(gamma[i])))) {
			t.Fatalf("length %d: [%d] is %g, want %g", len(x), i, dst[i], want)
		}
	}
	if dst[len(x)] != canary {
		t.Fatal("wrote past dst")
	}
	inPlace := append([]float32{}, x...)
	RMSNorm(inPlace, inPlace, gamma, eps)
	for i := range inPlace {
		if inPlace[i] != dst[i] {
			t.Fatal("differs in place")
		}
	}
}

func TestRMSNorm(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for n := range 35 {
		checkNorm(t, random(r, n), random(r, n), 1e-6)
	}
	checkNorm(t, random(r, 4096), random(r, 4096), 1e-5)
	checkNorm(t, make([]float32, 64), random(r, 64), 1e-6)
	huge := make([]float32, 16)
	for i := range huge {
		huge[i] = 3e38 // the square would overflow in float32
	}
	checkNorm(t, huge, random(r, 16), 1e-6)
}

// Gradients of a row are those of the formula in its plain form, computed in one sum.
func TestRMSNormBack(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	for n := 1; n < 35; n++ {
		x, dy, gamma, sum, eps := random(r, n), random(r, n), random(r, n), make([]float64, n), float32(1e-3)
		var squares, dot float64
		for i, v := range x {
			squares += float64(v) * float64(v)
			dot += float64(gamma[i]) * float64(dy[i]) * float64(v)
		}
		scale := 1 / math.Sqrt(squares/float64(n)+float64(eps))
		dx := append([]float32{}, dy...)
		RMSNormBack(sum, x, dx, gamma, eps)
		for i, v := range x {
			want := scale * (float64(gamma[i])*float64(dy[i]) - float64(v)*scale*scale*dot/float64(n))
			if d := math.Abs(float64(dx[i]) - want); !(d <= 3e-6*(1+scale*scale*scale)) {
				t.Fatalf("length %d: [%d] is %g, want %g", n, i, dx[i], want)
			}
			if want := scale * float64(v) * float64(dy[i]); !(math.Abs(sum[i]-want) <= 1e-14*math.Abs(want)) {
				t.Fatalf("length %d: gradient %d of gamma is %g, want %g", n, i, sum[i], want)
			}
		}
	}
}

func TestRMSNormPanics(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	RMSNorm(make([]float32, 2), make([]float32, 2), make([]float32, 3), 0)
}

func FuzzRMSNorm(f *testing.F) {
	f.Add([]byte{0, 0, 128, 63, 0, 0, 0, 64})
	f.Add([]byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36})
	f.Fuzz(func(t *testing.T, data []byte) {
		x := floats(data)
		gamma := make([]float32, len(x))
		for i := range x {
			gamma[i] = 0.5 + float32(i%3)
			if NonFinite(x[i:i+1]) >= 0 {
				return
			}
		}
		checkNorm(t, x, gamma, 1e-6)
	})
}

func BenchmarkRMSNorm(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 1))
	x, gamma, dst := random(r, 4096), random(r, 4096), make([]float32, 4096)
	b.SetBytes(4 * 4096)
	for b.Loop() {
		RMSNorm(dst, x, gamma, 1e-6)
	}
}
