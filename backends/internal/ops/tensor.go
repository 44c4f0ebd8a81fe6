// Package ops holds the ops of a graph as values and functions: shapes, checks and results that every backend shares. An op
// that this program cannot run is tensor.ErrUnsupported, inputs that do not fit an op are tensor.ErrCorrupt.
package ops

import (
	"fmt"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// Tensor is a tensor of a running graph, row-major in its logical (NCHW) order; the packed layouts of the
// engine change the place of numbers in memory and never their meaning, so they do not exist here. Exactly
// one of Floats and Ints is in use.
type Tensor struct {
	Shape  []int
	Floats []float32
	Ints   []int32
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

// NewFloats is a tensor of zeros.
func NewFloats(shape ...int) Tensor {
	return Tensor{Shape: shape, Floats: make([]float32, Count(shape))}
}

// NewInts is a tensor of integers.
func NewInts(v []int32, shape ...int) Tensor { return Tensor{Shape: shape, Ints: v} }

// elements is the number of elements.
func (v Tensor) elements() int { return Count(v.Shape) }

// axis resolves a possibly negative axis.
func (v Tensor) axis(a int) (int, error) {
	if a < 0 {
		a += len(v.Shape)
	}
	if a < 0 || a >= len(v.Shape) {
		return 0, fmt.Errorf("axis %d of shape %v: %w", a, v.Shape, tensor.ErrCorrupt)
	}
	return a, nil
}

// With returns the same elements under another shape of equal count.
func (v Tensor) With(shape []int) Tensor {
	v.Shape = shape
	return v
}

// integers demands an int32 tensor.
func (v Tensor) integers() ([]int32, error) {
	if v.Ints == nil {
		return nil, fmt.Errorf("float input where integers are needed: %w", tensor.ErrCorrupt)
	}
	return v.Ints, nil
}

// spans gives the extents around an axis: elements before, along and after it.
func (v Tensor) spans(axis int) (outer, n, inner int) {
	return Count(v.Shape[:axis]), v.Shape[axis], Count(v.Shape[axis+1:])
}

// Pick copies, for every outer position, the runs idx along an axis.
func (v Tensor) Pick(axis int, idx []int, shape []int) Tensor {
	outer, n, inner := v.spans(axis)
	out := Tensor{Shape: shape}
	if v.Floats != nil || v.Ints == nil {
		out.Floats = make([]float32, 0, outer*len(idx)*inner)
		for o := range outer {
			for _, k := range idx {
				out.Floats = append(out.Floats, v.Floats[(o*n+k)*inner:][:inner]...)
			}
		}
		return out
	}
	out.Ints = make([]int32, 0, outer*len(idx)*inner)
	for o := range outer {
		for _, k := range idx {
			out.Ints = append(out.Ints, v.Ints[(o*n+k)*inner:][:inner]...)
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
