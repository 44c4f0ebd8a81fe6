package generic

import (
	"github.com/llmexport/llmexport/backends/internal/ops"
	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/mnn"
)

// evaluateArm runs the ops without weights that the engine computes in another way on arm64, and returns nil for all others.
func evaluateArm(op *mnn.Op, in []ops.Tensor, threads int) []ops.Tensor {
	apply := func(f func(dst, x []float32), x ops.Tensor) ops.Tensor {
		out := ops.NewFloats(x.Shape...)
		kernel.Parallel(threads, len(x.Floats), func(lo, hi int) { f(out.Floats[lo:hi], x.Floats[lo:hi]) })
		return out
	}
	switch p := op.Param.(type) {
	case *mnn.Unary:
		if f := armUnaries[p.Op]; f != nil && in[0].Ints == nil {
			return []ops.Tensor{apply(f, in[0])}
		}
	case *mnn.Axis:
		if x := in[0]; op.Type == mnn.OpSoftmax && x.Ints == nil {
			if width, err := ops.SoftmaxWidth(p, x.Shape); err == nil {
				out := ops.NewFloats(x.Shape...)
				kernel.HalfSoftmaxRows(out.Floats, x.Floats, width)
				return []ops.Tensor{out}
			}
		}
	case *mnn.Binary:
		if p.Op == mnn.BinaryMulSilu && in[1].Ints == nil {
			out, err := ops.Binary(&mnn.Binary{Op: mnn.BinaryMul, Activation: p.Activation}, []ops.Tensor{in[0], apply(kernel.ArmSiLU, in[1])}, threads)
			if err == nil {
				return []ops.Tensor{out}
			}
		}
	}
	return nil
}

// armUnaries are the functions that the engine computes in another way there.
var armUnaries = map[mnn.UnaryOp]func(dst, x []float32){
	mnn.UnarySilu: kernel.ArmSiLU, mnn.UnarySigmoid: kernel.ArmSigmoid, mnn.UnaryGelu: kernel.ArmGELU,
	mnn.UnaryExp: kernel.HalfExp, mnn.UnaryExpm1: kernel.HalfExpm1, mnn.UnaryTanh: kernel.HalfTanh, // in float32
}
