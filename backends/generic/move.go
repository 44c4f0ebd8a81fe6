package generic

import (
	"fmt"

	"github.com/llmexport/llmexport/runtime/mnn"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// Tensor is an input or output of Move: a shape, and integers of that shape or nil.
type Tensor struct {
	Shape []int
	Ints  []int32
}

// Move runs an op that moves elements or changes shapes and computes nothing. With the numbers of the elements as inputs,
// it says which element goes where; an input without integers stands for floats, which ops can only give another shape.
func Move(op *mnn.Op, in []Tensor) (Tensor, error) {
	if len(in) < arity[op.Type] {
		return Tensor{}, fmt.Errorf("%d inputs: %w", len(in), tensor.ErrCorrupt)
	}
	vals := make([]value, len(in))
	for k, t := range in {
		vals[k] = value{shape: t.Shape, i: t.Ints}
	}
	out, err := move(op, vals)
	return Tensor{out.shape, out.i}, err
}
