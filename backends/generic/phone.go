package generic

import (
	"github.com/llmexport/llmexport/backends/internal/ops"
	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/mnn"
)

// evaluateArm runs the ops without weights that the engine computes in another way on arm64, and returns nil for all others.
func evaluateArm(op *mnn.Op, in []ops.Tensor, threads int) []ops.Tensor {
	silu := func(x ops.Tensor) ops.Tensor {
		out := ops.NewFloats(x.Shape...)
		kernel.Parallel(threads, len(x.Floats), func(lo, hi int) { kernel.ArmSiLU(out.Floats[lo:hi], x.Floats[lo:hi]) })
		return out
	}
	switch p := op.Param.(type) {
	case *mnn.Unary:
		if p.Op == mnn.UnarySilu && in[0].Ints == nil {
			return []ops.Tensor{silu(in[0])}
		}
	case *mnn.Binary:
		if p.Op == mnn.BinaryMulSilu && in[1].Ints == nil {
			out, err := ops.Binary(&mnn.Binary{Op: mnn.BinaryMul, Activation: p.Activation}, []ops.Tensor{in[0], silu(in[1])}, threads)
			if err == nil {
				return []ops.Tensor{out}
			}
		}
	}
	return nil
}
