package generic

import (
	"github.com/llmexport/llmexport/backends/internal/ops"
	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/mnn"
)

// storesHalf reports whether the engine runs an op in half precision: it reads and writes halves. All other ops are left to the backend for
// float32, with tensors of their own.
//
// Emulates OpCommonUtils::opCompabilityForLowp and Arm82Backend::onCreate. Ops that move elements become Raster.
func storesHalf(op *mnn.Op) bool {
	switch op.Type {
	case mnn.OpInput, mnn.OpConst, mnn.OpReduction, mnn.OpTopKV2, mnn.OpCast, mnn.OpRange, mnn.OpRoPE, mnn.OpMoE, mnn.OpShape, mnn.OpRank:
		return false
	}
	return true
}

// rounded returns a tensor as an op reads it that works with halves.
func (r *run) rounded(t int32) ops.Tensor {
	v := r.vals[t]
	if v.Ints != nil || r.halves[t] {
		return v
	}
	f := make([]float32, len(v.Floats))
	kernel.HalfStore(f, v.Floats)
	v.Floats = f
	return v
}

// store rounds the results of an op. Those of ops that compute in float32 do not become infinite.
func store(op *mnn.Op, out []ops.Tensor) {
	for k := range out {
		switch f := out[k].Floats; {
		case out[k].Ints != nil || moves(op.Type):
		case op.Type == mnn.OpLayerNorm || op.Type == mnn.OpSoftmax || op.Type == mnn.OpUnaryOp:
			kernel.HalfStore(f, f)
		default:
			kernel.HalfRound(f, f)
		}
	}
}

// moves reports whether ops of this type compute nothing; their results may share the memory of their inputs.
func moves(t mnn.OpType) bool { return !computes[t] }

// halfUnaries are the functions with steps of their own in half precision.
var halfUnaries = map[mnn.UnaryOp]func(dst, x []float32){
	mnn.UnaryExp: kernel.HalfExp, mnn.UnaryExpm1: kernel.HalfExpm1, mnn.UnarySigmoid: kernel.HalfSigmoid, mnn.UnarySilu: kernel.HalfSiLU,
	mnn.UnaryTanh: kernel.HalfTanh, mnn.UnaryGelu: kernel.HalfGELU, mnn.UnaryGeluStandard: kernel.HalfGELU,
}

// evaluateHalf runs ops that the engine computes in another way if tensors are halves; it returns nil for others.
func evaluateHalf(op *mnn.Op, in []ops.Tensor, threads int) ([]ops.Tensor, error) {
	switch p := op.Param.(type) {
	case *mnn.Unary:
		x := in[0]
		if f := halfUnaries[p.Op]; f != nil && x.Ints == nil {
			out := ops.NewFloats(x.Shape...)
			f(out.Floats, x.Floats)
			return []ops.Tensor{out}, nil
		}
	case *mnn.Axis:
		if x := in[0]; op.Type == mnn.OpSoftmax && x.Ints == nil {
			width, err := ops.SoftmaxWidth(p, x.Shape)
			if err != nil {
				return nil, err
			}
			out := ops.NewFloats(x.Shape...)
			kernel.HalfSoftmaxRows(out.Floats, x.Floats, width)
			return []ops.Tensor{out}, nil
		}
	case *mnn.BatchMatMul:
		out, err := ops.HalfMatMul(p, in, threads)
		return []ops.Tensor{out}, err
	}
	return nil, nil
}

// runHalf multiplies x [tokens, cols] in half precision.
func (l *linear) runHalf(out, x []float32, tokens int) {
	m := l.m
	p := kernel.HalfLinear{Tokens: tokens, Cols: m.Cols, X: x}
	bias := make([]float32, m.Rows)
	if m.Bias != nil {
		kernel.HalfStore(bias, m.Bias)
	}
	if p.Strassen(m.Rows) {
		w := make([]float32, m.Rows*m.Cols)
		l.halves(w, 0, m.Rows)
		p.All(out, w, bias, m.Rows)
		return
	}
	kernel.Parallel(l.threads, (m.Rows+panel-1)/panel, func(lo, hi int) {
		w := make([]float32, panel*m.Cols)
		for ; lo < hi; lo++ {
			from, to := lo*panel, min((lo+1)*panel, m.Rows)
			l.halves(w[:(to-from)*m.Cols], from, to)
			p.Panel(out[from:], w, bias[from:to], to-from, m.Rows)
		}
	})
}

// halves writes rows from to to-1 of the weights, rounded, to w.
func (l *linear) halves(w []float32, from, to int) {
	var s scratch
	for ; from < to; from += panel {
		rows := l.rows(from, min(from+panel, to), &s)
		kernel.HalfStore(w[:len(rows)], rows)
		w = w[len(rows):]
	}
}
