package cpu

import (
	"fmt"

	"github.com/llmexport/llmexport/backends/internal/ops"
	"github.com/llmexport/llmexport/runtime/mnn"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// cast changes the type of elements: integers become booleans or floats, floats integers.
func (p *planner) cast(n *node, prm *mnn.Cast) error {
	toInts, err := ops.CastInts(prm)
	if err != nil {
		return err
	}
	x := p.in(n, 0)
	switch {
	case prm.To == mnn.DTBool && x.float():
		return fmt.Errorf("cast of floats to %v: %w", prm.To, tensor.ErrUnsupported)
	case prm.To == mnn.DTBool:
		ints := x.integers()
		return p.integers(n, x.shape, x.known != nil, func(dst []int32) { ops.ToBools(dst, ints) })
	case toInts && x.float():
		p.flush()
		f := x.floats()
		return p.integers(n, x.shape, x.buffer == nil, func(dst []int32) { ops.ToInts(dst, f) })
	case toInts || x.float():
		return p.put(n, *x)
	case x.known != nil:
		f := make([]float32, len(x.known))
		ops.ToFloats(f, x.known)
		return p.put(n, place{shape: x.shape, f: f})
	}
	p.flush()
	v := p.make(x.shape...)
	dst, ints := v.floats(), x.ints
	p.step(stepFunc(func() { ops.ToFloats(dst, ints) }))
	return p.put(n, v)
}

// integers makes the node's only output, of integers that do computes: now, if they are known, or in every call.
func (p *planner) integers(n *node, shape []int, known bool, do func(dst []int32)) error {
	v := place{shape: shape, ints: make([]int32, ops.Count(shape))}
	if known {
		do(v.ints)
		v.known, v.ints = v.ints, nil
		return p.put(n, v)
	}
	dst := v.ints
	p.step(stepFunc(func() { do(dst) }))
	return p.put(n, v)
}

// stepFunc is a step that needs nothing of the frame.
type stepFunc func()

func (s stepFunc) run(*frame) error {
	s()
	return nil
}

// counts plans a Range of known bounds; others are dynamic.
func (p *planner) counts(n *node, op *mnn.Op) error {
	in := make([]ops.Tensor, len(n.inputs))
	for k := range in {
		v := p.in(n, k)
		if v.known == nil {
			return fmt.Errorf("range by numbers that are not known: %w", tensor.ErrUnsupported)
		}
		in[k] = ops.Tensor{Shape: v.shape, Ints: v.known}
	}
	out, err := ops.Evaluate(op, in, 1)
	if err != nil {
		return err
	}
	return p.put(n, place{shape: out[0].Shape, known: out[0].Ints})
}
