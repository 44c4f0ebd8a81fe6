package quant

import (
	"fmt"
	"math"

	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// RTN rounds to the nearest point of the grid that the block's extremes span, and uses no data.
//
// Asymmetric: scale = (max-min)/(2^b-1), zero = min + scale*2^(b-1), both rounded to their stored type
// before the codes are chosen. Symmetric: scale = m/-2^(b-1) with m the weight of largest magnitude and
// its sign, so that m itself is on the grid and all 2^b codes are used. Cost: two passes over the row.
type RTN struct{}

// Name implements Encoder.
func (RTN) Name() string { return "rtn" }

// tiny is the scale of a block whose weights are all equal: they live in the zero term (or are 0).
// It is the smallest normal half, so that both scale types hold it exactly.
const tiny = 0x1p-14

// Encode implements Encoder.
func (RTN) Encode(dst Blocks, w Matrix, s Spec, _ *Stats) error {
	l, err := s.Layout(w.Rows, w.Cols)
	if err != nil {
		return err
	}
	if s.Bits == 16 {
		return fmt.Errorf("internal error: 16-bit weights are not encoded by a method")
	}
	half := s.Scale == tensor.F16
	for r := range w.Rows {
		row := w.Row(r)
		for b := range l.Blocks {
			block := row[b*l.BlockCols : (b+1)*l.BlockCols]
			codes := dst.Codes[r*w.Cols+b*l.BlockCols:][:len(block)]
			i := r*l.Blocks + b
			lo, hi := minMax(block)
			// A NaN makes the difference NaN, an infinity makes it infinite or NaN.
			if d := hi - lo; !(d <= math.MaxFloat32) {
				if kernel.NonFinite(block) < 0 {
					return fmt.Errorf("row %d: weights span more than a float32: %w", r, tensor.ErrUnsupported)
				}
				return fmt.Errorf("row %d: weight is NaN or infinite: %w", r, tensor.ErrCorrupt)
			}
			var ok bool
			if s.Symmetric {
				dst.Scale[i], ok = rtnSym(codes, block, lo, hi, s.Bits, half)
			} else {
				dst.Scale[i], dst.Zero[i], ok = rtnAsym(codes, block, lo, hi, s.Bits, half)
			}
			if !ok {
				return fmt.Errorf("row %d: weights from %g to %g need a scale or zero term beyond fp16; use fp32 scales: %w", r, lo, hi, tensor.ErrUnsupported)
			}
		}
	}
	return nil
}

// minMax returns NaNs if any element is NaN. x is not empty.
func minMax(x []float32) (lo, hi float32) {
	l0, l1, l2, l3 := x[0], x[0], x[0], x[0]
	h0, h1, h2, h3 := l0, l1, l2, l3
	for len(x) >= 4 {
		v := (*[4]float32)(x)
		l0, l1, l2, l3 = min(l0, v[0]), min(l1, v[1]), min(l2, v[2]), min(l3, v[3])
		h0, h1, h2, h3 = max(h0, v[0]), max(h1, v[1]), max(h2, v[2]), max(h3, v[3])
		x = x[4:]
	}
	for _, v := range x {
		l0, h0 = min(l0, v), max(h0, v)
	}
	return min(l0, l1, l2, l3), max(h0, h1, h2, h3)
}

// round32 is 1.5*2^23. A float32 near it has no fraction: adding it rounds to the nearest integer, ties to
// even, and leaves that integer in the low bits, for magnitudes below 2^22.
const round32 = 0x1.8p23

func rtnAsym(codes []uint8, w []float32, lo, hi float32, bits int, half bool) (scale, zero float32, ok bool) {
	levels := float32(int(1)<<bits - 1)
	mid := float32(int(1) << (bits - 1))
	scale = (hi - lo) / levels
	if half {
		scale = kernel.RoundF16(scale)
		if scale == 0 {
			scale = tiny
		}
	} else if scale < math.SmallestNonzeroFloat32*(1<<24) {
		scale = tiny
	}
	zero = lo + float32(scale*mid)
	if hi == lo {
		zero = lo
	}
	if half {
		zero = kernel.RoundF16(zero)
	}
	if !isFinite(scale) || !isFinite(zero) {
		return 0, 0, false
	}
	quantize(codes, w, 1/scale, zero, mid, levels)
	return scale, zero, true
}

func rtnSym(codes []uint8, w []float32, lo, hi float32, bits int, half bool) (scale float32, ok bool) {
	levels := float32(int(1)<<bits - 1)
	mid := float32(int(1) << (bits - 1))
	m := hi
	if -lo > hi {
		m = lo
	}
	scale = m / -mid
	if half {
		scale = kernel.RoundF16(scale)
	}
	if scale == 0 || (scale < 0 && scale > -0x1p-120) || (scale > 0 && scale < 0x1p-120) {
		scale = tiny
	}
	if !isFinite(scale) {
		return 0, false
	}
	quantize(codes, w, 1/scale, 0, mid, levels)
	return scale, true
}

// quantize stores clamp(round((w-zero)*inverse) + mid, 0, levels). Quotients stay below 2^22 as rounding needs: a
// block that is not constant is at least one ulp of its largest weight wide, fp16 moves the zero term by at most
// 2^13 such ulps, which are 2^13*levels steps, and a subnormal scale by a factor of 1.5.
func quantize(codes []uint8, w []float32, inverse, zero, mid, levels float32) {
	bias := round32 + mid // exact, and mid is an integer: one addition rounds and shifts
	top := int32(levels)
	for len(w) >= 4 && len(codes) >= 4 {
		a, b := (*[4]float32)(w), (*[4]uint8)(codes)
		b[0] = code(a[0], inverse, zero, bias, top)
		b[1] = code(a[1], inverse, zero, bias, top)
		b[2] = code(a[2], inverse, zero, bias, top)
		b[3] = code(a[3], inverse, zero, bias, top)
		w, codes = w[4:], codes[4:]
	}
	for i, v := range w {
		codes[i] = code(v, inverse, zero, bias, top)
	}
}

func code(v, inverse, zero, bias float32, top int32) uint8 {
	// The conversion keeps compilers from fusing the product with the sum.
	q := int32(math.Float32bits(float32((v-zero)*inverse)+bias)) - 0x4b400000 // the bits of round32
	return uint8(min(max(q, 0), top))
}

func isFinite(v float32) bool { return v-v == 0 }
