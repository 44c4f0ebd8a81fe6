package net

import (
	"fmt"

	"github.com/llmexport/llmexport/runtime/kernel"
)

// LogitBytes bounds a tile of logits of [Head.Backward]; the number of its rows decides bits of gradients of weights.
const LogitBytes = 64 << 20

// Head maps the residual stream behind the last layer to logits:
//
//	z = scale · Linear · Norm(h), bounded as cap · tanh(z / cap)
type Head struct {
	Norm *Norm
	// Linear is [Vocab, Hidden], and the embedding's own where the two are tied.
	Linear *Linear

	model *Model
}

// With is the head with another linear layer of the same shape.
func (h *Head) With(l *Linear) *Head { return &Head{Norm: h.Norm, Linear: l, model: h.model} }

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
func (h *Head) Logits(dst, x []float32) {
	h.Linear.apply(dst, x)
	scale, bound := h.model.logitScale(), h.model.decoder.LogitCap
	if scale == 1 && bound == 0 {
		return
	}
	kernel.Parallel(h.model.threads, len(dst), func(lo, hi int) {
		row := dst[lo:hi]
		if scale != 1 {
			kernel.Scale(row, row, scale)
		}
		for i := range row {
			if bound == 0 {
				return
			}
			row[i] = float32(bound * tanh(float64(row[i])/bound))
		}
	})
}

// Slope is the derivative of a logit, as [Head.Logits] gives it, by what the linear layer gave.
func (h *Head) Slope(logit float32) float32 {
	slope := h.model.logitScale()
	if bound := h.model.decoder.LogitCap; bound != 0 {
		t := float64(logit) / bound
		slope *= float32(1 - float64(t*t))
	}
	return slope
}

// Plain says that logits are what the linear layer gives.
func (h *Head) Plain() bool { return h.model.logitScale() == 1 && h.model.decoder.LogitCap == 0 }

func (m *Model) logitScale() float32 {
	if s := m.decoder.LogitScale; s != 0 {
		return float32(s)
	}
	return 1
}

// Backward writes to dh the gradient of a loss with respect to hidden, the residual stream behind the last layer; both
// are [tokens, Hidden], and dh may be hidden. It computes the logits some rows at a time: gradient gets those of the
// tokens from token on, [rows, Vocab], and turns them into their gradient, see [Model.KLGradient] and
// [Model.CrossEntropyGradient]. Pieces of the visitor are these rows.
func (h *Head) Backward(dh, hidden []float32, gradient func(token int, logits []float32), v Visitor) {
	b, width, vocab := &h.model.buffers, h.Linear.Cols, h.Linear.Rows
	n := rowsIn("Head.Backward", dh, width, hidden, width)
	rows := max(1, min(pieceTokens, LogitBytes/4/vocab))
	for lo := 0; lo < n; lo += rows {
		hi := min(lo+rows, n)
		in, out := hidden[lo*width:hi*width], dh[lo*width:hi*width]
		x, logits, dx := grow(&b.norm, len(in)), grow(&b.logits, (hi-lo)*vocab), grow(&b.gradient, len(in))
		h.Norm.apply(x, in)
		h.Logits(logits, x)
		var bounded []float32
		if !h.Plain() {
			bounded = grow(&b.bounded, len(logits))
			copy(bounded, logits)
		}
		gradient(lo, logits)
		kernel.Parallel(h.model.threads, len(bounded), func(lo, hi int) {
			for i := lo; i < hi; i++ {
				logits[i] *= h.Slope(bounded[i])
			}
		})
		v.linear(h.Linear, x, logits)
		h.Linear.back(dx, logits)
		h.Norm.back(in, dx, 1, v)
		copy(out, dx)
	}
}
