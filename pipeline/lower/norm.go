package lower

import (
	"fmt"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/runtime/mnn"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// norm normalises the last axis, which has as many elements as gamma. A beta that is absent is one of zeros: the engine
// fills in those that the file has no bytes of.
func (b *builder) norm(name string, x value, n *arch.Norm) value {
	if !n.Centered && n.Beta.Tensor != "" {
		b.fail(fmt.Errorf("%s: RMSNorm with a bias: %w", n.Beta.Tensor, tensor.ErrUnsupported))
	}
	b.slot(Slot{Kind: NormSlot, Name: name, Weight: n.Gamma, Bias: n.Beta})
	return b.op(name, mnn.OpLayerNorm, &mnn.LayerNorm{Axis: []int32{-1}, Epsilon: float32(n.Eps), Group: 1, RMS: !n.Centered}, x)
}

// normParts normalises rows of width elements of the graph in parts as long as gamma; the result has one row of dimensions
// for each part if there is more than one.
func (b *builder) normParts(name string, x value, width int, n *arch.Norm) (value, error) {
	part := n.Gamma.Rows
	if part < 1 || width%part != 0 {
		return 0, fmt.Errorf("%s: a norm of %d elements in rows of %d: %w", n.Gamma.Tensor, part, width, tensor.ErrUnsupported)
	}
	if part < width {
		x = b.reshape(name+"/parts", x, 1, -1, int32(width/part), int32(part))
	}
	return b.norm(name, x, n), nil
}
