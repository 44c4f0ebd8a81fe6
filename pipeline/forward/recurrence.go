package forward

import (
	"github.com/llmexport/llmexport/pipeline/effort"
	"github.com/llmexport/llmexport/runtime/kernel"
)

// chunkTokens is how many tokens of a recurrence are computed together. It affects bits.
const chunkTokens = 32

// recurrence is linear attention with decay: queries and keys have keys elements, values values. For a state S [keys, values],
// 0 at first, the decay f_t and a value u_t, the output of token t is
//
//	o_t = S_tᵀ q_t        S_t = f_t S_{t-1} + k_t u_tᵀ
//
// It is computed in chunks of n tokens, each from the state S_0 before it. With F_ij = f_{j+1} ... f_i,
//
//	o_i = F_i0 S_0ᵀ q_i + sum over j <= i of F_ij (q_i·k_j) u_j
//	S_n = F_n0 S_0 + sum over j of F_nj k_j u_jᵀ
//
// (Dao and Gu, Transformers are SSMs, section 6). No sum of o_i includes a later token, and each has the same order for every n:
// so a chunk may grow, and windows may end anywhere.
type recurrence struct{ keys, values int }

// trace is how many values a head holds of a chunk: the state before it [keys, values], u [n, values] and the decays [n].
func (r recurrence) trace() int { return r.state() + chunkTokens*(r.values+1) }

// state is the number of elements of a state.
func (r recurrence) state() int { return r.keys * r.values }

// decays returns those of a trace.
func (r recurrence) decays(trace []float32) []float32 {
	return trace[r.state()+chunkTokens*r.values:][:chunkTokens]
}

// work is that of a token and a head: two products of the width of the state and, with the tokens of the chunk, one of values and
// one of keys, which shared heads have in common; the decays one by one.
func (r recurrence) work(shared int) effort.Work {
	return r.products(2, 1, 1/float64(shared), chunkTokens)
}

// backWork is that of the way back, which computes the state again.
func (r recurrence) backWork(shared int) effort.Work {
	return r.products(5, 2, 2+2/float64(shared), 4*chunkTokens)
}

// products is the work of products of the width of the state, and, with the tokens of the chunk, of values and of keys, and of
// other operations.
func (r recurrence) products(states, values, keys, others float64) effort.Work {
	w := effort.Of(effort.Product, 2*(float64(states*float64(r.state()))+float64(chunkTokens*(float64(values*float64(r.values))+float64(keys*float64(r.keys))))))
	w[effort.Scalar] = others
	return w
}

// chunk is a run of n tokens of a recurrence, at most chunkTokens, of which those before first have been computed. Its matrices
// [n, n] have rows of chunkTokens.
type chunk struct {
	recurrence
	first, n int
	// q and k are queries and keys [n, keys]; those queries that have been computed are missing.
	q, k []float32
	// qk [n, n] is q_i·k_j, and kk, which only the delta rule has, k_i·k_j. Several heads may share them.
	qk, kk []float32
	// fades [n, n] is F_ij, 0 above the diagonal; since [n] is F_i0.
	fades, since []float32
	// left holds a factor of a product, sum another or the product.
	left, sum []float32
}

// floats is the memory of a chunk without its keys.
func (r recurrence) floats() int {
	return chunkTokens*(r.keys+3*chunkTokens+1) + r.factor() + r.product()
}

// factor and product are the lengths of left and sum.
func (r recurrence) factor() int  { return chunkTokens * (r.keys + chunkTokens) }
func (r recurrence) product() int { return max(r.state(), chunkTokens*max(r.keys, r.values)) }

// chunk returns a chunk in the memory f, and the rest of f.
func (r recurrence) chunk(f []float32) (c chunk, rest []float32) {
	c.recurrence = r
	c.q, f = cut(f, chunkTokens*r.keys)
	c.qk, f = cut(f, chunkTokens*chunkTokens)
	c.kk, f = cut(f, chunkTokens*chunkTokens)
	c.fades, f = cut(f, chunkTokens*chunkTokens)
	c.since, f = cut(f, chunkTokens)
	c.left, f = cut(f, r.factor())
	c.sum, rest = cut(f, r.product())
	return c, rest
}

// query, key and fade are rows of token i.
func (c *chunk) query(i int) []float32 { return c.q[i*c.keys:][:c.keys] }
func (c *chunk) key(i int) []float32   { return c.k[i*c.keys:][:c.keys] }
func (c *chunk) fade(i int) []float32  { return c.fades[i*chunkTokens:][:c.n] }

// until is F_ni, the decay between token i and the end of the chunk.
func (c *chunk) until(i int) float32 { return c.fade(c.n - 1)[i] }

// multiply computes the new rows of qk or kk, for queries or keys.
func (c *chunk) multiply(dst, rows []float32) {
	kernel.MatMulT(dst[c.first*chunkTokens:], rows[c.first*c.keys:], c.k, c.n-c.first, c.n, c.keys, chunkTokens, c.keys, c.keys)
}

// decay computes the products of the decays of a head.
func (c *chunk) decay(keep []float32) {
	var row [chunkTokens]float64
	all := 1.0
	for i, f := range keep[:c.n] {
		f := float64(f)
		all *= f
		c.since[i] = float32(all)
		fade := c.fade(i)
		for j := range i {
			row[j] *= f
			fade[j] = float32(row[j])
		}
		row[i], fade[i] = 1, 1
		clear(fade[i+1:])
	}
}

// read computes the outputs of a head for the new tokens, rows of out with stride ld.
func (c *chunk) read(out []float32, ld int, trace []float32) {
	width := c.keys + c.n
	for i := c.first; i < c.n; i++ {
		row, pairs := cut(c.left[(i-c.first)*width:][:width], c.keys)
		kernel.Scale(row, c.query(i), c.since[i])
		kernel.Mul(pairs, c.qk[i*chunkTokens:][:c.n], c.fade(i))
	}
	kernel.MatMul(out, c.left, trace, c.n-c.first, c.values, width, ld, width, c.values)
}

// advance computes the state after the chunk, next, which may be the one before.
func (c *chunk) advance(next, trace []float32) {
	state, u := cut(trace, c.state())
	for i := range c.n {
		kernel.Scale(c.sum[i*c.keys:][:c.keys], c.key(i), c.until(i))
	}
	transpose(c.left, c.sum, c.n, c.keys, c.n, c.keys)
	kernel.MatMul(c.sum, c.left, u, c.keys, c.values, c.n, c.values, c.n, c.values)
	next = next[:len(state)]
	kernel.Scale(next, state, c.since[c.n-1])
	kernel.Add(next, next, c.sum[:len(next)])
}

// chunkGradient computes the backward pass of a chunk.
type chunkGradient struct {
	chunk
	// keysRead is set if not only the outputs depend on the state before the chunk, but also u_i, through -F_i0 S_0ᵀ k_i.
	keysRead bool
	// rows are q and k, one after the other: [2 n, keys].
	rows []float32
	// pairs [n, n] holds the gradient of qk; own [n, n], if keysRead, that of kk for j < i.
	pairs, own []float32
	// du [n, values] is the gradient of u, drows [2 n, keys] that of rows for one head, total the sum for all.
	du, drows, total []float32
	// slope is the derivative by the logarithm of F_i0.
	slope [chunkTokens]float64
}

// gradients are how many values the gradients of a head take: of the state after the chunk [keys, values], of the outputs, and
// of what the keys read [2 n, values].
func (r recurrence) gradients() int { return r.state() + 2*chunkTokens*r.values }

// backFloats is the memory of a chunkGradient.
func (r recurrence) backFloats() int {
	return chunkTokens*(6*r.keys+r.values+5*chunkTokens+1) + r.backFactor() + r.backProduct()
}

// backFactor and backProduct are the lengths of left and sum.
func (r recurrence) backFactor() int {
	return chunkTokens * max(r.keys+chunkTokens, 2*r.keys, 2*r.values, 2*chunkTokens)
}
func (r recurrence) backProduct() int {
	return max(r.state(), chunkTokens*max(2*r.keys, r.values, chunkTokens))
}

// gradient returns a chunkGradient in the memory f, and the rest of f.
func (r recurrence) gradient(f []float32) (g chunkGradient, rest []float32) {
	g.recurrence = r
	for _, part := range []*[]float32{&g.qk, &g.kk, &g.fades, &g.pairs, &g.own} {
		*part, f = cut(f, chunkTokens*chunkTokens)
	}
	for _, part := range []*[]float32{&g.rows, &g.drows, &g.total} {
		*part, f = cut(f, 2*chunkTokens*r.keys)
	}
	g.du, f = cut(f, chunkTokens*r.values)
	g.since, f = cut(f, chunkTokens)
	g.left, f = cut(f, r.backFactor())
	g.sum, rest = cut(f, r.backProduct())
	return g, rest
}

// resize makes room for n tokens.
func (g *chunkGradient) resize(n int) {
	g.n = n
	g.q, g.k = cut(g.rows[:2*n*g.keys], n*g.keys)
}

// backValues computes du, from the gradients of the state after the chunk and of the outputs:
//
//	du_j = F_nj dSᵀ k_j + sum over i >= j of F_ij (q_i·k_j) do_i
func (g *chunkGradient) backValues(gradients []float32) {
	width := g.keys + g.n
	for i := range g.n {
		kernel.Mul(g.pairs[i*chunkTokens:][:g.n], g.qk[i*chunkTokens:][:g.n], g.fade(i))
		kernel.Scale(g.left[i*width:][:g.keys], g.key(i), g.until(i))
	}
	transpose(g.left[g.keys:], g.pairs, g.n, g.n, width, chunkTokens)
	kernel.MatMul(g.du, g.left, gradients, g.n, g.values, width, g.values, width, g.values)
	clear(g.slope[:])
}

// back turns the gradient of the state after the chunk, the first of the gradients, into that of the state before it. It adds
// the gradients of queries and keys to total, and completes slope.
func (g *chunkGradient) back(gradients, trace []float32) {
	state, u := cut(trace, g.state())
	ds, outer := cut(gradients, g.state())
	last := g.since[g.n-1]
	g.slope[g.n-1] += float64(float64(last) * dotProduct(ds, state))
	g.backReads(outer, state)
	g.backPairs(outer, u)
	g.backWrites(ds, u)
	kernel.Add(g.total[:2*g.n*g.keys], g.total[:2*g.n*g.keys], g.drows[:2*g.n*g.keys])

	reads := g.reads()
	for i := range reads {
		kernel.Scale(g.sum[i*g.keys:][:g.keys], g.rows[i*g.keys:][:g.keys], g.reading(i))
	}
	transpose(g.left, g.sum, reads, g.keys, reads, g.keys)
	kernel.MatMul(g.sum, g.left, outer, g.keys, g.values, reads, g.values, reads, g.values)
	kernel.Scale(ds, ds, last)
	kernel.Add(ds, ds, g.sum[:len(ds)])
}

// reads is the number of rows that read the state before the chunk.
func (g *chunkGradient) reads() int {
	if g.keysRead {
		return 2 * g.n
	}
	return g.n
}

// reading is the factor of the state before the chunk where row i reads it.
func (g *chunkGradient) reading(i int) float32 {
	if i < g.n {
		return g.since[i]
	}
	return -g.since[i-g.n]
}

// backReads begins drows with the gradients of the rows that read the state before the chunk.
func (g *chunkGradient) backReads(outer, state []float32) {
	reads := g.reads()
	for i := range reads {
		kernel.Scale(g.left[i*g.values:][:g.values], outer[i*g.values:][:g.values], g.reading(i))
	}
	clear(g.drows[reads*g.keys:])
	kernel.MatMulT(g.drows, g.left, state, reads, g.keys, g.values, g.keys, g.values, g.values)
	for i := range reads {
		g.slope[i%g.n] += dotProduct(g.rows[i*g.keys:][:g.keys], g.drows[i*g.keys:][:g.keys])
	}
}

// backPairs adds the gradients through the products of rows.
func (g *chunkGradient) backPairs(outer, u []float32) {
	kernel.MatMulT(g.pairs, outer, u, g.n, g.n, g.values, chunkTokens, g.values, g.values)
	for i := range g.n {
		row := g.pairs[i*chunkTokens:][:g.n]
		kernel.Mul(row, row, g.fade(i))
	}
	g.slopes(g.pairs, g.qk)
	queries, keys := cut(g.drows[:2*g.n*g.keys], g.n*g.keys)
	kernel.MatMul(g.sum, g.pairs, g.k, g.n, g.keys, g.n, g.keys, chunkTokens, g.keys)
	kernel.Add(queries, queries, g.sum[:len(queries)])
	reads := g.reads()
	transpose(g.left, g.pairs, g.n, g.n, reads, chunkTokens)
	if g.keysRead {
		transpose(g.left[g.n:], g.own, g.n, g.n, reads, chunkTokens)
		for i := range g.n {
			row := g.left[i*reads+g.n:][:g.n]
			kernel.Add(row, row, g.own[i*chunkTokens:][:g.n])
		}
	}
	kernel.MatMul(g.sum, g.left, g.rows, g.n, g.keys, reads, g.keys, reads, g.keys)
	kernel.Add(keys, keys, g.sum[:len(keys)])
}

// backWrites adds the gradients of the keys that are written to the state after the chunk.
func (g *chunkGradient) backWrites(ds, u []float32) {
	for i := range g.n {
		kernel.Scale(g.left[i*g.values:][:g.values], u[i*g.values:][:g.values], g.until(i))
	}
	kernel.MatMulT(g.sum, g.left, ds, g.n, g.keys, g.values, g.keys, g.values, g.values)
	for i := range g.n {
		d := dotProduct(g.key(i), g.sum[i*g.keys:][:g.keys])
		g.slope[g.n-1] += d
		g.slope[i] -= d
	}
	keys := g.drows[g.n*g.keys : 2*g.n*g.keys]
	kernel.Add(keys, keys, g.sum[:len(keys)])
}

// slopes adds to slope the part of F_ij times products [n, n], whose gradient, times F_ij, is d; only j < i count.
func (g *chunkGradient) slopes(d, products []float32) {
	for i := range g.n {
		row, with := d[i*chunkTokens:][:i], products[i*chunkTokens:][:i]
		for j, v := range row {
			e := float64(float64(v) * float64(with[j]))
			g.slope[i] += e
			g.slope[j] -= e
		}
	}
}

// rates calls f with the derivative by the logarithm of the decay of each token, from the last to the first.
func (g *chunkGradient) rates(f func(i int, rate float64)) {
	sum := 0.0
	for i := g.n - 1; i >= 0; i-- {
		sum += g.slope[i]
		f(i, sum)
	}
}
