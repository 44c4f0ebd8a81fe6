package net

import (
	"fmt"
	"math"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/runtime/kernel"
)

// Layer is an [arch.Pair] with its weights:
//
//	h += scale · AttentionPostNorm(O OutNorm(attention(Q x, K x, V x) · sigmoid(HeadGate x)))    x = AttentionNorm(h)
//	h += scale · MLPPostNorm(Down InnerNorm(act(Gate x) * (Up x)))                               x = MLPNorm(h)
//
// What a model has not is nil, and left out of the formulas. Without Gate the MLP is Down InnerNorm(act(Up x)).
type Layer struct {
	Index int

	AttentionNorm, MLPNorm         *Norm
	AttentionPostNorm, MLPPostNorm *Norm
	// QNorm and KNorm normalise every head or all heads together, before rotation or behind it.
	QNorm, KNorm                         *Norm
	OutNorm, InnerNorm                   *Norm
	Q, K, V, HeadGate, O, Gate, Up, Down *Linear

	model      *Model
	arch       arch.Pair
	activation activation
}

// Layer reads the weights of layer i; the caller keeps them.
func (m *Model) Layer(i int) (*Layer, error) {
	if i < 0 || i >= len(m.decoder.Layers) {
		return nil, fmt.Errorf("layer %d of %d", i, len(m.decoder.Layers))
	}
	d := m.decoder.Pair(i)
	l := &Layer{Index: i, model: m, arch: d, activation: activation{Activation: d.MLP.Activation}}
	if err := l.read(); err != nil {
		return nil, fmt.Errorf("layer %d: %w", i, err)
	}
	return l, nil
}

func (l *Layer) read() (err error) {
	a, mlp := l.arch.Attention, l.arch.MLP
	for _, n := range []struct {
		to   **Norm
		from *arch.Norm
	}{
		{&l.AttentionNorm, l.arch.AttentionNorm}, {&l.MLPNorm, l.arch.MLPNorm}, {&l.QNorm, a.QNorm}, {&l.KNorm, a.KNorm},
		{&l.AttentionPostNorm, l.arch.AttentionPostNorm}, {&l.MLPPostNorm, l.arch.MLPPostNorm}, {&l.OutNorm, a.OutNorm}, {&l.InnerNorm, mlp.Norm},
	} {
		if *n.to, err = l.model.norm(n.from); err != nil {
			return err
		}
	}
	from := []*arch.Linear{&a.Q, &a.K, &a.V, &a.Gate, &a.O, &mlp.Gate, &mlp.Up, &mlp.Down}
	for j, to := range []**Linear{&l.Q, &l.K, &l.V, &l.HeadGate, &l.O, &l.Gate, &l.Up, &l.Down} {
		if *to, err = l.model.linear(from[j]); err != nil {
			return err
		}
	}
	for j, w := range mlp.XIELU {
		if mlp.Activation != arch.XIELU {
			break
		}
		x, err := l.model.values(w)
		if err != nil {
			return err
		}
		l.activation.xielu[j] = float64(x[0])
	}
	return nil
}

// Linears lists the linear layers that there are in the order of the computation: q, k, v, their gate, o, gate, up, down.
func (l *Layer) Linears() []*Linear {
	return some(l.Q, l.K, l.V, l.HeadGate, l.O, l.Gate, l.Up, l.Down)
}

// AttentionReaders are the linear layers that read the input of attention.
func (l *Layer) AttentionReaders() []*Linear { return some(l.Q, l.K, l.V, l.HeadGate) }

// MLPReaders are the linear layers that read the input of the MLP.
func (l *Layer) MLPReaders() []*Linear { return some(l.Gate, l.Up) }

// Norms lists the norms that there are.
func (l *Layer) Norms() []*Norm {
	return some(l.AttentionNorm, l.MLPNorm, l.QNorm, l.KNorm, l.AttentionPostNorm, l.MLPPostNorm, l.OutNorm, l.InnerNorm)
}

func some[T any](list ...*T) (have []*T) {
	for _, x := range list {
		if x != nil {
			have = append(have, x)
		}
	}
	return have
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
func (l *Layer) AttentionInput(dst, h []float32) { l.AttentionNorm.normed(dst, h) }

// MLPInput writes the input of gate and up to dst: the norm of h. Both are [tokens, Hidden]; dst may be h.
func (l *Layer) MLPInput(dst, h []float32) { l.MLPNorm.normed(dst, h) }

// Attend writes the input of o to dst [windows*length, O.Cols], where x [windows*length, Hidden] is the input of q, k
// and v.
func (l *Layer) Attend(dst, x []float32, length int) {
	n := windowsIn("Layer.Attend", x, l.Q.Cols, length)
	rowsIn("Layer.Attend", x, l.Q.Cols, dst, l.O.Cols)
	pieces(n, length, func(lo, hi int) {
		q, x := dst[lo*l.O.Cols:hi*l.O.Cols], x[lo*l.Q.Cols:hi*l.Q.Cols]
		k, v := l.project(q, x, places{0, length, length}, false)
		l.attention(length).forward(l.model.threads, q, q, k, v)
		l.finish(q, x, false)
	})
}

// project computes queries, keys and values of rows at some places, normalised, clipped and turned. keep says that
// queries and keys as they were before their norms, and what was clipped, are wanted in the buffers.
func (l *Layer) project(q, x []float32, at places, keep bool) (k, v []float32) {
	m, b, a := l.model, &l.model.buffers, l.arch.Attention
	n := len(x) / l.Q.Cols
	k, v = grow(&b.k, n*l.K.Rows), grow(&b.v, n*l.V.Rows)
	l.Q.apply(q, x)
	l.K.apply(k, x)
	l.V.apply(v, x)
	if a.NormAfter {
		l.clip(q, k, v, keep)
		m.turn(q, a.Rope, a.Heads, a.HeadDim, at)
		m.turn(k, a.Rope, a.KVHeads, a.HeadDim, at)
	}
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
	if !a.NormAfter {
		l.clip(q, k, v, keep)
		m.turn(q, a.Rope, a.Heads, a.HeadDim, at)
		m.turn(k, a.Rope, a.KVHeads, a.HeadDim, at)
	}
	return k, v
}

// clip bounds queries, keys and values. keep says that they are wanted as they were, in the buffers.
func (l *Layer) clip(q, k, v []float32, keep bool) {
	bound, b := float32(l.arch.Attention.Clip), &l.model.buffers
	if bound == 0 {
		return
	}
	for i, x := range [][]float32{q, k, v} {
		if keep {
			copy(grow(&b.loud[i], len(x)), x)
		}
		kernel.Parallel(l.model.threads, len(x), func(lo, hi int) {
			for j, y := range x[lo:hi] {
				x[lo+j] = min(max(y, -bound), bound)
			}
		})
	}
}

// unclip clears the gradients of queries, keys and values that clip has changed, which it has kept.
func (l *Layer) unclip(dq, dk, dv []float32) {
	bound, b := float32(l.arch.Attention.Clip), &l.model.buffers
	if bound == 0 {
		return
	}
	for i, d := range [][]float32{dq, dk, dv} {
		x := b.loud[i][:len(d)]
		kernel.Parallel(l.model.threads, len(d), func(lo, hi int) {
			for j := lo; j < hi; j++ {
				if x[j] < -bound || x[j] > bound {
					d[j] = 0
				}
			}
		})
	}
}

// finish makes of what attention gives, o, the input of O, in place: gated and normalised. keep says that what it was
// before, and the gates, are wanted in the buffers.
func (l *Layer) finish(o, x []float32, keep bool) {
	b := &l.model.buffers
	if l.HeadGate != nil {
		if keep {
			copy(grow(&b.mixed, len(o)), o)
		}
		gates := grow(&b.gates, len(o))
		l.HeadGate.apply(gates, x)
		sigmoids(l.model.threads, gates)
		mulAll(l.model.threads, o, gates)
	}
	if l.OutNorm != nil {
		if keep {
			copy(grow(&b.plainO, len(o)), o)
		}
		l.OutNorm.apply(o, o)
	}
}

func (l *Layer) attention(length int) *attention {
	a := l.arch.Attention
	scale := float32(a.Scale)
	if a.Scale == 0 {
		scale = float32(1 / math.Sqrt(float64(a.HeadDim)))
	}
	return &attention{
		heads: a.Heads, kvHeads: a.KVHeads, dim: a.HeadDim, length: length, scale: scale,
		window: a.Window, chunk: a.Chunk, cap: a.Cap, slopes: a.Slopes,
	}
}

// AddAttention adds the output of attention to h: h is [tokens, Hidden], xo [tokens, O.Cols] the input of o.
func (l *Layer) AddAttention(h, xo []float32) {
	l.add("Layer.AddAttention", l.O, l.AttentionPostNorm, l.arch.AttentionScale, h, xo)
}

// AddMLP adds the output of the MLP to h: h is [tokens, Hidden], xd [tokens, Down.Cols] the input of down.
func (l *Layer) AddMLP(h, xd []float32) {
	l.add("Layer.AddMLP", l.Down, l.MLPPostNorm, l.arch.MLPScale, h, xd)
}

func (l *Layer) add(call string, linear *Linear, post *Norm, scale float64, h, x []float32) {
	n := rowsIn(call, h, linear.Rows, x, linear.Cols)
	pieces(n, 1, func(lo, hi int) {
		h := h[lo*linear.Rows : hi*linear.Rows]
		out := grow(&l.model.buffers.out, len(h))
		linear.apply(out, x[lo*linear.Cols:hi*linear.Cols])
		l.scaled(out, out, post, scale)
		addAll(l.model.threads, h, out)
	})
}

// scaled writes what a branch adds to the stream, of what its block gives, x; dst may be x.
func (l *Layer) scaled(dst, x []float32, post *Norm, scale float64) {
	if post != nil {
		post.apply(dst, x)
	}
	if scale != 0 {
		scaleAll(l.model.threads, dst, float32(scale))
	}
}

// Product writes the input of down to dst [tokens, Down.Cols], where x [tokens, Hidden] is the input of gate and up.
func (l *Layer) Product(dst, x []float32) {
	n := rowsIn("Layer.Product", x, l.Up.Cols, dst, l.Down.Cols)
	pieces(n, 1, func(lo, hi int) {
		out, x := dst[lo*l.Up.Rows:hi*l.Up.Rows], x[lo*l.Up.Cols:hi*l.Up.Cols]
		if l.Gate == nil {
			l.Up.apply(out, x)
			l.multiply(out, out, nil)
		} else {
			up := grow(&l.model.buffers.up, len(out))
			l.openGate(out, x)
			l.Up.apply(up, x)
			l.multiply(out, out, up)
		}
		if l.InnerNorm != nil {
			l.InnerNorm.apply(out, out)
		}
	})
}

// openGate writes the argument of the activation to gate.
func (l *Layer) openGate(gate, x []float32) {
	l.Gate.apply(gate, x)
	if s := l.arch.MLP.GateScale; s != 0 {
		scaleAll(l.model.threads, gate, float32(s))
	}
}

// multiply writes act(gate) * up to dst, which may be gate; without up it is act(gate).
func (l *Layer) multiply(dst, gate, up []float32) {
	kernel.Parallel(l.model.threads, (len(gate)+activationBlock-1)/activationBlock, func(lo, hi int) {
		for end := min(hi*activationBlock, len(gate)); lo*activationBlock < end; lo++ {
			from, to := lo*activationBlock, min((lo+1)*activationBlock, end)
			l.activation.apply(dst[from:to], gate[from:to])
			if up != nil {
				kernel.Mul(dst[from:to], dst[from:to], up[from:to])
			}
		}
	})
}
