package net

import "github.com/llmexport/llmexport/runtime/kernel"

// Visitor is told about gradients on the way back, a piece of whole windows at a time, pieces in the order of the
// tokens. What it is given is valid until it returns and must not be changed. Either function may be nil.
type Visitor struct {
	// Linear gets the inputs x [tokens, Cols] of a linear layer, and the gradient of its outputs, dy [tokens, Rows]. The
	// gradient of the weights is dyᵀ x, see [Linear.Gradient], that of the bias the sum of the rows of dy.
	Linear func(l *Linear, x, dy []float32)
	// Norm gets the gradient of a norm's Gamma, summed over the piece.
	Norm func(n *Norm, dGamma []float64)
}

func (v Visitor) linear(l *Linear, x, dy []float32) {
	if v.Linear != nil {
		v.Linear(l, x, dy)
	}
}

// Backward takes dh, the gradient of the layer's output, to that of its input h, in place: both are [windows*length,
// Hidden]. It needs no Forward before it.
func (l *Layer) Backward(dh, h []float32, length int, v Visitor) {
	width := l.model.decoder.Hidden
	rowsIn("Layer.Backward", dh, width, h, width)
	pieces(windowsIn("Layer.Backward", h, width, length), length, func(lo, hi int) {
		l.backward(dh[lo*width:hi*width], h[lo*width:hi*width], length, v)
	})
}

// backward is Backward for a piece.
func (l *Layer) backward(dh, h []float32, length int, v Visitor) {
	m, b, a := l.model, &l.model.buffers, l.arch.Attention
	n := len(h) / m.decoder.Hidden

	// Forward as far as gradients need it.
	x := grow(&b.norm, len(h))
	l.AttentionNorm.apply(x, h)
	q, o := grow(&b.q, n*l.Q.Rows), grow(&b.attended, n*l.O.Cols)
	key, value := l.project(q, x, 0, length, true)
	l.attention(length).forward(m.threads, o, q, key, value)
	middle := grow(&b.out, len(h))
	l.O.apply(middle, o)
	addAll(m.threads, middle, h)

	l.mlpBackward(dh, middle, v)

	v.linear(l.O, o, dh)
	do := grow(&b.product, len(o)) // the MLP is done with it
	l.O.back(do, dh)
	l.attention(length).back(m.threads, q, key, value, o, do)
	m.unturn(q, a.Heads, a.HeadDim, 0, length)
	m.unturn(key, a.KVHeads, a.HeadDim, 0, length)
	if l.QNorm != nil {
		l.QNorm.back(b.plainQ[:len(q)], q, a.Heads, v)
	}
	if l.KNorm != nil {
		l.KNorm.back(b.plainK[:len(key)], key, a.KVHeads, v)
	}
	v.linear(l.Q, x, q)
	v.linear(l.K, x, key)
	v.linear(l.V, x, value)
	dx, part := grow(&b.gradient, len(h)), grow(&b.part, len(h))
	l.Q.back(dx, q)
	l.K.back(part, key)
	addAll(m.threads, dx, part)
	l.V.back(part, value)
	addAll(m.threads, dx, part)
	l.AttentionNorm.back(h, dx, 1, v)
	addAll(m.threads, dh, dx)
}

// mlpBackward takes dh back over the MLP, whose input is h.
func (l *Layer) mlpBackward(dh, h []float32, v Visitor) {
	m, b := l.model, &l.model.buffers
	n := len(h) / m.decoder.Hidden
	dx, part := grow(&b.gradient, len(h)), grow(&b.part, len(h))
	x := part // until its gradient comes in dx and part
	l.MLPNorm.apply(x, h)
	gate, up, product := grow(&b.gate, n*l.Gate.Rows), grow(&b.up, n*l.Up.Rows), grow(&b.product, n*l.Down.Cols)
	l.Gate.apply(gate, x)
	l.Up.apply(up, x)
	l.multiply(product, gate, up)

	v.linear(l.Down, product, dh)
	l.Down.back(product, dh)
	l.multiplyBack(gate, up, product)
	v.linear(l.Gate, x, gate)
	v.linear(l.Up, x, up)
	l.Gate.back(dx, gate)
	l.Up.back(part, up)
	addAll(m.threads, dx, part)
	l.MLPNorm.back(h, dx, 1, v)
	addAll(m.threads, dh, dx)
}

// multiplyBack turns gate and up into their gradients, where d is the gradient of silu(gate) * up. With s = silu(x) and
// σ = s/x the logistic function, the derivative of silu is σ + s (1-σ).
func (l *Layer) multiplyBack(gate, up, d []float32) {
	kernel.Parallel(l.model.threads, (len(gate)+siluBlock-1)/siluBlock, func(lo, hi int) {
		var silu [siluBlock]float32
		for end := min(hi*siluBlock, len(gate)); lo*siluBlock < end; lo++ {
			from, to := lo*siluBlock, min((lo+1)*siluBlock, end)
			g := gate[from:to]
			u, d, s := up[from:to][:len(g)], d[from:to][:len(g)], silu[:len(g)]
			kernel.SiLU(s, g)
			for i, x := range g {
				sigma := float32(0.5)
				if x > 0x1p-100 || x < -0x1p-100 {
					sigma = s[i] / x
				}
				g[i] = float32(d[i]*u[i]) * (sigma + float32(s[i]*(1-sigma)))
				u[i] = d[i] * s[i]
			}
		}
	})
}
