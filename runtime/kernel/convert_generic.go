package kernel

import (
	"encoding/binary"
	"math"
)

func bf16ToF32Generic(dst []float32, src []byte) {
	for i := range dst {
		dst[i] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(src[2*i:])) << 16)
	}
}

func f16ToF32Generic(dst []float32, src []byte) {
	for i := range dst {
		dst[i] = F16Value(binary.LittleEndian.Uint16(src[2*i:]))
	}
}

func f32FromBytesGeneric(dst []float32, src []byte) {
	for i := range dst {
		dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(src[4*i:]))
	}
}

func f64ToF32Generic(dst []float32, src []byte) {
	for i := range dst {
		dst[i] = float32(math.Float64frombits(binary.LittleEndian.Uint64(src[8*i:])))
	}
}

func f32ToF16Generic(dst []byte, src []float32) {
	for i, x := range src {
		binary.LittleEndian.PutUint16(dst[2*i:], F16Bits(x))
	}
}
