package ops

import (
	"fmt"

	"github.com/llmexport/llmexport/runtime/mnn"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// arity is the smallest number of inputs of the ops that index theirs.
var arity = map[mnn.OpType]int{
	mnn.OpCast: 1, mnn.OpRange: 3, mnn.OpReLU: 1, mnn.OpSoftmax: 1,
	mnn.OpBatchMatMul: 2, mnn.OpGatherElements: 2, mnn.OpMoE: 3, mnn.OpPermute: 1, mnn.OpReduction: 1, mnn.OpTopKV2: 2,
	mnn.OpBinaryOp: 2, mnn.OpConcat: 1, mnn.OpConvertTensor: 1, mnn.OpConvolution: 1, mnn.OpDepthwise: 3, mnn.OpGatherV2: 2, mnn.OpLayerNorm: 1,
	mnn.OpRank: 1, mnn.OpReshape: 1, mnn.OpShape: 1, mnn.OpSqueeze: 1, mnn.OpStridedSlice: 3, mnn.OpUnaryOp: 1, mnn.OpUnsqueeze: 1,
}

// CheckArity refuses an op with fewer inputs than it reads.
func CheckArity(op *mnn.Op, in []Tensor) error {
	if len(in) < arity[op.Type] {
		return fmt.Errorf("%d inputs: %w", len(in), tensor.ErrCorrupt)
	}
	return nil
}

// Move runs an op that moves elements or changes shapes and computes nothing. With the numbers of the elements as inputs,
// the output tells which element goes where; an input without integers stands for floats, which can only get another shape.
func Move(op *mnn.Op, in []Tensor) (Tensor, error) {
	if err := CheckArity(op, in); err != nil {
		return Tensor{}, err
	}
	return move(op, in)
}

// move runs the ops that move elements or change shapes.
func move(op *mnn.Op, in []Tensor) (Tensor, error) {
	switch p := op.Param.(type) {
	case *mnn.Convert:
		return in[0], nil
	case *mnn.Reshape:
		return runReshape(p, in)
	case *mnn.StridedSlice:
		return runStridedSlice(p, in)
	case *mnn.GatherV2:
		return runGather(in)
	case *mnn.Axis:
		if op.Type == mnn.OpConcat {
			return runConcat(p, in)
		}
	case *mnn.Squeeze:
		if op.Type == mnn.OpSqueeze {
			return runSqueeze(p, in)
		}
		return runUnsqueeze(p, in)
	}
	switch op.Type {
	case mnn.OpSqueeze:
		return runSqueeze(nil, in)
	case mnn.OpUnsqueeze:
		return runUnsqueeze(nil, in)
	case mnn.OpShape:
		return runShape(in), nil
	case mnn.OpRank:
		return runRank(in), nil
	}
	return Tensor{}, tensor.ErrUnsupported
}

// Evaluates reports whether [Evaluate] runs ops of this type, which are those without weights and state.
func Evaluates(t mnn.OpType) bool {
	switch t {
	case mnn.OpInput, mnn.OpConst, mnn.OpConvolution, mnn.OpLayerNorm, mnn.OpAttention, mnn.OpRoPE, mnn.OpMoE, mnn.OpLinearAttention:
		return false
	}
	return true
}

// Evaluate runs an op without weights and state. Inputs must be complete and are not written; outputs may share their memory.
func Evaluate(op *mnn.Op, in []Tensor, threads int) ([]Tensor, error) {
	if err := CheckArity(op, in); err != nil {
		return nil, err
	}
	one := func(v Tensor, err error) ([]Tensor, error) { return []Tensor{v}, err }
	switch p := op.Param.(type) {
	case *mnn.Binary:
		return one(Binary(p, in, threads))
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
	case *mnn.Depthwise:
		return one(runDepthwise(p, in, threads))
	case *mnn.Reduction:
		return one(runReduction(p, in))
	case *mnn.TopK:
		values, places, err := runTopK(p, in)
		return []Tensor{values, places}, err
	}
	if op.Type == mnn.OpGatherElements {
		return one(runGatherElements(in))
	}
	return one(move(op, in))
}
