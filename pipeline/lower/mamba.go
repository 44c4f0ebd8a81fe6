package lower

import (
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/runtime/mnn"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// mamba2 lowers the block of Mamba 2. Its state is that of gated_delta_rule without the delta: c are the queries, b the keys,
// dt·x the values.
func (b *builder) mamba2(p string, m *arch.Mamba2, x value) (value, error) {
	inner, shared := m.Heads*m.HeadDim, m.Groups*m.State
	width := inner + 2*shared
	if m.XBC.Weight.Rows != width || m.Groups < 1 || m.Heads%m.Groups != 0 {
		return 0, fmt.Errorf("%s: %d rows for %d heads of %d and %d groups of %d: %w",
			m.XBC.Weight.Tensor, m.XBC.Weight.Rows, m.Heads, m.HeadDim, m.Groups, m.State, tensor.ErrCorrupt)
	}
	if err := checkTaps(m.Taps, width); err != nil {
		return 0, err
	}
	heads, dim, rows := int32(m.Heads), int32(m.HeadDim), int32(inner)
	z := b.linear(p+"in_proj_z/Linear", x, &m.Z, Slot{}, 1, -1, rows)
	in := b.linear(p+"in_proj_xbc/Linear", x, &m.XBC, Slot{}, 1, -1, int32(width))
	time := b.linear(p+"in_proj_dt/Linear", x, &m.Dt, Slot{Fine: true}, 1, -1, heads)

	z, time = b.times(p+"z_scaled", z, or1(m.Scales[0])), b.times(p+"dt_scaled", time, or1(m.Scales[4]))
	in = b.convolution(p, b.scaleParts(p+"xbc_scaled", in, m), width, m.Taps)
	if m.ConvBias.Tensor != "" {
		in = b.binary(p+"biased", mnn.BinaryAdd, in, b.constant(p+"conv_bias", m.ConvBias))
	}
	in = b.unary(p+"conv_silu", mnn.UnarySilu, in)
	xs := b.reshape(p+"x_heads", b.slice(p+"x", in, b.list(0), rows, 2), 1, -1, heads, dim)
	keys := b.slice(p+"B", in, b.list(rows), rows+int32(shared), 2)
	queries := b.slice(p+"C", in, b.list(rows+int32(shared)), int32(width), 2)

	time = b.softplus(p+"softplus", b.binary(p+"dt", mnn.BinaryAdd, time, b.constant(p+"dt_bias", m.DtBias)))
	if m.TimeMin > 0 {
		time = b.binary(p+"dt_min", mnn.BinaryMaximum, time, b.scalarFloat(m.TimeMin))
	}
	if m.TimeMax <= math.MaxFloat32 {
		time = b.binary(p+"dt_max", mnn.BinaryMinimum, time, b.scalarFloat(m.TimeMax))
	}
	decay := b.binary(p+"decay", mnn.BinaryMul, time, b.constant(p+"A", m.Decay))
	values := b.binary(p+"dt_x", mnn.BinaryMul, xs, b.reshape(p+"dt_heads", time, 1, -1, heads, 1))
	values = b.reshape(p+"values", values, 1, -1, rows)
	qkv := b.times(p+"qkv_small", b.concat(p+"qkv", 2, queries, keys, values), memoryScale)
	y := b.delta(p+"FusedLinearAttention", &mnn.LinearAttention{
		KeyHeads: int32(m.Groups), ValueHeads: heads, KeyDim: int32(m.State), ValueDim: dim,
	}, width, qkv, decay, b.allOnes(p+"beta", time))
	b.atLeast("high") // the numbers are too small for float16
	// The op has multiplied the product of the three by (memoryScale/2)³/sqrt(State). Two steps keep the factors far from the
	// limits of float32.
	y = b.times(p+"state_values", y, 4/memoryScale/memoryScale)
	y = b.times(p+"state", y, 2/memoryScale*math.Sqrt(float64(m.State)))

	y = b.binary(p+"sum", mnn.BinaryAdd, y, b.binary(p+"skip", mnn.BinaryMul, xs, b.constant(p+"D", m.D, 1, 1, heads, 1)))
	y = b.binary(p+"product", mnn.BinaryMul, b.reshape(p+"rows", y, 1, -1, rows), b.unary(p+"silu", mnn.UnarySilu, z))
	if m.Norm != nil {
		var err error
		if y, err = b.partNorm(p+"norm", y, m.Norm); err != nil {
			return 0, err
		}
	}
	return b.linear(p+"out_proj/Linear", y, &m.Out, Slot{}, 1, -1, int32(m.Out.Weight.Rows)), nil
}

// scaleParts multiplies x, b and c, which are concatenated in this order.
func (b *builder) scaleParts(name string, x value, m *arch.Mamba2) value {
	parts := []int{m.Heads * m.HeadDim, m.Groups * m.State, m.Groups * m.State}
	same, factors := true, []float32{}
	for k, n := range parts {
		f := or1(m.Scales[1+k])
		same = same && f == or1(m.Scales[1])
		factors = append(factors, slices.Repeat([]float32{float32(f)}, n)...)
	}
	if same {
		return b.times(name, x, or1(m.Scales[1]))
	}
	table := b.shares(fmt.Sprint("/xbc_scales", m.Scales, parts), func() value {
		return b.floats("/xbc_scales/"+strconv.Itoa(len(b.once)), factors, 1, 1, int32(len(factors)))
	})
	return b.binary(name, mnn.BinaryMul, x, table)
}

// or1 returns the factor, or 1 if it is 0.
func or1(f float64) float64 {
	if f == 0 {
		return 1
	}
	return f
}
