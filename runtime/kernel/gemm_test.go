package kernel

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

const canary = float32(-12345.5)

// naiveDot is a · b in float64 and the sum of the magnitudes, which scales the permitted error.
func naiveDot(a, b []float32) (sum, magnitude float64) {
	for i := range a {
		p := float64(a[i]) * float64(b[i])
		sum += p
		magnitude += math.Abs(p)
	}
	return sum, magnitude
}

// canonicalDot follows the order that the doc of MatMulT fixes, word by word.
func canonicalDot(a, b []float32) float32 {
	var s [8]float32
	for i := range a {
		s[i%8] += float32(a[i] * b[i])
	}
	return ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]))
}

// matMulBound is the relative error that float32 sums may have: a rounding for each of k/8 additions in a
// lane, three in the tree and one product, each at most 2^-24 of the sum of magnitudes.
func matMulBound(k int) float64 { return float64(k/8+5) * 0x1p-24 }

func random(r *rand.Rand, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(r.NormFloat64())
	}
	return x
}

// extent is how many elements rows x cols with the stride ld reach over.
func extent(rows, cols, ld int) int {
	if rows == 0 || cols == 0 {
		return 0
	}
	return (rows-1)*ld + cols
}

// checkMatMul multiplies inside larger matrices and compares every element, and the canaries between rows.
func checkMatMul(t *testing.T, r *rand.Rand, m, n, k, pad int) {
	t.Helper()
	ldd, lda, ldb := n+pad, k+2*pad, k+pad
	// No slice is longer than the last row needs.
	a, b := random(r, extent(m, k, lda)), random(r, extent(n, k, ldb))
	dst := make([]float32, extent(m, n, ldd)+3)
	for i := range dst {
		dst[i] = canary
	}
	MatMulT(dst[:len(dst)-3:len(dst)-3], a, b, m, n, k, ldd, lda, ldb)
	for i, got := range dst {
		row, col := 0, i
		if ldd > 0 {
			row, col = i/ldd, i%ldd
		}
		if row >= m || col >= n {
			if got != canary {
				t.Fatalf("%dx%dx%d: dst[%d] outside the result was overwritten", m, n, k, i)
			}
			continue
		}
		var x, y []float32
		if k > 0 {
			x, y = a[row*lda:row*lda+k], b[col*ldb:col*ldb+k]
		}
		want, magnitude := naiveDot(x, y)
		if d := math.Abs(float64(got) - want); !(d <= matMulBound(k)*magnitude) {
			t.Fatalf("%dx%dx%d: [%d,%d] is %g, want %g", m, n, k, row, col, got, want)
		}
		if c := canonicalDot(x, y); math.Float32bits(got) != math.Float32bits(c) {
			t.Fatalf("%dx%dx%d: [%d,%d] is %x, the canonical order gives %x", m, n, k, row, col, got, c)
		}
	}
}

func TestMatMulT(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, m := range []int{0, 1, 2, 3, 5} {
		for _, n := range []int{0, 1, 3, 4, 5, 9} {
			for _, k := range []int{0, 1, 7, 8, 9, 17, 63, 64, 65, 72, 131, 200} {
				checkMatMul(t, r, m, n, k, 0)
				checkMatMul(t, r, m, n, k, 3)
			}
		}
	}
	checkMatMul(t, r, 70, 5, 4001, 0) // several blocks of rows
}

func TestMatMulTSplit(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	const m, n, k = 13, 22, 333
	a, b := random(r, m*k), random(r, n*k)
	whole, parts := make([]float32, m*n), make([]float32, m*n)
	MatMulT(whole, a, b, m, n, k, n, k, k)
	for i := 0; i < m; {
		rows := min(1+r.IntN(4), m-i)
		for j := 0; j < n; {
			cols := min(1+r.IntN(6), n-j)
			MatMulT(parts[i*n+j:], a[i*k:], b[j*k:], rows, cols, k, n, k, k)
			j += cols
		}
		i += rows
	}
	for i := range whole {
		if whole[i] != parts[i] {
			t.Fatalf("element %d depends on the split: %g and %g", i, whole[i], parts[i])
		}
	}
}

func TestMatMulTSpecials(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	for _, c := range []struct {
		name string
		a    []float32
		want func(float32) bool
	}{
		{"nan", []float32{1, nan, 1}, func(x float32) bool { return x != x }},
		{"inf", []float32{1, inf, 1}, func(x float32) bool { return x == inf }},
		{"opposite infinities", []float32{inf, 1, -inf}, func(x float32) bool { return x != x }},
		{"overflow", []float32{math.MaxFloat32, math.MaxFloat32, math.MaxFloat32}, func(x float32) bool { return x == inf }},
	} {
		t.Run(c.name, func(t *testing.T) {
			dst := make([]float32, 8)
			a := append(append([]float32{}, c.a...), c.a...)
			b := []float32{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}
			MatMulT(dst, a, b, 2, 4, 3, 4, 3, 3)
			for _, x := range dst {
				if !c.want(x) {
					t.Fatalf("got %g", x)
				}
			}
		})
	}
}

func TestMatMulTPanics(t *testing.T) {
	x := make([]float32, 12)
	for _, c := range []struct {
		name                   string
		dst, a, b              []float32
		m, n, k, ldd, lda, ldb int
	}{
		{"short dst", x[:11], x, x, 3, 4, 3, 4, 3, 3},
		{"short a", x, x[:8], x, 3, 4, 3, 4, 3, 3},
		{"short b", x, x, x[:11], 3, 4, 3, 4, 3, 3},
		{"stride", x, x, x, 3, 4, 3, 3, 3, 3},
		{"negative", x, x, x, -1, 4, 3, 4, 3, 3},
		{"overflow", x, x, x, math.MaxInt, 2, 2, math.MaxInt, 2, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			MatMulT(c.dst, c.a, c.b, c.m, c.n, c.k, c.ldd, c.lda, c.ldb)
		})
	}
}

func FuzzMatMulT(f *testing.F) {
	for _, s := range [][5]uint8{{1, 1, 1, 0, 1}, {2, 4, 64, 1, 2}, {3, 5, 65, 0, 3}, {7, 9, 200, 2, 4}} {
		f.Add(s[0], s[1], s[2], s[3], uint64(s[4]))
	}
	f.Fuzz(func(t *testing.T, m, n, k, pad uint8, seed uint64) {
		checkMatMul(t, rand.New(rand.NewPCG(seed, 0)), int(m%16), int(n%16), int(k), int(pad%4))
	})
}

func BenchmarkMatMulT(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 1))
	for _, s := range [][3]int{{1, 1024, 1024}, {1, 8192, 4096}, {64, 64, 64}, {64, 256, 256}, {64, 256, 1024}, {256, 256, 4096}} {
		m, n, k := s[0], s[1], s[2]
		x, y, dst := random(r, m*k), random(r, n*k), make([]float32, m*n)
		b.Run(fmt.Sprintf("%dx%dx%d", m, n, k), func(b *testing.B) {
			b.SetBytes(int64(4 * n * k))
			for b.Loop() {
				MatMulT(dst, x, y, m, n, k, n, k, k)
			}
			b.ReportMetric(2*float64(m)*float64(n)*float64(k)*float64(b.N)/float64(b.Elapsed().Nanoseconds()), "GFLOP/s")
		})
	}
}

// floats reads fuzzed bytes as float32 values.
func floats(data []byte) []float32 {
	x := make([]float32, len(data)/4)
	for i := range x {
		x[i] = math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:]))
	}
	return x
}
