package kernel

import (
	"math"
	"testing"
)

// TestEngineUnary checks that the elementwise ops are, up to the engine's approximations, what they are called, in every tier
// and from one place to another or in place.
func TestEngineUnary(t *testing.T) {
	sigmoid := func(x float64) float64 { return 1 / (1 + math.Exp(-x)) }
	for name, c := range map[string]struct {
		f     func(dst, x []float32)
		want  func(x float64) float64
		lo    float32
		hi    float32
		bound float64 // of the difference, relative to 1 or a larger result
	}{
		"exp":        {EngineExp, math.Exp, -86, 86, 2e-6},
		"expm1":      {EngineExpm1, math.Expm1, -20, 3, 1e-6},
		"sigmoid":    {EngineSigmoid, sigmoid, -80, 80, 1e-6},
		"tanh":       {EngineTanh, math.Tanh, -40, 40, 1e-6},
		"gelu":       {EngineGELU, func(x float64) float64 { return x * sigmoid(2*.7978845608*(x+.044715*x*x*x)) }, -9, 9, 4e-4}, // tanh(5) is not 1
		"gelu erf":   {EngineGELUErf, func(x float64) float64 { return x / 2 * (1 + math.Erf(x/math.Sqrt2)) }, -9, 9, 1e-6},
		"log":        {EngineLog, math.Log, 1e-30, 1e5, 1e-7},
		"sqrt":       {EngineSqrt, math.Sqrt, 0, 1e5, 1e-7},
		"abs":        {EngineAbs, math.Abs, -5, 5, 0},
		"relu":       {func(dst, x []float32) { EngineReLU(dst, x, 0) }, func(x float64) float64 { return max(x, 0) }, -5, 5, 0},
		"leaky relu": {func(dst, x []float32) { EngineReLU(dst, x, .25) }, func(x float64) float64 { return max(x, x/4) }, -5, 5, 0},
	} {
		t.Run(name, func(t *testing.T) {
			var first []float32
			forEachImpl(t, func(t *testing.T) {
				const n = 1003
				x, dst := make([]float32, n), canaries(n+9)
				for i := range x {
					x[i] = c.lo + (c.hi-c.lo)*float32(i)/(n-1)
				}
				c.f(dst[:n:n], x)
				for i, v := range x {
					want := c.want(float64(v))
					if d := math.Abs(float64(dst[i]) - want); !(d <= c.bound*max(1, math.Abs(want))) {
						t.Fatalf("f(%v) is %v, want %v", v, dst[i], want)
					}
				}
				for i, v := range dst[n:] {
					if v != canary {
						t.Fatalf("element %d past the end was written", i)
					}
				}
				c.f(x, x)
				if i := firstDifference(x, dst[:n]); i >= 0 {
					t.Fatalf("element %d is %v in place and %v elsewhere", i, x[i], dst[i])
				}
				if first == nil {
					first = x
				}
				if i := firstDifference(x, first); i >= 0 {
					t.Fatalf("element %d is %x, in another tier %x", i, x[i], first[i])
				}
			})
		})
	}
}

func TestEngineUnaryLimits(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	for name, c := range map[string]struct {
		f       func(dst, x []float32)
		x, want []float32
	}{
		"log":     {EngineLog, []float32{0, 1, inf, -1, 0x1p-149}, []float32{-inf, 0, inf, nan, -103.27893}},
		"exp":     {EngineExp, []float32{-inf, -1e9, 1e9}, []float32{1.6458115e-38, 1.6458115e-38, 6.0760303e37}},
		"sigmoid": {EngineSigmoid, []float32{-inf, inf, 0}, []float32{1.6458115e-38, 1, .5}},
		"tanh":    {EngineTanh, []float32{-inf, inf, 0}, []float32{-1, 1, 0}},
		"gelu":    {EngineGELU, []float32{-1e9, 1e9, 0}, []float32{0, 1e9, 0}},
		"erf":     {EngineGELUErf, []float32{-1e9, 1e9, 0}, []float32{0, 1e9, 0}},
	} {
		got := make([]float32, len(c.x))
		c.f(got, c.x)
		for i, w := range c.want {
			if d := math.Abs(float64(got[i] - w)); got[i] != w && !(d <= 2e-5*math.Abs(float64(w))) && (w == w || got[i] == got[i]) {
				t.Errorf("%s(%v) is %v, want %v", name, c.x[i], got[i], w)
			}
		}
	}
}

func TestEngineSoftmax(t *testing.T) {
	forEachImpl(t, func(t *testing.T) {
		for _, width := range []int{1, 7, 8, 9, 64, 129} {
			x := engineValues(3, 5*width, 20)
			got := make([]float32, len(x))
			EngineSoftmaxRows(got, x, width)
			for r := 0; r < len(x); r += width {
				sum := 0.
				for _, v := range x[r : r+width] {
					sum += math.Exp(float64(v))
				}
				for i, v := range x[r : r+width] {
					if want := math.Exp(float64(v)) / sum; math.Abs(float64(got[r+i])-want) > 1e-6 {
						t.Fatalf("width %d: element %d is %v, want %v", width, i, got[r+i], want)
					}
				}
			}
		}
	})
}

// TestEngineGELUBits compares every tier with portable code on numbers of all sizes, infinities and NaNs.
func TestEngineGELUBits(t *testing.T) {
	x := make([]float32, 4099)
	for i := range x {
		x[i] = math.Float32frombits(uint32(i) * 0x9e3779b9)
	}
	copy(x[100:], engineValues(5, 3000, 4))
	want, got := make([]float32, len(x)), make([]float32, len(x))
	engineGELUGeneric(want, x)
	forEachImpl(t, func(t *testing.T) {
		EngineGELU(got, x)
		for i, w := range want {
			if math.Float32bits(got[i]) != math.Float32bits(w) && (got[i] == got[i] || w == w) {
				t.Fatalf("f(%x) is %x, want %x", x[i], got[i], w)
			}
		}
	})
}

// TestEngineSoftmaxRowsAlone: the rows of a call have the bits that each has alone, summed element by element.
func TestEngineSoftmaxRowsAlone(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	forEachImpl(t, func(t *testing.T) {
		for _, width := range []int{1, 5, 8, 27, 128} {
			for rows := range 10 {
				x := engineValues(7, rows*width, 20)
				if rows > 3 {
					x[width], x[3*width] = nan, inf
				}
				got, row := make([]float32, len(x)), make([]float32, width)
				EngineSoftmaxRows(got, x, width)
				for r := 0; r < len(x); r += width {
					top, sum := float32(-math.MaxFloat32), float32(0)
					for _, v := range x[r : r+width] {
						top = max(top, v)
					}
					for i, v := range x[r : r+width] {
						if row[i] = engineExp(v - top); i >= width&^7 {
							row[i] = expf(v - top)
						}
					}
					for _, p := range row {
						sum += p
					}
					for i, p := range row {
						if w := p * (1 / (sum + 1e-20)); got[r+i] != w && (got[r+i] == got[r+i] || w == w) {
							t.Fatalf("%d rows of %d: element %d is %x, want %x", rows, width, r+i, got[r+i], w)
						}
					}
				}
			}
		}
	})
}
