package generic

import (
	"fmt"

	"github.com/llmexport/llmexport/runtime/mnn"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// Tensor is an input or output of an op: a shape, and floats or integers of that shape.
type Tensor struct {
	Shape  []int
	Floats []float32
	Ints   []int32
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
	return Tensor{Shape: out.shape, Ints: out.i}, err
}

// Evaluates says whether [Evaluate] runs ops of this type, which are those without weights and state.
func Evaluates(t mnn.OpType) bool {
	switch t {
	case mnn.OpInput, mnn.OpConst, mnn.OpConvolution, mnn.OpLayerNorm, mnn.OpAttention, mnn.OpRoPE, mnn.OpMoE, mnn.OpLinearAttention:
		return false
	}
	return true
}

// Evaluate runs an op without weights and state. Inputs must be complete and are not written; outputs may share their memory.
func Evaluate(op *mnn.Op, in []Tensor, threads int) ([]Tensor, error) {
	vals := make([]value, len(in))
	for k, t := range in {
		vals[k] = value{shape: t.Shape, f: t.Floats, i: t.Ints}
	}
	results, err := evaluate(op, vals, threads)
	if err != nil {
		return nil, err
	}
	if len(results) != len(op.Outputs) {
		return nil, fmt.Errorf("%d outputs, the graph wants %d: %w", len(results), len(op.Outputs), tensor.ErrCorrupt)
	}
	out := make([]Tensor, len(results))
	for k, v := range results {
		out[k] = Tensor{Shape: v.shape, Floats: v.f, Ints: v.i}
	}
	return out, nil
}

// evaluate runs an op without weights and state.
func evaluate(op *mnn.Op, in []value, threads int) ([]value, error) {
	if len(in) < arity[op.Type] {
		return nil, fmt.Errorf("%d inputs: %w", len(in), tensor.ErrCorrupt)
	}
	one := func(v value, err error) ([]value, error) { return []value{v}, err }
	switch p := op.Param.(type) {
	case *mnn.Binary:
		return one(runBinary(p, in, threads))
	case *mnn.Unary:
		return one(runUnary(p.Op, in[0], threads))
	case *mnn.Relu:
		return one(runReLU(p, in[0], threads))
	case *mnn.Cast:
		return one(runCast(p, in[0]))
	case *mnn.Range:
		return one(runRange(in))
	case *mnn.Axis:
		if op.Type == mnn.OpSoftmax {
			return one(runSoftmax(p, in[0], threads))
		}
	case *mnn.BatchMatMul:
		return one(runMatMul(p, in, threads))
	case *mnn.Permute:
		return one(runPermute(p, in))
	case *mnn.Reduction:
		return one(runReduction(p, in))
	case *mnn.TopK:
		values, places, err := runTopK(p, in)
		return []value{values, places}, err
	}
	if op.Type == mnn.OpGatherElements {
		return one(runGatherElements(in))
	}
	return one(move(op, in))
}
