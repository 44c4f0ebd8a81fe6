package lower

import (
	"fmt"
	"math"
	"strconv"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/runtime/mnn"
	"github.com/llmexport/llmexport/runtime/tensor"
)

func (b *builder) attention(at string, a *arch.Attention, x value) (value, error) {
	if err := checkAttention(a); err != nil {
		return 0, err
	}
	heads, dim := int32(a.Heads), int32(a.HeadDim)
	q, err := b.projection(at+"q_proj/Linear", x, &a.Q, a.Heads, a.HeadDim, a.QNorm)
	if err != nil {
		return 0, err
	}
	var k, v value
	if !a.Borrows {
		if k, err = b.projection(at+"k_proj/Linear", x, &a.K, a.KVHeads, a.HeadDim, a.KNorm); err != nil {
			return 0, err
		}
		if v = k; a.V.Weight.Tensor != "" {
			if v, err = b.projection(at+"v_proj/Linear", x, &a.V, a.KVHeads, a.HeadDim, a.VNorm); err != nil {
				return 0, err
			}
		}
		v = b.headNorm(at+"v_norm", v, a.KVHeads, a.HeadDim, a.VNorm)
	}
	clip := func(name string, x value) value { return x }
	if a.Clip != 0 {
		clip = func(name string, x value) value { return b.clamp(at+name, x, -a.Clip, a.Clip) }
		v = clip("v_clip", v)
	}
	normed := func() {
		q = b.headNorm(at+"q_norm", q, a.Heads, a.HeadDim, a.QNorm)
		k = b.headNorm(at+"k_norm", k, a.KVHeads, a.HeadDim, a.KNorm)
	}
	if !a.NormAfter {
		normed()
	}
	q, k = clip("q_clip", q), clip("k_clip", k)
	if a.Rope != nil {
		q = b.rotate(at+"q_rotary", q, a.Rope, a.HeadDim)
		if !a.Borrows {
			k = b.rotate(at+"k_rotary", k, a.Rope, a.HeadDim)
		}
	}
	if a.NormAfter {
		normed()
	}
	switch lent, there := b.lent[a.Lent]; {
	case a.Lends:
		b.lent[a.Lent] = [2]value{k, v}
	case a.Borrows && !there:
		return 0, fmt.Errorf("keys and values that no layer before lends: %w", tensor.ErrCorrupt)
	case a.Borrows:
		k, v = lent[0], lent[1]
	}
	if t := a.Temperature; t != nil {
		q = b.binary(at+"q_temperature", mnn.BinaryMul, q, b.temperature(t))
	}
	var o value
	switch {
	case a.Bidirectional:
		o = b.bidirectional(at, a, q, k, v)
	case b.stores(a):
		if o, err = b.stored(at, a, q, k, v); err != nil {
			return 0, err
		}
	case a.Slopes != nil:
		o = b.biased(at, a, b.scores(at, a, q), k, v)
	default:
		q = b.scores(at, a, q)
		sinks := a.Sinks.Tensor != ""
		rest := []value{b.maskOf(a.Window, a.Chunk, sinks, a.OneWay)}
		if sinks {
			rest = append(rest, b.constant(at+"sinks", a.Sinks))
		}
		o = b.attend(at+"FusedAttention", a.Heads, a.KVHeads, a.HeadDim, q, k, v, rest...)
	}
	if a.Gate.Weight.Tensor != "" {
		gate := b.linear(at+"gate_proj/Linear", x, &a.Gate, Slot{}, 1, -1, heads*dim)
		o = b.binary(at+"gated", mnn.BinaryMul, o, b.unary(at+"gate", mnn.UnarySigmoid, gate))
	}
	if a.OutNorm != nil {
		if a.OutNorm.Gamma.Rows != a.Heads*a.HeadDim {
			return 0, wrongNorm(a.OutNorm, fmt.Sprintf("rows of %d", a.Heads*a.HeadDim))
		}
		o = b.norm(at+"o_norm", o, a.OutNorm)
	}
	return b.linear(at+"o_proj/Linear", o, &a.O, Slot{}, 1, -1, int32(a.O.Weight.Rows)), nil
}

// checkAttention rejects combinations that no family uses and no graph here computes.
func checkAttention(a *arch.Attention) error {
	var what string
	switch {
	case a.Bidirectional && (a.Cap != 0 || a.Sinks.Tensor != "" || a.Chunk != 0):
		what = "attention to later positions together with capped scores, sinks or chunks"
	case a.Relative != nil && (!a.Bidirectional || a.KVHeads != a.Heads || a.Window != 0 || a.Square != 0 || a.Slopes != nil || a.Rope != nil):
		what = "scores by the distance together with other rules"
	case a.Square != 0 && (!a.Bidirectional || a.Window != 0):
		what = "causal attention or windows within squares of patches"
	case a.Cap != 0 && (a.Sinks.Tensor != "" || a.Slopes != nil || a.Chunk != 0):
		what = "capped attention scores together with sinks, biases or chunks"
	case a.Borrows && (a.Bidirectional || a.Clip != 0 || a.KNorm != nil || a.VNorm != nil):
		what = "keys and values of another layer with norms, bounds or attention to later positions of their own"
	case a.V.Weight.Tensor == "" && (wide(a.KNorm, a.HeadDim) || wide(a.VNorm, a.HeadDim)):
		what = "values that are keys, with norms of all heads together"
	case a.Slopes != nil && a.Sinks.Tensor != "":
		what = "attention sinks together with biases of the distance"
	case a.Slopes != nil && len(a.Slopes) != a.Heads:
		what = fmt.Sprintf("%d biases of the distance for %d heads", len(a.Slopes), a.Heads)
	case a.Rope != nil && (a.Rope.Dim > a.HeadDim || a.Rope.Dim < 2 || a.Rope.Dim%2 != 0):
		what = fmt.Sprintf("rotation of %d elements in heads of %d", a.Rope.Dim, a.HeadDim)
	case a.Temperature != nil && !(a.Temperature.Floor >= 1 && a.Temperature.Floor < maxPositions && a.Temperature.Floor == math.Trunc(a.Temperature.Floor)):
		what = fmt.Sprintf("an attention temperature in steps of %g positions", a.Temperature.Floor)
	default:
		return nil
	}
	return fmt.Errorf("%s: %w", what, tensor.ErrUnsupported)
}

// wide reports whether a norm covers all heads together.
func wide(n *arch.Norm, dim int) bool { return n != nil && n.Gamma.Rows != dim }

// projection returns heads of dim elements. A norm of the whole row is applied before the row is divided into heads.
func (b *builder) projection(name string, x value, l *arch.Linear, heads, dim int, n *arch.Norm) (value, error) {
	if n != nil && n.Parts > 1 && (n.Parts != heads || n.Gamma.Rows != heads*dim || n.Beta.Tensor != "") {
		return 0, fmt.Errorf("%s: a norm of %d parts of %d elements for %d heads of %d: %w", n.Gamma.Tensor, n.Parts, n.Gamma.Rows, heads, dim, tensor.ErrUnsupported)
	}
	if n == nil || n.Parts > 1 || n.Gamma.Rows == dim {
		return b.linear(name, x, l, Slot{}, 1, -1, int32(heads), int32(dim)), nil
	}
	if n.Gamma.Rows != heads*dim {
		return 0, wrongNorm(n, fmt.Sprintf("%d heads of %d", heads, dim))
	}
	return b.linear(name, x, l, Slot{}, 1, -1, int32(heads*dim)), nil
}

// headNorm normalises heads, or rows that projection did not divide, and returns heads.
func (b *builder) headNorm(name string, x value, heads, dim int, n *arch.Norm) value {
	if n == nil {
		return x
	}
	if n.Parts > 1 {
		gamma := b.constant(name+"/gamma", n.Gamma, 1, 1, int32(heads), int32(dim))
		return b.binary(name, mnn.BinaryMul, b.unitNorm(name+"/each", x, n), gamma)
	}
	x = b.norm(name, x, n)
	if n.Gamma.Rows == dim {
		return x
	}
	return b.reshape(name+"/heads", x, 1, -1, int32(heads), int32(dim))
}

// scores corrects the scale of the scores from the op's own, 1/sqrt(HeadDim), to the model's. Engines read a scale from
// different places, and 3.5.0 ignores it.
func (b *builder) scores(at string, a *arch.Attention, q value) value {
	if a.Scale == 0 {
		return q
	}
	return b.times(at+"q_scale", q, a.Scale*math.Sqrt(float64(a.HeadDim)))
}

// attend appends an Attention op with its own cache. rest are the mask and the sinks.
func (b *builder) attend(name string, heads, kvHeads, dim int, q, k, v value, rest ...value) value {
	in := append([]value{q, k, v}, rest...)
	if b.decoder.Pooling != nil { // every text is computed at once
		return b.op(name, mnn.OpAttention, &mnn.Attention{LayerIndex: -1}, in...)
	}
	b.cacheElements += 2 * int64(kvHeads) * int64(dim)
	p := &mnn.Attention{KVCache: true, LayerIndex: int32(b.caches)}
	b.caches++
	if b.c4() {
		return b.attentionC4(name, p, heads, kvHeads, dim, in)
	}
	return b.op(name, mnn.OpAttention, p, in...)
}

// biased is attention with one op per head, because a mask has no dimension of heads. Heads that share keys cache copies of them.
func (b *builder) biased(at string, a *arch.Attention, q, k, v value) value {
	one := func(name string, x value, heads, h int) value {
		if heads == 1 {
			return x
		}
		return b.slice(name, x, b.list(int32(h)), int32(h+1), 2)
	}
	outs := make([]value, 0, a.Heads)
	keys, values := make([]value, a.KVHeads), make([]value, a.KVHeads)
	for h, slope := range a.Slopes {
		at := at + "head_" + strconv.Itoa(h) + "/"
		kv := h / (a.Heads / a.KVHeads)
		if h%(a.Heads/a.KVHeads) == 0 {
			keys[kv], values[kv] = one(at+"k", k, a.KVHeads, kv), one(at+"v", v, a.KVHeads, kv)
		}
		outs = append(outs, b.attend(at+"FusedAttention", 1, 1, a.HeadDim, one(at+"q", q, a.Heads, h), keys[kv], values[kv], b.sloped(slope, a.Window, a.Chunk)))
	}
	if len(outs) == 1 {
		return outs[0]
	}
	return b.concat(at+"FusedAttention", 2, outs...)
}

// temperature returns the factor on queries, [1, tokens, 1, 1].
func (b *builder) temperature(t *arch.Temperature) value {
	name := fmt.Sprintf("/temperature_%d_%08x", int(t.Floor), math.Float32bits(float32(t.Scale)))
	b.plainPositions()
	return b.shares(name, func() value {
		n := b.reshape(name+"/positions", b.positions, 1, -1, 1, 1)
		if t.Offset != 0 {
			n = b.binary(name+"/lengths", mnn.BinaryAdd, n, b.scalar(int32(t.Offset)))
		}
		most := b.context + t.Offset
		if b.tabledQuotients {
			n = b.binary(name+"/at_most", mnn.BinaryMinimum, b.binary(name+"/at_least", mnn.BinaryMaximum, n, b.scalar(0)), b.scalar(int32(most)))
		}
		n = b.binary(name+"/steps", mnn.BinaryAdd, b.quotient(name+"/floor", n, int(t.Floor), most), b.scalar(1))
		y := b.unary(name+"/log", mnn.UnaryLog, b.toFloat(name+"/float", n))
		return b.binary(name, mnn.BinaryAdd, b.times(name+"/scaled", y, t.Scale), b.scalarFloat(1))
	})
}
