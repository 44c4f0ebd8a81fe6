package kernel

import (
	"fmt"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// WeightCodes describes the stored weights of a linear layer. With u an unsigned code the weight is
//
//	Scale*(u - 2^(Bits-1)) + Zero
//
// A codebook of signed bytes is given as Bits 8 and u = byte + 128, which is how MNN runs it.
type WeightCodes struct {
	// Rows are output channels, Cols input channels; Block columns share a scale and divide Cols.
	Rows, Cols, Block int
	// Bits is 1 to 8.
	Bits int
	// Codes is [Rows, Cols], each below 2^Bits.
	Codes []uint8
	// Scale is [Rows, Cols/Block], the alpha as float32.
	Scale []float32
	// Zero is [Rows, Cols/Block], or nil for symmetric weights.
	Zero []float32
	// Bias is [Rows], or nil.
	Bias []float32
}

// maxBlock keeps the sum of a block, at most 255*128 a column, inside an int32.
const maxBlock = 1 << 16

// Int8Matrix multiplies int8 activations with quantized weights as MNN on x86 does at `memory: low`.
// It is immutable and safe for concurrent use.
//
// Emulates DenseConvInt8TiledExecutor and _computeReorderQuantInfo (ConvInt8TiledExecutor.cpp) and
// the kernels _AVX_MNNGemmInt8AddBiasScale_16x4_w4 (4 bits) and _16x4_Unit (all other widths, which
// the loader has expanded to int8) of avx/GemmInt8.cpp.
type Int8Matrix struct {
	rows, cols, block int
	blocks            int          // cols/block
	nibbles           bool         // 4 bits
	codes             []int8       // [rows, cols]; 0..15 for 4 bits, signed for all other widths
	terms             []weightTerm // [rows, blocks]
	sums              []float32    // [rows]: sum of the weights of a row
	bias              []float32    // [rows]
	panels            *int8Panels  // in the place of codes and terms, where SIMD code multiplies
}

// weightTerm is what Mul needs of one row and block besides the codes.
type weightTerm struct {
	lift   int32 // 128 times the sum of the codes: from signed activation codes to MNN's bytes
	scale  float32
	offset float32 // the weight of code 0
	sum    float32 // of the weights of the block
	tail   float32 // sum of the weights of the row in its last block, else 0
}

// NewInt8Matrix converts w. Lengths that disagree and codes out of range are tensor.ErrCorrupt; a
// block that is neither the whole row nor a multiple of 8 is tensor.ErrUnsupported, because MNN's
// packing reads across such blocks, and so is one of more than 65,536 columns.
func NewInt8Matrix(w WeightCodes) (*Int8Matrix, error) {
	if err := w.check(); err != nil {
		return nil, err
	}
	blocks := w.Cols / w.Block
	m := &Int8Matrix{
		rows: w.Rows, cols: w.Cols, block: w.Block, blocks: blocks, nibbles: w.Bits == 4,
		codes: make([]int8, len(w.Codes)),
		terms: make([]weightTerm, len(w.Scale)),
		sums:  make([]float32, w.Rows),
		bias:  make([]float32, w.Rows),
	}
	copy(m.bias, w.Bias)
	// The 4-bit kernel works on 0..15 and has the 8 in its offset.
	half, lift := 1<<(w.Bits-1), float32(0)
	if w.Bits == 4 {
		half, lift = 0, -8
	}
	for i, u := range w.Codes {
		if int(u)>>w.Bits != 0 {
			return nil, fmt.Errorf("code %d of row %d does not fit %d bits: %w", u, i/w.Cols, w.Bits, tensor.ErrCorrupt)
		}
		m.codes[i] = int8(int(u) - half)
	}
	// MNN adds up 4-bit rows of an unaligned matrix in another order of rounding.
	recentred := w.Bits == 4 && (w.Rows%8 != 0 || w.Cols%4 != 0)
	size := float32(w.Block)
	for r := range w.Rows {
		total := float32(0)
		for b := range blocks {
			i := r*blocks + b
			n := int32(0)
			for _, c := range m.codes[r*w.Cols+b*w.Block:][:w.Block] {
				n += int32(c)
			}
			zero := float32(0)
			if w.Zero != nil {
				zero = w.Zero[i]
			}
			term := weightTerm{lift: 128 * n, scale: w.Scale[i], offset: zero + float32(lift*w.Scale[i])}
			if recentred {
				term.sum = float32(float32(n-int32(8*w.Block))*term.scale) + float32(size*zero)
			} else {
				term.sum = float32(float32(n)*term.scale) + float32(size*term.offset)
			}
			total += term.sum
			m.terms[i] = term
		}
		m.terms[(r+1)*blocks-1].tail = total
		m.sums[r] = total
	}
	m.pack()
	return m, nil
}

func (w *WeightCodes) check() error {
	if w.Rows <= 0 || w.Cols <= 0 || w.Block <= 0 || w.Cols%w.Block != 0 {
		return fmt.Errorf("matrix [%d %d] with blocks of %d: %w", w.Rows, w.Cols, w.Block, tensor.ErrCorrupt)
	}
	if w.Bits < 1 || w.Bits > 8 {
		return fmt.Errorf("weights of %d bits: %w", w.Bits, tensor.ErrUnsupported)
	}
	if w.Block != w.Cols && w.Block%8 != 0 {
		return fmt.Errorf("int8 activations with blocks of %d columns, no multiple of 8: %w", w.Block, tensor.ErrUnsupported)
	}
	if w.Block > maxBlock {
		return fmt.Errorf("int8 activations with blocks of %d columns, more than %d: %w", w.Block, maxBlock, tensor.ErrUnsupported)
	}
	n, err := tensor.Mul(int64(w.Rows), int64(w.Cols))
	if err != nil {
		return err
	}
	scales := w.Rows * (w.Cols / w.Block)
	for _, l := range []struct {
		name      string
		have, all int
		optional  bool
	}{
		{"codes", len(w.Codes), int(n), false},
		{"scales", len(w.Scale), scales, false},
		{"zeros", len(w.Zero), scales, w.Zero == nil},
		{"biases", len(w.Bias), w.Rows, w.Bias == nil},
	} {
		if l.have != l.all && !l.optional {
			return fmt.Errorf("matrix [%d %d] with blocks of %d has %d %s, want %d: %w",
				w.Rows, w.Cols, w.Block, l.have, l.name, l.all, tensor.ErrCorrupt)
		}
	}
	return nil
}

// Rows is the number of output channels.
func (m *Int8Matrix) Rows() int { return m.rows }

// Cols is the number of input channels.
func (m *Int8Matrix) Cols() int { return m.cols }

// Block is the number of columns that share a scale; pass it to Quantize.
func (m *Int8Matrix) Block() int { return m.block }
