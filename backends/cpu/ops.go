package cpu

import (
	"fmt"
	"slices"

	"github.com/llmexport/llmexport/backends/generic"
	"github.com/llmexport/llmexport/runtime/mnn"
	"github.com/llmexport/llmexport/runtime/tensor"
)

var errCorrupt = tensor.ErrCorrupt

// norm is RMSNorm; with two inputs their sum is normalised and is the first output.
func (p *planner) norm(n *node, op *mnn.Op) error {
	c := p.e.norms[n.op]
	w := len(c.gamma)
	x := *p.in(n, 0)
	if !x.float() {
		return fmt.Errorf("norm of integers: %w", tensor.ErrCorrupt)
	}
	outputs := n.outputs
	if len(n.inputs) > 1 {
		y := p.in(n, 1)
		if !y.float() {
			return fmt.Errorf("norm of integers: %w", tensor.ErrCorrupt)
		}
		sum, err := p.elementwise(mnn.BinaryAdd, &x, y)
		if err != nil {
			return err
		}
		switch len(outputs) {
		case 1:
			sum.buffer.uses++ // until the norm has read it
			defer p.release(sum.buffer)
		case 2:
			p.set(outputs[0], sum)
			outputs = outputs[1:]
		}
		x = sum
	}
	ok := len(x.shape) > 0 && x.shape[len(x.shape)-1] == w
	if c.packed {
		ok = len(x.shape) == 4 && x.shape[1] == w && x.shape[2] == 1 && x.shape[3] == 1
	}
	if !ok {
		return fmt.Errorf("norm over %d of shape %v: %w", w, x.shape, tensor.ErrCorrupt)
	}
	if len(outputs) != 1 {
		return fmt.Errorf("%d outputs, the graph wants %d: %w", len(n.inputs), len(n.outputs), tensor.ErrCorrupt)
	}
	v := p.floats(x.shape...)
	rows := p.rowsOf(x.shape)
	p.row(rows, &normRows{dst: v.f, x: x.f, gamma: c.gamma, eps: c.eps, width: len(x.f) / rows, packed: c.packed && len(x.f) > w})
	p.set(outputs[0], v)
	return nil
}

func (p *planner) binary(n *node, op mnn.BinaryOp) error {
	if len(n.inputs) < 2 {
		return fmt.Errorf("%d inputs: %w", len(n.inputs), tensor.ErrCorrupt)
	}
	a, b := p.in(n, 0), p.in(n, 1)
	if a.float() != b.float() {
		return fmt.Errorf("%v of floats and integers: %w", op, tensor.ErrUnsupported)
	}
	if op == mnn.BinaryMulSilu && a.float() { // the plan without fusion
		s := p.silu(b)
		s.buffer.uses++
		defer p.release(s.buffer)
		b, op = &s, mnn.BinaryMul
	}
	if a.float() {
		v, err := p.elementwise(op, a, b)
		if err != nil {
			return err
		}
		return p.put(n, v)
	}
	e, err := generic.IntElementwise(op, a.shape, b.shape)
	if err != nil {
		return err
	}
	v := place{shape: e.Shape, ints: make([]int32, count(e.Shape))}
	s := &elementwiseStep[int32]{e, v.ints, a.integers(), b.integers()}
	if a.known != nil && b.known != nil {
		e.Do(s.dst, s.a, s.b)
		v.known, v.ints = v.ints, nil
		return p.put(n, v)
	}
	p.step(s)
	return p.put(n, v)
}

func (p *place) integers() []int32 {
	if p.known != nil {
		return p.known
	}
	return p.ints
}

// elementwise is a float op; without broadcasting it is one of rows.
func (p *planner) elementwise(op mnn.BinaryOp, a, b *place) (place, error) {
	e, err := generic.FloatElementwise(op, a.shape, b.shape)
	if err != nil {
		return place{}, err
	}
	v := p.floats(e.Shape...)
	rows := p.rowsOf(e.Shape)
	if len(a.f) == len(v.f) && len(b.f) == len(v.f) && len(v.f) > 0 {
		switch o := (addRows{v.f, a.f, b.f, len(v.f) / rows}); op {
		case mnn.BinaryAdd:
			p.row(rows, &o)
			return v, nil
		case mnn.BinaryMul:
			m := mulRows(o)
			p.row(rows, &m)
			return v, nil
		}
	}
	p.step(&elementwiseStep[float32]{e, v.f, a.f, b.f})
	return v, nil
}

type elementwiseStep[T any] struct {
	*generic.Elementwise[T]
	dst, a, b []T
}

func (s *elementwiseStep[T]) run(*frame) error {
	s.Do(s.dst, s.a, s.b)
	return nil
}

func (p *planner) unary(n *node, op mnn.UnaryOp) error {
	x := p.in(n, 0)
	if !x.float() {
		return fmt.Errorf("%v of integers: %w", op, tensor.ErrUnsupported)
	}
	switch op {
	case mnn.UnaryNeg:
		v := p.floats(x.shape...)
		rows := p.rowsOf(x.shape)
		p.row(rows, &negRows{v.f, x.f, len(x.f) / rows})
		return p.put(n, v)
	case mnn.UnarySilu:
		return p.put(n, p.silu(x))
	}
	return fmt.Errorf("%v: %w", op, tensor.ErrUnsupported)
}

// silu divides into rows where no row but the last can hold the tail that the engine computes in another way.
func (p *planner) silu(x *place) place {
	v := p.floats(x.shape...)
	rows := p.rowsOf(x.shape)
	if len(x.f)/rows%8 != 0 {
		rows = 1
	}
	p.row(rows, &siluRows{v.f, x.f, len(x.f) / rows})
	return v
}

func (p *planner) siluMul(n *node) error {
	gate, up := p.in(n, 0), p.in(n, 1)
	if !gate.float() || !up.float() || !slices.Equal(gate.shape, up.shape) || len(gate.f) == 0 {
		return errUnfused
	}
	v := p.floats(gate.shape...)
	rows := p.rowsOf(gate.shape)
	if len(v.f)/rows%8 != 0 {
		rows = 1
	}
	p.row(rows, &siluMulRows{v.f, gate.f, up.f, len(v.f) / rows})
	return p.put(n, v)
}

// rotary turns [1, tokens, heads, dim] by angles [1, tokens, 1, dim].
func (p *planner) rotary(n *node) error {
	x, cos, sin := p.in(n, 0), p.in(n, 1), p.in(n, 2)
	s := x.shape
	if !x.float() || !cos.float() || !sin.float() || len(s) != 4 || s[0] != 1 || s[1] != p.tokens || s[3] != 2*n.half ||
		!slices.Equal(cos.shape, []int{1, s[1], 1, s[3]}) || !slices.Equal(sin.shape, cos.shape) {
		return errUnfused
	}
	v := p.floats(s...)
	p.row(s[1], &rotateRows{dst: v.f, x: x.f, cos: cos.f, sin: sin.f, heads: s[2], dim: s[3], cut: s[3]})
	return p.put(n, v)
}

// rope rotates the packed queries and keys of the C4 form: [tokens, heads*dim, 1, 1] to [1, tokens, heads, dim].
func (p *planner) rope(n *node, prm *mnn.RoPE) error {
	if len(n.inputs) != 4 || len(n.outputs) != 2 {
		return fmt.Errorf("RoPE with %d inputs and %d outputs: %w", len(n.inputs), len(n.outputs), tensor.ErrCorrupt)
	}
	dim, cut := int(prm.HeadDim), int(prm.CutHeadDim)
	if dim <= 0 || cut <= 0 || cut > dim || cut%2 != 0 {
		return fmt.Errorf("RoPE of %d of %d: %w", cut, dim, tensor.ErrCorrupt)
	}
	cos, sin := p.in(n, 2), p.in(n, 3)
	one := func(k, heads int, norm *mnn.LayerNorm) error {
		x := p.in(n, k)
		if !x.float() || !cos.float() || !sin.float() || len(x.shape) != 4 || heads <= 0 || x.shape[1] != heads*dim ||
			x.shape[2] != 1 || x.shape[3] != 1 || len(cos.f) != x.shape[0]*cut || len(sin.f) != len(cos.f) {
			return fmt.Errorf("RoPE on %v with %d heads and angles %v: %w", x.shape, heads, cos.shape, tensor.ErrCorrupt)
		}
		o := &rotateRows{x: x.f, cos: cos.f, sin: sin.f, heads: heads, dim: dim, cut: cut}
		if norm != nil {
			if o.gamma, o.eps = norm.Gamma, norm.Epsilon; len(o.gamma) != dim {
				return fmt.Errorf("RoPE with a norm of %d: %w", len(o.gamma), tensor.ErrCorrupt)
			}
		}
		v := p.floats(1, x.shape[0], heads, dim)
		o.dst = v.f
		p.row(x.shape[0], o)
		p.set(n.outputs[k], v)
		return nil
	}
	if err := one(0, int(prm.Heads), prm.QNorm); err != nil {
		return err
	}
	return one(1, int(prm.KVHeads), prm.KNorm)
}
