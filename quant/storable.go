package quant

import (
	"math"

	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// storable reports whether a scale and zero term, rounded to their type, make a grid that can be stored and that
// kernel.GridCodes can work with. reach is at least the distance of every weight from the zero term: quotients must stay
// below 2^22.
func (s Spec) storable(scale, zero float32, reach float64) bool {
	least := 0x1p-120 // its inverse is finite
	if s.Scale == tensor.F16 {
		least = 0x1p-24 // of all halves but 0
	}
	size := math.Abs(float64(scale))
	return size >= least && reach < 0x1p21*size && isFinite(scale) && isFinite(zero)
}

// round rounds to the type of scales.
func (s Spec) round(v float64) float64 {
	if s.Scale == tensor.F16 {
		return float64(kernel.RoundF16(float32(v)))
	}
	return float64(float32(v))
}
