package net

import (
	"math"
	"sync"

	"github.com/llmexport/llmexport/runtime/kernel"
)

// blockRows is about how many rows of scores there are at a time, queries times the heads that share a key head: scores
// take blockRows x length floats, not the square of the length. It decides bits of gradients.
const blockRows = 128

// attention is causal grouped-query attention on windows of length tokens. Queries are [tokens, heads*dim], keys and
// values [tokens, kvHeads*dim].
type attention struct {
	heads, kvHeads, dim, length int
}

func (a *attention) group() int   { return a.heads / a.kvHeads }
func (a *attention) qWidth() int  { return a.heads * a.dim }
func (a *attention) kvWidth() int { return a.kvHeads * a.dim }
func (a *attention) queries() int { return max(1, blockRows/a.group()) }

// scale is what scores are multiplied with.
func (a *attention) scale() float32 { return float32(1 / math.Sqrt(float64(a.dim))) }

// headBuffers is what a goroutine needs for the query heads that share a key head, in one window.
type headBuffers struct {
	keys, values kernel.Packed
	// q, o and do are [rows, dim], p and dp [rows, length] with rows = group * queries.
	q, o, do, p, dp []float32
	// left, dk and dv are [dim, ...]: transposed.
	left, part, dk, dv []float32
}

var headPool = sync.Pool{New: func() any { return new(headBuffers) }}

// each calls f for every key head of every window: token0 is the first token of the window.
func (a *attention) each(threads, windows int, f func(b *headBuffers, token0, kv int)) {
	kernel.Parallel(threads, windows*a.kvHeads, func(lo, hi int) {
		b := headPool.Get().(*headBuffers)
		defer headPool.Put(b)
		for ; lo < hi; lo++ {
			f(b, lo/a.kvHeads*a.length, lo%a.kvHeads)
		}
	})
}

// forward writes to dst, for every query, the mean of the values of its own and earlier positions, weighted by the
// softmax of query · key / sqrt(dim). dst may be q.
func (a *attention) forward(threads int, dst, q, k, v []float32) {
	a.each(threads, len(q)/(a.qWidth()*a.length), func(b *headBuffers, token0, kv int) {
		at := token0*a.kvWidth() + kv*a.dim
		b.keys.Pack(k[at:], a.length, a.dim, a.kvWidth())
		for i0 := 0; i0 < a.length; i0 += a.queries() {
			n := min(a.queries(), a.length-i0)
			rows, seen := n*a.group(), i0+n
			a.weigh(b, q, token0, kv, i0, n)
			o := grow(&b.o, rows*a.dim)
			kernel.MatMul(o, b.p, v[at:], rows, a.dim, seen, a.dim, a.length, a.kvWidth())
			a.scatter(dst, o, token0+i0, kv, n, 1)
		}
	})
}

// weigh fills b.q with n scaled queries from i0 on, and b.p with their weights: rows are length apart, and weights of
// later positions, up to the last query's, are 0. b.keys holds the keys.
func (a *attention) weigh(b *headBuffers, q []float32, token0, kv, i0, n int) {
	rows, seen := n*a.group(), i0+n
	a.gather(grow(&b.q, rows*a.dim), q, token0+i0, kv, n, a.scale())
	p := grow(&b.p, rows*a.length)
	b.keys.MulT(p, b.q, rows, a.length, a.dim, 0, seen)
	for r := range rows {
		row := p[r*a.length:][:seen]
		visible := i0 + r%n + 1
		kernel.Softmax(row[:visible])
		clear(row[visible:])
	}
}

// gather copies the heads that share a key head, n tokens each, one after another, times factor.
func (a *attention) gather(dst, x []float32, token, kv, n int, factor float32) {
	for r := range n * a.group() {
		at := (token+r%n)*a.qWidth() + (kv*a.group()+r/n)*a.dim
		kernel.Scale(dst[r*a.dim:(r+1)*a.dim], x[at:at+a.dim], factor)
	}
}

// scatter is the inverse of gather, but for the factor.
func (a *attention) scatter(dst, x []float32, token, kv, n int, factor float32) {
	for r := range n * a.group() {
		at := (token+r%n)*a.qWidth() + (kv*a.group()+r/n)*a.dim
		kernel.Scale(dst[at:at+a.dim], x[r*a.dim:(r+1)*a.dim], factor)
	}
}

// back turns queries, keys and values, in place, into their gradients; o is what forward gave for them, do its
// gradient. With P the weights and c the scale of a head,
//
//	dP = do Vᵀ        dS = P (dP - do·o)        dV = Pᵀ do        dQ = c dS K        dK = c dSᵀ Q
//
// (Dao et al., FlashAttention, appendix B.2). Heads that share keys add up.
func (a *attention) back(threads int, q, k, v, o, do []float32) {
	a.each(threads, len(q)/(a.qWidth()*a.length), func(b *headBuffers, token0, kv int) {
		at := token0*a.kvWidth() + kv*a.dim
		b.keys.Pack(k[at:], a.length, a.dim, a.kvWidth())
		b.values.Pack(v[at:], a.length, a.dim, a.kvWidth())
		dk, dv := grow(&b.dk, a.dim*a.length), grow(&b.dv, a.dim*a.length)
		clear(dk)
		clear(dv)
		for i0 := 0; i0 < a.length; i0 += a.queries() {
			n := min(a.queries(), a.length-i0)
			rows, seen := n*a.group(), i0+n
			a.weigh(b, q, token0, kv, i0, n)
			out, grad, dp := grow(&b.o, rows*a.dim), grow(&b.do, rows*a.dim), grow(&b.dp, rows*a.length)
			a.gather(out, o, token0+i0, kv, n, 1)
			a.gather(grad, do, token0+i0, kv, n, 1)
			a.addProduct(dv, b, grad, b.p, rows, seen)

			b.values.MulT(dp, grad, rows, a.length, a.dim, 0, seen)
			for r := range rows {
				dot := float32(dotProduct(grad[r*a.dim:(r+1)*a.dim], out[r*a.dim:(r+1)*a.dim]))
				row := dp[r*a.length:][:seen]
				for j, p := range b.p[r*a.length:][:len(row)] {
					row[j] = p * (row[j] - dot)
				}
			}
			a.addProduct(dk, b, b.q, dp, rows, seen)
			kernel.MatMul(out, dp, k[at:], rows, a.dim, seen, a.dim, a.length, a.kvWidth())
			a.scatter(q, out, token0+i0, kv, n, a.scale())
		}
		transpose(k[at:], dk, a.dim, a.length, a.kvWidth(), a.length)
		transpose(v[at:], dv, a.dim, a.length, a.kvWidth(), a.length)
	})
}

// addProduct adds xᵀ · w to the first seen columns of sum [dim, length]: x is [rows, dim], w is [rows, seen] with rows
// length apart.
func (a *attention) addProduct(sum []float32, b *headBuffers, x, w []float32, rows, seen int) {
	left, part := grow(&b.left, a.dim*rows), grow(&b.part, a.dim*seen)
	transpose(left, x, rows, a.dim, rows, a.dim)
	kernel.MatMul(part, left, w, a.dim, seen, rows, seen, rows, a.length)
	for d := range a.dim {
		row := sum[d*a.length:][:seen]
		kernel.Add(row, row, part[d*seen:(d+1)*seen])
	}
}

// dotProduct is x · y in float64, in four lanes.
func dotProduct(x, y []float32) float64 {
	var lanes [4]float64
	for i, v := range x {
		lanes[i%4] += float64(float64(v) * float64(y[i]))
	}
	return lanes[0] + lanes[1] + lanes[2] + lanes[3]
}
