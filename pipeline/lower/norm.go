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

// wrongNorm is the error of a norm that is not as long as what it stands behind.
func wrongNorm(n *arch.Norm, what string) error {
	return fmt.Errorf("%s: a norm of %d elements for %s: %w", n.Gamma.Tensor, n.Gamma.Rows, what, tensor.ErrUnsupported)
}
