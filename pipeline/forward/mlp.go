package forward

import (
	"cmp"
	"context"
	"fmt"
	"math"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/pipeline/effort"
	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/tensor"
)

type mlp struct{ *arch.MLP }

func (p mlp) gated() bool { return p.Gate.Weight.Tensor != "" }

func (p mlp) check(m *Model) error {
	hidden := m.decoder.Hidden
	if _, err := width("an MLP", p.Intermediate); err != nil {
		return err
	}
	if err := cmp.Or(
		m.checkOptional(slot{"mlp.gate", &p.Gate, p.Intermediate, hidden}),
		m.checkLinears(slot{"mlp.up", &p.Up, p.Intermediate, hidden}, slot{"mlp.down", &p.Down, hidden, p.Intermediate}),
		m.checkNorm("mlp inner norm", p.Norm, p.Intermediate),
	); err != nil {
		return err
	}
	switch p.Activation {
	case arch.SiLU, arch.GELU, arch.GELUTanh, arch.ReLU, arch.ReLU2, arch.QuickGELU:
	case arch.XIELU:
		for _, w := range p.XIELU {
			if err := m.checkWeight("xielu", w, 1, 0); err != nil {
				return err
			}
		}
	case arch.ClampedSwiGLU:
		if !p.gated() || !finite(p.Limit, 0) || !finite(p.Alpha, math.Inf(-1)) {
			return fmt.Errorf("%s with alpha %v, limit %v: %w", p.Activation, p.Alpha, p.Limit, tensor.ErrCorrupt)
		}
	default:
		return fmt.Errorf("activation %q: %w", p.Activation, tensor.ErrUnsupported)
	}
	return nil
}

func (p mlp) cost() cost {
	if p.gated() {
		return cost{token: 2 * p.Intermediate}
	}
	return cost{token: p.Intermediate}
}

func (p mlp) last() *arch.Linear { return &p.Down }

func (p mlp) inputs() [][]*arch.Linear {
	return append(readers(&p.Gate, &p.Up), []*arch.Linear{&p.Down})
}

func (p mlp) norms() []*arch.Norm { return []*arch.Norm{p.Norm} }

func (p mlp) run(ctx context.Context, s *space, x []float32) ([]float32, error) {
	return p.inner(ctx, s, x, s.tokens(), s.take(p.cost().token), nil)
}

// product holds the values that the backward pass of an MLP needs.
type product struct {
	act         *activation
	x, gate, up []float32 // input, argument of the activation, and its other factor or nil
	plain       []float32 // before the norm
}

// inner computes the input of Down for n rows of x; wide is [n, cost().token]. If w is not nil, inner stores there the values
// that the backward pass needs.
func (p mlp) inner(ctx context.Context, s *space, x []float32, n int, wide []float32, w *product) ([]float32, error) {
	act, err := p.activation(s)
	if err != nil {
		return nil, err
	}
	inner, up := cut(wide, n*p.Intermediate)
	if p.gated() {
		up = up[:n*p.Intermediate]
		err = s.linear(ctx, x, n, output{&p.Gate, inner}, output{&p.Up, up})
		s.scaleAll(inner, p.GateScale)
	} else {
		err = s.linear(ctx, x, n, output{&p.Up, inner})
	}
	if err != nil {
		return nil, err
	}
	s.tally.Add(effort.Element, len(inner))
	gate := inner
	if w != nil {
		gate = s.clone(inner)
	}
	s.pieces(len(inner), func(lo, hi int) {
		act.apply(inner[lo:hi], inner[lo:hi])
		if p.gated() {
			act.clamp(up[lo:hi])
			kernel.Mul(inner[lo:hi], inner[lo:hi], up[lo:hi])
		}
	})
	if w != nil {
		*w = product{act: act, x: x, gate: gate, up: up}
	}
	if w != nil && p.Norm != nil {
		w.plain = s.clone(inner)
	}
	return inner, s.norm(inner, inner, p.Norm)
}

func (p mlp) record(ctx context.Context, s *space, x []float32) ([]float32, gradient, error) {
	w := new(product)
	y, err := p.inner(ctx, s, x, s.tokens(), s.take(p.cost().token), w)
	return y, func(dy []float32, v Visitor) ([]float32, error) { return p.back(s, w, dy, v), nil }, err
}

// back turns d, the gradient of the input of Down, into that of the input of the block. It changes d.
func (p mlp) back(s *space, w *product, d []float32, v Visitor) []float32 {
	if p.Norm != nil {
		s.held.norm(p.Norm).back(w.plain, d, p.Intermediate, v)
	}
	s.tally.Add(effort.Element, len(d))
	s.pieces(len(d), func(lo, hi int) {
		var up []float32
		if p.gated() {
			up = w.up[lo:hi]
		}
		w.act.back(d[lo:hi], w.gate[lo:hi], up)
	})
	if !p.gated() {
		return s.gather(w.x, v, flow{&p.Up, w.gate})
	}
	s.scaleAll(w.gate, p.GateScale)
	return s.gather(w.x, v, flow{&p.Gate, w.gate}, flow{&p.Up, w.up})
}

// activation returns the function with its parameters.
func (p mlp) activation(s *space) (*activation, error) {
	a := &activation{Activation: p.Activation, alpha: p.Alpha, limit: p.Limit}
	if p.Activation != arch.XIELU {
		return a, nil
	}
	v, err := s.vectors(p.XIELU[:]...)
	for i := range v {
		a.xielu[i] = float64(v[i][0])
	}
	return a, err
}
