package quant

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// specs lists every storage form that has codes.
func specs() []Spec {
	var all []Spec
	for _, bits := range []int{2, 3, 4, 5, 6, 8} {
		for _, block := range []int{WholeRow, 32, 64, 128} {
			for _, symmetric := range []bool{false, true} {
				for _, scale := range []tensor.DType{tensor.F16, tensor.F32} {
					all = append(all, Spec{bits, block, symmetric, scale})
				}
			}
		}
	}
	return all
}

// rowsOf returns rows of n weights with all that is hard about a block.
func rowsOf(n int) map[string][]float32 {
	r := rand.New(rand.NewPCG(3, 4))
	fill := func(f func(i int) float64) []float32 {
		row := make([]float32, n)
		for i := range row {
			row[i] = float32(f(i))
		}
		return row
	}
	normal := func(scale float64) []float32 { return fill(func(int) float64 { return r.NormFloat64() * scale }) }
	return map[string][]float32{
		"normal":            normal(0.02),
		"tiny":              normal(1e-8),
		"tinier":            normal(1e-20),
		"subnormal":         normal(1e-41),
		"half subnormal":    normal(3e-6),
		"huge":              fill(func(i int) float64 { return 6e4 * (r.Float64() - 0.5) }),
		"positive":          fill(func(int) float64 { return 1 + r.Float64() }),
		"negative":          fill(func(int) float64 { return -1 - r.Float64() }),
		"zero":              make([]float32, n),
		"negative zero":     fill(func(int) float64 { return math.Copysign(0, -1) }),
		"constant":          fill(func(int) float64 { return 0.1 }),
		"huge constant":     fill(func(int) float64 { return -6e4 }),
		"tiny constant":     fill(func(int) float64 { return 1e-9 }),
		"off centre":        fill(func(int) float64 { return 100 + 0.01*r.Float64() }),
		"an ulp apart":      fill(func(i int) float64 { return 60000 + float64(i%2)*0x1p-8 }),
		"positive outlier":  fill(func(i int) float64 { return float64(0.001*r.NormFloat64()) + 50*float64(1-min(i, 1)) }),
		"negative outlier":  fill(func(i int) float64 { return float64(0.001*r.NormFloat64()) - 50*float64(1-min(i, 1)) }),
		"outlier of zeros":  fill(func(i int) float64 { return -float64(1 - min(i, 1)) }),
		"two values":        fill(func(i int) float64 { return float64(1 - 2*(i%2)) }),
		"smallest non-zero": fill(func(i int) float64 { return math.SmallestNonzeroFloat32 * float64(i%2) }),
	}
}

// A bound that anything meets proves nothing: on ordinary weights it is half a step (a step if symmetric)
// and at most a hundredth of a step more.
func TestBoundIsTight(t *testing.T) {
	for _, s := range []Spec{{4, 64, false, tensor.F16}, {8, 64, false, tensor.F32}, {4, 64, true, tensor.F32}} {
		step := 0.01
		half := 0.5 * step
		if s.Symmetric {
			half = step
		}
		if b := s.Bound(float32(step), 0.02); b < half || b > half+0.01*step {
			t.Errorf("%v: bound %g for a step of %g", s, b, step)
		}
	}
}

func TestRTNConstantBlocks(t *testing.T) {
	for _, v := range []float32{0, 0.5, -3, 60000} { // all of them halves
		s := Spec{4, 32, false, tensor.F16}
		l, _ := s.Layout(1, 32)
		b := NewBlocks(l, s)
		row := make([]float32, 32)
		for i := range row {
			row[i] = v
		}
		if err := Encode(RTN{}, b, Matrix{1, 32, row}, s, nil); err != nil {
			t.Fatal(err)
		}
		if b.Zero[0] != v || b.Codes[0] != 8 || b.Scale[0] != tiny {
			t.Errorf("%g: zero %g, scale %g, code %d", v, b.Zero[0], b.Scale[0], b.Codes[0])
		}
	}
}

func encode(t testing.TB, w Matrix, s Spec) Blocks {
	t.Helper()
	l, err := s.Layout(w.Rows, w.Cols)
	if err != nil {
		t.Fatal(err)
	}
	b := NewBlocks(l, s)
	if err := Encode(RTN{}, b, w, s, nil); err != nil {
		t.Fatal(err)
	}
	return b
}
