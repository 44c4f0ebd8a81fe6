package forward

import (
	"cmp"
	"context"
	"fmt"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/pipeline/effort"
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

func (c shortConv) past() pastShape { return pastShape{inputs: (len(c.Taps) - 1) * c.Out.Weight.Cols} }

func (c shortConv) last() *arch.Linear { return &c.Out }

func (c shortConv) inputs() [][]*arch.Linear { return [][]*arch.Linear{{&c.In}, {&c.Out}} }

func (c shortConv) norms() []*arch.Norm { return nil }

func (c shortConv) run(ctx context.Context, s *space, x []float32) ([]float32, error) {
	return c.compute(ctx, s, x, nil)
}

// convolved holds the values that the backward pass of a short convolution needs.
type convolved struct {
	// x is the input. in [tokens, 3, Hidden] holds the factors before the convolution, first and last, and the one after it.
	x, in []float32
	y     []float32 // result of the convolution
}

// compute is run; if w is not nil, it stores there the values that the backward pass needs.
func (c shortConv) compute(ctx context.Context, s *space, x []float32, w *convolved) ([]float32, error) {
	hidden := c.Out.Weight.Cols
	in, err := s.project(ctx, x, &c.In)
	if err != nil {
		return nil, err
	}
	y := s.take(hidden)
	s.eachToken(func(i int) { kernel.Mul(y[i*hidden:(i+1)*hidden], third(in, i, 0, hidden), third(in, i, 2, hidden)) })
	if err := s.convolve(ctx, c, y, hidden, c.Taps, c.Bias); err != nil {
		return nil, err
	}
	if w != nil {
		*w = convolved{x: x, in: in, y: s.clone(y)}
	}
	s.eachToken(func(i int) {
		row := y[i*hidden : (i+1)*hidden]
		kernel.Mul(row, row, third(in, i, 1, hidden))
	})
	return y, nil
}

// third is part k of row i of x [tokens, 3, n].
func third(x []float32, i, k, n int) []float32 { return x[(3*i+k)*n:][:n] }

// eachToken calls f for every token, in parallel.
func (s *space) eachToken(f func(i int)) {
	kernel.Parallel(s.threads, s.tokens(), func(lo, hi int) {
		for i := lo; i < hi; i++ {
			f(i)
		}
	})
}

func (c shortConv) record(ctx context.Context, s *space, x []float32) ([]float32, gradient, error) {
	w := new(convolved)
	y, err := c.compute(ctx, s, x, w)
	return y, func(dy []float32, v Visitor) ([]float32, error) { return c.back(s, w, dy, v) }, err
}

// back turns dy, the gradient of the input of Out, into that of the input of the block. It changes dy.
func (c shortConv) back(s *space, w *convolved, dy []float32, v Visitor) ([]float32, error) {
	hidden := c.Out.Weight.Cols
	s.eachToken(func(i int) {
		d, y, f := dy[i*hidden:(i+1)*hidden], w.y[i*hidden:(i+1)*hidden], third(w.in, i, 1, hidden)
		kernel.Mul(y, y, d)
		kernel.Mul(d, d, f)
		copy(f, y)
	})
	if err := s.convolveBack(dy, hidden, c.Taps); err != nil {
		return nil, err
	}
	s.eachToken(func(i int) {
		d, y := dy[i*hidden:(i+1)*hidden], w.y[i*hidden:(i+1)*hidden]
		a, b := third(w.in, i, 0, hidden), third(w.in, i, 2, hidden)
		kernel.Mul(y, d, b)
		kernel.Mul(b, d, a)
		copy(a, y)
	})
	return s.gather(w.x, v, flow{&c.In, w.in}), nil
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
func (s *space) convolve(ctx context.Context, of stateful, x []float32, width int, taps []arch.Weight, bias arch.Weight) error {
	weights, err := s.vectors(append(taps[:len(taps):len(taps)], bias)...)
	if err != nil {
		return err
	}
	weights, offsets := weights[:len(taps)], weights[len(taps)]
	if offsets == nil {
		offsets = make([]float32, width)
	}
	s.tally.Add(effort.Scalar, 2*s.tokens()*width*len(taps))
	blocks := (width + channelBlock - 1) / channelBlock
	kernel.Parallel(s.threads, len(s.lengths)*blocks, func(lo, hi int) {
		var next []float32
		for ; lo < hi; lo++ {
			window, from := lo/blocks, lo%blocks*channelBlock
			p, tokens := s.past(of, window)
			c := channels{x[s.starts[window]*width:], nil, s.lengths[window], tokens, width, from, min(from+channelBlock, width)}
			if p == nil {
				c.convolve(weights, offsets)
				continue
			}
			c.earlier = p.inputs
			n := c.last(grow(&next, (len(taps)-1)*channelBlock), len(taps)-1)
			c.convolve(weights, offsets)
			for j := range len(taps) - 1 {
				copy(p.inputs[j*width:][c.from:c.to], n[j*(c.to-c.from):])
			}
		}
	})
	return context.Cause(ctx)
}

// channels are some channels of a window, x [n, width], after earlier tokens, of which earlier [taps-1, width] holds the last; nil
// if they are not kept.
type channels struct {
	x, earlier      []float32
	n, tokens       int
	width, from, to int
}

// row returns the channels of token t; those before token 0 are the earlier ones, keep in number.
func (c *channels) row(t, keep int) []float32 {
	if t < 0 {
		return c.earlier[(keep+t)*c.width:][c.from:c.to]
	}
	return c.x[t*c.width:][c.from:c.to]
}

// last copies the inputs of the last keep tokens to dst [keep, channels] and returns it.
func (c *channels) last(dst []float32, keep int) []float32 {
	cols := c.to - c.from
	for j := range keep {
		if t := c.n - keep + j; t >= -c.tokens {
			copy(dst[j*cols:(j+1)*cols], c.row(t, keep))
		}
	}
	return dst
}

func (c *channels) convolve(weights [][]float32, offsets []float32) {
	keep := len(weights) - 1
	var sums [channelBlock]float64
	for t := c.n - 1; t >= 0; t-- { // backwards, because a result overwrites an input that only later results read
		for i, v := range offsets[c.from:c.to] {
			sums[i] = float64(v)
		}
		for j := max(0, keep-t-c.tokens); j <= keep; j++ {
			w := weights[j][c.from:c.to]
			for i, v := range c.row(t-keep+j, keep) {
				sums[i] += float64(float64(w[i]) * float64(v))
			}
		}
		row := c.row(t, keep)
		for i := range row {
			row[i] = float32(sums[i])
		}
	}
}

// convolveBack turns dy [tokens, width], the gradient of the result of convolve, into that of its argument, in place.
func (s *space) convolveBack(dy []float32, width int, taps []arch.Weight) error {
	weights, err := s.vectors(taps...)
	if err != nil {
		return err
	}
	s.tally.Add(effort.Scalar, 2*s.tokens()*width*len(taps))
	blocks := (width + channelBlock - 1) / channelBlock
	kernel.Parallel(s.threads, len(s.lengths)*blocks, func(lo, hi int) {
		for ; lo < hi; lo++ {
			window, from := lo/blocks, lo%blocks*channelBlock
			c := channels{x: dy[s.starts[window]*width:], n: s.lengths[window], width: width, from: from}
			c.to = min(from+channelBlock, width)
			c.back(weights)
		}
	})
	return nil
}

func (c *channels) back(weights [][]float32) {
	keep := len(weights) - 1
	var sums [channelBlock]float64
	for t := range c.n { // forwards, because a result overwrites a gradient that only earlier results read
		clear(sums[:])
		for j := range min(len(weights), c.n-t) {
			w := weights[keep-j][c.from:c.to]
			for i, v := range c.row(t+j, keep) {
				sums[i] += float64(float64(w[i]) * float64(v))
			}
		}
		row := c.row(t, keep)
		for i := range row {
			row[i] = float32(sums[i])
		}
	}
}
