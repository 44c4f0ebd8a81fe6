package reference

import (
	"context"
	"fmt"
	"math"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// activationBlock is what SiLU and the product behind it take at a time: the second finds it in the L1 cache.
const activationBlock = 2048

type mlp struct{ *arch.MLP }

func (p mlp) gated() bool { return p.Gate.Weight.Tensor != "" }

func (p mlp) check(m *Model) error {
	hidden := m.decoder.Hidden
	if _, err := width("an MLP", p.Intermediate); err != nil {
		return err
	}
	if p.gated() {
		if err := m.checkLinear("mlp.gate", &p.Gate, p.Intermediate, hidden); err != nil {
			return err
		}
	}
	if err := m.checkLinear("mlp.up", &p.Up, p.Intermediate, hidden); err != nil {
		return err
	}
	if err := m.checkNorm("mlp inner norm", p.Norm, p.Intermediate); err != nil {
		return err
	}
	switch p.Activation {
	case arch.SiLU, arch.GELU, arch.GELUTanh, arch.ReLU, arch.ReLU2:
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
	return m.checkLinear("mlp.down", &p.Down, hidden, p.Intermediate)
}

func (p mlp) cost() cost {
	if p.gated() {
		return cost{token: 2 * p.Intermediate}
	}
	return cost{token: p.Intermediate}
}

func (p mlp) run(ctx context.Context, m *Model, out, x []float32, s *space) error {
	return p.apply(ctx, m, out, x, s.tokens(), s.take(p.cost().token))
}

// apply is run for n rows; wide is [n, cost().token].
func (p mlp) apply(ctx context.Context, m *Model, out, x []float32, n int, wide []float32) error {
	act, err := p.function(m)
	if err != nil {
		return err
	}
	inner, up := cut(wide, n*p.Intermediate)
	if p.gated() {
		if err := m.linear(ctx, inner, x, n, &p.Gate); err != nil {
			return err
		}
		m.scaleAll(inner, p.GateScale)
		up = up[:n*p.Intermediate]
		if err := m.linear(ctx, up, x, n, &p.Up); err != nil {
			return err
		}
	} else if err := m.linear(ctx, inner, x, n, &p.Up); err != nil {
		return err
	}
	kernel.Parallel(m.threads, len(inner), func(lo, hi int) {
		for ; lo < hi; lo += activationBlock {
			end := min(lo+activationBlock, hi)
			a := inner[lo:end]
			if !p.gated() {
				act(a, nil)
				continue
			}
			act(a, up[lo:end])
			kernel.Mul(a, a, up[lo:end])
		}
	})
	if p.Norm != nil {
		if err := m.norm(inner, inner, p.Norm); err != nil {
			return err
		}
	}
	return m.linear(ctx, out, inner, n, &p.Down)
}

// function is the activation, in place. It may change what its result is to be multiplied with.
func (p mlp) function(m *Model) (func(x, up []float32), error) {
	each := func(f func(float64) float64) (func(x, up []float32), error) {
		return func(x, _ []float32) {
			for i, v := range x {
				x[i] = float32(f(float64(v)))
			}
		}, nil
	}
	switch p.Activation {
	case arch.GELU:
		return each(gelu)
	case arch.GELUTanh:
		return each(geluTanh)
	case arch.ReLU:
		return each(func(x float64) float64 { return max(x, 0) })
	case arch.ReLU2:
		return each(func(x float64) float64 { x = max(x, 0); return x * x })
	case arch.XIELU:
		var c [3]float64
		for i, w := range p.XIELU {
			v, err := m.vector(w)
			if err != nil {
				return nil, err
			}
			c[i] = float64(v[0])
		}
		return each(func(x float64) float64 {
			if x > 0 {
				return float64(c[0]*float64(x*x)) + float64(c[2]*x)
			}
			return float64(c[1]*expRest(x)) + float64(c[2]*x)
		})
	case arch.ClampedSwiGLU:
		limit := float32(p.Limit)
		return func(x, up []float32) {
			for i, g := range x {
				g = min(g, limit)
				x[i] = float32(float64(g) * sigmoid(float64(p.Alpha*float64(g))))
				up[i] = max(min(up[i], limit), -limit) + 1
			}
		}, nil
	}
	return func(x, _ []float32) { kernel.SiLU(x, x) }, nil
}
