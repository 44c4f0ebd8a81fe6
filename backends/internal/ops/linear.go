package ops

import (
	"fmt"

	"github.com/llmexport/llmexport/backends"
	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/mnn"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// Exact reports whether a layer that multiplies float weights takes the engine's order of sums. Its results become int8 codes
// later in Int8 mode, where a difference in the last bit counts: routers and gates, which are kept as floats, are small.
func Exact(m *mnn.Matrix, mode backends.Mode) bool {
	const most = 1 << 22
	return mode == backends.Int8 && int64(m.Rows)*int64(m.Cols) <= most
}

// Int8 makes the form of m that computes in int8 with activations quantized as in option, on that many threads. repack runs
// codes of fewer than 4 bits as 4-bit codes.
func Int8(m *mnn.Matrix, option kernel.DynOption, repack bool, threads int) (*kernel.Int8Matrix, error) {
	c := kernel.WeightCodes{
		Rows: m.Rows, Cols: m.Cols, Block: m.Cols / m.Blocks, Bits: m.Bits, Scale: m.Scale, Zero: m.Zero, Bias: m.Bias, Option: option,
	}
	if !m.Linear {
		return nil, fmt.Errorf("codebook weights in int8 mode: %w", tensor.ErrUnsupported)
	}
	switch m.Bits {
	case 4:
		c.Nibbles = m.Codes
	case 8:
		c.Codes = m.Codes
	default:
		c.Codes = make([]uint8, m.Rows*m.Cols)
		m.Unpack(c.Codes, 0, m.Rows)
	}
	if repack && m.Bits < 4 {
		// The same values on a 4-bit grid; only the order of roundings differs.
		for i := range c.Codes {
			c.Codes[i] += 8 - 1<<(m.Bits-1)
		}
		c.Bits = 4
	}
	return kernel.NewInt8Matrix(c, threads)
}

// ReplaceBias gives an opened matrix another bias; nil keeps its own.
func ReplaceBias(m *mnn.Matrix, bias []float32) error {
	if bias == nil {
		return nil
	}
	if len(bias) != m.Rows {
		return fmt.Errorf("a bias of %d replaces that of %d rows: %w", len(bias), m.Rows, tensor.ErrCorrupt)
	}
	m.Bias = bias
	return nil
}
