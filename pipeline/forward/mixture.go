package forward

import (
	"context"

	"github.com/llmexport/llmexport/pipeline/arch"
)

// Mixture is a block of experts whose steps are taken one by one: [Mixture.Route] chooses the experts of all tokens,
// [Mixture.Load] reads an expert, and [Mixture.Input], [Expert.Inner], [Expert.Output] and [Expert.Gate] compute it for any
// tokens. The output of the block is, in this order, the sum of the outputs of the experts times their weights, and that of the
// shared expert times its gate. A result does not depend on the rows that are computed with it.
type Mixture struct {
	branch *Branch
	of     experts
}

// Mixture returns the experts of a branch, nil for another block.
func (b *Branch) Mixture() *Mixture {
	x, ok := b.of.block.(experts)
	if !ok {
		return nil
	}
	return &Mixture{b, x}
}

// Experts is the number of experts that tokens are routed to.
func (m *Mixture) Experts() int { return len(m.of.Experts) }

// TopK is the number of experts of a token.
func (m *Mixture) TopK() int { return m.of.TopK }

// ScaleInput reports whether an expert reads its input times its weight, instead of the weight multiplying its output.
func (m *Mixture) ScaleInput() bool { return m.of.ScaleInput }

// Router is the linear layer that scores the experts.
func (m *Mixture) Router() *Linear { return m.branch.layer.held.linear(&m.of.Router) }

// states calls f for groups of states h [n, Width], each a window of its own.
func (m *Mixture) states(ctx context.Context, h []float32, f func(s *space, h []float32) error) error {
	return m.branch.layer.each(ctx, h, Equal(len(h)/m.branch.layer.model.decoder.Width(), 1), f)
}

// rows calls f for groups of vectors x [n, Hidden], each a window of its own.
func (m *Mixture) rows(ctx context.Context, x []float32, f func(s *space, x []float32) error) error {
	width := m.branch.layer.model.decoder.Hidden
	return m.branch.layer.spaces(ctx, Equal(len(x)/width, 1), func(s *space) error { return f(s, x[s.first*width:][:s.tokens()*width]) })
}

// Route chooses experts for the states h [tokens, Width]: it writes their numbers and weights, [tokens, TopK].
func (m *Mixture) Route(ctx context.Context, chosen []int32, weights, h []float32) error {
	return m.states(ctx, h, func(s *space, h []float32) error {
		x, err := m.branch.input(s, h)
		if err != nil {
			return err
		}
		r, err := m.of.choose(ctx, s, x, false)
		if err != nil {
			return err
		}
		copy(chosen[s.first*m.of.TopK:], r.chosen)
		copy(weights[s.first*m.of.TopK:], r.weights)
		return nil
	})
}

// Members sorts the choices of any number of tokens by expert, and within one in the order of the tokens: those of expert j end
// before ends[j]. A choice is an index into chosen.
func (m *Mixture) Members(chosen []int32) (choices, ends []int32) { return m.of.members(chosen) }

// Input writes to dst [tokens, Hidden] what experts read for the states h [tokens, Width], without the weight of an expert that
// scales its input.
func (m *Mixture) Input(ctx context.Context, dst, h []float32) error {
	return m.states(ctx, h, func(s *space, h []float32) error {
		x, err := m.branch.input(s, h)
		if err != nil {
			return err
		}
		at := dst[s.first*s.decoder.Hidden:][:len(x)]
		if m.of.Norm != nil {
			return s.norm(at, x, m.of.Norm)
		}
		copy(at, x)
		return nil
	})
}

// Expert is an MLP of a mixture.
type Expert struct {
	mixture *Mixture
	of      mlp
	inputs  [][]*arch.Linear
	read    []*Linear // by Load
}

// Load returns expert j with its weights in memory.
func (m *Mixture) Load(j int) (x *Expert, err error) {
	p := mlp{&m.of.Experts[j]}
	x = &Expert{mixture: m, of: p, inputs: p.inputs()}
	x.read, err = m.branch.layer.held.load(x.inputs...)
	return x, err
}

// Drop gives up the weights that Load has read.
func (x *Expert) Drop() {
	for _, l := range x.read {
		l.Drop()
	}
}

// Shared returns the expert that every token takes, nil if there is none.
func (m *Mixture) Shared() *Expert {
	if m.of.Shared == nil {
		return nil
	}
	return &Expert{mixture: m, of: mlp{m.of.Shared}, inputs: m.of.shared()}
}

// Inputs groups the linear layers by the vectors that they read: gate, up and the gate of the shared expert; down.
func (x *Expert) Inputs() (all [][]*Linear) {
	for _, in := range x.inputs {
		all = append(all, x.mixture.branch.layer.held.all(in))
	}
	return all
}

// Inner writes the input of down to dst [rows, Intermediate], for x [rows, Hidden].
func (x *Expert) Inner(ctx context.Context, dst, in []float32) error {
	return x.mixture.rows(ctx, in, func(s *space, in []float32) error {
		y, err := x.of.inner(ctx, s, in, s.tokens(), s.take(x.of.cost().token), nil)
		copy(dst[s.first*x.of.Intermediate:], y)
		return err
	})
}

// Output writes the output of the expert to dst [rows, Hidden], for the input of down, [rows, Intermediate].
func (x *Expert) Output(ctx context.Context, dst, inner []float32) error {
	return x.mixture.rows(ctx, dst, func(s *space, dst []float32) error {
		n := s.tokens()
		return s.linear(ctx, inner[s.first*x.of.Intermediate:][:n*x.of.Intermediate], n, output{&x.of.Down, dst})
	})
}

// Gate multiplies the outputs y [rows, Hidden] of the shared expert by its gate for x [rows, Hidden], if it has one.
func (x *Expert) Gate(ctx context.Context, y, in []float32) error {
	gate := &x.mixture.of.SharedGate
	if gate.Weight.Tensor == "" {
		return nil
	}
	return x.mixture.rows(ctx, in, func(s *space, in []float32) error {
		return s.gated(ctx, y[s.first*s.decoder.Hidden:][:len(in)], in, gate)
	})
}

// gated multiplies every row of y by the sigmoid of what a linear layer of one row makes of x.
func (s *space) gated(ctx context.Context, y, x []float32, l *arch.Linear) error {
	gate, err := s.project(ctx, x, l)
	if err != nil {
		return err
	}
	s.pointwise(gate, sigmoids)
	s.scaleRows(y, gate)
	return nil
}
