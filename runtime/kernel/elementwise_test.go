package kernel

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// parityLengths are all up to twice the largest unrolled group and one, and what takes several calls.
func parityLengths() []int {
	var lengths []int
	for n := range 2*64 + 2 {
		lengths = append(lengths, n)
	}
	return append(lengths, 1000, 4096, elementPiece, elementPiece+9, 2*elementPiece+77)
}

// checkParity compares a function that writes len(dst) elements with its definition, apart and in place of each input.
func checkParity(t *testing.T, name string, r *rand.Rand, inputs int, got, want func(dst []float32, in [][]float32)) {
	t.Helper()
	for _, n := range parityLengths() {
		for _, oneOf := range []int{1 << 30, 12} {
			in := make([][]float32, inputs)
			for i := range in {
				in[i] = spiced(r, n, oneOf)
			}
			expected := canaries(n + 9)
			want(expected[:n], in)
			dst := canaries(n + 9)
			got(dst[:n:n], in)
			if i := firstDifference(dst, expected); i >= 0 {
				t.Fatalf("%s of %d: element %d is %x, want %x", name, n, i, dst[i], expected[i])
			}
			for i := range in {
				own := append([][]float32{}, in...)
				own[i] = append([]float32{}, in[i]...)
				got(own[i], own)
				if j := firstDifference(own[i], expected); j >= 0 {
					t.Fatalf("%s of %d in place of input %d: element %d is %x, want %x", name, n, i, j, own[i][j], expected[j])
				}
			}
		}
	}
}

func TestElementwiseParity(t *testing.T) {
	forEachImpl(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(31, 32))
		checkParity(t, "Add", r, 2, func(d []float32, in [][]float32) { Add(d, in[0], in[1]) },
			func(d []float32, in [][]float32) { addGeneric(d, in[0], in[1]) })
		checkParity(t, "Mul", r, 2, func(d []float32, in [][]float32) { Mul(d, in[0], in[1]) },
			func(d []float32, in [][]float32) { mulGeneric(d, in[0], in[1]) })
		for _, f := range []float32{0.37, float32(math.Inf(1)), 0} {
			checkParity(t, "Scale", r, 1, func(d []float32, in [][]float32) { Scale(d, in[0], f) },
				func(d []float32, in [][]float32) { scaleGeneric(d, in[0], f) })
			checkParity(t, "AddScaled", r, 2, addScaledTo(f, AddScaled), addScaledTo(f, addScaledGeneric))
			shifted := func(add func(dst, x []float32, factor, term float32)) func(dst, x []float32, factor float32) {
				return func(dst, x []float32, factor float32) { add(dst, x, factor, 0.7) }
			}
			checkParity(t, "AddShifted", r, 2, addScaledTo(f, shifted(AddShifted)), addScaledTo(f, shifted(addShiftedGeneric)))
		}
	})
}

// addScaledTo adds the second input, times a factor, to a copy of the first.
func addScaledTo(factor float32, add func(dst, x []float32, factor float32)) func(d []float32, in [][]float32) {
	return func(d []float32, in [][]float32) {
		x := append([]float32{}, in[1]...)
		copy(d, in[0])
		add(d, x, factor)
	}
}

func TestReductionParity(t *testing.T) {
	forEachImpl(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(33, 34))
		for _, n := range parityLengths() {
			for _, oneOf := range []int{1 << 30, 4, max(n/2, 2)} {
				x := spiced(r, n, oneOf)
				top, size := peaksGeneric(x)
				if gotTop, gotSize := peaks(x); gotTop != top || gotSize != size {
					t.Fatalf("peaks of %d: %x, %x, want %x, %x", n, gotTop, gotSize, top, size)
				}
				if got, want := nonFinite(x), nonFiniteGeneric(x); got != want {
					t.Fatalf("non-finite of %d: %d, want %d", n, got, want)
				}
				for _, limit := range []float32{top, 0, 1, float32(math.Inf(-1)), float32(math.Inf(1)), float32(math.NaN()), math.MaxFloat32} {
					if got, want := atLeast(x, limit), atLeastGeneric(x, limit); got != want {
						t.Fatalf("at least %v of %d: %d, want %d", limit, n, got, want)
					}
				}
				want := 0
				for i, v := range x {
					if v > x[want] || x[want] != x[want] && v == v {
						want = i
					}
				}
				if got := ArgMax(x); got != want {
					t.Fatalf("ArgMax of %d: %d, want %d", n, got, want)
				}
			}
		}
		// Each position can hold the only one.
		for _, n := range []int{1, 8, 15, 64, 100, 131, elementPiece + 3} {
			for range min(n, 200) {
				i := r.IntN(n)
				x := make([]float32, n)
				x[i] = 1
				if got := ArgMax(x); got != i {
					t.Fatalf("ArgMax of %d: %d, want %d", n, got, i)
				}
				x[i] = float32(math.NaN())
				if got := AbsMax(x); got == got {
					t.Fatalf("AbsMax of %d lost the NaN at %d", n, i)
				}
				if got := NonFinite(x); got != i {
					t.Fatalf("NonFinite of %d: %d, want %d", n, got, i)
				}
				x[i] = -3
				if got := AbsMax(x); got != 3 {
					t.Fatalf("AbsMax of %d: %v, want 3", n, got)
				}
				if got := NonFinite(x); got != -1 {
					t.Fatalf("NonFinite of %d: %d, want -1", n, got)
				}
			}
		}
	})
}

func TestArgMaxSpecials(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	late := make([]float32, elementPiece+1)
	for i := range late {
		late[i] = nan
	}
	late[elementPiece] = -inf
	for _, c := range []struct {
		row  []float32
		want int
	}{
		{nil, 0}, {[]float32{nan, nan}, 0}, {[]float32{nan, -inf}, 1}, {[]float32{-inf, -inf}, 0}, {[]float32{1, 2, 2}, 1},
		{[]float32{nan, 5, inf, inf}, 2}, {late, elementPiece},
	} {
		if got := ArgMax(c.row); got != c.want {
			t.Errorf("%d elements: %d, want %d", len(c.row), got, c.want)
		}
	}
}

func TestElementwisePanics(t *testing.T) {
	two, three := make([]float32, 2), make([]float32, 3)
	for name, f := range map[string]func(){
		"Add":           func() { Add(two, two, three) },
		"Mul":           func() { Mul(two, three, two) },
		"Scale":         func() { Scale(two, three, 1) },
		"AddScaled":     func() { AddScaled(three, two, 1) },
		"SiLU":          func() { SiLU(two, three) },
		"EngineSiLU":    func() { EngineSiLU(two, three) },
		"EngineSiLUMul": func() { EngineSiLUMul(two, two, three) },
		"rotation":      func() { RotateHeads(two, two, three, three, 1, 2) },
		"RotateHeads":   func() { RotateHeads(three, three, two, two, 1, 2) },
		"odd":           func() { RotateHeads(three, three, three, three, 1, 3) },
		"angles":        func() { RotateHeads(three, three, two, nil, 1, 3) },
		"head gamma":    func() { EngineNormRotateHeads(two, two, three, two, two, 1, 2, 0) },
		"norm rows":     func() { EngineRMSNormRows(three, three, two, 1, 0) },
		"no rows":       func() { EngineRMSNormPackedRows(nil, nil, two, -1, 0) },
		"exact rows":    func() { RMSNormRows(two, two, three, 1, 0) },
		"Shift":         func() { Shift(two, three, 1) },
		"AddShifted":    func() { AddShifted(two, three, 1, 1) },
		"KL":            func() { KL(two, three, 0, 0) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			f()
		})
	}
}

func FuzzElementwise(f *testing.F) {
	f.Add([]byte{0, 0, 128, 63, 0, 0, 192, 127, 0, 0, 128, 255})
	f.Add(make([]byte, 4*100))
	f.Fuzz(func(t *testing.T, data []byte) {
		x := floats(data)
		y := append([]float32{}, x...)
		for i := range y {
			y[i] = x[len(x)-1-i]
		}
		n := len(x)
		forEachImpl(t, func(t *testing.T) {
			for name, f := range map[string][2]func(d []float32){
				"add":     {func(d []float32) { add(d, x, y) }, func(d []float32) { addGeneric(d, x, y) }},
				"mul":     {func(d []float32) { mul(d, x, y) }, func(d []float32) { mulGeneric(d, x, y) }},
				"silumul": {func(d []float32) { engineSiLUMul(d[:n&^7], x, y) }, func(d []float32) { engineSiLUMulGeneric(d[:n&^7], x, y) }},
				"silu":    {func(d []float32) { exactSiLU(d, x) }, func(d []float32) { exactSiLUGeneric(d, x) }},
				"norm":    {func(d []float32) { EngineRMSNormRows(d, x, y, 1, 1e-6) }, func(d []float32) { engineNormRows(d, x, y) }},
			} {
				got, want := canaries(n), canaries(n)
				f[0](got)
				f[1](want)
				if i := firstDifference(got, want); i >= 0 {
					t.Fatalf("%s: element %d is %x, want %x", name, i, got[i], want[i])
				}
			}
			checkDivergenceParity(t, x, y, LogSumExp(x), LogSumExp(y))
			top, size := peaksGeneric(x)
			if gotTop, gotSize := peaks(x); gotTop != top || gotSize != size {
				t.Fatalf("peaks: %x, %x, want %x, %x", gotTop, gotSize, top, size)
			}
		})
	})
}

// engineNormRows is the generic norm of one row, which may be empty.
func engineNormRows(dst, x, gamma []float32) {
	if len(x) > 0 {
		engineNormGeneric(dst, x, gamma, 1, 1e-6)
	}
}

// benchmarkTiers runs f in every tier and reports its time for each of n elements, and bytes for each.
func benchmarkTiers(b *testing.B, name string, n, bytes int, f func()) {
	for _, tier := range []string{"generic", "avx2", "avx512"} {
		b.Run(fmt.Sprintf("%s/%s", name, tier), func(b *testing.B) {
			withTier(b, tier, func() {
				b.SetBytes(int64(n * bytes))
				for b.Loop() {
					f()
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/elem")
			})
		})
	}
}

func BenchmarkElements(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 1))
	const n = 4096
	x, y, dst := random(r, n), random(r, n), make([]float32, n)
	benchmarkTiers(b, "Add", n, 12, func() { Add(dst, x, y) })
	benchmarkTiers(b, "Mul", n, 12, func() { Mul(dst, x, y) })
	benchmarkTiers(b, "Scale", n, 8, func() { Scale(dst, x, 0.5) })
	benchmarkTiers(b, "AddScaled", n, 12, func() { AddScaled(dst, x, 0.5) })
	benchmarkTiers(b, "AbsMax", n, 4, func() { AbsMax(x) })
	benchmarkTiers(b, "NonFinite", n, 4, func() { NonFinite(x) })
	benchmarkTiers(b, "EngineSiLU", n, 8, func() { EngineSiLU(dst, x) })
	benchmarkTiers(b, "EngineSiLUMul", n, 12, func() { EngineSiLUMul(dst, x, y) })
	cos, sin := random(r, 128), random(r, 128)
	benchmarkTiers(b, "RotateHeads", n, 8, func() { RotateHeads(dst, x, cos, sin, n/128, 128) })
	benchmarkTiers(b, "EngineNormRotateHeads", n, 8, func() { EngineNormRotateHeads(dst, x, cos, cos, sin, n/128, 128, 1e-6) })
	for _, rows := range []int{1, 16} {
		const width = 1024
		x, dst, gamma := random(r, rows*width), make([]float32, rows*width), random(r, width)
		name := func(s string) string { return fmt.Sprintf("%s/%dx%d", s, rows, width) }
		benchmarkTiers(b, name("RMSNormRows"), rows*width, 8, func() { RMSNormRows(dst, x, gamma, rows, 1e-6) })
		benchmarkTiers(b, name("EngineRMSNormRows"), rows*width, 8, func() { EngineRMSNormRows(dst, x, gamma, rows, 1e-6) })
		benchmarkTiers(b, name("EngineRMSNormPackedRows"), rows*width, 8, func() { EngineRMSNormPackedRows(dst, x, gamma, rows, 1e-6) })
	}
	benchmarkTiers(b, "Softmax", n, 8, func() { Softmax(dst) })
	benchmarkTiers(b, "SiLU", n, 8, func() { SiLU(dst, x) })
	const vocab = 151936
	p, q := random(r, vocab), random(r, vocab)
	np, nq := LogSumExp(p), LogSumExp(q)
	benchmarkTiers(b, "LogSumExp", vocab, 4, func() { LogSumExp(p) })
	benchmarkTiers(b, "KL", vocab, 8, func() { KL(p, q, np, nq) })
	benchmarkTiers(b, "ArgMax", vocab, 4, func() { ArgMax(p) })
	var top []int32
	benchmarkTiers(b, "TopK/40", vocab, 4, func() { top = TopK(top, p, 40) })
}
