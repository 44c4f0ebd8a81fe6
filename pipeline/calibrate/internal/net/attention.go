package net

import (
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
	// scale is what products of queries and keys are multiplied with.
	scale float32
	// window, chunk, cap and slopes are those of arch.Attention.
	window, chunk int
	cap           float64
	slopes        []float64
}

func (a *attention) group() int   { return a.heads / a.kvHeads }
func (a *attention) qWidth() int  { return a.heads * a.dim }
func (a *attention) kvWidth() int { return a.kvHeads * a.dim }
func (a *attention) queries() int { return max(1, blockRows/a.group()) }

// first is the first position that a query at position i sees.
func (a *attention) first(i int) int {
	first := 0
	if a.window > 0 {
		first = max(first, i-a.window+1)
	}
	if a.chunk > 0 {
		first = max(first, i-i%a.chunk)
	}
	return first
}

// from is where the keys begin that queries from position i on see, or some positions before.
func (a *attention) from(i int) int { return a.first(i) / kernel.PanelRows * kernel.PanelRows }

// headBuffers is what a goroutine needs for the query heads that share a key head, in one window.
type headBuffers struct {
	keys, values kernel.Packed
	// q, o and do are [rows, dim], p, slope and dp [rows, length] with rows = group * queries.
	q, o, do, p, slope, dp []float32
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

// forward writes to dst, for every query, the mean of the values of the positions that it sees, weighted by the softmax of
// its scores. dst may be q.
func (a *attention) forward(threads int, dst, q, k, v []float32) {
	a.each(threads, len(q)/(a.qWidth()*a.length), func(b *headBuffers, token0, kv int) {
		at := token0*a.kvWidth() + kv*a.dim
		b.keys.Pack(k[at:], a.length, a.dim, a.kvWidth())
		for i0 := 0; i0 < a.length; i0 += a.queries() {
			n := min(a.queries(), a.length-i0)
			a.mix(b, dst, q, v[at:], token0+i0, kv, i0, n)
		}
	})
}

// last is forward for the last query of a window alone: q and dst are [1, heads*dim], keys and values [length, kvHeads*dim].
func (a *attention) last(dst, q, k, v []float32) {
	a.each(1, 1, func(b *headBuffers, _, kv int) {
		at, i := kv*a.dim, a.length-1
		b.keys.Resize(a.length, a.dim)
		from := a.from(i)
		b.keys.PackRows(k[at+from*a.kvWidth():], from, a.length-from, a.kvWidth())
		a.mix(b, dst, q, v[at:], 0, kv, i, 1)
	})
}

// mix computes n queries from position i0 on, which are rows token and on of q and of dst. v begins with the first value
// of the window, b.keys holds the keys.
func (a *attention) mix(b *headBuffers, dst, q, v []float32, token, kv, i0, n int) {
	rows, from, seen := n*a.group(), a.from(i0), i0+n
	a.weigh(b, q, token, kv, i0, n)
	o := grow(&b.o, rows*a.dim)
	kernel.MatMul(o, b.p[from:], v[from*a.kvWidth():], rows, a.dim, seen-from, a.dim, a.length, a.kvWidth())
	a.scatter(dst, o, token, kv, n, 1)
}

// weigh fills b.q with n scaled queries from position i0 on, which are rows token and on of q, and b.p with their weights:
// rows are length apart, and weights of positions that a query does not see, from a.from(i0) to the last query's, are 0.
// b.keys holds the keys. With a cap, b.slope has the derivatives of capped scores.
func (a *attention) weigh(b *headBuffers, q []float32, token, kv, i0, n int) {
	rows, from, seen := n*a.group(), a.from(i0), i0+n
	a.gather(grow(&b.q, rows*a.dim), q, token, kv, n, a.scale)
	p := grow(&b.p, rows*a.length)
	b.keys.MulT(p, b.q, rows, a.length, a.dim, from, seen)
	for r := range rows {
		row := p[r*a.length:][:seen]
		i := i0 + r%n
		first := a.first(i)
		visible := row[first : i+1]
		if a.cap != 0 {
			a.bound(visible, grow(&b.slope, rows*a.length)[r*a.length+first:])
		}
		if a.slopes != nil {
			slope := a.slopes[kv*a.group()+r/n]
			for j := range visible {
				visible[j] += float32(slope * float64(first+j-i))
			}
		}
		kernel.Softmax(visible)
		clear(row[from:first])
		clear(row[i+1:])
	}
}

// bound caps scores, and writes the derivatives of what they become.
func (a *attention) bound(scores, slope []float32) {
	for j, s := range scores {
		t := tanh(float64(s) / a.cap)
		scores[j], slope[j] = float32(a.cap*t), float32(1-float64(t*t))
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
// (Dao et al., FlashAttention, appendix B.2). dS is multiplied by the derivative of the cap. Heads that share keys add up.
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
			rows, from, seen := n*a.group(), a.from(i0), i0+n
			a.weigh(b, q, token0+i0, kv, i0, n)
			out, grad, dp := grow(&b.o, rows*a.dim), grow(&b.do, rows*a.dim), grow(&b.dp, rows*a.length)
			a.gather(out, o, token0+i0, kv, n, 1)
			a.gather(grad, do, token0+i0, kv, n, 1)
			a.addProduct(dv, b, grad, b.p, rows, from, seen)

			b.values.MulT(dp, grad, rows, a.length, a.dim, from, seen)
			for r := range rows {
				dot := float32(dotProduct(grad[r*a.dim:(r+1)*a.dim], out[r*a.dim:(r+1)*a.dim]))
				row := dp[r*a.length:][from:seen]
				for j, p := range b.p[r*a.length+from:][:len(row)] {
					row[j] = p * (row[j] - dot)
				}
				if a.cap != 0 {
					i := i0 + r%n
					first := a.first(i)
					visible := dp[r*a.length+first : r*a.length+i+1]
					kernel.Mul(visible, visible, b.slope[r*a.length+first:][:len(visible)])
				}
			}
			a.addProduct(dk, b, b.q, dp, rows, from, seen)
			kernel.MatMul(out, dp[from:], k[at+from*a.kvWidth():], rows, a.dim, seen-from, a.dim, a.length, a.kvWidth())
			a.scatter(q, out, token0+i0, kv, n, a.scale)
		}
		transpose(k[at:], dk, a.dim, a.length, a.kvWidth(), a.length)
		transpose(v[at:], dv, a.dim, a.length, a.kvWidth(), a.length)
	})
}

// addProduct adds xᵀ · w to columns from to seen-1 of sum [dim, length]: x is [rows, dim], w is [rows, seen] with rows
// length apart.
func (a *attention) addProduct(sum []float32, b *headBuffers, x, w []float32, rows, from, seen int) {
	n := seen - from
	left, part := grow(&b.left, a.dim*rows), grow(&b.part, a.dim*n)
	transpose(left, x, rows, a.dim, rows, a.dim)
	kernel.MatMul(part, left, w[from:], a.dim, n, rows, n, rows, a.length)
	for d := range a.dim {
		row := sum[d*a.length:][from:seen]
		kernel.Add(row, row, part[d*n:(d+1)*n])
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
