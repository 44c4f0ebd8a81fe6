package ops

import (
	"fmt"

	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/mnn"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// Unary is a function of single elements.
type Unary struct {
	// Do writes f(x) to dst, which may be x.
	Do func(dst, x []float32)
	// Eights is set if the last elements of a tensor which fill no group of eight are computed in another way: pieces
	// have to start at multiples of eight.
	Eights bool
}

var unaries = map[mnn.UnaryOp]Unary{
	mnn.UnaryAbs:          {kernel.EngineAbs, false},
	mnn.UnaryNeg:          {negate, false},
	mnn.UnarySqrt:         {kernel.EngineSqrt, false},
	mnn.UnaryExp:          {kernel.EngineExp, true},
	mnn.UnaryLog:          {kernel.EngineLog, false},
	mnn.UnaryExpm1:        {kernel.EngineExpm1, true},
	mnn.UnarySigmoid:      {kernel.EngineSigmoid, true},
	mnn.UnaryTanh:         {kernel.EngineTanh, true},
	mnn.UnaryGelu:         {kernel.EngineGELU, false},
	mnn.UnaryGeluStandard: {kernel.EngineGELUErf, false},
	mnn.UnarySilu:         {kernel.EngineSiLU, true},
}

// FloatUnary is the function of a UnaryOp on floats.
func FloatUnary(op mnn.UnaryOp) (Unary, error) {
	u, ok := unaries[op]
	if !ok {
		return Unary{}, fmt.Errorf("%v: %w", op, tensor.ErrUnsupported)
	}
	return u, nil
}

// ReLU is the function of a ReLU op.
func ReLU(p *mnn.Relu) Unary {
	return Unary{func(dst, x []float32) { kernel.EngineReLU(dst, x, p.Slope) }, false}
}

// IntUnary writes the function of a UnaryOp on integers to dst.
func IntUnary(op mnn.UnaryOp, dst, x []int32) error {
	switch op {
	case mnn.UnaryAbs:
		for i, v := range x {
			dst[i] = max(v, -v)
		}
	case mnn.UnaryNeg:
		for i, v := range x {
			dst[i] = -v
		}
	default:
		return fmt.Errorf("%v of integers: %w", op, tensor.ErrUnsupported)
	}
	return nil
}

func negate(dst, x []float32) {
	for i, v := range x {
		dst[i] = -v
	}
}

func runUnary(op mnn.UnaryOp, x Tensor, threads int) (Tensor, error) {
	if x.Ints != nil {
		out := make([]int32, len(x.Ints))
		return NewInts(out, x.Shape...), IntUnary(op, out, x.Ints)
	}
	u, err := FloatUnary(op)
	if err != nil {
		return Tensor{}, err
	}
	return u.run(x, threads), nil
}

func runReLU(p *mnn.Relu, x Tensor, threads int) (Tensor, error) {
	if x.Ints != nil {
		return Tensor{}, fmt.Errorf("ReLU of integers: %w", tensor.ErrUnsupported)
	}
	return ReLU(p).run(x, threads), nil
}

func (u Unary) run(x Tensor, threads int) Tensor {
	const chunk = 1 << 12 // a multiple of the engine's groups of eight
	out := NewFloats(x.Shape...)
	kernel.Parallel(threads, (len(x.Floats)+chunk-1)/chunk, func(lo, hi int) {
		hi = min(hi*chunk, len(x.Floats))
		u.Do(out.Floats[lo*chunk:hi], x.Floats[lo*chunk:hi])
	})
	return out
}
