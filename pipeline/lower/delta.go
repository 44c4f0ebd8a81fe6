package lower

import (
	"fmt"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/runtime/mnn"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// deltaNet lowers the gated delta rule.
func (b *builder) deltaNet(p string, n *arch.DeltaNet, x value) (value, error) {
	width := 2*n.KeyHeads*n.KeyDim + n.ValueHeads*n.ValueDim
	if n.QKV.Weight.Rows != width || n.KeyHeads < 1 || n.ValueHeads%n.KeyHeads != 0 {
		return 0, fmt.Errorf("%s: %d rows for %d key heads of %d and %d value heads of %d: %w",
			n.QKV.Weight.Tensor, n.QKV.Weight.Rows, n.KeyHeads, n.KeyDim, n.ValueHeads, n.ValueDim, tensor.ErrCorrupt)
	}
	if err := checkTaps(n.Taps, width); err != nil {
		return 0, err
	}
	heads, dim := int32(n.ValueHeads), int32(n.ValueDim)
	in := b.linear(p+"in_proj_qkv/Linear", x, &n.QKV, Slot{}, 1, -1, int32(width))
	z := b.linear(p+"in_proj_z/Linear", x, &n.Z, Slot{}, 1, -1, heads, dim)
	beta := b.unary(p+"beta", mnn.UnarySigmoid, b.linear(p+"in_proj_b/Linear", x, &n.B, Slot{Fine: true}, 1, -1, heads))
	time := b.linear(p+"in_proj_a/Linear", x, &n.A, Slot{Fine: true}, 1, -1, heads)
	time = b.binary(p+"dt", mnn.BinaryAdd, time, b.constant(p+"dt_bias", n.DtBias))
	decay := b.binary(p+"decay", mnn.BinaryMul, b.softplus(p+"softplus", time), b.constant(p+"A", n.Decay))

	y := b.delta(p+"FusedLinearAttention", &mnn.LinearAttention{
		KeyHeads: int32(n.KeyHeads), ValueHeads: heads, KeyDim: int32(n.KeyDim), ValueDim: dim, QKNorm: true,
	}, width, b.convolution(p, in, width, n.Taps), decay, beta)
	y = b.binary(p+"product", mnn.BinaryMul, b.norm(p+"norm", y, &n.Norm), b.unary(p+"silu", mnn.UnarySilu, z))
	y = b.reshape(p+"rows", y, 1, -1, heads*dim)
	return b.linear(p+"out_proj/Linear", y, &n.Out, Slot{}, 1, -1, int32(n.Out.Weight.Rows)), nil
}
