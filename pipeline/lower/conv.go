package lower

import (
	"fmt"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/runtime/mnn"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// shortConv lowers the gated short convolution.
func (b *builder) shortConv(p string, s *arch.ShortConv, x value) (value, error) {
	width := s.In.Weight.Rows / 3
	if err := checkTaps(s.Taps, width); err != nil {
		return 0, err
	}
	h := int32(width)
	in := b.linear(p+"in_proj/Linear", x, &s.In, Slot{}, 1, -1, 3*h)
	gate := b.slice(p+"B", in, b.list(0), h, 2)
	out := b.slice(p+"C", in, b.list(h), 2*h, 2)
	y := b.binary(p+"gated", mnn.BinaryMul, gate, b.slice(p+"x", in, b.list(2*h), 3*h, 2))
	y = b.convolution(p, y, width, s.Taps)
	if s.Bias.Tensor != "" {
		y = b.binary(p+"biased", mnn.BinaryAdd, y, b.constant(p+"bias", s.Bias))
	}
	y = b.binary(p+"product", mnn.BinaryMul, out, y)
	return b.linear(p+"out_proj/Linear", y, &s.Out, Slot{}, 1, -1, int32(s.Out.Weight.Rows)), nil
}

// checkTaps returns an error unless the taps have the given number of channels.
func checkTaps(taps []arch.Weight, channels int) error {
	if len(taps) == 0 {
		return fmt.Errorf("a convolution without taps: %w", tensor.ErrCorrupt)
	}
	for _, t := range taps {
		if t.Rows != channels {
			return fmt.Errorf("%s: %d channels, not %d: %w", t.Tensor, t.Rows, channels, tensor.ErrCorrupt)
		}
	}
	return nil
}
