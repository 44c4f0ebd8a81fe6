package forward

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// widen reads len(dst) stored numbers as float32. It is separate from the functions of runtime/kernel that read the weights of a
// package: a mistake in shared code would affect both sides of a comparison and go unnoticed.
func widen(dst []float32, src []byte, t tensor.DType) error {
	switch t {
	case tensor.BF16:
		for i := range dst {
			dst[i] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(src[2*i:])) << 16)
		}
	case tensor.F16:
		for i := range dst {
			dst[i] = half(binary.LittleEndian.Uint16(src[2*i:]))
		}
	case tensor.F32:
		for i := range dst {
			dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(src[4*i:]))
		}
	case tensor.F64:
		for i := range dst {
			dst[i] = float32(math.Float64frombits(binary.LittleEndian.Uint64(src[8*i:])))
		}
	default:
		return fmt.Errorf("%s as float32: %w", t, tensor.ErrUnsupported)
	}
	return nil
}

// half is the value of a half: a sign, five bits of exponent, ten of fraction.
func half(h uint16) float32 {
	value, fraction := 0.0, float64(h&0x3ff)
	switch exponent := int(h >> 10 & 0x1f); exponent {
	case 0:
		value = math.Ldexp(fraction, -24)
	case 31:
		if value = math.Inf(1); fraction != 0 {
			value = math.NaN()
		}
	default:
		value = math.Ldexp(1024+fraction, exponent-25)
	}
	if h&0x8000 != 0 {
		value = -value
	}
	return float32(value)
}
