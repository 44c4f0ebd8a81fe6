package forward

import (
	"github.com/llmexport/llmexport/pipeline/effort"
	"github.com/llmexport/llmexport/runtime/kernel"
)

// rule is the gated delta rule: the recurrence with, for a value v_t and a strength b_t,
//
//	u_t = b_t (v_t - f_t S_{t-1}ᵀ k_t)
//
// In a chunk, with w_i = v_i - F_i0 S_0ᵀ k_i and the lower triangular A_ij = b_i F_ij (k_i·k_j), j < i, these are
//
//	u = T r        T = (1 + A)⁻¹        r_i = b_i w_i
//
// (Yang et al., Gated Delta Networks, section 3.3). For keys of length 1 and strengths up to 1, T is made of contractions, so its
// elements stay small.
type rule struct{ recurrence }

// trace is how many values a head holds of a chunk: those of the recurrence, the strengths [n], w [n, values] and T [n, n], in
// rows of chunkTokens.
func (r rule) trace() int { return r.recurrence.trace() + chunkTokens*(1+r.values+chunkTokens) }

// work is that of a token and a head: those of the recurrence, a third product of the width of the state, one more of values and of
// keys, and a row of T.
func (r rule) work(shared int) effort.Work {
	return r.products(3, 2, 2/float64(shared), chunkTokens+2*float64(r.values)+r.rowOps())
}

// backWork is that of the way back, which computes the solution again.
func (r rule) backWork(shared int) effort.Work {
	return r.products(8, 5, 3+4/float64(shared), 7*chunkTokens+2*float64(r.values)+r.rowOps())
}

// rowOps are the operations for a row of T, on average.
func (r rule) rowOps() float64 { return chunkTokens * chunkTokens / 3 }

// solution returns the strengths, w and T of a trace.
func (r rule) solution(trace []float32) (b, w, t []float32) {
	b, w = cut(trace[r.recurrence.trace():], chunkTokens)
	w, t = cut(w, chunkTokens*r.values)
	return b, w, t
}

// solve completes the trace of a head, which has the decays and the strengths. The values of the new tokens are rows of v with
// stride ld.
func (r rule) solve(c *chunk, trace, v []float32, ld int) {
	u := trace[r.state():]
	b, w, t := r.solution(trace)
	more := w[c.first*r.values:]
	kernel.MatMul(more, c.k[c.first*r.keys:], trace, c.n-c.first, r.values, r.keys, r.values, r.keys, r.values)
	for i, since := range c.since[c.first:c.n] {
		row := more[i*r.values:][:r.values]
		for j, x := range v[i*ld:][:r.values] {
			row[j] = x - float32(since*row[j])
		}
	}
	c.invert(t, b)
	for i := c.first; i < c.n; i++ {
		kernel.Mul(c.left[(i-c.first)*c.n:][:c.n], t[i*chunkTokens:][:c.n], b[:c.n])
	}
	kernel.MatMul(u[c.first*r.values:], c.left, w, c.n-c.first, r.values, c.n, r.values, c.n, r.values)
}

// invert computes the new rows of T for the strengths b.
func (c *chunk) invert(t, b []float32) {
	for i := c.first; i < c.n; i++ {
		row := t[i*chunkTokens:][:chunkTokens]
		clear(row)
		row[i] = 1
		fade, kk := c.fade(i)[:i], c.kk[i*chunkTokens:][:i]
		for j, f := range fade {
			a := float32(b[i]*f) * kk[j]
			for l, x := range t[j*chunkTokens:][:j+1] {
				row[l] -= float32(a * x)
			}
		}
	}
}

// back turns du into the gradients of the values, rows of dv with stride ldv, and of the strengths, db with stride ldb. Those of w
// become the last n of the gradients.
func (r rule) back(g *chunkGradient, gradients, trace, dv []float32, ldv int, db []float32, ldb int) {
	n, u := g.n, trace[r.state():]
	b, w, t := r.solution(trace)
	dw := gradients[r.state()+n*r.values:]
	transpose(g.left, t, n, n, n, chunkTokens)
	kernel.MatMul(dw, g.left, g.du, n, r.values, n, r.values, n, r.values)          // the gradient of r
	kernel.MatMulT(g.pairs, dw, u, n, n, r.values, chunkTokens, r.values, r.values) // that of -A
	for i := range n {
		row := dw[i*r.values:][:r.values]
		sum, own := dotProduct(w[i*r.values:][:r.values], row), g.own[i*chunkTokens:][:n]
		clear(own[i:])
		pairs, fade, kk := g.pairs[i*chunkTokens:][:i], g.fade(i)[:i], g.kk[i*chunkTokens:][:i]
		for j, d := range pairs {
			d *= -fade[j]
			own[j] = b[i] * d
			sum += float64(float64(d) * float64(kk[j]))
		}
		db[i*ldb] = float32(sum)
		kernel.Scale(row, row, b[i])
		copy(dv[i*ldv:], row)
	}
	g.slopes(g.own, g.kk)
}
