package cpu

import (
	"math"
	"sync/atomic"

	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/mnn"
)

// peak is the largest magnitude that an op has put out in a call.
type peak struct {
	op *mnn.Op
	// bits of a float32 without its sign, which are ordered as the numbers are, with NaN above all.
	bits atomic.Uint32
}

func (p *peak) add(values []float32) {
	bits := math.Float32bits(kernel.AbsMax(values))
	for {
		old := p.bits.Load()
		if bits <= old || p.bits.CompareAndSwap(old, bits) {
			return
		}
	}
}

func (p *peak) value() float32 { return math.Float32frombits(p.bits.Load()) }

// peaks watches the outputs of a node that computes.
func (p *planner) peaks(n *node, op *mnn.Op) {
	switch op.Type {
	case mnn.OpBatchMatMul, mnn.OpLinearAttention, mnn.OpMoE, mnn.OpReduction:
	case mnn.OpReLU, mnn.OpSoftmax:
	case mnn.OpAttention, mnn.OpBinaryOp, mnn.OpConvolution, mnn.OpDepthwise, mnn.OpLayerNorm, mnn.OpRoPE, mnn.OpUnaryOp:
	default:
		return
	}
	for k, t := range n.outputs {
		v := &p.places[t]
		if !v.float() || v.buffer == nil {
			continue
		}
		if n.kind == nodeLinears {
			op = &p.e.g.Ops[n.members[k]]
		}
		top := &peak{op: op}
		p.f.peaks = append(p.f.peaks, top)
		if p.stage != nil && v.buffer.stage == p.stage {
			p.row(&peakRows{p.span(v), top})
			continue
		}
		p.step(&peakStep{v.floats(), top})
	}
}

// peakRows looks at the rows of a tile while they are in the cache.
type peakRows struct {
	x *span
	*peak
}

func (o *peakRows) do(w *worker, lo, hi int) { o.add(o.x.rows(w, lo, hi)) }

// peakStep looks at an output that no stage has made.
type peakStep struct {
	values []float32
	*peak
}

// peakPart is how many values a worker takes at a time.
const peakPart = 1 << 16

func (s *peakStep) run(f *frame) error {
	kernel.ParallelTask(f.threads, (len(s.values)+peakPart-1)/peakPart, s)
	return nil
}

// Do implements kernel.Task.
func (s *peakStep) Do(lo, hi int) { s.add(s.values[lo*peakPart : min(hi*peakPart, len(s.values))]) }
