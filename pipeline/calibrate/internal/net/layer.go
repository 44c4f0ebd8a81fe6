package net

import (
	"fmt"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/runtime/kernel"
)

// Layer is one pre-norm block with its weights:
//
//	h += O attention(Q x, K x, V x)             x = AttentionNorm(h)
//	h += Down (silu(Gate x) * (Up x))           x = MLPNorm(h)
type Layer struct {
	Index int

	AttentionNorm, MLPNorm *Norm
	// QNorm and KNorm, if not nil, normalise every head before rotation.
	QNorm, KNorm               *Norm
	Q, K, V, O, Gate, Up, Down *Linear

	model *Model
	arch  arch.Plain
}

// Layer reads the weights of layer i; the caller keeps them.
func (m *Model) Layer(i int) (*Layer, error) {
	if i < 0 || i >= len(m.decoder.Layers) {
		return nil, fmt.Errorf("layer %d of %d", i, len(m.decoder.Layers))
	}
	d := m.decoder.Plain(i)
	l := &Layer{Index: i, model: m, arch: d}
	a := d.Attention
	for _, n := range []struct {
		to   **Norm
		from *arch.Norm
	}{{&l.AttentionNorm, d.AttentionNorm}, {&l.MLPNorm, d.MLPNorm}, {&l.QNorm, a.QNorm}, {&l.KNorm, a.KNorm}} {
		var err error
		if *n.to, err = m.norm(n.from); err != nil {
			return nil, fmt.Errorf("layer %d: %w", i, err)
		}
	}
	from := []*arch.Linear{&a.Q, &a.K, &a.V, &a.O, &d.MLP.Gate, &d.MLP.Up, &d.MLP.Down}
	for j, to := range []**Linear{&l.Q, &l.K, &l.V, &l.O, &l.Gate, &l.Up, &l.Down} {
		var err error
		if *to, err = m.linear(from[j]); err != nil {
			return nil, fmt.Errorf("layer %d: %w", i, err)
		}
	}
	return l, nil
}

// Linears lists the linear layers in the order of the computation: q, k, v, o, gate, up, down.
func (l *Layer) Linears() []*Linear {
	return []*Linear{l.Q, l.K, l.V, l.O, l.Gate, l.Up, l.Down}
}

// Forward does all steps: h [windows*length, Hidden] is the layer's input and becomes its output.
func (l *Layer) Forward(h []float32, length int) {
	width := l.model.decoder.Hidden
	pieces(windowsIn("Layer.Forward", h, width, length), length, func(lo, hi int) {
		b, h := &l.model.buffers, h[lo*width:hi*width]
		x := grow(&b.norm, len(h))
		l.AttentionInput(x, h)
		o := grow(&b.attended, (hi-lo)*l.O.Cols)
		l.Attend(o, x, length)
		l.AddAttention(h, o)
		l.MLPInput(x, h)
		product := grow(&b.product, (hi-lo)*l.Down.Cols)
		l.Product(product, x)
		l.AddMLP(h, product)
	})
}

// AttentionInput writes the input of q, k and v to dst: the norm of h. Both are [tokens, Hidden]; dst may be h.
func (l *Layer) AttentionInput(dst, h []float32) { l.AttentionNorm.apply(dst, h) }

// MLPInput writes the input of gate and up to dst: the norm of h. Both are [tokens, Hidden]; dst may be h.
func (l *Layer) MLPInput(dst, h []float32) { l.MLPNorm.apply(dst, h) }

// Attend writes the input of o to dst [windows*length, O.Cols], where x [windows*length, Hidden] is the input of q, k
// and v.
func (l *Layer) Attend(dst, x []float32, length int) {
	n := windowsIn("Layer.Attend", x, l.Q.Cols, length)
	rowsIn("Layer.Attend", x, l.Q.Cols, dst, l.O.Cols)
	pieces(n, length, func(lo, hi int) {
		q := dst[lo*l.O.Cols : hi*l.O.Cols]
		k, v := l.project(q, x[lo*l.Q.Cols:hi*l.Q.Cols], 0, length, false)
		l.attention(length).forward(l.model.threads, q, q, k, v)
	})
}

// project computes queries, keys and values of rows whose positions are first + row%length, normalised and turned. keep
// says that queries and keys as they were before their norms are wanted in the buffers.
func (l *Layer) project(q, x []float32, first, length int, keep bool) (k, v []float32) {
	m, b, a := l.model, &l.model.buffers, l.arch.Attention
	n := len(x) / l.Q.Cols
	k, v = grow(&b.k, n*l.K.Rows), grow(&b.v, n*l.V.Rows)
	l.Q.apply(q, x)
	l.K.apply(k, x)
	l.V.apply(v, x)
	if l.QNorm != nil {
		if keep {
			copy(grow(&b.plainQ, len(q)), q)
		}
		l.QNorm.apply(q, q)
	}
	if l.KNorm != nil {
		if keep {
			copy(grow(&b.plainK, len(k)), k)
		}
		l.KNorm.apply(k, k)
	}
	m.turn(q, a.Heads, a.HeadDim, first, length)
	m.turn(k, a.KVHeads, a.HeadDim, first, length)
	return k, v
}

func (l *Layer) attention(length int) *attention {
	a := l.arch.Attention
	return &attention{heads: a.Heads, kvHeads: a.KVHeads, dim: a.HeadDim, length: length}
}

// AddAttention adds O xo + bias to h: h is [tokens, Hidden], xo [tokens, O.Cols].
func (l *Layer) AddAttention(h, xo []float32) { l.add("Layer.AddAttention", l.O, h, xo) }

// AddMLP adds Down xd + bias to h: h is [tokens, Hidden], xd [tokens, Down.Cols].
func (l *Layer) AddMLP(h, xd []float32) { l.add("Layer.AddMLP", l.Down, h, xd) }

func (l *Layer) add(call string, linear *Linear, h, x []float32) {
	n := rowsIn(call, h, linear.Rows, x, linear.Cols)
	pieces(n, 1, func(lo, hi int) {
		h := h[lo*linear.Rows : hi*linear.Rows]
		out := grow(&l.model.buffers.out, len(h))
		linear.apply(out, x[lo*linear.Cols:hi*linear.Cols])
		addAll(l.model.threads, h, out)
	})
}

// Product writes the input of down to dst [tokens, Down.Cols], silu(Gate x) * (Up x), where x [tokens, Hidden] is the
// input of gate and up.
func (l *Layer) Product(dst, x []float32) {
	n := rowsIn("Layer.Product", x, l.Gate.Cols, dst, l.Down.Cols)
	pieces(n, 1, func(lo, hi int) {
		gate, x := dst[lo*l.Gate.Rows:hi*l.Gate.Rows], x[lo*l.Gate.Cols:hi*l.Gate.Cols]
		up := grow(&l.model.buffers.up, len(gate))
		l.Gate.apply(gate, x)
		l.Up.apply(up, x)
		l.multiply(gate, gate, up)
	})
}

// siluBlock is what SiLU and the product behind it take at a time: the second finds it in the first cache.
const siluBlock = 2048

// multiply writes silu(gate) * up to dst, which may be gate.
func (l *Layer) multiply(dst, gate, up []float32) {
	kernel.Parallel(l.model.threads, (len(gate)+siluBlock-1)/siluBlock, func(lo, hi int) {
		for end := min(hi*siluBlock, len(gate)); lo*siluBlock < end; lo++ {
			from, to := lo*siluBlock, min((lo+1)*siluBlock, end)
			kernel.SiLU(dst[from:to], gate[from:to])
			kernel.Mul(dst[from:to], dst[from:to], up[from:to])
		}
	})
}
