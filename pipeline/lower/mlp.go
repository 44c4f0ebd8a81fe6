package lower

import (
	"fmt"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/runtime/mnn"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// mlp lowers an MLP for the rows of the sink, which is the graph or an expert.
func (b *builder) mlp(ml string, m *arch.MLP, x value) (value, error) {
	gated := m.Gate.Weight.Tensor != ""
	var gate value
	if gated {
		gate = b.linear(ml+"gate_proj/Linear", x, &m.Gate, Slot{}, b.rows(m.Intermediate)...)
		gate = b.times(ml+"gate_scaled", gate, or1(m.GateScale))
	}
	up := b.linear(ml+"up_proj/Linear", x, &m.Up, Slot{}, b.rows(m.Intermediate)...)
	switch {
	case m.Activation == arch.ClampedSwiGLU:
		if !gated {
			return 0, fmt.Errorf("%s without a gate: %w", m.Activation, tensor.ErrUnsupported)
		}
		x = b.clampedSwiGLU(ml, m, gate, up)
	case gated:
		y, err := b.activate(ml, m, gate)
		if err != nil {
			return 0, err
		}
		x = b.binary(ml+"product", mnn.BinaryMul, y, up)
	default:
		var err error
		if x, err = b.activate(ml, m, up); err != nil {
			return 0, err
		}
	}
	if m.Norm != nil {
		if m.Norm.Gamma.Rows != m.Intermediate {
			return 0, wrongNorm(m.Norm, fmt.Sprintf("rows of %d", m.Intermediate))
		}
		x = b.norm(ml+"norm", x, m.Norm)
	}
	return b.linear(ml+"down_proj/Linear", x, &m.Down, Slot{}, b.rows(m.Down.Weight.Rows)...), nil
}

// activate applies an activation of one input.
func (b *builder) activate(ml string, m *arch.MLP, x value) (value, error) {
	switch m.Activation {
	case arch.SiLU:
		return b.unary(ml+"silu", mnn.UnarySilu, x), nil
	case arch.GELU:
		if b.spelledGELU {
			return b.gelu(ml+"gelu", x), nil
		}
		return b.unary(ml+"gelu", mnn.UnaryGeluStandard, x), nil
	case arch.GELUTanh:
		return b.unary(ml+"gelu", mnn.UnaryGelu, x), nil
	case arch.ReLU:
		return b.relu(ml+"relu", x), nil
	case arch.ReLU2:
		y := b.relu(ml+"relu", x)
		return b.binary(ml+"relu2", mnn.BinaryMul, y, y), nil
	case arch.QuickGELU:
		return b.binary(ml+"gelu", mnn.BinaryMul, x, b.unary(ml+"sigmoid", mnn.UnarySigmoid, b.times(ml+"steeper", x, 1.702))), nil
	case arch.XIELU:
		return b.xielu(ml+"xielu", m, x), nil
	}
	return 0, fmt.Errorf("activation %q: %w", m.Activation, tensor.ErrUnsupported)
}

func (b *builder) relu(name string, x value) value {
	return b.op(name, mnn.OpReLU, &mnn.Relu{}, x)
}

// geluReach is where gelu stops to differ from a step: the chance of a normal number beyond it is 1e-9.
const geluReach = 6

// geluOdds has the coefficients, of even powers of v, of log(P/(1-P))/v, where P is the chance that a normal number is at most v times
// geluReach and v is in [-1, 1]. The product of that number and P is off by at most 7e-8, before rounding. Weighted least squares
// found them.
var geluOdds = []float64{
	9.57461166381836, 15.696352005004883, -0.5136321187019348, -30.946012496948242, 80.09890747070312, -97.07220458984375, 47.38221740722656,
}

// gelu is the exact GELU, x times the chance that a normal number is at most x, in ops that all backends compute alike. In [-1, 1] fp16
// holds all steps.
func (b *builder) gelu(name string, x value) value {
	v := b.binary(name+"/below", mnn.BinaryMinimum, x, b.scalarFloat(geluReach))
	v = b.times(name+"/part", b.binary(name+"/within", mnn.BinaryMaximum, v, b.scalarFloat(-geluReach)), 1./geluReach)
	square := b.binary(name+"/square", mnn.BinaryMul, v, v)
	last := len(geluOdds) - 1
	y := b.times(fmt.Sprintf("%s/term.%d", name, last), square, geluOdds[last])
	for i := last - 1; i >= 0; i-- {
		y = b.binary(fmt.Sprintf("%s/sum.%d", name, i), mnn.BinaryAdd, y, b.scalarFloat(geluOdds[i]))
		by := square
		if i == 0 {
			by = v
		}
		y = b.binary(fmt.Sprintf("%s/term.%d", name, i), mnn.BinaryMul, y, by)
	}
	return b.binary(name, mnn.BinaryMul, x, b.unary(name+"/chance", mnn.UnarySigmoid, y))
}

// xielu is factor 0 times the square of the positive elements, plus factor 1 times exp(t)-1-t of the negative ones, plus
// factor 2 times the elements.
func (b *builder) xielu(name string, m *arch.MLP, x value) value {
	square := b.constant(name+"/factor_square", m.XIELU[0])
	below := b.constant(name+"/factor_below", m.XIELU[1])
	linear := b.constant(name+"/factor_linear", m.XIELU[2])
	above := b.relu(name+"/above", x)
	y := b.binary(name+"/square", mnn.BinaryMul, b.binary(name+"/above_squared", mnn.BinaryMul, above, above), square)
	y = b.binary(name+"/sum", mnn.BinaryAdd, y, b.binary(name+"/linear", mnn.BinaryMul, x, linear))
	t := b.binary(name+"/negative", mnn.BinaryMinimum, x, b.scalarFloat(0))
	t = b.binary(name+"/bend", mnn.BinarySub, b.unary(name+"/expm1", mnn.UnaryExpm1, t), t)
	return b.binary(name, mnn.BinaryAdd, y, b.binary(name+"/below", mnn.BinaryMul, t, below))
}

// clampedSwiGLU is (u + 1)·g·sigmoid(Alpha·g) of g = min(gate, Limit) and u = clamp(up, ±Limit).
func (b *builder) clampedSwiGLU(ml string, m *arch.MLP, gate, up value) value {
	limit := b.scalarFloat(m.Limit)
	g := b.binary(ml+"gate_clamped", mnn.BinaryMinimum, gate, limit)
	u := b.binary(ml+"up_clamped", mnn.BinaryMaximum, b.binary(ml+"up_below", mnn.BinaryMinimum, up, limit), b.scalarFloat(-m.Limit))
	s := b.binary(ml+"glu", mnn.BinaryMul, g, b.unary(ml+"sigmoid", mnn.UnarySigmoid, b.times(ml+"gate_scaled", g, m.Alpha)))
	return b.binary(ml+"product", mnn.BinaryMul, b.binary(ml+"up_plus_one", mnn.BinaryAdd, u, b.scalarFloat(1)), s)
}
