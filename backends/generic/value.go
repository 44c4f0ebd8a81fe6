package generic

import (
	"fmt"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// value is a tensor of a running graph, row-major in its logical (NCHW) order; the packed layouts of the
// engine change the place of numbers in memory and never their meaning, so they do not exist here. Exactly
// one of f and i is in use.
type value struct {
	shape []int
	f     []float32
	i     []int32
}

// Count is the number of elements of a shape.
func Count(shape []int) int {
	n := 1
	for _, d := range shape {
		n *= d
	}
	return n
}

// maxElements bounds a tensor of a running graph. A small graph can ask for terabytes by broadcasting.
const maxElements = 1 << 31

// Limited refuses shapes beyond maxElements with tensor.ErrUnsupported.
func Limited(shape []int) error {
	n := int64(1)
	for _, d := range shape {
		if d != 0 && n > maxElements/int64(d) {
			return fmt.Errorf("tensor of shape %v: %w", shape, tensor.ErrUnsupported)
		}
		n *= int64(d)
	}
	return nil
}

func floats(shape ...int) value { return value{shape: shape, f: make([]float32, Count(shape))} }

func ints(v []int32, shape ...int) value { return value{shape: shape, i: v} }

// elements is the number of elements.
func (v value) elements() int { return Count(v.shape) }

// axis resolves a possibly negative axis.
func (v value) axis(a int) (int, error) {
	if a < 0 {
		a += len(v.shape)
	}
	if a < 0 || a >= len(v.shape) {
		return 0, fmt.Errorf("axis %d of shape %v: %w", a, v.shape, tensor.ErrCorrupt)
	}
	return a, nil
}

// with returns the same elements under another shape of equal count.
func (v value) with(shape []int) value {
	v.shape = shape
	return v
}

// integers demands an int32 tensor.
func (v value) integers() ([]int32, error) {
	if v.i == nil {
		return nil, fmt.Errorf("float input where integers are needed: %w", tensor.ErrCorrupt)
	}
	return v.i, nil
}

// spans gives the extents around an axis: elements before, along and behind it.
func (v value) spans(axis int) (outer, n, inner int) {
	return Count(v.shape[:axis]), v.shape[axis], Count(v.shape[axis+1:])
}

// pick copies, for every outer position, the runs idx along an axis.
func (v value) pick(axis int, idx []int, shape []int) value {
	outer, n, inner := v.spans(axis)
	out := value{shape: shape}
	if v.f != nil || v.i == nil {
		out.f = make([]float32, 0, outer*len(idx)*inner)
		for o := range outer {
			for _, k := range idx {
				out.f = append(out.f, v.f[(o*n+k)*inner:][:inner]...)
			}
		}
		return out
	}
	out.i = make([]int32, 0, outer*len(idx)*inner)
	for o := range outer {
		for _, k := range idx {
			out.i = append(out.i, v.i[(o*n+k)*inner:][:inner]...)
		}
	}
	return out
}

// replaceDim is shape with dimension axis replaced by dims.
func replaceDim(shape []int, axis int, dims ...int) []int {
	out := append([]int{}, shape[:axis]...)
	out = append(out, dims...)
	return append(out, shape[axis+1:]...)
}
