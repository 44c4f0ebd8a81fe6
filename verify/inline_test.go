package verify

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/quant"
	"github.com/llmexport/llmexport/runtime/kernel"
)

// stored encodes random rows.
func stored(t testing.TB, s quant.Spec, q quant.Quantizer, rows, cols int) (codes, alpha []byte, want []float32) {
	t.Helper()
	r := rand.New(rand.NewPCG(1, 2))
	want = make([]float32, rows*cols)
	for i := range want {
		want[i] = float32(r.NormFloat64() * 0.02)
		if i%97 == 0 {
			want[i] *= 30
		}
	}
	l, err := s.Layout(rows, cols)
	if err != nil {
		t.Fatal(err)
	}
	codes, alpha = make([]byte, l.Codes), make([]byte, l.Alpha)
	if s.Bits == 16 {
		kernel.F32ToF16(codes, want)
		return codes, alpha, want
	}
	b := quant.NewBlocks(l, s)
	if err := quant.Encode(q, b, quant.Matrix{Rows: rows, Cols: cols, Data: want}, s, nil); err != nil {
		t.Fatal(err)
	}
	quant.Pack(codes, b.Codes, s.Bits)
	quant.PackAlpha(alpha, b, s)
	return codes, alpha, want
}

var inlineSpecs = []string{"w2-b32-asym", "w3-b64-sym", "w4-b64-asym", "w4-brow-asym-s32", "w5-b32-asym", "w6-b128-asym", "w8-b64-sym", "w8-brow-asym", "f16"}

// The encoder's error is within the bound; one weight that is a step off, a wrong scale, and rows of another matrix are
// not.
func TestCompareWhileWriting(t *testing.T) {
	const rows, cols = 8, 256
	for _, text := range inlineSpecs {
		t.Run(text, func(t *testing.T) {
			s, err := quant.ParseSpec(text)
			if err != nil {
				t.Fatal(err)
			}
			codes, alpha, want := stored(t, s, quant.RTN{}, rows, cols)
			rounded := quant.RTN{}.Closeness()
			worst, err := CompareWritten(rounded, s, cols, codes, alpha, want)
			if err != nil || !(worst > 0.4 && worst <= 1) {
				t.Errorf("share %g, %v", worst, err)
			}
			damage := map[string]func(codes, alpha []byte, want []float32){
				"a code":      func(codes, _ []byte, _ []float32) { codes[5] ^= 0xf0 },
				"another row": func(_, _ []byte, want []float32) { copy(want[cols:2*cols], want[2*cols:3*cols]) },
				"nan":         func(_, _ []byte, want []float32) { want[7] = float32(math.NaN()) },
				"zeros": func(codes, alpha []byte, _ []float32) {
					clear(codes)
					clear(alpha)
				},
			}
			if s.Bits != 16 {
				damage["a scale"] = func(_, alpha []byte, _ []float32) { alpha[len(alpha)-1] ^= 0x44 }
			}
			for name, f := range damage {
				codes, alpha, want := stored(t, s, quant.RTN{}, rows, cols)
				f(codes, alpha, want)
				if share, err := CompareWritten(rounded, s, cols, codes, alpha, want); !(share > 1) && err == nil {
					t.Errorf("%s: share %g", name, share)
				}
			}
		})
	}
}

// Blocks of methods that search for better grids are no worse than rounding to nearest, even where a few weights are
// many times as large as the others; a wrong code, scale or row is worse.
func TestCompareNear(t *testing.T) {
	t.Parallel()
	const rows, cols = 8, 256
	for _, name := range []string{"hqq", "search"} {
		m, err := quant.NewMethod(name)
		if err != nil {
			t.Fatal(err)
		}
		q := m.(quant.Quantizer)
		for _, text := range inlineSpecs {
			s, err := quant.ParseSpec(text)
			if err != nil {
				t.Fatal(err)
			}
			if s.Bits == 16 {
				continue
			}
			codes, alpha, want := stored(t, s, q, rows, cols)
			if share, err := CompareWritten(q.Closeness(), s, cols, codes, alpha, want); err != nil || !(share > 0.2 && share <= 1) {
				t.Errorf("%s %s: share %g, %v", name, s, share, err)
			}
			for what, damage := range map[string]func(codes, alpha []byte, want []float32){
				"a code":      func(codes, _ []byte, _ []float32) { codes[5] ^= 0xff },
				"another row": func(_, _ []byte, want []float32) { copy(want[cols:2*cols], want[2*cols:3*cols]) },
				"a scale":     func(_, alpha []byte, _ []float32) { alpha[len(alpha)-1] ^= 0x44 },
				"zeros":       func(codes, alpha []byte, _ []float32) { clear(alpha) },
			} {
				codes, alpha, want := stored(t, s, q, rows, cols)
				damage(codes, alpha, want)
				if share, err := CompareWritten(q.Closeness(), s, cols, codes, alpha, want); err == nil && !(share > 1) {
					t.Errorf("%s %s, %s: share %g", name, s, what, share)
				}
			}
		}
	}
}

// A tensor that was compared while it was written and is too far off fails the check, and does not end the
// run.
func TestCompared(t *testing.T) {
	t.Parallel()
	if f := Compared(7, 0.9, "a"); !f.Passed {
		t.Errorf("%+v", f)
	}
	if f := Compared(7, 1.1, "model.a.weight"); f.Passed || f.Skipped || !strings.Contains(f.Detail, "model.a.weight: is off by 1.1 times") {
		t.Errorf("%+v", f)
	}
}

func BenchmarkCompareWhileWriting(b *testing.B) {
	for _, text := range []string{"w4-b64-asym", "w8-b64-asym", "f16"} {
		b.Run(text, func(b *testing.B) {
			s, _ := quant.ParseSpec(text)
			codes, alpha, want := stored(b, s, quant.RTN{}, 16, 1024)
			b.SetBytes(int64(2 * len(want)))
			for b.Loop() {
				if _, err := CompareWritten(quant.RTN{}.Closeness(), s, 1024, codes, alpha, want); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
