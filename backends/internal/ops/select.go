package ops

import (
	"fmt"
	"slices"

	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/mnn"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// TopKShape is the shape of the results of the TopKV2 op for a tensor of this shape, and its second input.
func TopKShape(p *mnn.TopK, shape []int, k []int32) ([]int, error) {
	if !p.Largest || !p.Sorted {
		return nil, fmt.Errorf("smallest or unsorted elements: %w", tensor.ErrUnsupported)
	}
	if len(k) != 1 || len(shape) == 0 || k[0] < 1 || int(k[0]) > shape[len(shape)-1] {
		return nil, fmt.Errorf("the largest %v of shape %v: %w", k, shape, tensor.ErrCorrupt)
	}
	return replaceDim(shape, len(shape)-1, int(k[0])), nil
}

// TopK writes the largest elements of rows lo to hi-1 of x, k of each, and their places in the row.
func TopK(values []float32, places []int32, x []float32, width, k, lo, hi int) {
	var order []int32
	for r := lo; r < hi; r++ {
		row, at := x[r*width:][:width], places[r*k:][:k]
		order = kernel.EngineTopK(at, row, order)
		for j, i := range at {
			values[r*k+j] = row[i]
		}
	}
}

func runTopK(p *mnn.TopK, in []Tensor) (values, places Tensor, err error) {
	if len(in) != 2 {
		return values, places, fmt.Errorf("TopKV2 with %d inputs: %w", len(in), tensor.ErrUnsupported)
	}
	x := in[0]
	k, err := in[1].integers()
	if err != nil {
		return values, places, err
	}
	if x.Ints != nil {
		return values, places, fmt.Errorf("the largest of integers: %w", tensor.ErrUnsupported)
	}
	shape, err := TopKShape(p, x.Shape, k)
	if err != nil {
		return values, places, err
	}
	values = NewFloats(shape...)
	places = NewInts(make([]int32, len(values.Floats)), shape...)
	width, n := x.Shape[len(x.Shape)-1], int(k[0])
	TopK(values.Floats, places.Ints, x.Floats, width, n, 0, len(x.Floats)/width)
	return values, places, nil
}

// ElementGather takes elements along an axis: out[..., i, ...] = x[..., index[..., i, ...], ...].
type ElementGather struct {
	// Shape of the output.
	Shape []int
	n     int // of x along the axis
	inner int // elements of x after the axis
}

// NewElementGather prepares GatherElements on x and an index of these shapes, which agree but along the axis.
func NewElementGather(x, index []int, axis []int32) (*ElementGather, error) {
	if len(axis) != 1 || len(x) != len(index) {
		return nil, fmt.Errorf("gather of %v by %v along %v: %w", x, index, axis, tensor.ErrCorrupt)
	}
	a, err := Tensor{Shape: x}.axis(int(axis[0]))
	if err != nil {
		return nil, err
	}
	if !slices.Equal(replaceDim(x, a), replaceDim(index, a)) {
		return nil, fmt.Errorf("gather of %v by %v along %d: %w", x, index, a, tensor.ErrUnsupported)
	}
	return &ElementGather{Shape: index, n: x[a], inner: Count(x[a+1:])}, nil
}

// Do fills dst, or says which index is out of range.
func (g *ElementGather) Do(dst, x []float32, index []int32) error {
	if len(index) == 0 {
		return nil
	}
	outer := len(x) / (g.n * g.inner)
	row := len(index) / outer
	for i, v := range index {
		if v < 0 || int(v) >= g.n {
			return fmt.Errorf("gather of element %d of %d: %w", v, g.n, tensor.ErrCorrupt)
		}
		dst[i] = x[(i/row*g.n+int(v))*g.inner+i%g.inner]
	}
	return nil
}

func runGatherElements(in []Tensor) (Tensor, error) {
	x := in[0]
	index, err := in[1].integers()
	if err != nil {
		return Tensor{}, err
	}
	axis := []int32{0}
	if len(in) > 2 {
		if axis, err = in[2].integers(); err != nil {
			return Tensor{}, err
		}
	}
	g, err := NewElementGather(x.Shape, in[1].Shape, axis)
	if err != nil {
		return Tensor{}, err
	}
	if x.Ints != nil {
		return Tensor{}, fmt.Errorf("gather of integers along an axis: %w", tensor.ErrUnsupported)
	}
	out := NewFloats(g.Shape...)
	return out, g.Do(out.Floats, x.Floats, index)
}
