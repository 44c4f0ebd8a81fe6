package net

import "fmt"

// logitBytes bounds a tile of logits of [Head.Backward]; the number of its rows decides bits of gradients of weights.
const logitBytes = 64 << 20

// Head maps the residual stream behind the last layer to logits: Linear · Norm(h).
type Head struct {
	Norm *Norm
	// Linear is [Vocab, Hidden], and the embedding's own where the two are tied.
	Linear *Linear

	model *Model
}

// Head is the final norm and the head, read when it is first asked for.
func (m *Model) Head() (*Head, error) {
	if m.head != nil {
		return m.head, nil
	}
	d := m.decoder
	h := &Head{model: m}
	var err error
	if h.Norm, err = m.norm(&d.FinalNorm); err != nil {
		return nil, fmt.Errorf("final norm: %w", err)
	}
	if d.Head.Weight == d.Embedding && d.Head.Bias.Tensor == "" {
		h.Linear, err = m.Embedding()
	} else {
		h.Linear, err = m.linear(&d.Head)
	}
	if err != nil {
		return nil, fmt.Errorf("head: %w", err)
	}
	m.head = h
	return h, nil
}

// Input writes the input of the head to dst: the final norm of h. Both are [tokens, Hidden]; dst may be h.
func (h *Head) Input(dst, hidden []float32) { h.Norm.apply(dst, hidden) }

// Logits applies the head to rows of its input: dst is [rows, Vocab], x [rows, Hidden].
func (h *Head) Logits(dst, x []float32) { h.Linear.apply(dst, x) }

// Backward writes to dh the gradient of a loss with respect to hidden, the residual stream behind the last layer; both
// are [tokens, Hidden], and dh may be hidden. It computes the logits some rows at a time: gradient gets those of the
// tokens from token on, [rows, Vocab], and turns them into their gradient, see [Model.KLGradient] and
// [Model.CrossEntropyGradient]. Pieces of the visitor are these rows.
func (h *Head) Backward(dh, hidden []float32, gradient func(token int, logits []float32), v Visitor) {
	b, width, vocab := &h.model.buffers, h.Linear.Cols, h.Linear.Rows
	n := rowsIn("Head.Backward", dh, width, hidden, width)
	rows := max(1, min(pieceTokens, logitBytes/4/vocab))
	for lo := 0; lo < n; lo += rows {
		hi := min(lo+rows, n)
		in, out := hidden[lo*width:hi*width], dh[lo*width:hi*width]
		x, logits, dx := grow(&b.norm, len(in)), grow(&b.logits, (hi-lo)*vocab), grow(&b.gradient, len(in))
		h.Norm.apply(x, in)
		h.Linear.apply(logits, x)
		gradient(lo, logits)
		v.linear(h.Linear, x, logits)
		h.Linear.back(dx, logits)
		h.Norm.back(in, dx, 1, v)
		copy(out, dx)
	}
}
