package reference

import (
	"context"

	"github.com/llmexport/llmexport/runtime/kernel"
)

// queryRows is how many queries of a head are scored at a time: scores take queryRows x length floats, not
// the square of the length.
const queryRows = 64

// heads are the queries, keys and values of a group, and how they meet. Every query gets the mean of the values that it
// sees, weighted by the softmax of its scores.
type heads struct {
	// count is how many heads of queries there are; so many adjacent ones have the same keys and values.
	count, shared int
	// A score is the product of query and key over all parts.
	parts []part
	// v is [tokens, count/shared*valueDim], out [tokens, count*valueDim]. out may be the queries of the only part, if that
	// is as wide.
	v, out   []float32
	valueDim int

	scale         float64
	cap           float64 // or 0
	window, chunk int     // or 0
	slopes        []float64
	sinks         []float32
}

// part is a piece of every head: q [tokens, count*dim], k [tokens, count/shared*dim], or if one [tokens, dim] for all
// heads together.
type part struct {
	q, k []float32
	dim  int
	one  bool
}

// attendCost is what a thread holds: packed keys, scores, and queries or keys that are about to be packed.
func attendCost(dim int) cost {
	return cost{position: queryRows + dim, fixed: queryRows*(1+dim) + kernel.PanelRows*dim}
}

func (m *Model) attend(ctx context.Context, h *heads, g *group) error {
	return m.each(ctx, len(g.lengths)*h.count, func(u int, b *buffer) error {
		if window := u / h.count; g.lengths[window] > 0 {
			h.attend(u%h.count, g.starts[window], g.lengths[window], b)
		}
		return nil
	})
}

// attend computes one head of the n tokens from start on. A block of queries is read before its place takes the result.
func (h *heads) attend(head, start, n int, b *buffer) {
	dim := 0
	for _, p := range h.parts {
		dim += p.dim
	}
	ld := n + 1 // one for the sink
	queries, scores := cut(grow(&b.floats, queryRows*(dim+ld)), queryRows*dim)
	h.pack(head/h.shared, start, n, dim, queries, b)
	vWidth, outWidth := h.count/h.shared*h.valueDim, h.count*h.valueDim
	v, out := h.v[start*vWidth+head/h.shared*h.valueDim:], h.out[start*outWidth+head*h.valueDim:]
	for i0 := 0; i0 < n; i0 += queryRows {
		rows := min(queryRows, n-i0)
		seen := i0 + rows
		// No query of the block sees what is before from.
		from := h.first(i0) / kernel.PanelRows * kernel.PanelRows
		for i := range rows {
			q := queries[i*dim : (i+1)*dim]
			for _, p := range h.parts {
				kernel.Scale(q[:p.dim], p.q[((start+i0+i)*h.count+head)*p.dim:][:p.dim], float32(h.scale))
				q = q[p.dim:]
			}
		}
		b.keys.MulT(scores, queries, rows, ld, dim, from, seen)
		for i := range rows {
			h.weigh(scores[i*ld:(i+1)*ld], head, i0+i, from, seen)
		}
		kernel.MatMul(out[i0*outWidth:], scores[from:], v[from*vWidth:], rows, h.valueDim, seen-from, outWidth, ld, vWidth)
	}
}

// pack lays out the keys of a head; f has room for queryRows of them.
func (h *heads) pack(head, start, n, dim int, f []float32, b *buffer) {
	b.keys.Resize(n, dim)
	for j0 := 0; j0 < n; j0 += queryRows {
		rows := min(queryRows, n-j0)
		for j := range rows {
			key := f[j*dim : (j+1)*dim]
			for _, p := range h.parts {
				at := (start + j0 + j) * p.dim
				if !p.one {
					at = at*(h.count/h.shared) + head*p.dim
				}
				copy(key, p.k[at:at+p.dim])
				key = key[p.dim:]
			}
		}
		b.keys.PackRows(f, j0, rows, dim)
	}
}

// weigh turns the scores of the query at position i, of the keys from from to seen-1, into weights. Keys that it does not
// see get 0, which adds nothing.
func (h *heads) weigh(row []float32, head, i, from, seen int) {
	first := h.first(i)
	visible := row[first : i+1]
	if h.cap != 0 {
		for j, x := range visible {
			visible[j] = float32(h.cap * tanh(float64(x)/h.cap))
		}
	}
	if h.slopes != nil {
		for j := range visible {
			visible[j] += float32(h.slopes[head] * float64(first+j-i))
		}
	}
	if h.sinks != nil {
		row[i+1] = h.sinks[head]
		visible = row[first : i+2]
	}
	kernel.Softmax(visible)
	clear(row[from:first])
	clear(row[i+1 : seen])
}

// first is the first position that a query sees.
func (h *heads) first(i int) int {
	first := 0
	if h.window > 0 {
		first = max(first, i-h.window+1)
	}
	if h.chunk > 0 {
		first = max(first, i-i%h.chunk)
	}
	return first
}
