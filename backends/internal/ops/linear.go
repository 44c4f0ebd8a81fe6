package ops

import (
	"fmt"

	"github.com/llmexport/llmexport/runtime/backend"
	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/mnn"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// Exact reports whether a layer that multiplies float weights takes the engine's order of sums. Its results become int8 codes
// later in Int8 mode, where a difference in the last bit counts: routers and gates, which are kept as floats, are small.
func Exact(m *mnn.Matrix, mode backend.Mode) bool {
	const most = 1 << 22
	return mode == backend.Int8 && int64(m.Rows)*int64(m.Cols) <= most
}

// Int8 makes the form of m that computes in int8 with activations quantized as in option, on that many threads. repack runs
// codes of fewer than 4 bits as 4-bit codes.
func Int8(m *mnn.Matrix, option kernel.DynOption, repack bool, threads int) (*kernel.Int8Matrix, error) {
	c, err := codes(m, option, repack)
	if err != nil {
		return nil, err
	}
	return kernel.NewInt8Matrix(c, threads)
}

// ArmInt8 is Int8 for rows lo to hi-1, a multiple of 32 apart from the last, in the arithmetic of the engine on arm64.
func ArmInt8(m *mnn.Matrix, option kernel.DynOption, cpu kernel.ArmCPU, half bool, lo, hi int) (*kernel.ArmMatrix, error) {
	if !m.Linear {
		return nil, fmt.Errorf("codebook weights in int8 mode: %w", tensor.ErrUnsupported)
	}
	c := kernel.WeightCodes{
		Rows: hi - lo, Cols: m.Cols, Block: m.Cols / m.Blocks, Bits: m.Bits, Codes: make([]uint8, (hi-lo)*m.Cols),
		Scale: m.Scale[lo*m.Blocks : hi*m.Blocks], Option: option,
	}
	m.Unpack(c.Codes, lo, hi)
	if m.Zero != nil {
		c.Zero = m.Zero[lo*m.Blocks : hi*m.Blocks]
	}
	if m.Bias != nil {
		c.Bias = m.Bias[lo:hi]
	}
	return kernel.NewArmMatrix(c, kernel.ArmForm{CPU: cpu, Half: half, Rows: m.Rows})
}

func codes(m *mnn.Matrix, option kernel.DynOption, repack bool) (kernel.WeightCodes, error) {
	c := kernel.WeightCodes{
		Rows: m.Rows, Cols: m.Cols, Block: m.Cols / m.Blocks, Bits: m.Bits, Scale: m.Scale, Zero: m.Zero, Bias: m.Bias, Option: option,
	}
	if !m.Linear {
		return c, fmt.Errorf("codebook weights in int8 mode: %w", tensor.ErrUnsupported)
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
	return c, nil
}

// OpenLinear opens a 1x1 Convolution with its bias, or that of Options.Replace, and the weights [rows, cols] of Options.Replace,
// next to which the matrix has no scales.
func OpenLinear(op *mnn.Op, p *mnn.Convolution, w mnn.Weights, o *backend.Options) (m *mnn.Matrix, replace *backend.Replacement, err error) {
	if m, err = p.Open(w); err != nil || o.Replace == nil {
		return m, nil, err
	}
	replace, bias, err := o.Replace(op)
	switch {
	case err != nil:
		return nil, nil, err
	case bias != nil && len(bias) != m.Rows:
		return nil, nil, fmt.Errorf("a bias of %d replaces that of %d rows: %w", len(bias), m.Rows, tensor.ErrCorrupt)
	case replace != nil && replace.Len != m.Rows*m.Cols:
		return nil, nil, fmt.Errorf("%d weights replace %d x %d: %w", replace.Len, m.Rows, m.Cols, tensor.ErrCorrupt)
	case bias != nil:
		m.Bias = bias
	}
	if replace != nil {
		m.Scale, m.Zero = nil, nil
	}
	return m, replace, nil
}

// Quantizes reports whether a layer computes in int8, and how its activations are quantized then. The engine quantizes
// activations only for weights that are packed codes.
func Quantizes(m *mnn.Matrix, replace *backend.Replacement, o *backend.Options) (kernel.DynOption, bool) {
	option := kernel.DynToken
	if o.DynamicOption%8 == int(kernel.DynBlock) {
		option = kernel.DynBlock
	}
	return option, o.Mode == backend.Int8 && replace == nil && m.Bits <= 8
}
