package generic

import (
	"github.com/llmexport/llmexport/backends"
	"github.com/llmexport/llmexport/runtime/kernel"
)

// arithmetic is how the float ops between linear layers compute. Linear layers choose on their own, because some of
// them stay float in int8 mode.
type arithmetic struct {
	rmsNorm func(dst, x, gamma []float32, eps float32)
	// rmsNormPacked is for two or more tokens of the packed layout.
	rmsNormPacked func(dst, x, gamma []float32, eps float32)
	silu          func(dst, x []float32)
}

// exact computes in float64 what costs little.
var exact = arithmetic{kernel.RMSNorm, kernel.RMSNorm, kernel.SiLU}

// engine computes what MNN does on x86, bit by bit: one differing bit can flip an int8 code of the next linear layer.
var engine = arithmetic{kernel.EngineRMSNorm, kernel.EngineRMSNormPacked, kernel.EngineSiLU}

func arithmeticOf(m backends.Mode) *arithmetic {
	if m == backends.Int8 {
		return &engine
	}
	return &exact
}
