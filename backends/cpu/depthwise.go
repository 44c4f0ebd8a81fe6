package cpu

import (
	"fmt"

	"github.com/llmexport/llmexport/backends/internal/ops"
	"github.com/llmexport/llmexport/runtime/mnn"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// depthwise is a convolution of each channel alone.
func (p *planner) depthwise(n *node, prm *mnn.Depthwise) error {
	x, kernels, bias := p.in(n, 0), p.in(n, 1), p.in(n, 2)
	if !x.float() || !kernels.float() || !bias.float() {
		return fmt.Errorf("a convolution of integers: %w", tensor.ErrUnsupported)
	}
	d, err := ops.NewDepthwise(prm, x.shape, kernels.shape, bias.shape)
	if err != nil {
		return err
	}
	p.flush()
	v := p.make(d.Shape...)
	dst, src, w, b := v.floats(), x.floats(), kernels.floats(), bias.floats()
	p.each(d.Shape[1], func(lo, hi int) { d.Channels(dst, src, w, b, lo, hi) })
	return p.put(n, v)
}
