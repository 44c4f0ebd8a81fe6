package quant

import (
	"math"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// Matrix holds whole rows of float weights, row-major.
type Matrix struct {
	Rows, Cols int
	Data       []float32
}

// Row returns row r.
func (m Matrix) Row(r int) []float32 { return m.Data[r*m.Cols : (r+1)*m.Cols] }

// Slice returns rows lo to hi-1, in place.
func (m Matrix) Slice(lo, hi int) Matrix {
	return Matrix{Rows: hi - lo, Cols: m.Cols, Data: m.Data[lo*m.Cols : hi*m.Cols]}
}

// Blocks receives the encoded form of a Matrix: Codes [Rows, Cols], one unsigned code in a byte; Scale
// and Zero [Rows, blocks per row]. Zero is nil for symmetric specs. Scales and zeros are already rounded
// to the spec's scale type: the weight is Scale*(code - 2^(bits-1)) + Zero in real arithmetic.
type Blocks struct {
	Codes []uint8
	Scale []float32
	Zero  []float32
}

// NewBlocks allocates room for a matrix of layout l.
func NewBlocks(l Layout, s Spec) Blocks {
	b := Blocks{Codes: make([]uint8, l.Rows*l.Cols), Scale: make([]float32, l.Rows*l.Blocks)}
	if !s.Symmetric {
		b.Zero = make([]float32, l.Rows*l.Blocks)
	}
	return b
}

// Unpacked returns what [Pack] and [PackAlpha] stored: the codes and the parameters of a matrix of layout l.
func Unpacked(codes, alpha []byte, l Layout, s Spec) Blocks {
	b := NewBlocks(l, s)
	Unpack(b.Codes, codes, s.Bits)
	UnpackAlpha(b, alpha, s)
	return b
}

// Slice returns rows lo to hi-1 of a number of rows, in place.
func (b Blocks) Slice(lo, hi, rows int) Blocks {
	cols, blocks := len(b.Codes)/rows, len(b.Scale)/rows
	part := Blocks{Codes: b.Codes[lo*cols : hi*cols], Scale: b.Scale[lo*blocks : hi*blocks]}
	if b.Zero != nil {
		part.Zero = b.Zero[lo*blocks : hi*blocks]
	}
	return part
}

// Dequantize writes the weights that codes, scales and zero terms represent.
func (b Blocks) Dequantize(dst []float32, s Spec) {
	mid := float32(int(1) << (s.Bits - 1))
	width := len(b.Codes) / len(b.Scale)
	for i, scale := range b.Scale {
		var zero float32
		if !s.Symmetric {
			zero = b.Zero[i]
		}
		for j, c := range b.Codes[i*width : (i+1)*width] {
			dst[i*width+j] = float32(scale*(float32(c)-mid)) + zero
		}
	}
}

// Bound returns the largest error that round-to-nearest may leave on any weight of a block with the given
// stored scale and zero term: half a step, plus the rounding of scale and zero to their type (at the far end
// of the range the scale's rounding counts once per code). Full-range symmetric codes lack +2^(bits-1), so
// there the largest opposite weight may miss by a whole step.
func (s Spec) Bound(scale, zero float32) float64 {
	levels := float64(int(1)<<s.Bits - 1)
	sc := math.Abs(float64(scale))
	step := float64(0.5 * sc)
	if s.Symmetric {
		step = sc
	}
	return (step + float64(levels*s.ulp(scale)) + s.ulp(zero)) * (1 + 1e-5)
}

// ulp is half a unit in the last place of v in the scale's type.
func (s Spec) ulp(v float32) float64 {
	a := math.Abs(float64(v))
	if s.Scale == tensor.F16 {
		return math.Max(a*0x1p-11, 0x1p-25)
	}
	return math.Max(a*0x1p-22, 0x1p-148)
}
