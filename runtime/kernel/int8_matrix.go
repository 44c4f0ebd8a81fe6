package kernel

import (
	"encoding/binary"
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
	// Nibbles is [Rows, Cols] in the place of Codes for 4 bits, two codes a byte with the first in the high half, as
	// packages store them. A row of an odd number of columns starts in the middle of a byte.
	Nibbles []byte
	// Scale is [Rows, Cols/Block], the alpha as float32.
	Scale []float32
	// Zero is [Rows, Cols/Block], or nil for symmetric weights.
	Zero []float32
	// Bias is [Rows], or nil.
	Bias []float32
	// Option is how activations are to be quantized: only with DynBlock may they have blocks of their own.
	Option DynOption
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
	blocks            int       // cols/block
	nibbles           bool      // 4 bits
	tails             []float32 // [rows], filled up to whole panels: sum of the weights of a row
	bias              []float32 // as tails
	option            DynOption
	plain             int8Plain   // for the generic code
	panels            *int8Panels // in the place of plain, where SIMD code multiplies
}

// int8Plain is the layout of the generic code.
type int8Plain struct {
	codes []int8       // [rows, cols]; 0..15 for 4 bits, signed for all other widths
	terms []weightTerm // [rows, blocks]
}

// weightTerm holds the terms of one row and block for Mul.
type weightTerm struct {
	scale  float32
	offset float32 // the weight of code 0
	sum    float32 // of the weights of the block
}

// int8PanelRows is the number of rows that SIMD code takes together; arrays of rows are filled up to whole panels.
const int8PanelRows = 32

// NewInt8Matrix converts w on up to threads goroutines, see Parallel; it keeps nothing of w. Lengths
// that disagree and codes out of range are tensor.ErrCorrupt; a block that is neither the whole row
// nor a multiple of 8 is tensor.ErrUnsupported, because MNN's packing reads across such blocks, and
// so is one of more than 65,536 columns.
func NewInt8Matrix(w WeightCodes, threads int) (*Int8Matrix, error) {
	if err := w.check(); err != nil {
		return nil, err
	}
	panels := (w.Rows + int8PanelRows - 1) / int8PanelRows
	m := &Int8Matrix{
		rows: w.Rows, cols: w.Cols, block: w.Block, blocks: w.Cols / w.Block, nibbles: w.Bits == 4, option: w.Option,
		tails: make([]float32, panels*int8PanelRows),
		bias:  make([]float32, panels*int8PanelRows),
	}
	copy(m.bias, w.Bias)
	pack := m.packPlain
	if m.newPanels(panels, w.Option) {
		pack = m.packPanels
	} else {
		m.plain = int8Plain{codes: make([]int8, w.Rows*w.Cols), terms: make([]weightTerm, w.Rows*m.blocks)}
	}
	Parallel(threads, panels, func(lo, hi int) {
		pack(&w, lo*int8PanelRows, min(hi*int8PanelRows, w.Rows))
	})
	return m, nil
}

// packPlain converts rows lo to hi-1.
func (m *Int8Matrix) packPlain(w *WeightCodes, lo, hi int) {
	row := make([]uint8, m.cols)
	for r := lo; r < hi; r++ {
		w.row(row, r)
		codes := m.plain.codes[r*m.cols:][:m.cols]
		for i, u := range row {
			codes[i] = int8(int(u) - w.half())
		}
		scale, zero := m.scales(w, r)
		for b := range m.blocks {
			n, z := int32(0), float32(0)
			for _, c := range codes[b*m.block:][:m.block] {
				n += int32(c)
			}
			if zero != nil {
				z = zero[b]
			}
			term := m.term(scale[b], z, n)
			m.plain.terms[r*m.blocks+b] = term
			m.tails[r] += term.sum
		}
	}
}

// half is the difference of the unsigned codes and those of the matrix: the 4-bit kernel works on 0..15 and has the 8 in its
// offset.
func (w *WeightCodes) half() int {
	if w.Bits == 4 {
		return 0
	}
	return 1 << (w.Bits - 1)
}

// term converts scale and zero of a block whose codes in the matrix add up to n.
func (m *Int8Matrix) term(scale, zero float32, n int32) weightTerm {
	size := float32(m.block)
	switch {
	case !m.nibbles:
		return weightTerm{scale, zero, float32(float32(n)*scale) + float32(size*zero)}
	case m.rows%8 != 0 || m.cols%4 != 0:
		// MNN adds up 4-bit rows of an unaligned matrix in another order of rounding.
		sum := float32(float32(n-int32(8*m.block))*scale) + float32(size*zero)
		return weightTerm{scale, zero + float32(-8*scale), sum}
	}
	offset := zero + float32(-8*scale)
	return weightTerm{scale, offset, float32(float32(n)*scale) + float32(size*offset)}
}

// scales are the scales of row r and its zeros, or nil.
func (m *Int8Matrix) scales(w *WeightCodes, r int) (scale, zero []float32) {
	scale = w.Scale[r*m.blocks:][:m.blocks]
	if w.Zero != nil {
		zero = w.Zero[r*m.blocks:][:m.blocks]
	}
	return scale, zero
}

// row writes the unsigned codes of row r.
func (w *WeightCodes) row(dst []uint8, r int) {
	if w.Nibbles == nil {
		copy(dst[:w.Cols], w.Codes[r*w.Cols:])
		return
	}
	for i := range dst[:w.Cols] {
		at := r*w.Cols + i
		dst[i] = w.Nibbles[at/2] >> (4 * (1 - at&1)) & 15
	}
}

func (w *WeightCodes) check() error {
	if w.Rows <= 0 || w.Cols <= 0 || w.Block <= 0 || w.Cols%w.Block != 0 {
		return fmt.Errorf("matrix [%d %d] with blocks of %d: %w", w.Rows, w.Cols, w.Block, tensor.ErrCorrupt)
	}
	if w.Bits < 1 || w.Bits > 8 {
		return fmt.Errorf("weights of %d bits: %w", w.Bits, tensor.ErrUnsupported)
	}
	if w.Block != w.Cols && w.Block%8 != 0 {
		return fmt.Errorf("int8 activations with blocks of %d columns, not a multiple of 8: %w", w.Block, tensor.ErrUnsupported)
	}
	if w.Block > maxBlock {
		return fmt.Errorf("int8 activations with blocks of %d columns, more than %d: %w", w.Block, maxBlock, tensor.ErrUnsupported)
	}
	n, err := tensor.Mul(int64(w.Rows), int64(w.Cols))
	if err != nil {
		return err
	}
	codes, want := len(w.Codes), n
	if w.Nibbles != nil {
		if w.Bits != 4 || w.Codes != nil {
			return fmt.Errorf("packed codes of %d bits in addition to %d others: %w", w.Bits, len(w.Codes), tensor.ErrCorrupt)
		}
		codes, want = len(w.Nibbles), n/2+n%2
	}
	scales := w.Rows * (w.Cols / w.Block)
	for _, l := range []struct {
		name      string
		have, all int
		optional  bool
	}{
		{"codes", codes, int(want), false},
		{"scales", len(w.Scale), scales, false},
		{"zeros", len(w.Zero), scales, w.Zero == nil},
		{"biases", len(w.Bias), w.Rows, w.Bias == nil},
	} {
		if l.have != l.all && !l.optional {
			return fmt.Errorf("matrix [%d %d] with blocks of %d has %d %s, want %d: %w",
				w.Rows, w.Cols, w.Block, l.have, l.name, l.all, tensor.ErrCorrupt)
		}
	}
	return w.checkCodes()
}

// checkCodes looks at eight codes at a time until it finds one that does not fit.
func (w *WeightCodes) checkCodes() error {
	over := ^uint64(1<<w.Bits-1) & 255 * 0x0101010101010101
	c := w.Codes
	for len(c) >= 8 && binary.LittleEndian.Uint64(c)&over == 0 {
		c = c[8:]
	}
	for i, u := range c {
		if int(u)>>w.Bits != 0 {
			return fmt.Errorf("code %d of row %d does not fit %d bits: %w", u, (len(w.Codes)-len(c)+i)/w.Cols, w.Bits, tensor.ErrCorrupt)
		}
	}
	return nil
}

// Rows is the number of output channels.
func (m *Int8Matrix) Rows() int { return m.rows }

// Cols is the number of input channels.
func (m *Int8Matrix) Cols() int { return m.cols }

// Block is the number of columns that share a scale; pass it to [QuantizedRows.Reset].
func (m *Int8Matrix) Block() int { return m.block }
