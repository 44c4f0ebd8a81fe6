package forward

import (
	"cmp"
	"context"
	"fmt"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/tensor"
)

type shortConv struct{ *arch.ShortConv }

func (c shortConv) check(m *Model) error {
	hidden := m.decoder.Hidden
	return cmp.Or(
		m.checkLinears(slot{"conv.in", &c.In, 3 * hidden, hidden}, slot{"conv.out", &c.Out, hidden, hidden}),
		m.checkTaps(c.Taps, c.Bias, hidden),
	)
}

func (c shortConv) cost() cost { return cost{token: c.In.Weight.Rows + c.Out.Weight.Cols} }

func (c shortConv) last() *arch.Linear { return &c.Out }

func (c shortConv) inputs() [][]*arch.Linear { return [][]*arch.Linear{{&c.In}, {&c.Out}} }

func (c shortConv) norms() []*arch.Norm { return nil }

func (c shortConv) run(ctx context.Context, s *space, x []float32) ([]float32, error) {
	n, hidden := s.tokens(), c.Out.Weight.Cols
	in, err := s.project(ctx, x, &c.In)
	if err != nil {
		return nil, err
	}
	y := s.take(hidden)
	third := func(i, k int) []float32 { return in[(3*i+k)*hidden:][:hidden] }
	kernel.Parallel(s.threads, n, func(lo, hi int) {
		for i := lo; i < hi; i++ {
			kernel.Mul(y[i*hidden:(i+1)*hidden], third(i, 0), third(i, 2))
		}
	})
	if err := s.convolve(ctx, y, hidden, c.Taps, c.Bias); err != nil {
		return nil, err
	}
	kernel.Parallel(s.threads, n, func(lo, hi int) {
		for i := lo; i < hi; i++ {
			row := y[i*hidden : (i+1)*hidden]
			kernel.Mul(row, row, third(i, 1))
		}
	})
	return y, nil
}

// checkTaps requires the weights of a depthwise convolution with the given number of channels.
func (m *Model) checkTaps(taps []arch.Weight, bias arch.Weight, channels int) error {
	if len(taps) < 1 {
		return fmt.Errorf("a convolution without taps: %w", tensor.ErrCorrupt)
	}
	for j, w := range taps {
		if err := m.checkWeight(fmt.Sprintf("tap %d", j), w, channels, 0); err != nil {
			return err
		}
	}
	return m.checkVector("convolution bias", bias, channels)
}

// channelBlock is how many channels of a convolution a thread computes at a time.
const channelBlock = 256

// convolve replaces x [tokens, width] by its causal depthwise convolution; the last tap is that of the current token. Sums are
// float64, where products are exact, and rounded once.
func (s *space) convolve(ctx context.Context, x []float32, width int, taps []arch.Weight, bias arch.Weight) error {
	weights, err := s.vectors(append(taps[:len(taps):len(taps)], bias)...)
	if err != nil {
		return err
	}
	offsets := weights[len(taps)]
	if offsets == nil {
		offsets = make([]float32, width)
	}
	blocks := (width + channelBlock - 1) / channelBlock
	return s.each(ctx, len(s.lengths)*blocks, func(u int, _ *buffer) error {
		start, n := s.starts[u/blocks], s.lengths[u/blocks]
		from := u % blocks * channelBlock
		to := min(from+channelBlock, width)
		for t := n - 1; t >= 0; t-- { // backwards, because a result overwrites an input that only later results read
			for c := from; c < to; c++ {
				sum := float64(offsets[c])
				for j := max(0, len(taps)-1-t); j < len(taps); j++ {
					sum += float64(float64(weights[j][c]) * float64(x[(start+t-len(taps)+1+j)*width+c]))
				}
				x[(start+t)*width+c] = float32(sum)
			}
		}
		return nil
	})
}
