package kernel

import (
	"fmt"
	"math"
)

// EngineAttention computes causal attention of Tokens queries, the last positions of a cache, as MNN does with
// attention_mode 8: out = softmax(q k / sqrt(dim)) v, where a query attends to the keys up to its own position, and
// Heads/KVHeads() query heads share a key head.
//
// Keys come in blocks of 64. For each query and block, in float32:
//
//	s[j] = scale * sum over d of q[d]*k[j][d]       for the keys of the query
//	m    = max(m, max s)
//	p[j] = exp(s[j] - m)                            expf for the last elements that fill no group of eight
//	a    = exp(m before - m)
//	l    = l*a + sum of p                           one by one
//	o[d] = sum over j of p[j]*v[j][d] + o[d]*a
//
// and out = o * (1/l) at the end. m begins with the lowest float32 and l with 0, or with the sink of the head and 1. A mask
// is added to s after the scale; queries then attend to all keys, and weights are as small as exp(-87) but not 0. The sums over d
// and j are ascending and fused, and nothing else is. Where the engine's tiles leave a single query (see leavesOne), four
// sums f0 to f3 take every fourth term, the result is (f0+f2)+(f1+f3), and the last len%4 terms are added to it. Every decode
// is such a query.
//
// Emulates CPUAttention::onExecute, _AVX_MNNPackedMatMulFMA and _AVX_MNNPackedMatMulRemainFMA (avxfma/GemmAVX2FMA.cpp),
// _AVX_MNNSoftmax (avx/MathFunctions.cpp) and _AVX_MNNFlashAttentionUpdateBlockOutput (avx/PackedFunction.cpp) on CPUs
// with FMA. Zeros are positive. Values must be finite.
type EngineAttention struct {
	// Tokens and Heads, of queries, may change between calls, and so may the next two.
	Tokens, Heads int
	// Mask, if not nil, replaces the rule that a query attends to the keys up to its own position: it is [Tokens, MaskWidth], and
	// the first Len() values of a row are added to the scores of the keys.
	Mask      []float32
	MaskWidth int
	// Sinks, if not nil, are a logit for each head that takes part in the softmax without a value. The engine is not causal
	// with them unless there is a mask.
	Sinks []float32
	// Arm computes as MNN on arm64 does.
	Arm bool

	scores  []float32 // [heads, 64], which become weights
	mixed   []float32 // [heads, width]: o
	weights rowWeights
	lanes   attentionLanes
}

// attentionJob is the part of a call that one kv head serves: the query heads from lo to hi-1.
type attentionJob struct {
	out, q                    []float32
	cache                     *KVCache
	tokens, past, heads       int
	kvHead, lo, hi, from, end int
	scale                     float32
	mask                      []float32 // [tokens, maskWidth], or nil
	maskWidth                 int
	sinks                     []float32 // one for each head, or nil
}

// sees returns the number of keys that query t attends to.
func (j *attentionJob) sees(t int) int {
	if j.mask != nil {
		return j.cache.len
	}
	return j.past + t + 1
}

// maskRow is added to the scores of query t with n keys from start on.
func (j *attentionJob) maskRow(t, start, n int) []float32 {
	return j.mask[t*j.maskWidth+start:][:n]
}

// Attend computes the query heads from lo to hi-1 for the queries from to end-1. out and q are [Tokens, Heads, dim]; c
// holds the positions of the queries already. It panics if they are shorter. The result of a query and head depends on
// neither range, but heads that share a key head are best taken together. Calls on one EngineAttention must not overlap;
// those of several on the same slices and cache may.
func (a *EngineAttention) Attend(out, q []float32, c *KVCache, lo, hi, from, end int) {
	size := a.Tokens * a.Heads * c.dim
	if a.Mask != nil && (a.MaskWidth < c.len || len(a.Mask) < (a.Tokens-1)*a.MaskWidth+c.len) || a.Sinks != nil && len(a.Sinks) < a.Heads {
		panic(fmt.Sprintf("internal error: EngineAttention: mask of %d in rows of %d for %d queries and %d keys, %d sinks of %d heads",
			len(a.Mask), a.MaskWidth, a.Tokens, c.len, len(a.Sinks), a.Heads))
	}
	if a.Tokens <= 0 || a.Tokens > c.len || a.Heads <= 0 || a.Heads%c.kvHeads != 0 || len(out) < size || len(q) < size ||
		lo < 0 || hi > a.Heads || from < 0 || end > a.Tokens {
		panic(fmt.Sprintf("internal error: EngineAttention: %d heads of %d, %d to %d, queries %d to %d of %d after %d, %d and %d values",
			a.Heads, c.kvHeads, lo, hi, from, end, a.Tokens, c.len, len(out), len(q)))
	}
	j := attentionJob{
		out: out, q: q, cache: c, tokens: a.Tokens, past: c.len - a.Tokens, heads: a.Heads, from: from, end: end,
		scale: float32(1 / math.Sqrt(float64(c.dim))), mask: a.Mask, maskWidth: a.MaskWidth, sinks: a.Sinks,
	}
	for group := a.Heads / c.kvHeads; lo < hi && from < end; lo = j.hi {
		j.kvHead = lo / group
		j.lo, j.hi = lo, min(hi, (j.kvHead+1)*group)
		switch {
		case a.Arm:
			for t := from; t < end; t++ {
				a.attendArm(&j, t)
			}
		case !a.attendLanes(&j):
			for t := from; t < end; t++ {
				a.attendRow(&j, t)
			}
		}
	}
}

// leavesOne reports whether n rows leave a single one when the matrix kernels take 24 at a time, of the rest 20 or 16, and
// of what is then left five.
func leavesOne(n int) bool {
	n %= 24
	if n >= 20 {
		n -= 20
	}
	if n >= 16 {
		n -= 16
	}
	return n%5 == 1
}

// singleDot reports whether the keys are multiplied with query t alone.
func (j *attentionJob) singleDot(t int) bool { return t == j.tokens-1 && leavesOne(j.tokens) }

// singleMix reports the same for the values of the block that begins at start: without a mask the engine skips queries before
// it.
func (j *attentionJob) singleMix(t, start int) bool {
	if j.mask != nil {
		return j.singleDot(t)
	}
	return t == j.tokens-1 && leavesOne(j.tokens-max(0, start-j.past))
}

// dots describes the product of queries with the first n keys of a block.
func (j *attentionJob) dots(heads, n int) tileProduct {
	dim := j.cache.dim
	return tileProduct{
		heads: heads, n: dim, count: (n + tileColumns - 1) / tileColumns,
		dstStride: engineBlock, xStride: dim, tStride: dim * tileColumns,
	}
}

// mixes describes the product of weights with the first n values of a block.
func (j *attentionJob) mixes(heads, n int) tileProduct {
	tiles := j.cache.valueTiles()
	return tileProduct{
		heads: heads, n: n, count: tiles,
		dstStride: tiles * tileColumns, xStride: engineBlock, tStride: engineBlock * tileColumns,
	}
}

// attendRow computes query t of all heads.
func (a *EngineAttention) attendRow(j *attentionJob, t int) {
	heads, dim, width, seen := j.hi-j.lo, j.cache.dim, j.cache.valueTiles()*tileColumns, j.sees(t)
	at := (t*j.heads + j.lo) * dim
	q := j.q[at:][:heads*dim]
	a.scores, a.mixed = resized(a.scores, heads*engineBlock), resized(a.mixed, heads*width)
	clear(a.mixed)
	w := &a.weights
	w.reset(heads)
	w.sink(j.sinks, j.lo, heads)
	for start := 0; start < seen; start += engineBlock {
		keys, values := j.cache.block(j.kvHead, start/engineBlock)
		n := min(engineBlock, seen-start)
		dots, mixes := j.dots(heads, n), j.mixes(heads, n)
		if j.singleDot(t) {
			dots.quad(a.scores, q, keys, j.scale, nil, values)
		} else {
			dots.generic(a.scores, q, keys, j.scale, nil, false)
		}
		if j.mask != nil {
			row := j.maskRow(t, start, n)
			for h := range heads {
				s := a.scores[h*engineBlock:][:n]
				add(s, s, row)
			}
		}
		w.weigh(a.scores, n)
		if j.singleMix(t, start) {
			var next []float32
			if start+engineBlock < seen {
				next = j.cache.headBlock(j.kvHead, start/engineBlock+1)
			}
			mixes.quad(a.mixed, a.scores, values, 0, w.factor, next)
		} else {
			mixes.generic(a.mixed, a.scores, values, 0, w.factor, false)
		}
	}
	// What remains is 0 + o*(1/l), a product of no terms.
	for h := range heads {
		w.factor[h] = 1 / w.sum[h]
	}
	none := tileProduct{heads: heads, count: width / tileColumns, dstStride: width}
	none.quad(a.mixed, nil, nil, 0, w.factor, nil)
	for h := range heads {
		copy(j.out[at+h*dim:][:dim], a.mixed[h*width:])
	}
}
