package forward

import (
	"context"

	"github.com/llmexport/llmexport/pipeline/effort"
	"github.com/llmexport/llmexport/runtime/kernel"
)

const (
	// queryRows is how many queries of a head are scored at a time: scores take queryRows x length floats, not the square of the
	// length.
	queryRows = 64
	// gradientRows is about how many rows of scores the backward pass holds at a time, queries times the heads that share a key
	// head. It affects bits of gradients.
	gradientRows = 128
)

// mask returns the positions, from first to end-1, that a query attends to in a window of tokens tokens.
type mask func(query, tokens int) (first, end int)

// causal lets a query attend to itself and to earlier positions, within a window of that many positions or a chunk; 0 means
// unbounded.
func causal(window, chunk int) mask {
	return func(query, _ int) (first, end int) {
		if window > 0 {
			first = max(first, query-window+1)
		}
		if chunk > 0 {
			first = max(first, query-query%chunk)
		}
		return first, query + 1
	}
}

// toAll lets a query attend to all positions.
func toAll(_, tokens int) (first, end int) { return 0, tokens }

// within lets a query attend to the positions less than window away.
func within(window int) mask {
	return func(query, tokens int) (first, end int) {
		return max(0, query-window+1), min(tokens, query+window)
	}
}

// pictured is a mask by which tokens of a picture attend to later ones of it, too, unless it is one-way.
func (s *space) pictured(m mask, oneWay bool) mask {
	if s.ends == nil || oneWay {
		return m
	}
	return func(query, tokens int) (first, end int) {
		first, end = m(query, tokens)
		return first, max(end, s.ends[query]+1)
	}
}

// heads holds the queries, keys and values of a group. The result for each query is the mean of the values that it attends to,
// weighted by the softmax of its scores.
type heads struct {
	// count is the number of query heads; groups of shared adjacent heads have the same keys and values.
	count, shared int
	// A score is the product of query and key over all parts.
	parts []part
	// v is [tokens, count/shared*valueDim], out [tokens, count*valueDim]. out may be the queries of the only part, if that has the
	// same width.
	v, out   []float32
	valueDim int

	scale  float64
	cap    float64 // or 0
	mask   mask
	slopes []float64
	sinks  []float32
}

// part is a piece of every head: q [tokens, count*dim], k [tokens, count/shared*dim], or, if one is set, [tokens, dim] for all
// heads together.
type part struct {
	q, k []float32
	dim  int
	one  bool
}

// queries are n queries of heads that share keys: row r of their scores belongs to head head+r/n at position first+r%n.
type queries struct{ head, heads, first, n int }

func (q queries) rows() int { return q.heads * q.n }

// attendCost is the memory of a thread: packed keys, scores, and queries or keys about to be packed.
func attendCost(dim int) cost {
	return cost{position: queryRows + dim, fixed: queryRows*(1+dim) + kernel.PanelRows*dim}
}

// attend computes the attention of all heads of a block in all windows.
func (s *space) attend(ctx context.Context, of stateful, h *heads) error {
	switch {
	case s.cache == nil:
	case s.cache.at > 0:
		s.attendLast(of, h)
		return context.Cause(ctx)
	default:
		s.keep(of, h)
	}
	s.tally.AddWork(h.work(s.lengths, queryRows, 2))
	return s.each(ctx, len(s.lengths)*h.count, func(u int, b *buffer) error {
		if window := u / h.count; s.lengths[window] > 0 {
			h.attend(u%h.count, s.starts[window], s.lengths[window], b)
		}
		return nil
	})
}

// attend computes one head of the n tokens from start on. A block of queries is read before the result overwrites it.
func (h *heads) attend(head, start, n int, b *buffer) {
	dim, ld := h.dim(), n+1 // one for the sink
	rows, scores := cut(grow(&b.floats, queryRows*(dim+ld)), queryRows*dim)
	h.pack(head/h.shared, start, n, dim, rows, &b.keys)
	vWidth, outWidth := h.count/h.shared*h.valueDim, h.count*h.valueDim
	v, out := h.v[start*vWidth+head/h.shared*h.valueDim:], h.out[start*outWidth+head*h.valueDim:]
	for i0 := 0; i0 < n; i0 += queryRows {
		q := queries{head, 1, i0, min(queryRows, n-i0)}
		from, to := h.span(q, n)
		h.gather(rows, q, start)
		b.keys.MulT(scores, rows, q.n, ld, dim, from, to)
		h.weigh(scores, nil, ld, q, n, from, to)
		kernel.MatMul(out[i0*outWidth:], scores[from:], v[from*vWidth:], q.n, h.valueDim, to-from, outWidth, ld, vWidth)
	}
}

// work is that of products of scores with keys or values, for windows and with most queries at a time: two of them in the forward
// pass, five on the way back.
func (h *heads) work(lengths []int, most int, products float64) effort.Work {
	pairs := 0
	for _, n := range lengths {
		for i0 := 0; i0 < n; i0 += most {
			q := queries{0, 1, i0, min(most, n-i0)}
			from, to := h.span(q, n)
			pairs += q.n * (to - from)
		}
	}
	pairs *= h.count
	w := effort.Of(effort.Product, products*float64(pairs)*float64(h.dim()+h.valueDim))
	w[effort.Element] = float64(pairs)
	return w
}

// dim is the width of queries and keys.
func (h *heads) dim() (dim int) {
	for _, p := range h.parts {
		dim += p.dim
	}
	return dim
}

// pack lays out the keys of a head; f has room for queryRows of them.
func (h *heads) pack(head, start, n, dim int, f []float32, to *kernel.Packed) {
	to.Resize(n, dim)
	for j0 := 0; j0 < n; j0 += queryRows {
		rows := min(queryRows, n-j0)
		for j := range rows {
			h.key(f[j*dim:(j+1)*dim], head, start+j0+j)
		}
		to.PackRows(f, j0, rows, dim)
	}
}

// key writes the key of a head and a token to dst [dim].
func (h *heads) key(dst []float32, head, token int) {
	for _, p := range h.parts {
		k, _ := h.keys(p, head, token)
		copy(dst, k[:p.dim])
		dst = dst[p.dim:]
	}
}

// gather writes the scaled queries of a window that begins at token start to dst [rows, dim].
func (h *heads) gather(dst []float32, q queries, start int) {
	for r := range q.rows() {
		token := start + q.first + r%q.n
		for _, p := range h.parts {
			kernel.Scale(dst[:p.dim], p.q[(token*h.count+q.head+r/q.n)*p.dim:][:p.dim], float32(h.scale))
			dst = dst[p.dim:]
		}
	}
}

// span is a range of keys that includes all that the queries attend to; it begins with a panel.
func (h *heads) span(q queries, tokens int) (from, to int) {
	from = tokens
	for i := q.first; i < q.first+q.n; i++ {
		first, end := h.mask(i, tokens)
		from, to = min(from, first), max(to, end)
	}
	return from / kernel.PanelRows * kernel.PanelRows, to
}

// weigh turns the scores of queries [rows, ld], for the keys from from to to-1, into weights. Keys outside a query's mask get 0,
// which adds nothing. slope, if not nil, receives the derivatives of capped scores. A row has room for one more score.
func (h *heads) weigh(scores, slope []float32, ld int, q queries, tokens, from, to int) {
	for r := range q.rows() {
		row, i := scores[r*ld:(r+1)*ld], q.first+r%q.n
		first, end := h.mask(i, tokens)
		visible := row[first:end]
		if h.cap != 0 {
			if slope != nil {
				inBlocks(slope[r*ld+first:], visible, func(block []float64) {
					over(block, h.cap)
					for i, t := range block {
						block[i] = 1 - float64(t*t)
					}
				})
			}
			inBlocks(visible, visible, func(block []float64) { capped(block, h.cap) })
		}
		if h.slopes != nil {
			for j := range visible {
				apart := max(first+j-i, i-first-j)
				visible[j] -= float32(h.slopes[q.head+r/q.n] * float64(apart))
			}
		}
		if h.sinks != nil {
			row[end] = h.sinks[q.head+r/q.n]
			visible = row[first : end+1]
		}
		kernel.Softmax(visible)
		clear(row[from:first])
		clear(row[end:max(end, to)])
	}
}

// attendBack turns queries, keys and values, in place, into their gradients; out is the result of attend, do its gradient. With P
// the weights and c the scale of a head,
//
//	dP = do Vᵀ        dS = P (dP - do·o)        dV = Pᵀ do        dQ = c dS K        dK = c dSᵀ Q
//
// (Dao et al., FlashAttention, appendix B.2). dS is multiplied by the derivative of the cap. The gradients of heads that share
// keys are summed, those of a part that all heads share in the order of the heads. A sink has a weight and no value: it changes
// P and o only.
func (s *space) attendBack(h *heads, do []float32) {
	kv := h.count / h.shared
	shared := make([][]float32, len(h.parts)) // of the keys that all heads read: [kv, tokens, dim]
	for i, p := range h.parts {
		if p.one {
			shared[i] = make([]float32, kv*len(p.k))
		}
	}
	s.tally.AddWork(h.work(s.lengths, max(1, gradientRows/h.shared), 5))
	kernel.Parallel(s.threads, len(s.lengths)*kv, func(lo, hi int) {
		var b gradientBuffer
		for ; lo < hi; lo++ {
			if n := s.lengths[lo/kv]; n > 0 {
				h.back(&b, do, shared, lo%kv, s.starts[lo/kv], n)
			}
		}
	})
	for i, p := range h.parts {
		if p.one {
			copy(p.k, shared[i])
			for j := 1; j < kv; j++ {
				s.addAll(p.k, shared[i][j*len(p.k):][:len(p.k)])
			}
		}
	}
}

// gradientBuffer is the memory of a goroutine in the backward pass.
type gradientBuffer struct {
	keys, values kernel.Packed
	// q is [rows, dim], o and do are [rows, valueDim], p, slope and dp [rows, ld], dq is [rows, dim of a part].
	q, o, do, p, slope, dp, dq []float32
	// left, part, dk and dv are [dim, ...]: transposed.
	left, part, dk, dv []float32
}

// back is attendBack for the heads that share a key head, in the window of n tokens from start on. The gradients of keys that
// all heads share go to shared.
func (h *heads) back(b *gradientBuffer, do []float32, shared [][]float32, kv, start, n int) {
	dim, ld, vWidth := h.dim(), n+1, h.count/h.shared*h.valueDim
	v := h.v[start*vWidth+kv*h.valueDim:]
	h.pack(kv, start, n, dim, grow(&b.q, queryRows*dim), &b.keys)
	b.values.Pack(v, n, h.valueDim, vWidth)
	dk, dv := grow(&b.dk, dim*n), grow(&b.dv, h.valueDim*n)
	clear(dk)
	clear(dv)
	most := max(1, gradientRows/h.shared)
	for i0 := 0; i0 < n; i0 += most {
		x := queries{kv * h.shared, h.shared, i0, min(most, n-i0)}
		rows := x.rows()
		from, to := h.span(x, n)
		b.q, b.p, b.dp = grow(&b.q, rows*dim), grow(&b.p, rows*ld), grow(&b.dp, rows*ld)
		if h.cap != 0 {
			b.slope = grow(&b.slope, rows*ld)
		}
		h.gather(b.q, x, start)
		b.keys.MulT(b.p, b.q, rows, ld, dim, from, to)
		h.weigh(b.p, b.slope, ld, x, n, from, to)
		h.backScores(b, do, dv, x, start, n, from, to)
		b.addProduct(dk, b.q, b.dp, dim, n, ld, rows, from, to)
		for _, p := range h.parts {
			h.backQueries(b, p, x, start, ld, from, to)
		}
	}
	for i, p := range h.parts {
		of, width := h.keys(p, kv, start)
		if p.one {
			of = shared[i][kv*len(p.k)+start*p.dim:]
		}
		transpose(of, dk, p.dim, n, width, n)
		dk = dk[p.dim*n:]
	}
	transpose(v, dv, h.valueDim, n, vWidth, n)
}

// keys are those of a part for a key head, from a token on, and the distance between tokens.
func (h *heads) keys(p part, kv, start int) (k []float32, width int) {
	if p.one {
		return p.k[start*p.dim:], p.dim
	}
	width = h.count / h.shared * p.dim
	return p.k[start*width+kv*p.dim:], width
}

// backScores turns the weights of some queries, in b.p, into the gradients of their scores, in b.dp, and adds to dv.
func (h *heads) backScores(b *gradientBuffer, do, dv []float32, x queries, start, n, from, to int) {
	rows, dim, ld := x.rows(), h.valueDim, n+1
	b.o, b.do = grow(&b.o, rows*dim), grow(&b.do, rows*dim)
	h.pick(b.o, h.out, x, start)
	h.pick(b.do, do, x, start)
	b.addProduct(dv, b.do, b.p, dim, n, ld, rows, from, to)
	b.values.MulT(b.dp, b.do, rows, ld, dim, from, to)
	for r := range rows {
		dot := float32(dotProduct(b.do[r*dim:(r+1)*dim], b.o[r*dim:(r+1)*dim]))
		row := b.dp[r*ld:][from:to]
		for j, p := range b.p[r*ld+from:][:len(row)] {
			row[j] = p * (row[j] - dot)
		}
		if h.cap != 0 {
			first, end := h.mask(x.first+r%x.n, n)
			visible := b.dp[r*ld+first : r*ld+end]
			kernel.Mul(visible, visible, b.slope[r*ld+first:][:len(visible)])
		}
	}
}

// backQueries replaces a part of some queries by its gradient; b.dp holds those of their scores.
func (h *heads) backQueries(b *gradientBuffer, p part, x queries, start, ld, from, to int) {
	rows := x.rows()
	k, width := h.keys(p, x.head/h.shared, start)
	dq := grow(&b.dq, rows*p.dim)
	b.dq = dq
	kernel.MatMul(dq, b.dp[from:], k[from*width:], rows, p.dim, to-from, p.dim, ld, width)
	for r := range rows {
		dst := p.q[((start+x.first+r%x.n)*h.count+x.head+r/x.n)*p.dim:][:p.dim]
		kernel.Scale(dst, dq[r*p.dim:(r+1)*p.dim], float32(h.scale))
	}
}

// pick copies the rows of some queries from x [tokens, count*dim].
func (h *heads) pick(dst, x []float32, q queries, start int) {
	dim := h.valueDim
	for r := range q.rows() {
		copy(dst[r*dim:(r+1)*dim], x[((start+q.first+r%q.n)*h.count+q.head+r/q.n)*dim:])
	}
}

// addProduct adds xᵀ · w to columns from to to-1 of sum [dim, n]: x is [rows, dim], w [rows, ld].
func (b *gradientBuffer) addProduct(sum, x, w []float32, dim, n, ld, rows, from, to int) {
	cols := to - from
	b.left, b.part = grow(&b.left, dim*rows), grow(&b.part, dim*cols)
	transpose(b.left, x, rows, dim, rows, dim)
	kernel.MatMul(b.part, b.left, w[from:], dim, cols, rows, cols, rows, ld)
	for d := range dim {
		row := sum[d*n:][from:to]
		kernel.Add(row, row, b.part[d*cols:(d+1)*cols])
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
