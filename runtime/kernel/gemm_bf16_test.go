package kernel

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// randomBF16 is random data without subnormal numbers.
func randomBF16(r *rand.Rand, n int) []uint16 {
	x := make([]uint16, n)
	F32ToBF16(x, random(r, n))
	return x
}

// checkBF16 compares every element with the exact sum, by the bound in the doc of MatMulBF16.
func checkBF16(t *testing.T, r *rand.Rand, m, n, k, pad int) {
	t.Helper()
	a, b := randomBF16(r, m*k), randomBF16(r, n*k)
	ldd, lda, ldb := n+pad, k+2*pad, k+pad
	wideA, wideB := make([]float32, m*k), make([]float32, n*k)
	widenBF16(wideA, a)
	widenBF16(wideB, b)
	const nan = 0x7fc0
	as, bs := spaced(a, m, k, lda, nan), spaced(b, n, k, ldb, nan)
	var p PackedBF16
	p.Pack(bs, n, k, ldb)
	for name, f := range map[string]func(dst []float32){
		"MatMulBF16": func(dst []float32) { MatMulBF16(dst, as, bs, m, n, k, ldd, lda, ldb) },
		"PackedBF16": func(dst []float32) {
			for lo := 0; lo < n; lo += 5 * PanelRows {
				p.MulT(dst, as, m, ldd, lda, lo, min(n, lo+5*PanelRows))
			}
		},
	} {
		dst := canaries(extent(m, n, ldd) + 9)
		f(dst[: len(dst)-9 : len(dst)-9])
		got := make([]float32, m*n)
		for i := range m {
			for j := range n {
				got[i*n+j] = dst[i*ldd+j]
				want, magnitude := naiveDot(wideA[i*k:(i+1)*k], wideB[j*k:(j+1)*k])
				bound := float64(min(k, 512)+k/256+2)*0x1p-24*magnitude + float64(k)*0x1p-125
				if d := math.Abs(float64(got[i*n+j]) - want); !(d <= bound) {
					t.Fatalf("%s %dx%dx%d: [%d,%d] is %g, want %g", name, m, n, k, i, j, got[i*n+j], want)
				}
				if exact := canonicalDot(wideA[i*k:(i+1)*k], wideB[j*k:(j+1)*k]); !use.bf16 && !sameBits(got[i*n+j], exact) {
					t.Fatalf("%s %dx%dx%d: [%d,%d] is %x, the float path gives %x", name, m, n, k, i, j, got[i*n+j], exact)
				}
			}
		}
		checkWindow(t, name, dst, got, m, n, ldd)
	}
}

func TestMatMulBF16(t *testing.T) {
	forEachImpl(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(41, 42))
		for m := range 15 {
			for _, n := range []int{0, 1, 31, 32, 33, 70, 161} {
				for _, k := range []int{0, 1, 2, 7, 8, 9, 16, 17, 33} {
					checkBF16(t, r, m, n, k, (m+n+k)%3)
				}
			}
		}
		for _, s := range [][3]int{{1, 300, 511}, {5, 33, 512}, {13, 40, 513}, {2, 64, 1500}, {390, 3, 700}} {
			checkBF16(t, r, s[0], s[1], s[2], 1)
		}
	})
}

// TestMatMulBF16Specials has values that must spread, and subnormal ones that may count as 0.
func TestMatMulBF16Specials(t *testing.T) {
	forEachImpl(t, func(t *testing.T) {
		const inf, ninf, nan, one, tiny = 0x7f80, 0xff80, 0x7fc0, 0x3f80, 1
		for _, c := range []struct {
			a    [3]uint16
			want func(float32) bool
		}{
			{[3]uint16{one, nan, one}, func(x float32) bool { return x != x }},
			{[3]uint16{one, one, inf}, func(x float32) bool { return x == float32(math.Inf(1)) }},
			{[3]uint16{inf, one, ninf}, func(x float32) bool { return x != x }},
			{[3]uint16{tiny, tiny, tiny}, func(x float32) bool { return x >= 0 && x < 0x1p-124 }},
		} {
			b := []uint16{one, one, one}
			dst := []float32{canary}
			MatMulBF16(dst, c.a[:], b, 1, 1, 3, 1, 3, 3)
			if !c.want(dst[0]) {
				t.Errorf("%x: %g", c.a, dst[0])
			}
		}
	})
}

func TestF32ToBF16(t *testing.T) {
	forEachImpl(t, func(t *testing.T) {
		for bits, want := range map[uint32]uint16{
			0x3f800000: 0x3f80, 0x3f808000: 0x3f80, 0x3f808001: 0x3f81, 0x3f818000: 0x3f82, 0xbf818000: 0xbf82, 0x80000000: 0x8000,
			0x7f7fffff: 0x7f80, 0x7f800000: 0x7f80, 0xff800000: 0xff80, 0x7f800001: 0x7fc0, 0xffffffff: 0xffff, 1: 0, 0x00018000: 2,
		} {
			for _, n := range []int{1, 16, 35} {
				dst := slices.Repeat([]uint16{7}, n+1)
				F32ToBF16(dst, slices.Repeat([]float32{math.Float32frombits(bits)}, n))
				for i, got := range dst {
					if i < n && got != want || i == n && got != 7 {
						t.Fatalf("%d times %08x: element %d is %04x, want %04x", n, bits, i, got, want)
					}
				}
			}
		}
		r := rand.New(rand.NewPCG(43, 44))
		src := make([]float32, 1<<15+1) // more than a piece
		for i := range src {
			src[i] = math.Float32frombits(r.Uint32())
		}
		got, want := make([]uint16, len(src)), make([]uint16, len(src))
		F32ToBF16(got, src)
		f32ToBF16Generic(want, src)
		if !slices.Equal(got, want) {
			t.Error("the tier differs")
		}
	})
}

func BenchmarkPackedBF16(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 1))
	for _, s := range [][3]int{{1, 4096, 1024}, {16, 1024, 1024}, {256, 1024, 1024}, {512, 576, 1536}, {256, 4096, 4096}} {
		m, n, k := s[0], s[1], s[2]
		x, y, dst := randomBF16(r, m*k), randomBF16(r, n*k), make([]float32, m*n)
		var p PackedBF16
		benchmarkProduct(b, m, n, k, func() {
			if p.Rows() == 0 || p.pairs != use.bf16 { // the tier has changed
				p.Pack(y, n, k, k)
			}
			p.MulT(dst, x, m, n, k, 0, n)
		})
	}
}
