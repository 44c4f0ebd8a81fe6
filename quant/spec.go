// Package quant defines how weights are stored and chooses the numbers: a [Spec] is a storage form, an
// [Encoder] turns float rows into codes, scales and zero terms, [Pack] and [PackAlpha] make the bytes that
// the engine reads.
//
// The grid of an MNN package is w = scale*q + zero with one (scale, zero) pair for every block of
// consecutive columns of a row. A code is stored as u = q + 2^(bits-1), unsigned.
package quant

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// WholeRow is the block length that gives one block per row.
const WholeRow = 0

// Spec is the storage form of a matrix. The zero value is not valid.
type Spec struct {
	// Bits of a code: 2, 3, 4, 5, 6 or 8; 16 stores IEEE halves without scales.
	Bits int
	// Block is the number of columns that share a scale, or WholeRow.
	Block int
	// Symmetric stores a scale and no zero term; codes use the full range and scales may be negative.
	Symmetric bool
	// Scale is the type of scales and zero terms, F16 or F32.
	Scale tensor.DType
}

// Half is the spec of 16-bit storage.
var Half = Spec{Bits: 16, Scale: tensor.F16}

// Validate rejects specs that no engine reads.
func (s Spec) Validate() error {
	switch s.Bits {
	case 16:
		if s.Block != 0 || s.Symmetric {
			return fmt.Errorf("16 bits have neither blocks nor symmetry: %w", tensor.ErrUnsupported)
		}
		return nil
	case 2, 3, 4, 5, 6, 8:
	default:
		return fmt.Errorf("bits must be one of 2, 3, 4, 5, 6, 8, 16, not %d: %w", s.Bits, tensor.ErrUnsupported)
	}
	switch s.Block {
	case WholeRow, 32, 64, 128:
	default:
		return fmt.Errorf("block must be 32, 64, 128 or a whole row, not %d: %w", s.Block, tensor.ErrUnsupported)
	}
	if s.Scale != tensor.F16 && s.Scale != tensor.F32 {
		return fmt.Errorf("scales must be F16 or F32, not %v: %w", s.Scale, tensor.ErrUnsupported)
	}
	return nil
}

// String prints "w4-b64-asym", "w8-brow-sym", "f16"; fp32 scales add "-s32".
func (s Spec) String() string {
	if s.Bits == 16 {
		return "f16"
	}
	b := "row"
	if s.Block != WholeRow {
		b = strconv.Itoa(s.Block)
	}
	sym := "asym"
	if s.Symmetric {
		sym = "sym"
	}
	t := fmt.Sprintf("w%d-b%s-%s", s.Bits, b, sym)
	if s.Scale == tensor.F32 {
		t += "-s32"
	}
	return t
}

// HeaderBits is the width that an op names for codes of the spec (aMaxOrBits). OpenCL sizes its buffers by it, and reads codes of 5
// to 7 bits as bytes; the other backends read the width from the weights.
func (s Spec) HeaderBits() int {
	if 4 < s.Bits && s.Bits < 8 {
		return 8
	}
	return s.Bits
}

// ParseSpec parses the output of String.
func ParseSpec(t string) (Spec, error) {
	if t == "f16" {
		return Half, nil
	}
	s := Spec{Scale: tensor.F16}
	bad := fmt.Errorf("spec %q: %w", t, tensor.ErrCorrupt)
	p := strings.Split(t, "-")
	if len(p) == 4 && p[3] == "s32" {
		s.Scale, p = tensor.F32, p[:3]
	}
	if len(p) != 3 || !strings.HasPrefix(p[0], "w") || !strings.HasPrefix(p[1], "b") {
		return Spec{}, bad
	}
	var err error
	if s.Bits, err = strconv.Atoi(p[0][1:]); err != nil {
		return Spec{}, bad
	}
	if p[1] != "brow" {
		if s.Block, err = strconv.Atoi(p[1][1:]); err != nil {
			return Spec{}, bad
		}
	}
	switch p[2] {
	case "sym":
		s.Symmetric = true
	case "asym":
	default:
		return Spec{}, bad
	}
	if err := s.Validate(); err != nil || s.String() != t {
		return Spec{}, bad
	}
	return s, nil
}

// Layout is the arithmetic of a matrix stored in a spec.
type Layout struct {
	Rows, Cols int
	// BlockCols is the number of columns of a block, Blocks the number of blocks of a row; both 0 at 16 bits.
	BlockCols, Blocks int
	// Codes and Alpha are lengths in bytes.
	Codes, Alpha int64
}

// Layout computes sizes. Columns that do not divide into blocks are an error: blocks are never changed
// silently.
func (s Spec) Layout(rows, cols int) (Layout, error) {
	if err := s.Validate(); err != nil {
		return Layout{}, err
	}
	if rows <= 0 || cols <= 0 {
		return Layout{}, fmt.Errorf("%d x %d matrix: %w", rows, cols, tensor.ErrCorrupt)
	}
	n, err := tensor.Mul(int64(rows), int64(cols))
	if err != nil {
		return Layout{}, err
	}
	l := Layout{Rows: rows, Cols: cols}
	if s.Bits == 16 {
		if l.Codes, err = tensor.Mul(n, 2); err != nil {
			return Layout{}, err
		}
		return l, nil
	}
	l.BlockCols = s.Block
	if s.Block == WholeRow {
		l.BlockCols = cols
	}
	if cols%l.BlockCols != 0 {
		return Layout{}, fmt.Errorf("%d columns do not divide into blocks of %d: %w", cols, l.BlockCols, tensor.ErrUnsupported)
	}
	// Rows must start on a byte so that they can be packed independently.
	if cols*s.Bits%8 != 0 {
		return Layout{}, fmt.Errorf("rows of %d codes of %d bits do not end on a byte: %w", cols, s.Bits, tensor.ErrUnsupported)
	}
	l.Blocks = cols / l.BlockCols
	bits, err := tensor.Mul(n, int64(s.Bits))
	if err != nil {
		return Layout{}, err
	}
	l.Codes = bits / 8
	per := s.Scale.Size()
	if !s.Symmetric {
		per *= 2
	}
	if l.Alpha, err = tensor.Mul(int64(rows)*int64(l.Blocks), per); err != nil {
		return Layout{}, err
	}
	return l, nil
}

// Bytes returns the total length of codes and alpha.
func (l Layout) Bytes() int64 { return l.Codes + l.Alpha }
