package verify

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/llmexport/llmexport/quant"
	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// stored encodes random rows.
func stored(t testing.TB, s quant.Spec, q quant.Quantizer, rows, cols int) (codes, alpha []byte, want []float32) {
	t.Helper()
	r := rand.New(rand.NewPCG(1, 2))
	want = make([]float32, rows*cols)
	for i := range want {
		want[i] = float32(r.NormFloat64() * 0.02)
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

// What the encoder leaves is within the bound; one weight that is a step off, a scale that is another, and rows of another
// matrix are not.
func TestCompareWhileWriting(t *testing.T) {
	const rows, cols = 8, 256
	for _, text := range inlineSpecs {
		t.Run(text, func(t *testing.T) {
			s, err := quant.ParseSpec(text)
			if err != nil {
				t.Fatal(err)
			}
			codes, alpha, want := stored(t, s, quant.RTN{}, rows, cols)
			worst, _, _, err := Rounded.Compare(s, cols, codes, alpha, want)
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
				if _, _, _, err := Rounded.Compare(s, cols, codes, alpha, want); !errors.Is(err, tensor.ErrCorrupt) {
					t.Errorf("%s: %v", name, err)
				}
			}
		})
	}
}

// Fitted weights are judged by row and as a whole.
func TestCompareFitted(t *testing.T) {
	const rows, cols = 16, 256
	for bits, limit := range fittedError {
		s := quant.Spec{Bits: bits, Block: 64, Scale: tensor.F16}
		codes, alpha, want := stored(t, s, hqq(t), rows, cols)
		worst, off, total, err := Fitted.Compare(s, cols, codes, alpha, want)
		if err != nil || worst != 0 || !(off > 0 && total > 0) {
			t.Fatalf("%d bits: %g %g %g, %v", bits, worst, off, total, err)
		}
		share, err := Fitted.Share(s, worst, off, total)
		if err != nil || share != off/total/limit || share > 1 {
			t.Errorf("%d bits: share %g, %v", bits, share, err)
		}
		if _, err := Fitted.Share(s, 0, 2*limit*total, total); !errors.Is(err, tensor.ErrCorrupt) {
			t.Errorf("%d bits: twice the limit: %v", bits, err)
		}
		if bits == 2 {
			continue // whose codes may miss a row by as much as another row does
		}
		copy(want[cols:2*cols], want[2*cols:3*cols])
		if _, _, _, err := Fitted.Compare(s, cols, codes, alpha, want); !errors.Is(err, tensor.ErrCorrupt) {
			t.Errorf("%d bits: another row: %v", bits, err)
		}
	}
}

func BenchmarkCompareWhileWriting(b *testing.B) {
	for _, text := range []string{"w4-b64-asym", "w8-b64-asym", "f16"} {
		b.Run(text, func(b *testing.B) {
			s, _ := quant.ParseSpec(text)
			codes, alpha, want := stored(b, s, quant.RTN{}, 16, 1024)
			b.SetBytes(int64(2 * len(want)))
			for b.Loop() {
				if _, _, _, err := Rounded.Compare(s, 1024, codes, alpha, want); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func hqq(t testing.TB) quant.Quantizer {
	t.Helper()
	m, err := quant.NewMethod("hqq")
	if err != nil {
		t.Fatal(err)
	}
	return m.(quant.Quantizer)
}
