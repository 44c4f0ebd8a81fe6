package kernel

import (
	"fmt"
	"math"
	"sync"
)

// EngineShortConv is a gated causal convolution of Tokens tokens, per channel h of H and token t:
//
//	u[t] = B[h][t] * x[h][t]
//	y[t] = C[h][t] * (u[t-K+1]*w[h][0] + ... + u[t]*w[h][K-1])
//
// where the u before the first token are those of the state. Sums are ascending, and nothing is fused.
//
// Emulates CPULinearAttention::short_conv (CPULinearAttention.cpp).
type EngineShortConv struct {
	Tokens, Channels, Taps int
	// X is [3*Channels, Tokens]: B, C and x. Weights are [Channels, Taps]. Out is [Tokens, Channels].
	X, Weights, Out []float32
	State           *LinearState
	// Half rounds to half precision what the engine stores, at `precision: low` on arm64.
	Half bool
}

// Run computes all of it on that many workers. It panics unless the slices have the sizes of the fields.
func (c *EngineShortConv) Run(workers int) {
	n := c.Tokens * c.Channels
	if len(c.X) != 3*n || len(c.Out) != n || len(c.Weights) != c.Channels*c.Taps || !c.State.Fits(c.Channels, c.Taps, 0) {
		panic(fmt.Sprintf("internal error: kernel.EngineShortConv: %d values to %d, %d weights, for %d tokens and %d channels of %d taps",
			len(c.X), len(c.Out), len(c.Weights), c.Tokens, c.Channels, c.Taps))
	}
	c.State.pending = c.Tokens
	ParallelTask(workers, c.Channels, (*shortConvTask)(c))
}

type shortConvTask EngineShortConv

// Do implements Task.
func (c *shortConvTask) Do(lo, hi int) {
	s := convScratches.Get().(*convScratch)
	defer convScratches.Put(s)
	n, tokens := c.Tokens*c.Channels, c.Tokens
	for h := lo; h < hi; h++ {
		s.padded = resized(s.padded, c.Taps-1+tokens)
		copy(s.padded, c.State.taps[h*c.State.old:][:c.State.old])
		mul(s.padded[c.State.old:], c.X[h*tokens:][:tokens], c.X[2*n+h*tokens:][:tokens])
		if c.Half {
			HalfRound(s.padded[c.State.old:], s.padded[c.State.old:])
		}
		copy(c.State.nextTap[h*c.State.old:][:c.State.old], s.padded[tokens:])
		w, gate := c.Weights[h*c.Taps:][:c.Taps], c.X[n+h*tokens:][:tokens]
		for t, g := range gate {
			if c.Half {
				c.Out[t*c.Channels+h] = g * RoundF16(halfTapSum(s.padded[t:], w))
				continue
			}
			c.Out[t*c.Channels+h] = g * tapSum(s.padded[t:], w)
		}
	}
}

// tapSum is x[0]*w[0] + x[1]*w[1] + ...
func tapSum(x, w []float32) float32 {
	x = x[:len(w)]
	var sum float32
	for k, v := range w {
		sum += float32(x[k] * v)
	}
	return sum
}

// convScratch is memory of a worker.
type convScratch struct {
	padded, rows, q, k, vector []float32
}

var convScratches = sync.Pool{New: func() any { return new(convScratch) }}

// EngineDeltaRule is the gated delta rule after a causal convolution. Channels are the queries and keys of KeyHeads heads
// of KeyDim each, and the values of ValueHeads heads of ValueDim. The convolution is that of [EngineShortConv] without gates,
// with SiLU of its sums. Then, per value head, with the matrix S [KeyDim, ValueDim] of the state, for one token after the
// other:
//
//	q = q * (1/sqrt(KeyDim) / |q|), k = k * (1/|k|)             with QKNorm: |q| = sqrt(sum of squares + 1e-6)
//	q = q * 1/sqrt(KeyDim)                                      without
//	d = exp(gate)
//	delta[j] = beta * (v[j] - d*(sum over i of S[i][j]*k[i]))
//	y[j]     = d*(sum over i of S[i][j]*q[i]) + (sum over i of k[i]*q[i])*delta[j]
//	S[i][j]  = d*S[i][j] + k[i]*delta[j]
//
// Sums are ascending, and nothing but exp is fused. Calls of several tokens take exp and SiLU in groups of eight, gates in
// the order of the call and a channel along its tokens; a single token takes expf and x * (1/(1 + expf(-x))).
//
// Emulates CPULinearAttention::gated_delta_rule_mnn and gated_delta_rule_decode (CPULinearAttention.cpp), and
// MNNFusedGatedDeltaDefault (CommonOptFunction.cpp).
type EngineDeltaRule struct {
	Tokens                                 int
	KeyHeads, ValueHeads, KeyDim, ValueDim int
	Taps                                   int
	QKNorm                                 bool
	// OneLikeMany computes a single token like several, as 3.5.0 does.
	OneLikeMany bool
	// Half rounds to half precision what the engine stores, at `precision: low` on arm64, where gates take expf.
	Half bool
	// X is [Channels, Tokens], Gates and Betas are [Tokens, ValueHeads], Weights [Channels, Taps], Out [Tokens, ValueHeads,
	// ValueDim].
	X, Gates, Betas, Weights, Out []float32
	State                         *LinearState

	mixed []float32 // [Tokens, Channels], convolved
	decay []float32 // [Tokens, ValueHeads]
}

// Channels of the convolution.
func (c *EngineDeltaRule) Channels() int {
	return 2*c.KeyHeads*c.KeyDim + c.ValueHeads*c.ValueDim
}

// Run computes all of it on that many workers. It panics unless the slices have the sizes of the fields.
func (c *EngineDeltaRule) Run(workers int) {
	channels, gates := c.Channels(), c.Tokens*c.ValueHeads
	if len(c.X) != c.Tokens*channels || len(c.Gates) != gates || len(c.Betas) != gates || len(c.Out) != gates*c.ValueDim ||
		len(c.Weights) != channels*c.Taps || !c.State.Fits(channels, c.Taps, c.ValueHeads*c.KeyDim*c.ValueDim) || c.ValueHeads%c.KeyHeads != 0 {
		panic(fmt.Sprintf("internal error: kernel.EngineDeltaRule: %d values, %d gates, %d betas, %d weights to %d, for %d tokens, heads %d of %d and %d of %d",
			len(c.X), len(c.Gates), len(c.Betas), len(c.Weights), len(c.Out), c.Tokens, c.KeyHeads, c.KeyDim, c.ValueHeads, c.ValueDim))
	}
	c.State.pending = c.Tokens
	c.mixed, c.decay = resized(c.mixed, c.Tokens*channels), resized(c.decay, gates)
	if c.decodes() || c.Half {
		for i, g := range c.Gates {
			c.decay[i] = expf(g)
		}
	} else {
		engineExpRow(c.decay, c.Gates)
	}
	ParallelTask(workers, (channels+convChannels-1)/convChannels, (*convTask)(c))
	ParallelTask(workers, c.ValueHeads, (*deltaTask)(c))
}

// decodes reports whether the form for a single token is used.
func (c *EngineDeltaRule) decodes() bool { return c.Tokens == 1 && !c.OneLikeMany }

// engineExpRow is MNNExp of x: groups of eight, and the rest another way.
func engineExpRow(dst, x []float32) {
	full := len(x) &^ 7
	engineExps(dst[:full], x[:full])
	for i, v := range x[full:] {
		dst[full+i] = engineExpTail(v)
	}
}

// convChannels is the number of channels that a worker takes at a time.
const convChannels = 16

type convTask EngineDeltaRule

// Do implements Task.
func (c *convTask) Do(lo, hi int) {
	s := convScratches.Get().(*convScratch)
	defer convScratches.Put(s)
	channels, tokens, old := (*EngineDeltaRule)(c).Channels(), c.Tokens, c.State.old
	for ; lo < hi; lo++ {
		from, to := lo*convChannels, min((lo+1)*convChannels, channels)
		s.rows = resized(s.rows, (to-from)*tokens)
		for d := from; d < to; d++ {
			s.padded = resized(s.padded, old+tokens)
			copy(s.padded, c.State.taps[d*old:][:old])
			copy(s.padded[old:], c.X[d*tokens:][:tokens])
			copy(c.State.nextTap[d*old:][:old], s.padded[tokens:])
			w, row := c.Weights[d*c.Taps:][:c.Taps], s.rows[(d-from)*tokens:][:tokens]
			if c.Half {
				(*EngineDeltaRule)(c).halfConvolve(row, s.padded, w)
				continue
			}
			for t := range row {
				row[t] = tapSum(s.padded[t:], w)
			}
			if (*EngineDeltaRule)(c).decodes() {
				row[0] *= 1 / (1 + expf(-row[0]))
			} else {
				EngineSiLU(row, row)
			}
		}
		for t := range tokens {
			dst := c.mixed[t*channels+from:][:to-from]
			for d := range dst {
				dst[d] = s.rows[d*tokens+t]
			}
		}
	}
}

type deltaTask EngineDeltaRule

// Do implements Task.
func (c *deltaTask) Do(lo, hi int) {
	s := convScratches.Get().(*convScratch)
	defer convScratches.Put(s)
	channels := (*EngineDeltaRule)(c).Channels()
	dk, dv, keys := c.KeyDim, c.ValueDim, c.KeyHeads*c.KeyDim
	s.q, s.k, s.vector = resized(s.q, dk), resized(s.k, dk), resized(s.vector, 3*dv)
	scale := 1 / float32(math.Sqrt(float64(dk)))
	for h := lo; h < hi; h++ {
		key := h / (c.ValueHeads / c.KeyHeads) * dk
		before, after := c.State.heads[h*dk*dv:][:dk*dv], c.State.next[h*dk*dv:][:dk*dv]
		for t := range c.Tokens {
			row := c.mixed[t*channels:][:channels]
			at := t*c.ValueHeads + h
			if c.Half {
				c.halfNormalize(s, row[key:][:dk], row[keys+key:][:dk], scale)
				c.halfStep(s, before, after, row[2*keys+h*dv:][:dv], c.Out[at*dv:][:dv], c.decay[at], c.Betas[at])
				before = after
				continue
			}
			c.normalize(s, row[key:][:dk], row[keys+key:][:dk], scale)
			c.step(s, before, after, row[2*keys+h*dv:][:dv], c.Out[at*dv:][:dv], c.decay[at], c.Betas[at])
			before = after
		}
	}
}

// normalize writes the scaled q and k of the recurrence to the scratch memory.
func (c *deltaTask) normalize(s *convScratch, q, k []float32, factor float32) {
	if !c.QKNorm {
		scale(s.q, q, factor)
		copy(s.k, k)
		return
	}
	const eps = 1e-6
	var qq, kk float32
	for i, v := range q {
		qq += float32(v * v)
		kk += float32(k[i] * k[i])
	}
	scale(s.q, q, factor/float32(math.Sqrt(float64(qq+eps))))
	scale(s.k, k, 1/float32(math.Sqrt(float64(kk+eps))))
}

// step is one token of one head: before and after are its matrix.
func (c *deltaTask) step(s *convScratch, before, after, v, out []float32, decay, beta float32) {
	dv := len(v)
	byKey, byQuery, product := s.vector[:dv], s.vector[dv:][:dv], s.vector[2*dv:][:dv]
	clear(byKey)
	clear(byQuery)
	var kq float32
	for i, k := range s.k {
		q := s.q[i]
		kq += float32(k * q)
		row := before[i*dv:][:dv]
		scale(product, row, k)
		add(byKey, byKey, product)
		scale(product, row, q)
		add(byQuery, byQuery, product)
	}
	for j := range out {
		delta := float32(beta * (v[j] - float32(decay*byKey[j])))
		out[j] = float32(decay*byQuery[j]) + float32(kq*delta)
		byKey[j] = delta
	}
	for i, k := range s.k {
		row := after[i*dv:][:dv]
		scale(row, before[i*dv:][:dv], decay)
		scale(product, byKey, k)
		add(row, row, product)
	}
}
