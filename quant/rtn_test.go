package quant

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

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

// A weight is Scale*(code - 2^(bits-1)) + Zero; the engine computes it in float32, which Bound allows for.
func TestRTNErrorIsWithinBound(t *testing.T) {
	const cols = 256
	for _, s := range specs() {
		t.Run(s.String(), func(t *testing.T) {
			l, err := s.Layout(1, cols)
			if err != nil {
				t.Fatal(err)
			}
			for name, row := range rowsOf(cols) {
				b := NewBlocks(l, s)
				if err := Encode(RTN{}, b, Matrix{1, cols, row}, s, nil); err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				for i, v := range row {
					scale, zero := b.Scale[i/l.BlockCols], float32(0)
					if !s.Symmetric {
						zero = b.Zero[i/l.BlockCols]
					}
					if int(b.Codes[i]) >= 1<<s.Bits {
						t.Fatalf("%s: code %d", name, b.Codes[i])
					}
					got := float64(scale)*(float64(b.Codes[i])-float64(int(1)<<(s.Bits-1))) + float64(zero)
					if d := math.Abs(got - float64(v)); !(d <= s.Bound(scale, zero)) {
						t.Fatalf("%s: weight %d is %g, stored %g (code %d, scale %g, zero %g), off by %g, bound %g", name, i, v, got, b.Codes[i], scale, zero, d, s.Bound(scale, zero))
					}
				}
			}
		})
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

func TestRTNRefuses(t *testing.T) {
	inf := float32(math.Inf(1))
	nan := float32(math.NaN())
	for _, c := range []struct {
		name string
		spec Spec
		set  map[int]float32
		want error
	}{
		{"NaN", Spec{4, 32, false, tensor.F16}, map[int]float32{40: nan}, tensor.ErrCorrupt},
		{"NaN first", Spec{4, 32, true, tensor.F32}, map[int]float32{0: nan}, tensor.ErrCorrupt},
		{"NaN last", Spec{3, WholeRow, true, tensor.F32}, map[int]float32{127: nan}, tensor.ErrCorrupt},
		{"all NaN", Spec{3, 32, true, tensor.F32}, map[int]float32{0: nan, 1: nan, 2: nan, 3: nan}, tensor.ErrCorrupt},
		{"infinity", Spec{4, 32, false, tensor.F16}, map[int]float32{5: inf}, tensor.ErrCorrupt},
		{"negative infinity", Spec{8, 32, true, tensor.F16}, map[int]float32{77: -inf}, tensor.ErrCorrupt},
		{"both infinities", Spec{8, 32, true, tensor.F16}, map[int]float32{1: -inf, 2: inf}, tensor.ErrCorrupt},
		{"scale beyond halves", Spec{2, 32, true, tensor.F16}, map[int]float32{9: 2e5}, tensor.ErrUnsupported},
		{"zero term beyond halves", Spec{8, 32, false, tensor.F16}, map[int]float32{9: 2e5}, tensor.ErrUnsupported},
		{"span beyond floats", Spec{8, 32, false, tensor.F32}, map[int]float32{9: 3e38, 10: -3e38}, tensor.ErrUnsupported},
		{"columns", Spec{4, 32, false, tensor.Invalid}, nil, tensor.ErrUnsupported},
	} {
		t.Run(c.name, func(t *testing.T) {
			row := make([]float32, 2*128)
			for i, v := range c.set {
				row[128+i] = v // the second row
			}
			b := Blocks{Codes: make([]uint8, 256), Scale: make([]float32, 8), Zero: make([]float32, 8)}
			err := Encode(RTN{}, b, Matrix{2, 128, row}, c.spec, nil)
			if !errors.Is(err, c.want) {
				t.Fatalf("error %v, want %v", err, c.want)
			}
			if c.set != nil && !strings.HasPrefix(err.Error(), "row 1: ") {
				t.Errorf("error %q does not name the row", err)
			}
		})
	}
	t.Run("halves", func(t *testing.T) {
		if err := Encode(RTN{}, Blocks{}, Matrix{1, 32, make([]float32, 32)}, Half, nil); err == nil {
			t.Error("16 bits have no codes")
		}
	})
}

// The same rows give the same codes, scales and zeros however a matrix is cut.
func TestRTNDoesNotDependOnCuts(t *testing.T) {
	const rows, cols = 13, 128
	r := rand.New(rand.NewPCG(9, 9))
	w := Matrix{rows, cols, make([]float32, rows*cols)}
	for i := range w.Data {
		w.Data[i] = float32(r.NormFloat64())
	}
	for _, s := range specs() {
		whole := encode(t, w, s)
		for _, step := range []int{1, 2, 5, 12} {
			var cut Blocks
			for lo := 0; lo < rows; lo += step {
				hi := min(lo+step, rows)
				b := encode(t, Matrix{hi - lo, cols, w.Data[lo*cols : hi*cols]}, s)
				cut.Codes = append(cut.Codes, b.Codes...)
				cut.Scale = append(cut.Scale, b.Scale...)
				cut.Zero = append(cut.Zero, b.Zero...)
			}
			if diff := cmp.Diff(whole, cut); diff != "" {
				t.Fatalf("%v in steps of %d (-whole +cut):\n%s", s, step, diff)
			}
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

// The digest holds codes and terms still, on every architecture. The weights come from an integer hash, so
// that nothing but RTN rounds.
func TestRTNIsTheSameEverywhere(t *testing.T) {
	const rows, cols = 8, 256
	w := Matrix{rows, cols, make([]float32, rows*cols)}
	for i := range w.Data {
		h := uint32(i+1) * 2654435761
		w.Data[i] = float32(int32(h)>>8) * 0x1p-26
	}
	sum := uint64(14695981039346656037)
	add := func(v uint32) { sum = (sum ^ uint64(v)) * 1099511628211 }
	for _, s := range specs() {
		b := encode(t, w, s)
		for _, c := range b.Codes {
			add(uint32(c))
		}
		for i := range b.Scale {
			add(math.Float32bits(b.Scale[i]))
			if !s.Symmetric {
				add(math.Float32bits(b.Zero[i]))
			}
		}
	}
	const want = "b5df255514c3f5be"
	if got := fmt.Sprintf("%016x", sum); got != want {
		t.Errorf("digest %s, want %s", got, want)
	}
}

func TestMethod(t *testing.T) {
	for _, name := range Methods() {
		e, err := NewMethod(name)
		if err != nil || e.Name() != name {
			t.Errorf("%s: %v, %v", name, e, err)
		}
	}
	if _, err := NewMethod("magic"); err == nil || !strings.Contains(err.Error(), "rtn") {
		t.Errorf("unknown method: %v", err)
	}
}
