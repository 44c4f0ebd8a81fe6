package cpu

import (
	"fmt"
	"slices"

	"github.com/llmexport/llmexport/runtime/mnn"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// head makes logits of some rows after a call.
type head struct {
	*linear
	x    []float32 // [rows, cols]
	out  []float32
	step linearStep
	q    quantizeStep
}

// headOf is the linear layer after which nothing happens to the logits but changes of shape, or -1.
func (e *executable) headOf(nodes []node) int {
	t := e.logits
	for i, n := range slices.Backward(nodes) {
		if len(n.outputs) != 1 || n.outputs[0] != t {
			return -1
		}
		switch op := &e.g.Ops[n.op]; op.Type {
		case mnn.OpConvertTensor, mnn.OpReshape, mnn.OpSqueeze, mnn.OpUnsqueeze:
			t = n.inputs[0]
		case mnn.OpConvolution:
			l := e.linears[n.op]
			// The place of a bias in the sum depends on the number of rows, and so does the order of an exact sum.
			if l.exact || l.quantized && slices.ContainsFunc(l.m.Bias, func(b float32) bool { return b != 0 }) {
				return -1
			}
			return i
		default:
			return -1
		}
	}
	return -1
}

func (p *planner) head(n *node) error {
	x, l := p.in(n, 0), p.e.linears[n.op]
	if !x.float() || len(x.shape) != 4 || x.shape[1] != l.m.Cols || x.shape[2] != 1 || x.shape[3] != 1 || x.shape[0] != p.tokens {
		return fmt.Errorf("linear layer of %d inputs on shape %v: %w", l.m.Cols, x.shape, tensor.ErrCorrupt)
	}
	p.flush()
	p.f.head = &head{linear: l, x: x.floats()}
	return nil
}

// rows computes rows lo to hi-1 as they come out when all rows are computed at once: the engine takes rows in groups of
// four, and has other formulas for what is left over and for a single row.
func (h *head) rows(f *frame, lo, hi int) ([]float32, error) {
	cols, vocab := h.m.Cols, h.m.Rows
	all := len(h.x) / cols
	from, to := lo&^3, min((hi+3)&^3, all)
	if to-from == 1 {
		from = max(0, from-4)
	}
	n := to - from
	if cap(h.out) < n*vocab {
		h.out = make([]float32, n*vocab)
	}
	out := h.out[:n*vocab]
	h.step = linearStep{x: h.x[from*cols : to*cols], tokens: n, members: append(h.step.members[:0], member{h.linear, out, 0}), units: (vocab + panel - 1) / panel}
	if h.quantized {
		h.step.q = h.q.reset(&h.step, h.linear)
	}
	if err := h.step.run(f); err != nil {
		return nil, err
	}
	return out[(lo-from)*vocab : (hi-from)*vocab], nil
}
