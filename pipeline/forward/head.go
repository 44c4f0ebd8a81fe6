package forward

import (
	"context"
	"fmt"
	"math"

	"github.com/llmexport/llmexport/pipeline/effort"
	"github.com/llmexport/llmexport/runtime/kernel"
)

// LogitBytes bounds a tile of logits of [Head.Backward]; its number of rows affects bits of gradients of weights.
const LogitBytes = 64 << 20

// Head maps the residual stream after the last layer to logits:
//
//	z = scale · Linear · Norm(h), bounded as cap · tanh(z / cap)
type Head struct {
	Norm *Norm // nil if a model with a pooling has none
	// Linear is [Vocab, Hidden]; weights that are not in memory are read when needed. It is nil if a model has a pooling instead.
	Linear *Linear

	model *Model
}

// Head returns the head of the model and reads the final norm, but not the weights.
func (m *Model) Head() (*Head, error) {
	if m.decoder.FinalNorm.Gamma.Tensor == "" { // only with a pooling
		return &Head{model: m}, nil
	}
	n, err := m.readNorm(&m.decoder.FinalNorm, m.values)
	if err != nil {
		return nil, fmt.Errorf("final norm: %w", err)
	}
	return &Head{Norm: n, Linear: m.linearOf(&m.decoder.Head), model: m}, nil
}

// LoadHead reads the final norm and the head.
func (m *Model) LoadHead() (*Head, error) { return m.HeadWithin(math.MaxInt64) }

// HeadWithin reads the final norm, and the weights of the head if so many bytes hold them, plain and packed.
func (m *Model) HeadWithin(bytes int64) (*Head, error) {
	h, err := m.Head()
	if err != nil || h.Linear == nil || 8*int64(h.Linear.Rows)*int64(h.Linear.Cols) > bytes {
		return h, err
	}
	if err := h.Linear.Load(); err != nil {
		return nil, fmt.Errorf("head: %w", err)
	}
	return h, nil
}

// Input writes to dst, and returns, the input of the head [tokens, Hidden]: the final norm of the stream of states [tokens, Width]. dst may be
// the states.
func (h *Head) Input(dst, states []float32) []float32 {
	hidden := h.model.Stream(states)
	dst = dst[:len(hidden)]
	h.Normed(dst, hidden)
	return dst
}

// Normed writes to dst the final norm of a stream; both are [tokens, Hidden], and dst may be the stream.
func (h *Head) Normed(dst, stream []float32) {
	if h.Norm == nil {
		copy(dst, stream)
		return
	}
	h.Norm.apply(dst, stream)
}

// Logits applies the head to rows of its input: dst is [rows, Vocab], x [rows, Hidden].
func (h *Head) Logits(ctx context.Context, dst, x []float32) error {
	m, d := h.model, h.model.decoder
	defer effort.TallyOf(ctx).Linear(len(x)/d.Hidden, d.Vocab, d.Hidden)
	if err := h.Linear.product(ctx, dst, x); err != nil {
		return err
	}
	m.scaleAll(dst, d.LogitScale)
	if c := d.LogitCap; c != 0 {
		m.pointwise(dst, func(block []float64) { capped(block, c) })
	}
	return nil
}

// Offered returns the logits of rows x of the head's input [rows, Hidden] as a device computes them. It reports false if there is no device, or
// logits are more than the products of x with a matrix in memory.
func (h *Head) Offered(ctx context.Context, x []float32) (logits kernel.Logits, ok bool) {
	l := h.Linear
	if !kernel.HasDevice() || l == nil || !h.Plain() || l.of.Bias.Tensor != "" {
		return logits, false
	}
	logits = kernel.Logits{X: x, Rows: len(x) / l.Cols, Vocab: l.Rows, Width: l.Cols}
	if l.InMemory() {
		f := l.factor(nil)
		logits.Weights = f.right()
		return logits, true
	}
	f, err := l.model.factor(ctx, output{l.of, nil})
	if err != nil || f.packed == nil {
		return logits, false
	}
	logits.Weights = f.packed.Factor()
	return logits, true
}

// Slope is the derivative of a logit, as [Head.Logits] computes it, by the output of the linear layer.
func (h *Head) Slope(logit float32) float32 {
	slope := h.model.logitScale()
	if bound := h.model.decoder.LogitCap; bound != 0 {
		t := float64(logit) / bound
		slope *= float32(1 - float64(t*t))
	}
	return slope
}

// Plain reports whether logits are the unchanged outputs of the linear layer.
func (h *Head) Plain() bool { return h.model.logitScale() == 1 && h.model.decoder.LogitCap == 0 }

func (m *Model) logitScale() float32 {
	if s := m.decoder.LogitScale; s != 0 {
		return float32(s)
	}
	return 1
}

// Backward writes to dh the gradient of a loss with respect to hidden, the residual stream after the last layer; both are
// [tokens, Hidden], and dh may be hidden. It computes the logits in tiles: gradient receives those of the tokens from token on,
// [rows, Vocab], and turns them into their gradient, see [Model.KLGradient] and [Model.CrossEntropyGradient]. Groups of the
// visitor are these rows.
func (h *Head) Backward(
	ctx context.Context, dh, hidden []float32, gradient func(token int, logits []float32) error, v Visitor,
) error {
	width, vocab, tally := h.Linear.Cols, h.Linear.Rows, effort.TallyOf(ctx)
	n := rows("Head.Backward", dh, width, hidden, width)
	most := max(1, min(GroupTokens, LogitBytes/4/vocab))
	a := h.model.arenas.Get().(*arena)
	defer h.model.arenas.Put(a)
	free := grow(&a.floats, min(most, n)*(vocab+2*width))
	var bounded []float32
	for lo := 0; lo < n; lo += most {
		hi := min(lo+most, n)
		in := hidden[lo*width : hi*width]
		logits, rest := cut(free, (hi-lo)*vocab)
		x, dx := rest[:len(in)], rest[len(in):2*len(in)]
		h.Norm.apply(x, in)
		if err := h.Logits(ctx, logits, x); err != nil {
			return err
		}
		if h.model.decoder.LogitCap != 0 {
			bounded = grow(&bounded, len(logits))
			kernel.Copy(h.model.threads, bounded, logits)
		}
		if err := gradient(lo, logits); err != nil {
			return err
		}
		if bounded == nil {
			h.model.scaleAll(logits, h.model.decoder.LogitScale)
		}
		kernel.Parallel(h.model.threads, len(bounded), func(lo, hi int) {
			for i := lo; i < hi; i++ {
				logits[i] *= h.Slope(bounded[i])
			}
		})
		if v.Linear != nil {
			v.Linear(h.Linear, x, logits)
			tally.Linear(hi-lo, vocab, width)
		}
		if err := h.Linear.backward(ctx, dx, logits); err != nil {
			return err
		}
		tally.Linear(hi-lo, vocab, width)
		h.Norm.back(in, dx, width, v)
		copy(dh[lo*width:hi*width], dx)
	}
	return nil
}

// BackwardDrawn is [Head.Backward] for the negative log-likelihoods of labels that a device draws, each at a place, from 0 to 1, of the softmax
// of its token: at is [tokens]. It sets squares to the sums of the squared probabilities of every token. dh may not be hidden. It reports
// false if there is no device that does this, or if the visitor takes what stays there; dh and squares are arbitrary then.
func (h *Head) BackwardDrawn(ctx context.Context, dh, hidden []float32, at, squares []float64, v Visitor) bool {
	if x, dy := v.wants(h.Linear); !kernel.HasDevice() || v.Norm != nil || x || dy {
		return false
	}
	a := h.model.arenas.Get().(*arena)
	defer h.model.arenas.Put(a)
	x := grow(&a.floats, len(hidden))
	h.Norm.apply(x, hidden)
	logits, ok := h.Offered(ctx, x)
	l := h.Linear
	if !ok || l.W == nil || !kernel.Offload(&kernel.Labels{Logits: logits, Back: l.backFactor(), At: at, Squares: squares, Gradient: dh}) {
		return false
	}
	h.Norm.back(hidden, dh, l.Cols, v)
	products := 2 // and that of the visitor
	if v.Linear != nil {
		products++
	}
	effort.TallyOf(ctx).Linear(products*len(at), l.Rows, l.Cols)
	return true
}
