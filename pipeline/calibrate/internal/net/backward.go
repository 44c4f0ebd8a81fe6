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
	n, at := len(h)/m.decoder.Hidden, places{0, length, length}

	// Forward as far as gradients need it.
	x := grow(&b.norm, len(h))
	l.AttentionNorm.normed(x, h)
	q, o := grow(&b.q, n*l.Q.Rows), grow(&b.attended, n*l.O.Cols)
	key, value := l.project(q, x, at, true)
	l.attention(length).forward(m.threads, o, q, key, value)
	l.finish(o, x, true)
	middle := grow(&b.out, len(h))
	l.O.apply(middle, o)
	if l.AttentionPostNorm != nil {
		copy(grow(&b.attention, len(middle)), middle)
	}
	l.scaled(middle, middle, l.AttentionPostNorm, l.arch.AttentionScale)
	addAll(m.threads, middle, h)

	l.mlpBackward(dh, middle, v)

	dy := l.unscaled(dh, b.attention, l.AttentionPostNorm, l.arch.AttentionScale, v)
	v.linear(l.O, o, dy)
	do := grow(&b.product, len(o)) // the MLP is done with it
	l.O.back(do, dy)
	mixed, gates := l.unfinish(o, do, v)
	l.attention(length).back(m.threads, q, key, value, mixed, do)
	if !a.NormAfter {
		m.unturn(q, a.Rope, a.Heads, a.HeadDim, at)
		m.unturn(key, a.Rope, a.KVHeads, a.HeadDim, at)
		l.unclip(q, key, value)
	}
	if l.QNorm != nil {
		l.QNorm.back(b.plainQ[:len(q)], q, len(q)/n/len(l.QNorm.Gamma), v)
	}
	if l.KNorm != nil {
		l.KNorm.back(b.plainK[:len(key)], key, len(key)/n/len(l.KNorm.Gamma), v)
	}
	if a.NormAfter {
		m.unturn(q, a.Rope, a.Heads, a.HeadDim, at)
		m.unturn(key, a.Rope, a.KVHeads, a.HeadDim, at)
		l.unclip(q, key, value)
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
	if gates != nil {
		v.linear(l.HeadGate, x, gates)
		l.HeadGate.back(part, gates)
		addAll(m.threads, dx, part)
	}
	if l.AttentionNorm != nil {
		l.AttentionNorm.back(h, dx, 1, v)
	}
	addAll(m.threads, dh, dx)
}

// unscaled is the gradient of what a block gives, where dh is that of the stream behind it, and y the output of the block
// if a norm follows.
func (l *Layer) unscaled(dh, y []float32, post *Norm, scale float64, v Visitor) []float32 {
	if post == nil && scale == 0 {
		return dh
	}
	dy := grow(&l.model.buffers.branch, len(dh))
	copy(dy, dh)
	if scale != 0 {
		scaleAll(l.model.threads, dy, float32(scale))
	}
	if post != nil {
		post.back(y[:len(dy)], dy, 1, v)
	}
	return dy
}

// unfinish takes do, the gradient of the input o of O, to that of what attention gave, in place, and returns this and the
// gradient of the gates.
func (l *Layer) unfinish(o, do []float32, v Visitor) (mixed, gates []float32) {
	b := &l.model.buffers
	mixed = o
	if l.OutNorm != nil {
		mixed = b.plainO[:len(o)]
		l.OutNorm.back(mixed, do, 1, v)
	}
	if l.HeadGate == nil {
		return mixed, nil
	}
	mixed, gates = b.mixed[:len(o)], b.gates[:len(o)]
	kernel.Parallel(l.model.threads, len(o), func(lo, hi int) {
		for i := lo; i < hi; i++ {
			g, d := gates[i], do[i]
			do[i] = d * g
			gates[i] = float32(d*mixed[i]) * float32(g*(1-g))
		}
	})
	return mixed, gates
}

// mlpBackward takes dh back over the MLP, whose input is h.
func (l *Layer) mlpBackward(dh, h []float32, v Visitor) {
	m, b := l.model, &l.model.buffers
	n := len(h) / m.decoder.Hidden
	dx, part := grow(&b.gradient, len(h)), grow(&b.part, len(h))
	x := part // until its gradient comes in dx and part
	l.MLPNorm.normed(x, h)
	up, product := grow(&b.up, n*l.Up.Rows), grow(&b.product, n*l.Down.Cols)
	inner := up // the argument of the activation
	l.Up.apply(up, x)
	if l.Gate != nil {
		inner = grow(&b.gate, n*l.Gate.Rows)
		l.openGate(inner, x)
		l.multiply(product, inner, up)
	} else {
		l.multiply(product, inner, nil)
	}
	if l.InnerNorm != nil {
		copy(grow(&b.plainDown, len(product)), product)
		l.InnerNorm.apply(product, product)
	}
	if l.MLPPostNorm != nil {
		l.Down.apply(grow(&b.mlp, len(h)), product)
	}

	dy := l.unscaled(dh, b.mlp, l.MLPPostNorm, l.arch.MLPScale, v)
	v.linear(l.Down, product, dy)
	l.Down.back(product, dy)
	if l.InnerNorm != nil {
		l.InnerNorm.back(b.plainDown[:len(product)], product, 1, v)
	}
	if l.Gate == nil {
		l.multiplyBack(inner, nil, product)
		v.linear(l.Up, x, up)
		l.Up.back(dx, up)
	} else {
		l.multiplyBack(inner, up, product)
		v.linear(l.Gate, x, inner)
		v.linear(l.Up, x, up)
		l.Gate.back(dx, inner)
		l.Up.back(part, up)
		addAll(m.threads, dx, part)
	}
	if l.MLPNorm != nil {
		l.MLPNorm.back(h, dx, 1, v)
	}
	addAll(m.threads, dh, dx)
}

// multiplyBack turns gate and up into their gradients, where d is the gradient of act(gate) * up, or without up of
// act(gate). That of gate is that of what the linear layer gave.
func (l *Layer) multiplyBack(gate, up, d []float32) {
	factor := float32(l.arch.MLP.GateScale)
	if factor == 0 || up == nil {
		factor = 1
	}
	kernel.Parallel(l.model.threads, (len(gate)+activationBlock-1)/activationBlock, func(lo, hi int) {
		var values, slopes [activationBlock]float32
		for end := min(hi*activationBlock, len(gate)); lo*activationBlock < end; lo++ {
			from, to := lo*activationBlock, min((lo+1)*activationBlock, end)
			g := gate[from:to]
			d, s, t := d[from:to][:len(g)], values[:len(g)], slopes[:len(g)]
			l.activation.slopes(s, t, g)
			if up == nil {
				kernel.Mul(g, d, t)
				continue
			}
			u := up[from:to][:len(g)]
			for i, v := range d {
				g[i] = float32(v*u[i]) * t[i]
				u[i] = v * s[i]
			}
			if factor != 1 {
				kernel.Scale(g, g, factor)
			}
		}
	})
}
