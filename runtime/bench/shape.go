package bench

import (
	"slices"

	"github.com/llmexport/llmexport/runtime/mnn"
)

// tokens stands for the dimension that counts tokens in a shape.
const tokens = -1

// shapes infers the shapes of float tensors between linear layers and attention, as far as parameters and constants
// determine them.
type shapes struct {
	f     *finder
	known map[int32][]int64 // nil if unknown
}

// width returns the number of elements of a tensor per token; if its shape is unknown, that of the linear layer which
// produces it.
func (s *shapes) width(t int32) int64 {
	shape := s.of(t)
	if i := slices.Index(shape, tokens); i < 0 || slices.Contains(shape[i+1:], tokens) {
		return s.f.width(t)
	}
	n := int64(1)
	for _, d := range shape {
		if d != tokens {
			n *= d
		}
	}
	return n
}

func (s *shapes) of(t int32) []int64 {
	if shape, ok := s.known[t]; ok {
		return shape
	}
	s.known[t] = nil // for graphs with cycles
	if s.f.op[t] >= 0 {
		s.known[t] = s.infer(&s.f.g.Ops[s.f.op[t]], s.f.output[t])
	}
	return s.known[t]
}

func (s *shapes) infer(op *mnn.Op, output int) []int64 {
	switch p := op.Param.(type) {
	case *mnn.Blob:
		return wide(p.Dims)
	case *mnn.Reshape:
		if len(op.Inputs) == 1 && !slices.Contains(p.Dims, 0) {
			return wide(p.Dims)
		}
	case *mnn.Convolution:
		return []int64{tokens, int64(p.Outputs), 1, 1}
	case *mnn.LayerNorm, *mnn.Unary, *mnn.Convert:
		return s.of(op.Inputs[0])
	case *mnn.RoPE: // queries to queries, keys to keys
		return s.of(op.Inputs[output])
	case *mnn.Binary:
		return broadcast(s.of(op.Inputs[0]), s.of(op.Inputs[1]))
	case *mnn.Permute:
		return permuted(s.of(op.Inputs[0]), p.Dims)
	case *mnn.Axis:
		if op.Type == mnn.OpConcat {
			return s.concat(op.Inputs, int(p.Axis))
		}
		return s.of(op.Inputs[0])
	case *mnn.StridedSlice:
		if p.FromType == 1 {
			return s.slice(op.Inputs)
		}
	}
	return nil
}

func wide(dims []int32) []int64 {
	shape := make([]int64, len(dims))
	for i, d := range dims {
		shape[i] = int64(d)
	}
	return shape
}

func broadcast(x, y []int64) []int64 {
	if x == nil || y == nil {
		return nil
	}
	if len(x) < len(y) {
		x, y = y, x
	}
	shape := slices.Clone(x)
	for i, d := range y {
		at := &shape[len(x)-len(y)+i]
		if *at == 1 {
			*at = d
		}
	}
	return shape
}

func permuted(x []int64, dims []int32) []int64 {
	if len(x) != len(dims) {
		return nil
	}
	shape := make([]int64, len(x))
	for i, d := range dims {
		shape[i] = x[d]
	}
	return shape
}

func (s *shapes) concat(inputs []int32, axis int) []int64 {
	shape := slices.Clone(s.of(inputs[0]))
	if axis < 0 {
		axis += len(shape)
	}
	if axis < 0 || axis >= len(shape) {
		return nil
	}
	for _, in := range inputs[1:] {
		x := s.of(in)
		if len(x) != len(shape) || x[axis] == tokens || shape[axis] == tokens {
			return nil
		}
		shape[axis] += x[axis]
	}
	return shape
}

// slice evaluates ONNX Slice with constant begin, end, axes and steps.
func (s *shapes) slice(inputs []int32) []int64 {
	shape := slices.Clone(s.of(inputs[0]))
	if len(inputs) != 5 || shape == nil {
		return nil
	}
	var lists [4][]int32
	for k, in := range inputs[1:] {
		if s.f.op[in] < 0 {
			return nil
		}
		b, ok := s.f.g.Ops[s.f.op[in]].Param.(*mnn.Blob)
		if !ok || k > 0 && len(b.Int32s) != len(lists[0]) {
			return nil
		}
		lists[k] = b.Int32s
	}
	for k, axis := range lists[2] {
		at := int(axis)
		if at < 0 {
			at += len(shape)
		}
		if at < 0 || at >= len(shape) || lists[3][k] != 1 {
			return nil
		}
		n := shape[at]
		if n == tokens {
			continue // a slice of the tokens
		}
		within := func(v int32) int64 {
			x := int64(v)
			if x < 0 {
				x += n
			}
			return min(max(x, 0), n)
		}
		shape[at] = max(within(lists[1][k])-within(lists[0][k]), 0)
	}
	return shape
}
