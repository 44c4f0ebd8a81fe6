package lower

import (
	"fmt"
	"slices"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/runtime/mnn"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// norm normalises the last axis, which has as many elements as gamma. An absent beta is zero: the engine
// fills it in if the file has no bytes for it.
func (b *builder) norm(name string, x value, n *arch.Norm) value {
	if !n.Centered && n.Beta.Tensor != "" {
		b.fail(fmt.Errorf("%s: RMSNorm with a bias: %w", n.Beta.Tensor, tensor.ErrUnsupported))
	}
	if n.Parts > 1 {
		b.fail(fmt.Errorf("%s: a norm of %d parts: %w", n.Gamma.Tensor, n.Parts, tensor.ErrUnsupported))
	}
	if !slices.Equal(b.dims[x], b.rows(n.Gamma.Rows)) { // a norm of heads
		x = b.unpacked(x)
	}
	b.slot(Slot{Kind: NormSlot, Name: name, Weight: n.Gamma, Bias: n.Beta})
	return b.op(name, mnn.OpLayerNorm, &mnn.LayerNorm{Axis: []int32{-1}, Epsilon: float32(n.Eps), Group: 1, RMS: !n.Centered}, x)
}

// partNorm normalises rows [1, tokens, elements], or each of their equal parts separately.
func (b *builder) partNorm(name string, x value, n *arch.Norm) (value, error) {
	if n.Parts < 2 {
		return b.norm(name, x, n), nil
	}
	if n.Beta.Tensor != "" || n.Gamma.Rows%n.Parts != 0 {
		return 0, fmt.Errorf("%s: a norm of %d parts: %w", n.Gamma.Tensor, n.Parts, tensor.ErrUnsupported)
	}
	x = b.reshape(name+"/parts", x, 1, -1, int32(n.Parts), int32(n.Gamma.Rows/n.Parts))
	x = b.reshape(name+"/rows", b.unitNorm(name+"/each", x, n), 1, -1, int32(n.Gamma.Rows))
	return b.binary(name, mnn.BinaryMul, x, b.constant(name+"/gamma", n.Gamma)), nil
}

// unitNorm normalises parts of a row, without their gains, because the op has the same gains for all parts.
func (b *builder) unitNorm(name string, x value, n *arch.Norm) value {
	part := n.Gamma.Rows / n.Parts
	return b.op(name, mnn.OpLayerNorm, &mnn.LayerNorm{
		Axis: []int32{-1}, Epsilon: float32(n.Eps), Group: 1, RMS: !n.Centered,
		Gamma: slices.Repeat([]float32{1}, part), Beta: make([]float32, part),
	}, b.unpacked(x))
}

// wrongNorm returns the error of a norm whose length differs from that of its input.
func wrongNorm(n *arch.Norm, what string) error {
	return fmt.Errorf("%s: a norm of %d elements for %s: %w", n.Gamma.Tensor, n.Gamma.Rows, what, tensor.ErrUnsupported)
}
