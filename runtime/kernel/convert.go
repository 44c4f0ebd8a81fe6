package kernel

import (
	"encoding/binary"
	"fmt"
	"math"
	"unsafe"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// BF16ToF32 widens len(dst) little-endian bfloat16 values, exactly. It panics unless src has 2 bytes
// for each.
func BF16ToF32(dst []float32, src []byte) {
	checkBytes("BF16ToF32", len(dst), len(src), 2)
	bf16ToF32(dst, src)
}

// F16ToF32 widens len(dst) little-endian IEEE half-precision values, exactly; a NaN becomes quiet. It
// panics unless src has 2 bytes for each.
func F16ToF32(dst []float32, src []byte) {
	checkBytes("F16ToF32", len(dst), len(src), 2)
	f16ToF32(dst, src)
}

// littleEndian is set if float32 have the same bytes in memory as in files.
var littleEndian = binary.NativeEndian.Uint16([]byte{1, 0}) == 1

// F32FromBytes reads len(dst) little-endian float32 values. It panics unless src has 4 bytes for each.
func F32FromBytes(dst []float32, src []byte) {
	checkBytes("F32FromBytes", len(dst), len(src), 4)
	if littleEndian && len(dst) > 0 {
		copy(unsafe.Slice((*byte)(unsafe.Pointer(&dst[0])), 4*len(dst)), src)
		return
	}
	f32FromBytesGeneric(dst, src)
}

// F32ToF16 writes src as little-endian half-precision values, each rounded as by [F16Bits]. It panics
// unless dst has 2 bytes for each.
func F32ToF16(dst []byte, src []float32) {
	checkBytes("F32ToF16", len(src), len(dst), 2)
	f32ToF16(dst, src)
}

// F32ToBF16 rounds each value of src to the nearest bfloat16, ties to even; a NaN stays one. It panics unless dst is at
// least as long as src.
func F32ToBF16(dst []uint16, src []float32) {
	dst = dst[:len(src)]
	for i, v := range src {
		b := math.Float32bits(v)
		if v != v {
			dst[i] = uint16(b>>16) | 0x40
			continue
		}
		dst[i] = uint16((b + 0x7fff + b>>16&1) >> 16)
	}
}

// ToF32 reads len(dst) stored values of a floating-point type. Those of F64 are rounded to the nearest float32, ties to even;
// values that are too large become infinities. Any other type is a tensor.ErrUnsupported; a src that does not contain exactly
// len(dst) values is a tensor.ErrCorrupt.
func ToF32(dst []float32, src []byte, dtype tensor.DType) error {
	var widen func([]float32, []byte)
	switch dtype {
	case tensor.BF16:
		widen = BF16ToF32
	case tensor.F16:
		widen = F16ToF32
	case tensor.F32:
		widen = F32FromBytes
	case tensor.F64:
		widen = f64ToF32Generic
	default:
		return fmt.Errorf("%s as float32: %w", dtype, tensor.ErrUnsupported)
	}
	if int64(len(src)) != int64(len(dst))*dtype.Size() {
		return fmt.Errorf("%d bytes for %d values of %s: %w", len(src), len(dst), dtype, tensor.ErrCorrupt)
	}
	widen(dst, src)
	return nil
}

// checkBytes demands size bytes for each of n values.
func checkBytes(name string, n, bytes, size int) {
	if bytes%size != 0 || bytes/size != n {
		panic(fmt.Sprintf("internal error: kernel.%s: %d values and %d bytes", name, n, bytes))
	}
}
