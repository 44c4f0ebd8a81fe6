package mnn

import (
	"encoding/binary"
	"math"

	"github.com/llmexport/llmexport/runtime/kernel"
)

// Floats decodes little-endian fp32 numbers.
func Floats(b []byte) []float32 {
	v := make([]float32, len(b)/4)
	for i := range v {
		v[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return v
}

func f16(dst []float32, b []byte) { kernel.F16ToF32(dst, b) }
