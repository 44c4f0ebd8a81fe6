package cpu

import (
	"fmt"
	"slices"

	"github.com/llmexport/llmexport/backends/generic"
	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/mnn"
	"github.com/llmexport/llmexport/runtime/tensor"
)

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
	rows := p.rowsOf(x.shape)
	if x.count()/rows%w != 0 { // a single row that is as long as the call has tokens
		rows = 1
	}
	p.begin(rows)
	v := p.make(x.shape...)
	p.row(&normRows{dst: p.span(&v), x: p.span(&x), gamma: c.gamma, eps: c.eps, packed: c.packed && x.count() > w})
	p.set(outputs[0], v)
	return nil
}

func (p *planner) binary(n *node, op mnn.BinaryOp) error {
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
	v := place{shape: e.Shape, ints: make([]int32, generic.Count(e.Shape))}
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
	var f func(dst, x, y []float32)
	switch op {
	case mnn.BinaryAdd:
		f = kernel.Add
	case mnn.BinaryMul:
		f = kernel.Mul
	}
	if n := generic.Count(e.Shape); f != nil && n > 0 && a.count() == n && b.count() == n {
		p.begin(p.rowsOf(e.Shape))
		v := p.make(e.Shape...)
		p.row(&binaryRows{p.span(&v), p.span(a), p.span(b), f})
		return v, nil
	}
	p.flush()
	v := p.make(e.Shape...)
	p.step(&elementwiseStep[float32]{e, v.floats(), a.floats(), b.floats()})
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
		p.begin(p.rowsOf(x.shape))
		v := p.make(x.shape...)
		p.row(&unaryRows{p.span(&v), p.span(x), negate})
		return p.put(n, v)
	case mnn.UnarySilu:
		return p.put(n, p.silu(x))
	}
	return fmt.Errorf("%v: %w", op, tensor.ErrUnsupported)
}

// eights is rowsOf if rows hold whole groups of eight, and else one row: the engine computes the last elements of a tensor
// that fill no group in another way.
func (p *planner) eights(shape []int) int {
	rows := p.rowsOf(shape)
	if generic.Count(shape)/rows%8 != 0 {
		return 1
	}
	return rows
}

func (p *planner) silu(x *place) place {
	p.begin(p.eights(x.shape))
	v := p.make(x.shape...)
	p.row(&unaryRows{p.span(&v), p.span(x), kernel.EngineSiLU})
	return v
}

func (p *planner) siluMul(n *node) error {
	gate, up := p.in(n, 0), p.in(n, 1)
	if !gate.float() || !up.float() || !slices.Equal(gate.shape, up.shape) || gate.count() == 0 {
		return errUnfused
	}
	p.begin(p.eights(gate.shape))
	v := p.make(gate.shape...)
	p.row(&binaryRows{p.span(&v), p.span(gate), p.span(up), kernel.EngineSiLUMul})
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
	p.begin(s[1])
	v := p.make(s...)
	p.row(&rotateRows{dst: p.span(&v), x: p.span(x), cos: p.span(cos), sin: p.span(sin), heads: s[2], dim: s[3]})
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
			x.shape[2] != 1 || x.shape[3] != 1 || cos.count() != x.shape[0]*cut || sin.count() != cos.count() {
			return fmt.Errorf("RoPE on %v with %d heads and angles %v: %w", x.shape, heads, cos.shape, tensor.ErrCorrupt)
		}
		o := &rotateRows{heads: heads, dim: dim}
		if norm != nil {
			if o.gamma, o.eps = norm.Gamma, norm.Epsilon; len(o.gamma) != dim {
				return fmt.Errorf("RoPE with a norm of %d: %w", len(o.gamma), tensor.ErrCorrupt)
			}
		}
		p.begin(x.shape[0])
		v := p.make(1, x.shape[0], heads, dim)
		o.dst, o.x, o.cos, o.sin = p.span(&v), p.span(x), p.span(cos), p.span(sin)
		p.row(o)
		p.set(n.outputs[k], v)
		return nil
	}
	if err := one(0, int(prm.Heads), prm.QNorm); err != nil {
		return err
	}
	return one(1, int(prm.KVHeads), prm.KNorm)
}
