package kernel

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
)

// ulps is how many float64 values lie between got and want.
func ulps(got, want float64) float64 {
	if got == want {
		return 0
	}
	return math.Abs(got-want) / math.Abs(math.Nextafter(want, math.Inf(1))-want)
}

// expUlps is the bound of the doc, one unit, and one more for math.Exp itself.
const expUlps = 2

// bigExp is e**x to 200 bits: the series at x/2^k, squared k times.
func bigExp(x float64) *big.Float {
	const bits, halvings = 200, 24
	v := new(big.Float).SetPrec(bits).SetFloat64(x)
	v.SetMantExp(v, -halvings)
	sum, term := big.NewFloat(1).SetPrec(bits), big.NewFloat(1).SetPrec(bits)
	for n := 1; n < 30; n++ {
		term.Mul(term, v)
		term.Quo(term, new(big.Float).SetInt64(int64(n)))
		sum.Add(sum, term)
	}
	for range halvings {
		sum.Mul(sum, sum)
	}
	return sum
}

// ulpsBig is the distance of got from an exact value, in units of the last place of got.
func ulpsBig(got float64, want *big.Float) float64 {
	d := new(big.Float).SetPrec(200).SetFloat64(got)
	d.Sub(d, want)
	d.Quo(d, new(big.Float).SetFloat64(math.Nextafter(got, math.Inf(1))-got))
	f, _ := d.Float64()
	return math.Abs(f)
}

func TestExp(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	worst, worstAt := 0.0, 0.0
	for i := range 20000 {
		x := (r.Float64() - 0.5) * 2
		switch i % 4 {
		case 1:
			x *= 20
		case 2:
			x *= 707
		case 3:
			x *= math.Ln2 / 2
		}
		got := Exp(x)
		if u := ulps(got, math.Exp(x)); u > expUlps {
			t.Fatalf("Exp(%v) = %v is %v units from math.Exp", x, got, u)
		}
		if i < 4000 {
			if u := ulpsBig(got, bigExp(x)); u > worst {
				worst, worstAt = u, x
			}
		}
	}
	t.Logf("largest error of Exp: %.3f units, at %v", worst, worstAt)
	if worst >= 1 {
		t.Errorf("Exp(%v) is off by %v units", worstAt, worst)
	}
	inf := math.Inf(1)
	for _, c := range []struct{ x, want float64 }{
		{0, 1}, {math.Copysign(0, -1), 1}, {inf, inf}, {-inf, 0}, {710, inf}, {-746, 0}, {1e-300, 1},
		{-745.133219101941, math.SmallestNonzeroFloat64}, {-745.2, 0}, {math.MaxFloat64, inf}, {-math.MaxFloat64, 0},
	} {
		if got := Exp(c.x); got != c.want {
			t.Errorf("Exp(%v) = %v, want %v", c.x, got, c.want)
		}
	}
	for _, x := range []float64{709.78, 709.782712893384, -708.5, -709, -720.3, -744} {
		if u := ulps(Exp(x), math.Exp(x)); u > expUlps {
			t.Errorf("Exp(%v) = %v, math.Exp %v", x, Exp(x), math.Exp(x))
		}
	}
	if x := Exp(math.NaN()); x == x {
		t.Errorf("Exp(NaN) = %v", x)
	}
}

func TestLog(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 10))
	worst := 0.0
	for i := range 20000 {
		x := 1 + r.Float64()
		switch i % 4 {
		case 1:
			x = math.Ldexp(x, r.IntN(2000)-1000)
		case 2:
			x = 1 + (r.Float64()-0.5)*1e-3
		case 3:
			x *= 0.5
		}
		u := ulps(Log(x), math.Log(x))
		worst = max(worst, u)
		if u > expUlps {
			t.Fatalf("Log(%v) = %v, math.Log %v", x, Log(x), math.Log(x))
		}
	}
	t.Logf("largest difference between Log and math.Log: %v units", worst)
	inf := math.Inf(1)
	for _, c := range []struct{ x, want float64 }{
		{1, 0}, {0, -inf}, {inf, inf}, {math.SmallestNonzeroFloat64, -744.4400719213812}, {math.MaxFloat64, 709.782712893384}, {2, math.Ln2},
	} {
		if got := Log(c.x); got != c.want {
			t.Errorf("Log(%v) = %v, want %v", c.x, got, c.want)
		}
	}
	for _, x := range []float64{math.NaN(), -1, -inf} {
		if y := Log(x); y == y {
			t.Errorf("Log(%v) = %v", x, y)
		}
	}
}

func TestSoftplus(t *testing.T) {
	for i := range 40001 {
		x := float64(i-20000) / 250
		if i%2 == 1 {
			x = math.Copysign(math.Exp(-math.Abs(x)), x) // down to 1e-35
		}
		got, want := Softplus(x), max(x, 0)+math.Log1p(math.Exp(-math.Abs(x)))
		if !(math.Abs(got-want) <= 1e-12*want) {
			t.Fatalf("of %v: %v, want %v", x, got, want)
		}
		if got, want := Log1p(math.Abs(x)), math.Log1p(math.Abs(x)); !(math.Abs(got-want) <= 1e-12*want) {
			t.Fatalf("of 1 + %v: %v, want %v", math.Abs(x), got, want)
		}
	}
}

// TestExpBits holds the bits that every machine must give.
func TestExpBits(t *testing.T) {
	for _, c := range []struct {
		x        float64
		exp, log uint64
	}{
		{0.1, 0x3ff1aec7b35a00d4, 0xc0026bb1bbb55515},
		{1.7, 0x4015e552770df8a6, 0x3fe0fae81914a991},
		{12.34, 0x410be9af9dcff5f0, 0x40041a4f0369f2d2},
		{700.01, 0x7f0de0787778d244, 0x401a345225f2dec4},
	} {
		if e, l := math.Float64bits(Exp(c.x)), math.Float64bits(Log(c.x)); e != c.exp || l != c.log {
			t.Errorf("Exp and Log of %v are %#x and %#x, want %#x and %#x", c.x, e, l, c.exp, c.log)
		}
	}
}

// softmaxBound: the exponential and the result are rounded to float32 once each.
const softmaxBound = 3 * 0x1p-24

func checkSoftmax(t *testing.T, x []float32) {
	t.Helper()
	top := math.Inf(-1)
	for _, v := range x {
		top = max(top, float64(v))
	}
	var sum float64
	for _, v := range x {
		sum += math.Exp(float64(v) - top)
	}
	buf := append(append([]float32{}, x...), canary)
	got := buf[:len(x)]
	Softmax(got)
	for i, v := range x {
		want := math.Exp(float64(v)-top) / sum
		if d := math.Abs(float64(got[i]) - want); !(d <= softmaxBound*want+math.SmallestNonzeroFloat32) {
			t.Fatalf("length %d: [%d] is %g, want %g", len(x), i, got[i], want)
		}
	}
	if buf[len(x)] != canary {
		t.Fatal("wrote past x")
	}
	if len(x) == 0 {
		return
	}
	want := top + math.Log(sum)
	// The naive sum has a rounding for each element; logarithm and final addition have one each.
	if d := math.Abs(LogSumExp(x) - want); !(d <= float64(len(x)+4)*0x1p-53*max(1, math.Abs(want))) {
		t.Fatalf("LogSumExp is %v, want %v", LogSumExp(x), want)
	}
}

func TestSoftmax(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 12))
	for n := range 20 {
		checkSoftmax(t, random(r, n))
	}
	wide := random(r, 1000)
	for i := range wide {
		wide[i] *= 100
	}
	checkSoftmax(t, wide)
	inf := float32(math.Inf(1))
	checkSoftmax(t, []float32{-inf, 0, 3, -inf})
	checkSoftmax(t, []float32{math.MaxFloat32, -math.MaxFloat32})
	for _, x := range [][]float32{{-inf, -inf}, {1, inf}, {1, float32(math.NaN())}} {
		Softmax(x)
		if x[0] == x[0] && x[1] == x[1] {
			t.Errorf("no NaN in %v", x)
		}
	}
}

func TestLogSumExpSpecials(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	for _, c := range []struct {
		row  []float32
		want float64
	}{
		{nil, math.Inf(-1)}, {[]float32{-inf, -inf}, math.Inf(-1)}, {[]float32{1, inf}, math.Inf(1)}, {[]float32{5}, 5},
		{[]float32{1, nan, 2}, math.NaN()}, {[]float32{nan, inf}, math.NaN()}, {[]float32{inf, nan}, math.NaN()},
	} {
		if got := LogSumExp(c.row); got != c.want && !(got != got && c.want != c.want) {
			t.Errorf("LogSumExp(%v) = %v, want %v", c.row, got, c.want)
		}
	}
}

func TestSiLU(t *testing.T) {
	r := rand.New(rand.NewPCG(13, 14))
	x := append(random(r, 1000), 0, 100, -100, 1000, -1000, math.MaxFloat32, -math.MaxFloat32)
	dst := make([]float32, len(x)+1)
	dst[len(x)] = canary
	SiLU(dst[:len(x)], x)
	for i, v := range x {
		want := float32(float64(v) / (1 + math.Exp(-float64(v))))
		if d := math.Abs(float64(dst[i] - want)); !(d <= 0x1p-23*math.Abs(float64(want))) {
			t.Errorf("SiLU(%g) = %g, want %g", v, dst[i], want)
		}
	}
	if dst[len(x)] != canary {
		t.Error("wrote past dst")
	}
	SiLU(x, x)
	for i := range x {
		if x[i] != dst[i] {
			t.Fatal("differs in place")
		}
	}
}

// Gradients of a product with SiLU are those of the derivative in float64, of which a float32 differs by some units in the last place.
func TestSiLUBack(t *testing.T) {
	r := rand.New(rand.NewPCG(15, 16))
	x := append(random(r, 3000), 0, 1e-35, -1e-35, 30, -30)
	y, d := random(r, len(x)), random(r, len(x))
	dx, dy := append([]float32{}, x...), append([]float32{}, y...)
	SiLUBack(d, dx, dy)
	for i, v := range x {
		sigma := 1 / (1 + math.Exp(-float64(v)))
		value := float64(v) * sigma
		wantX, wantY := float64(d[i])*float64(y[i])*(sigma+value*(1-sigma)), float64(d[i])*value
		if math.Abs(float64(dx[i])-wantX) > 0x1p-21*math.Abs(float64(d[i]*y[i]))*(1+math.Abs(value)) || math.Abs(float64(dy[i])-wantY) > 0x1p-22*math.Abs(wantY) {
			t.Fatalf("SiLUBack(%g, %g, %g) is %g, %g, want %g, %g", d[i], v, y[i], dx[i], dy[i], wantX, wantY)
		}
	}
}

func FuzzSoftmax(f *testing.F) {
	f.Add([]byte{0, 0, 128, 63, 0, 0, 0, 64})
	f.Add([]byte{0, 0, 128, 255, 0, 0, 0, 0, 255, 255, 127, 127})
	f.Fuzz(func(t *testing.T, data []byte) {
		x := floats(data)
		if NonFinite(x) < 0 {
			checkSoftmax(t, x)
		}
	})
}

func BenchmarkSoftmax(b *testing.B) {
	x := random(rand.New(rand.NewPCG(1, 1)), 4096)
	b.Run("Softmax", func(b *testing.B) {
		b.SetBytes(4 * 4096)
		for b.Loop() {
			Softmax(x)
		}
	})
	b.Run("LogSumExp", func(b *testing.B) {
		b.SetBytes(4 * 4096)
		for b.Loop() {
			LogSumExp(x)
		}
	})
	b.Run("SiLU", func(b *testing.B) {
		dst := make([]float32, len(x))
		b.SetBytes(4 * 4096)
		for b.Loop() {
			SiLU(dst, x)
		}
	})
}
