package quantized

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"sync"

	"github.com/llmexport/llmexport/quant"
	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// linear is a packed matrix.
type linear struct {
	info       tensor.Info // of the float view
	rows, cols int
	bits       int
	// group is the number of columns that share a scale, the last group may be shorter; groups is their number.
	group, groups int
	// of is the group of each column, nil if that is column/group.
	of []int32
	// transposed is set if codes are stored as [cols, rows], and scales and zero points as [groups, rows].
	transposed bool
	codes      words
	zeros      *words // nil: all are 2^(bits-1)
	zeroAdd    int    // is added to a stored zero point
	symmetric  bool   // the config promises zero points of 2^(bits-1)
	scales     io.ReaderAt
	scaleType  tensor.DType

	once sync.Once
	spec quant.Spec
	err  error
}

// readCodes writes the codes of rows lo to hi-1, row-major.
func (l *linear) readCodes(dst []uint8, lo, hi int) error {
	return l.codes.lines(dst, lo, hi, l.cols)
}

// points are the scales and zero points of a run of rows, row-major.
type points struct {
	scale []float32
	// shift is 2^(bits-1) - zp.
	shift []int16
}

// maxScale is the largest scale whose products with codes are finite.
const maxScale = math.MaxFloat32 / 256

// readTerms reads and checks scales and zero points of rows lo to hi-1.
func (l *linear) readTerms(lo, hi int) (*points, error) {
	n, size := hi-lo, int(l.scaleType.Size())
	count := n * l.groups
	t := &points{scale: make([]float32, count), shift: make([]int16, count)}
	raw := make([]byte, count*size)
	stored := make([]uint8, count)
	var err error
	if l.transposed {
		wide := make([]float32, count)
		if err = readRect(l.scales, raw, size*l.rows, 0, l.groups, size*lo, size*hi); err == nil {
			err = kernel.ToF32(wide, raw, l.scaleType)
		}
		for i, v := range wide {
			t.scale[i%n*l.groups+i/n] = v
		}
		if err == nil && l.zeros != nil {
			err = l.zeros.read(stored, 0, l.groups, lo, hi, 1, l.groups)
		}
	} else {
		if err = readRect(l.scales, raw, size*l.groups, lo, hi, 0, size*l.groups); err == nil {
			err = kernel.ToF32(t.scale, raw, l.scaleType)
		}
		if err == nil && l.zeros != nil {
			err = l.zeros.read(stored, lo, hi, 0, l.groups, l.groups, 1)
		}
	}
	if err != nil {
		return nil, err
	}
	for i, v := range t.scale {
		if !(v <= maxScale && v >= -maxScale) {
			return nil, fmt.Errorf("row %d: scale of group %d is %g: %w", lo+i/l.groups, i%l.groups, v, tensor.ErrCorrupt)
		}
	}
	if l.zeros == nil {
		return t, nil
	}
	mid := 1 << (l.bits - 1)
	for i, v := range stored {
		zp := int(v) + l.zeroAdd
		if zp >= 2*mid {
			return nil, fmt.Errorf("row %d: zero point of group %d is stored as %d, which some readers of gptq take for -1 and others "+
				"for %d; gptq_v2 is unambiguous: %w", lo+i/l.groups, i%l.groups, v, zp, tensor.ErrCorrupt)
		}
		if l.symmetric && zp != mid {
			return nil, fmt.Errorf("row %d: zero point of group %d is %d, but symmetric codes, which the config announces, have %d: %w",
				lo+i/l.groups, i%l.groups, zp, mid, tensor.ErrCorrupt)
		}
		t.shift[i] = int16(mid - zp)
	}
	return t, nil
}

// pieceTerms is the number of scales that are read at a time.
const pieceTerms = 1 << 16

// storage determines once how the matrix can be stored.
func (l *linear) storage() (quant.Spec, error) {
	l.once.Do(func() { l.spec, l.err = l.decide() })
	return l.spec, l.err
}

// requantize ends the errors for matrices that cannot be stored unchanged.
const requantize = "its weights have to be quantized again, best from the float checkpoint"

func (l *linear) decide() (quant.Spec, error) {
	s := quant.Spec{Bits: l.bits, Symmetric: true, Scale: tensor.F16}
	if l.of != nil {
		return s, fmt.Errorf("g_idx: groups of columns in the order of their activations (desc_act) are not blocks; %s: %w", requantize, tensor.ErrUnsupported)
	}
	if l.groups > 1 {
		if s.Block = block(l.group, l.cols); s.Block == 0 {
			return s, fmt.Errorf("groups of %d in %d columns do not divide into blocks of 32, 64 or 128; %s: %w", l.group, l.cols, requantize, tensor.ErrUnsupported)
		}
	}
	if _, err := s.Layout(l.rows, l.cols); err != nil {
		return s, err
	}
	step := max(1, pieceTerms/l.groups)
	for lo := 0; lo < l.rows; lo += step {
		t, err := l.readTerms(lo, min(lo+step, l.rows))
		if err != nil {
			return s, err
		}
		for i, v := range t.scale {
			if t.shift[i] != 0 {
				s.Symmetric = false
			}
			zero := float64(v) * float64(t.shift[i]) // exact: 24 and 9 bits
			z := float32(zero)
			if float64(z) != zero {
				return s, fmt.Errorf("row %d: zero term %g*%d of group %d is not a float32; %s: %w", lo+i/l.groups, v, t.shift[i], i%l.groups, requantize,
					tensor.ErrUnsupported)
			}
			if kernel.RoundF16(v) != v || kernel.RoundF16(z) != z {
				s.Scale = tensor.F32
			}
		}
	}
	return s, nil
}

// block returns the longest block that divides both groups and rows, or 0.
func block(group, cols int) int {
	for _, b := range []int{128, 64, 32} {
		if group%b == 0 && cols%b == 0 {
			return b
		}
	}
	return 0
}

// blocks fills dst, which has the layout of rows lo to hi-1 in spec s.
func (l *linear) blocks(dst quant.Blocks, s quant.Spec, lo, hi int) error {
	lay, err := s.Layout(hi-lo, l.cols)
	if err != nil {
		return err
	}
	if lo < 0 || hi > l.rows || len(dst.Codes) != (hi-lo)*l.cols || len(dst.Scale) != (hi-lo)*lay.Blocks || (!s.Symmetric && len(dst.Zero) != len(dst.Scale)) {
		return fmt.Errorf("internal error: rows %d to %d of %d in %v: %d codes, %d scales, %d zero terms", lo, hi, l.rows, s, len(dst.Codes),
			len(dst.Scale), len(dst.Zero))
	}
	if err := l.readCodes(dst.Codes, lo, hi); err != nil {
		return err
	}
	return l.terms(dst, lay, lo, hi)
}

// terms fills the scales and zero terms of dst for rows lo to hi-1, which have layout lay.
func (l *linear) terms(dst quant.Blocks, lay quant.Layout, lo, hi int) error {
	t, err := l.readTerms(lo, hi)
	if err != nil {
		return err
	}
	for i := range dst.Scale {
		r, b := i/lay.Blocks, i%lay.Blocks
		k := r*l.groups + b*lay.BlockCols/l.group
		dst.Scale[i] = t.scale[k]
		if dst.Zero != nil {
			dst.Zero[i] = zeroTerm(t.scale[k], t.shift[k])
		}
	}
	return nil
}

// zeroTerm is scale*shift; a zero has no sign.
func zeroTerm(scale float32, shift int16) float32 {
	if shift == 0 {
		return 0
	}
	return float32(scale * float32(shift))
}

// floats computes the weights of rows lo to hi-1 and writes them as little-endian float32.
func (l *linear) floats(dst []byte, lo, hi int) error {
	t, err := l.readTerms(lo, hi)
	if err != nil {
		return err
	}
	codes := make([]uint8, (hi-lo)*l.cols)
	if err := l.readCodes(codes, lo, hi); err != nil {
		return err
	}
	mid := int32(1) << (l.bits - 1)
	for r := range hi - lo {
		scale, shift := t.scale[r*l.groups:][:l.groups], t.shift[r*l.groups:][:l.groups]
		u := codes[r*l.cols:][:l.cols]
		w := dst[r*l.cols*4:][:l.cols*4]
		if l.of != nil {
			for c, v := range u {
				g := l.of[c]
				binary.LittleEndian.PutUint32(w[4*c:], math.Float32bits(scale[g]*float32(int32(v)-mid+int32(shift[g]))))
			}
			continue
		}
		for g, s := range scale {
			less := int32(shift[g]) - mid
			from, to := g*l.group, min((g+1)*l.group, l.cols)
			part := w[4*from : 4*to]
			for c, v := range u[from:to] {
				binary.LittleEndian.PutUint32(part[4*c:], math.Float32bits(s*float32(int32(v)+less)))
			}
		}
	}
	return nil
}
