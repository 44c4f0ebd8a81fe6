package kernel

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
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
	var sum float32
	for p := 0; p < len(a); p += 256 {
		s := 0.0
		for q := p; q < min(p+256, len(a)); q++ {
			s = fma32(float64(a[q]), float64(b[q]), s)
		}
		if p == 0 {
			sum = float32(s)
		} else {
			sum += float32(s)
		}
	}
	return sum
}

// matMulBound is the relative error that float32 sums may have: a rounding for each position of a segment and for each
// segment, at most 2^-24 of the sum of magnitudes each.
func matMulBound(k int) float64 { return float64(min(k, 256)+k/256+1) * 0x1p-24 }

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

// spaced copies the rows of x, of cols elements each, to rows that lie ld apart. The slice ends with the last row.
func spaced[T any](x []T, rows, cols, ld int, fill T) []T {
	s := slices.Repeat([]T{fill}, extent(rows, cols, ld))
	for i := 0; i < rows && cols > 0; i++ {
		copy(s[i*ld:][:cols], x[i*cols:])
	}
	return s
}

// turned is the transposed x.
func turned(x []float32, rows, cols int) []float32 {
	t := make([]float32, len(x))
	transposeGeneric(t, x, rows, cols, rows, cols)
	return t
}

// checkWindow compares the window of dst with want, and everything around it with the canary.
func checkWindow(t *testing.T, name string, dst, want []float32, m, n, ldd int) {
	t.Helper()
	for i, got := range dst {
		row, col := 0, i
		if ldd > 0 {
			row, col = i/ldd, i%ldd
		}
		w := canary
		if row < m && col < n {
			w = want[row*n+col]
		}
		if !sameBits(got, w) {
			t.Fatalf("%s: %d x %d with stride %d: [%d,%d] is %x, want %x", name, m, n, ldd, row, col, got, w)
		}
	}
}

// checkMatMul multiplies inside larger matrices by all functions for float32 and compares every element with the
// canonical order. want may be nil.
func checkMatMul(t *testing.T, want, a, b []float32, m, n, k, pad int) {
	t.Helper()
	if want == nil {
		want = make([]float32, m*n)
		for i := range m {
			for j := range n {
				want[i*n+j] = canonicalDot(a[i*k:(i+1)*k], b[j*k:(j+1)*k])
			}
		}
	}
	ldd, lda, ldb := n+pad, k+2*pad, k+pad
	as := spaced(a, m, k, lda, float32(math.NaN()))
	check := func(name string, f func(dst []float32)) {
		t.Helper()
		dst := canaries(extent(m, n, ldd) + 9)
		f(dst[: len(dst)-9 : len(dst)-9])
		checkWindow(t, name, dst, want, m, n, ldd)
	}
	bs := spaced(b, n, k, ldb, float32(math.NaN()))
	check("MatMulT", func(dst []float32) { MatMulT(dst, as, bs, m, n, k, ldd, lda, ldb) })
	check("MatMul", func(dst []float32) {
		MatMul(dst, as, spaced(turned(b, n, k), k, n, n+pad, float32(math.NaN())), m, n, k, ldd, lda, n+pad)
	})
	var p Packed
	p.Pack(bs, n, k, ldb)
	check("Packed", func(dst []float32) { p.MulT(dst, as, m, ldd, lda, 0, n) })
	check("Packed by panels", func(dst []float32) {
		for lo := 0; lo < n; lo += 2 * PanelRows {
			p.MulT(dst, as, m, ldd, lda, lo, min(n, lo+2*PanelRows))
		}
	})
}

func TestMatMul(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	forEachImpl(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(1, 2))
		for m := range 15 {
			for _, n := range []int{0, 1, 7, 31, 32, 33, 64, 100, 161} {
				for _, k := range []int{0, 1, 3, 4, 5, 7, 8, 9, 12, 33} {
					checkMatMul(t, nil, random(r, m*k), random(r, n*k), m, n, k, (m+n+k)%3)
				}
			}
		}
		for _, s := range [][3]int{{1, 130, 255}, {2, 33, 256}, {12, 40, 257}, {13, 31, 512}, {7, 97, 513}, {25, 3, 1030}, {385, 2, 300}, {800,
			33, 5}, {200, 34, 1100}} {
			checkMatMul(t, nil, random(r, s[0]*s[2]), random(r, s[1]*s[2]), s[0], s[1], s[2], 1)
		}
		for range 300 { // few extremes, so that not every sum is a NaN
			m, n, k := 1+r.IntN(14), 1+r.IntN(40), 1+r.IntN(60)
			checkMatMul(t, nil, spiced(r, m*k, 50), spiced(r, n*k, 50), m, n, k, r.IntN(3))
		}
		for range 100 { // sums around the smallest numbers
			m, n, k := 1+r.IntN(14), 1+r.IntN(40), 1+r.IntN(20)
			a, b := random(r, m*k), random(r, n*k)
			for _, x := range [][]float32{a, b} {
				for i := range x {
					x[i] *= float32(math.Ldexp(1, -60-r.IntN(20)))
				}
			}
			checkMatMul(t, nil, a, b, m, n, k, 0)
		}
	})
}

// TestMatMulError keeps the canonical order itself near the exact result.
func TestMatMulError(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for _, k := range []int{1, 9, 256, 300, 5000} {
		a, b, dst := random(r, k), random(r, k), make([]float32, 1)
		MatMulT(dst, a, b, 1, 1, k, 1, k, k)
		want, magnitude := naiveDot(a, b)
		if d := math.Abs(float64(dst[0]) - want); !(d <= matMulBound(k)*magnitude) {
			t.Errorf("%d positions: %g, want %g", k, dst[0], want)
		}
	}
}

func TestMatMulSplit(t *testing.T) {
	forEachImpl(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(3, 4))
		const m, n, k = 29, 150, 333
		a, b := random(r, m*k), random(r, n*k)
		whole, parts := make([]float32, m*n), make([]float32, m*n)
		MatMulT(whole, a, b, m, n, k, n, k, k)
		for i := 0; i < m; {
			rows := min(1+r.IntN(14), m-i)
			for j := 0; j < n; {
				cols := min(1+r.IntN(70), n-j)
				MatMulT(parts[i*n+j:], a[i*k:], b[j*k:], rows, cols, k, n, k, k)
				j += cols
			}
			i += rows
		}
		if i := firstDifference(whole, parts); i >= 0 {
			t.Fatalf("element %d depends on the split: %g and %g", i, whole[i], parts[i])
		}
	})
}

// TestPackedPieces packs a matrix in pieces and in memory that held another one.
func TestPackedPieces(t *testing.T) {
	forEachImpl(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(7, 8))
		const m, n, k, ldb = 3, 105, 300, 301
		a, b := random(r, m*k), random(r, n*ldb)
		var whole, pieces Packed
		whole.Pack(b, n, k, ldb)
		pieces.Pack(random(r, 400*400), 400, 400, 400)
		held := pieces.Bytes()
		pieces.Resize(n, k)
		for lo := 0; lo < n; lo += 64 {
			pieces.PackRows(b[lo*ldb:], lo, min(64, n-lo), ldb)
		}
		if pieces.Bytes() != held || pieces.Rows() != n || pieces.Cols() != k {
			t.Errorf("%d bytes, [%d, %d]", pieces.Bytes(), pieces.Rows(), pieces.Cols())
		}
		if !slices.Equal(whole.panels, pieces.panels) {
			t.Error("the pieces differ from the whole")
		}
		x, y := make([]float32, m*n), make([]float32, m*n)
		whole.MulT(x, a, m, n, k, 0, n)
		Parallel(3, (n+PanelRows-1)/PanelRows, func(lo, hi int) {
			pieces.MulT(y, a, m, n, k, lo*PanelRows, min(hi*PanelRows, n))
		})
		if !slices.Equal(x, y) {
			t.Error("the products differ")
		}
		columns := turned(b[:n*ldb], n, ldb)[:k*n]
		pieces.Resize(n, k)
		for lo := 0; lo < n; lo += 64 {
			pieces.PackColumns(columns, lo, min(64, n-lo), n)
		}
		if !slices.Equal(whole.panels, pieces.panels) {
			t.Error("the matrix packed by its columns differs")
		}
		left := turned(a, m, k)
		clear(y)
		for lo := 0; lo < n; lo += 64 {
			pieces.TMulT(y, left, m, n, m, lo, min(lo+64, n))
		}
		if !slices.Equal(x, y) {
			t.Error("the product with the transpose differs")
		}
	})
}

// A matrix that grows by rows or by columns gives the products of its part that is filled.
func TestPackedGrows(t *testing.T) {
	forEachImpl(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(9, 10))
		const rows, cols = 70, 600
		b := random(r, rows*cols)
		var whole, byRow, byColumn Packed
		whole.Pack(b, rows, cols, cols)
		byRow.Resize(rows, cols)
		byColumn.Resize(rows, cols)
		for j := range rows {
			byRow.SetRow(j, b[j*cols:(j+1)*cols])
		}
		for i, columns := 0, turned(b, rows, cols); i < cols; i++ {
			byColumn.SetColumn(i, columns[i*rows:(i+1)*rows])
		}
		if !slices.Equal(byRow.panels, whole.panels) || !slices.Equal(byColumn.panels, whole.panels) {
			t.Error("other panels")
		}
		for _, m := range []int{1, 2, 5, 13} {
			for _, span := range [][2]int{{0, 600}, {0, 1}, {32, 33}, {64, 400}, {320, 600}, {288, 576}, {7, 7}} {
				k := span[1] - span[0]
				a, want, got := random(r, m*k), make([]float32, m*rows), make([]float32, m*rows)
				MatMulT(want, a, b[span[0]:], m, rows, k, rows, k, cols)
				whole.MulTSpan(got, a, m, rows, k, span[0], span[1])
				if !slices.Equal(got, want) {
					t.Errorf("%d rows, positions %v: another product", m, span)
				}
			}
		}
		for _, span := range [][2]int{{-1, 3}, {4, 3}, {0, 601}} {
			func() {
				defer func() {
					if recover() == nil {
						t.Errorf("positions %v: no panic", span)
					}
				}()
				whole.MulTSpan(make([]float32, rows), make([]float32, cols+1), 1, rows, cols+1, span[0], span[1])
			}()
		}
	})
}

func TestMatMulAllocations(t *testing.T) {
	forEachImpl(t, func(t *testing.T) {
		const m, n, k = 13, 70, 300
		a, b, dst := make([]float32, m*k), make([]float32, n*k), make([]float32, m*n)
		var p Packed
		p.Pack(b, n, k, k)
		columns := packColumns(a, m, n, n)
		for name, f := range map[string]func(){
			"MatMulT": func() { MatMulT(dst, a, b, m, n, k, n, k, k) },
			"Packed":  func() { p.MulT(dst, a, m, n, k, 0, n) },
			"Pack":    func() { p.Pack(b, n, k, k) },
			"Syrk":    func() { columns.Syrk(b, a, 0, n, 0, n, n, n) },
		} {
			if n := testing.AllocsPerRun(20, f); n >= 1 {
				t.Errorf("%s: %g allocations a call", name, n)
			}
		}
	})
}

func TestMatMulSpecials(t *testing.T) {
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

func TestMatMulPanics(t *testing.T) {
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

func FuzzMatMul(f *testing.F) {
	for _, s := range [][5]uint16{{1, 1, 1, 0, 1}, {4, 8, 64, 1, 20}, {5, 9, 65, 0, 300}, {70, 23, 530, 2, 1000}, {1, 200, 530, 2, 1000}, {71, 0, 9, 3, 20}} {
		f.Add(s[0], s[1], s[2], s[3], s[4], uint64(s[4]))
	}
	f.Fuzz(func(t *testing.T, m, n, k, pad, oneOf uint16, seed uint64) {
		rows, cols, depth := int(m%30), int(n%200), int(k%600)
		r := rand.New(rand.NewPCG(seed, 0))
		a, b := spiced(r, rows*depth, 2+int(oneOf)), spiced(r, cols*depth, 2+int(oneOf))
		forEachImpl(t, func(t *testing.T) { checkMatMul(t, nil, a, b, rows, cols, depth, int(pad%4)) })
	})
}

// floats reads fuzzed bytes as float32 values.
func floats(data []byte) []float32 {
	x := make([]float32, len(data)/4)
	for i := range x {
		x[i] = math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:]))
	}
	return x
}

// forEachTier runs sub-benchmarks f for every tier that multiplies floats in its own way.
func forEachTier(b *testing.B, f func(b *testing.B)) {
	for _, tier := range []string{"generic", "avx2", "avx512", "neon"} {
		b.Run(tier, func(b *testing.B) { withTier(b, tier, func() { f(b) }) })
	}
}

// benchmarkProduct runs f, a product m x n x k, with every tier; large ones take plain Go too long.
func benchmarkProduct(b *testing.B, m, n, k int, f func()) {
	ops := 2 * float64(m) * float64(n) * float64(k)
	b.Run(fmt.Sprintf("%dx%dx%d", m, n, k), func(b *testing.B) {
		forEachTier(b, func(b *testing.B) {
			if use == (switches{}) && ops > 1e9 {
				b.Skip("too large for the generic tier")
			}
			for b.Loop() {
				f()
			}
			reportFlops(b, ops)
		})
	})
}

// reportFlops takes the operations of an iteration.
func reportFlops(b *testing.B, ops float64) {
	b.ReportMetric(ops*float64(b.N)/float64(b.Elapsed().Nanoseconds()), "GFLOP/s")
}

func BenchmarkMatMulT(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 1))
	for _, s := range [][3]int{
		{1, 4096, 128}, {4, 1024, 1024}, {16, 1024, 1024}, {64, 64, 64}, {64, 256, 256}, {128, 1024, 1024}, {256, 1024, 1024}, {512, 576, 1536}, {256, 4096, 4096},
	} {
		m, n, k := s[0], s[1], s[2]
		x, y, dst := random(r, m*k), random(r, n*k), make([]float32, m*n)
		benchmarkProduct(b, m, n, k, func() { MatMulT(dst, x, y, m, n, k, n, k, k) })
	}
}

func BenchmarkMatMul(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 1))
	for _, s := range [][3]int{{64, 128, 512}, {256, 1024, 1024}} {
		m, n, k := s[0], s[1], s[2]
		x, y, dst := random(r, m*k), random(r, n*k), make([]float32, m*n)
		benchmarkProduct(b, m, n, k, func() { MatMul(dst, x, y, m, n, k, n, k, n) })
	}
}

func BenchmarkPacked(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 1))
	for _, s := range [][3]int{
		{2, 1024, 1024}, {4, 1024, 1024}, {16, 1024, 1024}, {64, 1024, 1024}, {128, 1024, 1024}, {256, 1024, 1024}, {512, 576, 1536}, {256, 4096, 4096},
	} {
		m, n, k := s[0], s[1], s[2]
		x, dst := random(r, m*k), make([]float32, m*n)
		var p Packed
		p.Pack(random(r, n*k), n, k, k)
		benchmarkProduct(b, m, n, k, func() { p.MulT(dst, x, m, n, k, 0, n) })
	}
}

// BenchmarkPackedRow multiplies one row with weights that come from memory, or from the L3 cache.
func BenchmarkPackedRow(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 1))
	const n, k = 4096, 1024 // 16 MiB each
	x, dst := random(r, k), make([]float32, n)
	for _, c := range []struct {
		name   string
		copies int
	}{{"cold", 20}, {"hot", 1}} {
		b.Run(c.name, func(b *testing.B) {
			matrices := make([]Packed, c.copies)
			weights := random(r, n*k)
			for i := range matrices {
				matrices[i].Pack(weights, n, k, k)
			}
			i := 0
			next := func() *Packed { i++; return &matrices[i%len(matrices)] }
			forEachTier(b, func(b *testing.B) {
				b.SetBytes(4 * n * k)
				for b.Loop() {
					next().MulT(dst, x, 1, n, k, 0, n)
				}
			})
		})
	}
}

func BenchmarkPack(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 1))
	const n, k = 1024, 1024
	x := random(r, n*k)
	forEachTier(b, func(b *testing.B) {
		var p Packed
		b.SetBytes(4 * n * k)
		for b.Loop() {
			p.Pack(x, n, k, k)
		}
	})
}

func BenchmarkSyrk(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 1))
	const tokens, n = 512, 1024
	x, h := random(r, tokens*n), make([]float32, n*n)
	forEachTier(b, func(b *testing.B) {
		for b.Loop() {
			syrk(h, x, tokens, n, n, n)
		}
		reportFlops(b, float64(tokens)*n*(n+1))
	})
}

// A product in spans has the bits of the products of all spans, which are added one after the other.
func TestMatMulAddSpans(t *testing.T) {
	forEachImpl(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(43, 44))
		for _, s := range [][4]int{{1, 64, 96, 32}, {8, 64, 200, 8}, {32, 70, 96, 32}, {13, 40, 1300, 256}, {400, 33, 700, 100}, {5, 9, 31, 1}, {3, 4, 0, 8}} {
			m, n, k, span := s[0], s[1], s[2], s[3]
			a, b, want := spiced(r, m*k, 50), spiced(r, k*n, 50), spiced(r, m*n, 50)
			got, product := append([]float32{}, want...), make([]float32, m*n)
			for lo := 0; lo < k; lo += span {
				MatMul(product, a[lo:], b[lo*n:], m, n, min(span, k-lo), n, k, n)
				Add(want, want, product)
			}
			MatMulAddSpans(got, a, b, m, n, k, n, k, n, span)
			checkWindow(t, fmt.Sprint("MatMulAddSpans ", s), got, want, m, n, n)
		}
	})
	for _, span := range []int{0, Segment + 1} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("spans of %d: no panic", span)
				}
			}()
			x := make([]float32, 4)
			MatMulAddSpans(x, x, x, 1, 1, 1, 1, 1, 1, span)
		}()
	}
}

// Whole segments of a product in several calls have the bits of one call.
func TestMatMulAdd(t *testing.T) {
	forEachImpl(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(41, 42))
		for _, s := range [][3]int{{1, 33, 700}, {5, 70, 256}, {13, 40, 1300}, {2, 3, 0}} {
			m, n, k := s[0], s[1], s[2]
			a, b := spiced(r, m*k, 50), spiced(r, k*n, 50)
			want, got := make([]float32, m*n), random(r, m*n)
			MatMul(want, a, b, m, n, k, n, k, n)
			multiply := MatMul
			for lo := 0; lo == 0 || lo < k; {
				hi := min(k, lo+Segment*(1+r.IntN(2)))
				multiply(got, a[lo:], b[lo*n:], m, n, hi-lo, n, k, n)
				lo, multiply = max(hi, 1), MatMulAdd
			}
			checkWindow(t, "MatMulAdd", got, want, m, n, n)
		}
	})
}
