package forward

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/pipeline/effort"
	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/tensor"
)

type gatedConv struct{ *arch.GatedConv }

func (c gatedConv) check(m *Model) error {
	hidden, taps := m.decoder.Hidden, c.Kernel.Cols
	if taps < 1 || taps%2 == 0 && !c.Causal {
		return fmt.Errorf("a convolution of %d taps around a token: %w", taps, tensor.ErrCorrupt)
	}
	return cmp.Or(
		m.checkLinears(slot{"conv.in", &c.In, 2 * hidden, hidden}, slot{"conv.out", &c.Out, hidden, hidden}),
		m.checkWeight("kernel", c.Kernel, hidden, taps), m.checkVector("convolution bias", c.Bias, hidden), m.checkNorm("norm of the convolution", c.Norm, hidden),
	)
}

func (c gatedConv) cost() cost { return cost{token: c.In.Weight.Rows + 2*c.Out.Weight.Cols} }

func (c gatedConv) last() *arch.Linear { return &c.Out }

func (c gatedConv) inputs() [][]*arch.Linear { return [][]*arch.Linear{{&c.In}, {&c.Out}} }

func (c gatedConv) norms() []*arch.Norm { return []*arch.Norm{c.Norm} }

// before is the number of taps before that of the row itself.
func (c gatedConv) before() int {
	if c.Causal {
		return c.Kernel.Cols - 1
	}
	return c.Kernel.Cols / 2
}

func (c gatedConv) run(ctx context.Context, s *space, x []float32) ([]float32, error) {
	w, err := c.compute(ctx, s, x)
	if err != nil {
		return nil, err
	}
	s.siluAll(w.y)
	return w.y, nil
}

// gatedConvolved holds the values that the backward pass needs.
type gatedConvolved struct {
	x, in []float32 // input, and its two halves [tokens, 2, Hidden]
	plain []float32 // before the norm, if there is one
	y     []float32 // argument of the activation
	taps  [][]float32
}

// compute is run up to the activation.
func (c gatedConv) compute(ctx context.Context, s *space, x []float32) (*gatedConvolved, error) {
	hidden, n := c.Out.Weight.Cols, c.Kernel.Cols
	in, err := s.project(ctx, x, &c.In)
	if err != nil {
		return nil, err
	}
	v, err := s.vectors(c.Kernel, c.Bias)
	if err != nil {
		return nil, err
	}
	w := &gatedConvolved{x: x, in: in, y: s.take(hidden), taps: make([][]float32, n)}
	for j := range w.taps {
		w.taps[j] = make([]float32, hidden)
		for i := range hidden {
			w.taps[j][i] = v[0][i*n+j]
		}
	}
	gated := s.take(hidden)
	s.eachToken(func(i int) {
		a, b := in[2*i*hidden:(2*i+1)*hidden], in[(2*i+1)*hidden:][:hidden]
		for k, x := range b {
			gated[i*hidden+k] = float32(float64(a[k]) * sigmoid(float64(x)))
		}
	})
	if c.Bias.Tensor == "" {
		v[1] = make([]float32, hidden)
	}
	s.around(w.y, gated, w.taps, c.before(), v[1])
	if w.plain = gated; c.Norm != nil {
		copy(w.plain, w.y)
		err = s.norm(w.y, w.y, c.Norm)
	}
	return w, cmp.Or(err, context.Cause(ctx))
}

// around writes to dst [tokens, width] the sums over taps, so many of them before a token, of the rows of x around each token of a window, and
// bias. Sums are float64, where products are exact, and rounded once.
func (s *space) around(dst, x []float32, taps [][]float32, before int, bias []float32) {
	width := len(bias)
	s.tally.Add(effort.Scalar, 2*s.tokens()*width*len(taps))
	kernel.Parallel(s.threads, s.tokens(), func(lo, hi int) {
		sums := make([]float64, width)
		for ; lo < hi; lo++ {
			for k, b := range bias {
				sums[k] = float64(b)
			}
			position, total := s.positions[lo], s.totals[lo]
			for j := max(0, before-position); j < min(len(taps), total-position+before); j++ {
				row := x[(lo+j-before)*width:][:width]
				for k, t := range taps[j] {
					sums[k] += float64(float64(t) * float64(row[k]))
				}
			}
			for k, sum := range sums {
				dst[lo*width+k] = float32(sum)
			}
		}
	})
}

func (c gatedConv) record(ctx context.Context, s *space, x []float32) ([]float32, gradient, error) {
	w, err := c.compute(ctx, s, x)
	if err != nil {
		return nil, nil, err
	}
	y := s.clone(w.y)
	s.siluAll(y)
	return y, func(dy []float32, v Visitor) ([]float32, error) { return c.back(s, w, dy, v), nil }, nil
}

// back turns dy, the gradient of the input of Out, into that of the input of the block. It changes w.
func (c gatedConv) back(s *space, w *gatedConvolved, dy []float32, v Visitor) []float32 {
	hidden := c.Out.Weight.Cols
	silu := &activation{Activation: arch.SiLU}
	s.pieces(len(dy), func(lo, hi int) { silu.back(dy[lo:hi], w.y[lo:hi], nil) })
	if c.Norm != nil {
		s.held.norm(c.Norm).back(w.plain, w.y, hidden, v)
	}
	taps := slices.Clone(w.taps)
	slices.Reverse(taps)
	dg := s.take(hidden)
	s.around(dg, w.y, taps, len(taps)-1-c.before(), make([]float32, hidden))
	s.eachToken(func(i int) {
		a, b := w.in[2*i*hidden:(2*i+1)*hidden], w.in[(2*i+1)*hidden:][:hidden]
		for k, d := range dg[i*hidden : (i+1)*hidden] {
			p := sigmoid(float64(b[k]))
			a[k], b[k] = float32(float64(d)*p), float32(float64(d)*float64(a[k])*p*(1-p))
		}
	})
	return s.gather(w.x, v, flow{&c.In, w.in})
}
