package cpu

import (
	"fmt"
	"slices"

	"github.com/llmexport/llmexport/backends/internal/ops"
	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/mnn"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// norm is a LayerNorm op; with two inputs their sum is normalised and is the first output.
func (p *planner) norm(n *node, op *mnn.Op) error {
	c := p.e.norms[n.op]
	w := len(c.Gamma)
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
	if err := c.Check(x.shape); err != nil {
		return err
	}
	if len(outputs) != 1 {
		return fmt.Errorf("%d outputs, the graph wants %d: %w", len(n.inputs), len(n.outputs), tensor.ErrCorrupt)
	}
	p.begin(p.rowsOfWidth(x.shape, w))
	v := p.make(x.shape...)
	p.row(&normRows{dst: p.span(&v), x: p.span(&x), norm: c, all: x.count() / w})
	p.set(outputs[0], v)
	return nil
}

// rowsOfWidth is rowsOf if rows hold whole rows of that width, and else one row: a single row may be as long as the call has
// tokens.
func (p *planner) rowsOfWidth(shape []int, width int) int {
	rows := p.rowsOf(shape)
	if ops.Count(shape)/rows%width != 0 {
		return 1
	}
	return rows
}

func (p *planner) softmax(n *node, prm *mnn.Axis) error {
	x := p.in(n, 0)
	if !x.float() {
		return fmt.Errorf("softmax of integers: %w", tensor.ErrUnsupported)
	}
	width, err := ops.SoftmaxWidth(prm, x.shape)
	if err != nil {
		return err
	}
	return p.put(n, p.elements(x, p.rowsOfWidth(x.shape, width), func(dst, x []float32) { kernel.EngineSoftmaxRows(dst, x, width) }))
}

func (p *planner) binary(n *node, prm *mnn.Binary) error {
	a, b, op := p.in(n, 0), p.in(n, 1), prm.Op
	if a.float() != b.float() {
		return fmt.Errorf("%v of floats and integers: %w", op, tensor.ErrUnsupported)
	}
	if op == mnn.BinaryMulSilu && a.float() { // the plan without fusion
		s := p.elements(b, p.eights(b.shape), kernel.EngineSiLU)
		s.buffer.uses++
		defer p.release(s.buffer)
		b, op = &s, mnn.BinaryMul
	}
	if prm.Activation != 0 {
		return fmt.Errorf("%v with an activation: %w", op, tensor.ErrUnsupported)
	}
	if a.float() {
		if e, err := ops.FloatComparison(op, a.shape, b.shape); e != nil || err != nil {
			if err != nil {
				return err
			}
			p.flush()
			x, y := a.floats(), b.floats()
			return p.integers(n, e.Shape, false, func(dst []int32) { e.Do(dst, x, y) })
		}
		v, err := p.elementwise(op, a, b)
		if err != nil {
			return err
		}
		return p.put(n, v)
	}
	e, err := ops.IntElementwise(op, a.shape, b.shape)
	if err != nil {
		return err
	}
	x, y := a.integers(), b.integers()
	return p.integers(n, e.Shape, a.known != nil && b.known != nil, func(dst []int32) { e.Do(dst, x, y) })
}

func (p *place) integers() []int32 {
	if p.known != nil {
		return p.known
	}
	return p.ints
}

// elementwise is a float op; without broadcasting, or with a number for all elements, it is one of rows.
func (p *planner) elementwise(op mnn.BinaryOp, a, b *place) (place, error) {
	e, err := ops.FloatElementwise(op, a.shape, b.shape)
	if err != nil {
		return place{}, err
	}
	f, n := e.Function(), ops.Count(e.Shape)
	switch {
	case n == 0:
	case a.count() == n && b.count() == n:
		rows := func(dst, x, y []float32) { f(dst, x, y, 1, 1) }
		switch op {
		case mnn.BinaryAdd:
			rows = kernel.Add
		case mnn.BinaryMul:
			rows = kernel.Mul
		}
		p.begin(p.rowsOf(e.Shape))
		v := p.make(e.Shape...)
		p.row(&binaryRows{p.span(&v), p.span(a), p.span(b), rows})
		return v, nil
	case a.count() == n && b.count() == 1 && b.buffer == nil:
		if op == mnn.BinaryMul {
			factor := b.f[0]
			v := p.elements(a, p.rowsOf(e.Shape), func(dst, x []float32) { kernel.Scale(dst, x, factor) })
			v.shape = e.Shape
			return v, nil
		}
		return p.scalar(e.Shape, a, b.f, false, f), nil
	case b.count() == n && a.count() == 1 && a.buffer == nil:
		return p.scalar(e.Shape, b, a.f, true, f), nil
	}
	p.flush()
	v := p.make(e.Shape...)
	dst, x, y := v.floats(), a.floats(), b.floats()
	p.step(stepFunc(func() { e.Do(dst, x, y) }))
	return v, nil
}

// scalar is an op of x and a number.
func (p *planner) scalar(shape []int, x *place, number []float32, first bool, f func(dst, x, y []float32, sx, sy int)) place {
	p.begin(p.rowsOf(shape))
	v := p.make(shape...)
	p.row(&scalarRows{p.span(&v), p.span(x), number, first, f})
	return v
}

func (p *planner) unary(n *node, op mnn.UnaryOp) error {
	x := p.in(n, 0)
	if !x.float() {
		if err := ops.IntUnary(op, nil, nil); err != nil {
			return err
		}
		ints := x.integers()
		return p.integers(n, x.shape, x.known != nil, func(dst []int32) { _ = ops.IntUnary(op, dst, ints) })
	}
	u, err := ops.FloatUnary(op)
	if err != nil {
		return err
	}
	return p.put(n, p.apply(u, x))
}

func (p *planner) relu(n *node, prm *mnn.Relu) error {
	x := p.in(n, 0)
	if !x.float() {
		return fmt.Errorf("ReLU of integers: %w", tensor.ErrUnsupported)
	}
	return p.put(n, p.apply(ops.ReLU(prm), x))
}

func (p *planner) apply(u ops.Unary, x *place) place {
	rows := p.rowsOf(x.shape)
	if u.Eights {
		rows = p.eights(x.shape)
	}
	return p.elements(x, rows, u.Do)
}

// elements applies a function to all elements, that many rows of them.
func (p *planner) elements(x *place, rows int, f func(dst, x []float32)) place {
	p.begin(rows)
	v := p.make(x.shape...)
	p.row(&unaryRows{p.span(&v), p.span(x), f})
	return v
}

// eights is rowsOf if rows hold whole groups of eight, and else one row: the engine computes the last elements of a tensor
// that fill no group in another way.
func (p *planner) eights(shape []int) int { return p.rowsOfWidth(shape, 8) }

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
