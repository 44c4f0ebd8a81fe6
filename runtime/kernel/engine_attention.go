package kernel

import "math"

// EngineAttention computes causal attention of Tokens new queries over Past+Tokens keys as MNN does with attention_mode 8:
// out = softmax(q k / sqrt(Dim)) v, where query t sees keys 0 to Past+t, and Heads/KVHeads query heads share a key head.
//
// Keys come in blocks of 64. For each query and block, in float32:
//
//	s[j] = scale * sum over d of q[d]*k[j][d]       for the keys that the query sees
//	m    = max(m, max s)
//	p[j] = exp(s[j] - m)                            expf for the last elements that fill no group of eight
//	a    = exp(m before - m)
//	l    = l*a + sum of p                           one by one
//	o[d] = sum over j of p[j]*v[j][d] + o[d]*a
//
// and out = o * (1/l) at the end. The sums over d and j are ascending and fused, and nothing else is. Where the engine's
// tiles leave a single query (see leavesOne), four sums f0 to f3 take every fourth term, the result is (f0+f2)+(f1+f3),
// and the last len%4 terms are added to it. Every decode is such a query.
//
// Emulates CPUAttention::onExecute, _AVX_MNNPackedMatMulFMA and _AVX_MNNPackedMatMulRemainFMA (avxfma/GemmAVX2FMA.cpp),
// _AVX_MNNSoftmax (avx/MathFunctions.cpp) and _AVX_MNNFlashAttentionUpdateBlockOutput (avx/PackedFunction.cpp) on CPUs
// with FMA. Signs of zeros are not emulated. Values must be finite.
type EngineAttention struct {
	Tokens, Past, Heads, KVHeads, Dim int

	queries       []float32 // [rows, Dim]
	keys          []float32 // [Dim, 64]: transposed
	values        []float32 // [64, width]
	scores, probs [engineBlock]float32
	mix           []float32 // [width]
	out           []float32 // [rows, width]
	top, sum      []float32 // [rows]
	scale         float32   // of what lies in out, for the block at hand
	lanes         [4][]float32
	every         []float32
}

// engineBlock is the number of keys that are weighted together (MNN_FLASH_ATTENTION_BLOCK_SIZE).
const engineBlock = 64

// Attend computes query head head for the queries from to to-1. out and q are [Tokens, Heads, Dim], k and v [Past+Tokens,
// KVHeads, Dim]; it panics if they are shorter. The result of a query does not depend on from and to. Calls on one
// EngineAttention must not overlap.
func (a *EngineAttention) Attend(out, q, k, v []float32, head, from, to int) {
	rows, dim := to-from, a.Dim
	width := (dim + 7) &^ 7
	a.resize(rows, width)
	for r := range rows {
		copy(a.queries[r*dim:][:dim], q[((from+r)*a.Heads+head)*dim:][:dim])
		a.top[r], a.sum[r] = -math.MaxFloat32, 0
	}
	scale := float32(1 / math.Sqrt(float64(dim)))
	kvHead, total := head/(a.Heads/a.KVHeads), a.Past+a.Tokens
	for start := 0; start < a.Past+to; start += engineBlock {
		size := min(engineBlock, total-start)
		for j := range min(size, a.Past+to-start) {
			at := ((start+j)*a.KVHeads + kvHead) * dim
			copy(a.values[j*width:][:dim], v[at:][:dim])
			for d, x := range k[at:][:dim] {
				a.keys[d*engineBlock+j] = x
			}
		}
		// The engine skips queries before the block.
		first := max(0, start-a.Past)
		for t := max(from, first); t < to; t++ {
			seen, last := min(size, a.Past+t+1-start), t == a.Tokens-1
			a.weigh(t-from, seen, scale, last && leavesOne(a.Tokens))
			a.accumulate(t-from, seen, start == 0, last && leavesOne(a.Tokens-first))
		}
	}
	for r := range rows {
		inv := 1 / a.sum[r]
		for d, x := range a.out[r*width:][:dim] {
			out[((from+r)*a.Heads+head)*dim+d] = x * inv
		}
	}
}

// leavesOne says whether n rows leave a single one when the matrix kernels take 24 at a time, of the rest 20 or 16, and
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

// weigh computes scores and weights of row r for the seen keys of a block.
func (a *EngineAttention) weigh(r, seen int, scale float32, single bool) {
	s := a.scores[:(seen+7)&^7]
	a.product(s, a.queries[r*a.Dim:][:a.Dim], a.keys, engineBlock, single)
	s = s[:seen]
	top := a.top[r]
	for j, x := range s {
		y := x * scale
		s[j], top = y, max(top, y)
	}
	for j := range s {
		s[j] -= top
	}
	full, sum := seen&^7, float32(0)
	engineExps(a.probs[:full], s[:full])
	for j, x := range s[full:] {
		a.probs[full+j] = expf(x)
	}
	for _, p := range a.probs[:seen] {
		sum += p
	}
	a.scale = expf(a.top[r] - top)
	a.sum[r] = float32(a.sum[r]*a.scale) + sum
	a.top[r] = top
}

// accumulate adds the weighted values of a block to row r.
func (a *EngineAttention) accumulate(r, seen int, first, single bool) {
	width := len(a.mix)
	a.product(a.mix, a.probs[:seen], a.values, width, single)
	o := a.out[r*width:][:width]
	for d, y := range a.mix {
		if !first {
			y += float32(o[d] * a.scale)
		}
		o[d] = y
	}
}

// product writes sum over i of x[i]*rows[i*stride+c] to dst[c]. len(dst) is a multiple of eight.
func (a *EngineAttention) product(dst, x, rows []float32, stride int, single bool) {
	clear(dst)
	if !single {
		fmaRows(dst, x, rows, stride)
		return
	}
	quads := len(x) / 4
	for l := range a.lanes {
		lane := a.lanes[l][:len(dst)]
		clear(lane)
		for i := range quads {
			a.every[i] = x[4*i+l]
		}
		if quads > 0 {
			fmaRows(lane, a.every[:quads], rows[l*stride:], 4*stride)
		}
	}
	for c := range dst {
		dst[c] = (a.lanes[0][c] + a.lanes[2][c]) + (a.lanes[1][c] + a.lanes[3][c])
	}
	if tail := 4 * quads; tail < len(x) {
		fmaRows(dst, x[tail:], rows[tail*stride:], stride)
	}
}

func (a *EngineAttention) resize(rows, width int) {
	a.queries = resized(a.queries, rows*a.Dim)
	a.keys = resized(a.keys, a.Dim*engineBlock)
	a.values = resized(a.values, engineBlock*width)
	a.mix = resized(a.mix, width)
	a.out = resized(a.out, rows*width)
	a.top, a.sum = resized(a.top, rows), resized(a.sum, rows)
	for l := range a.lanes {
		a.lanes[l] = resized(a.lanes[l], max(width, engineBlock))
	}
	a.every = resized(a.every, max(a.Dim, engineBlock)/4)
}
