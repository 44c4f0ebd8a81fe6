package reference

import (
	"context"
	"math"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/runtime/kernel"
)

// queryRows is how many queries of a head are scored at a time: scores take queryRows x length floats, not
// the square of the length.
const queryRows = 64

// attend replaces every query by the mean of the values of its own and earlier positions, weighted by the
// softmax of query · key / sqrt(HeadDim). q is [tokens, Heads*HeadDim], k and v are [tokens, KVHeads*HeadDim].
func (m *Model) attend(ctx context.Context, q, k, v []float32, g group, a *arch.Attention) error {
	qWidth, kvWidth := a.Heads*a.HeadDim, a.KVHeads*a.HeadDim
	return m.each(ctx, len(g.lengths)*a.Heads, func(u int, b *buffer) error {
		window, head := u/a.Heads, u%a.Heads
		start, n := g.starts[window], g.lengths[window]
		if n > 0 {
			at := start*kvWidth + head/(a.Heads/a.KVHeads)*a.HeadDim
			attendHead(q[start*qWidth+head*a.HeadDim:], k[at:], v[at:], n, a.HeadDim, qWidth, kvWidth, b)
		}
		return nil
	})
}

// attendHead is attend for one head of one window of n tokens; rows are qWidth and kvWidth apart. A block
// of queries is read before its place takes the result.
func attendHead(q, k, v []float32, n, dim, qWidth, kvWidth int, b *buffer) {
	scale := float32(1 / math.Sqrt(float64(dim)))
	queries, scores := grow(&b.queries, queryRows*dim), grow(&b.scores, queryRows*n)
	b.keys.Pack(k, n, dim, kvWidth)
	for i0 := 0; i0 < n; i0 += queryRows {
		rows := min(queryRows, n-i0)
		seen := i0 + rows
		for i := range rows {
			kernel.Scale(queries[i*dim:(i+1)*dim], q[(i0+i)*qWidth:][:dim], scale)
		}
		b.keys.MulT(scores, queries, rows, n, dim, 0, seen)
		for i := range rows {
			row := scores[i*n : i*n+seen]
			kernel.Softmax(row[:i0+i+1])
			clear(row[i0+i+1:]) // zeros add nothing to the sums below
		}
		kernel.MatMul(q[i0*qWidth:], scores, v, rows, dim, seen, qWidth, n, kvWidth)
	}
}

// rotary holds cosine and sine of every angle, [positions, dim] each, once for each half of a head.
type rotary struct {
	dim, positions int
	cos, sin       []float32
}

// newRotary takes angles, sines and cosines in float64 and rounds once. kernel.Sincos gives the same bits on every
// architecture, so that measured numbers, which reach manifests, do too.
func newRotary(r *arch.Rope, positions int) rotary {
	half := r.Dim / 2
	t := rotary{dim: 2 * half, positions: positions, cos: make([]float32, positions*2*half), sin: make([]float32, positions*2*half)}
	for pos := range positions {
		cos, sin := t.at(pos)
		for j, f := range r.InvFreq {
			s, c := kernel.Sincos(float64(pos) * f)
			cos[j], sin[j] = float32(c), float32(s)
		}
		copy(cos[half:], cos[:half])
		copy(sin[half:], sin[:half])
	}
	return t
}

func (t rotary) at(pos int) (cos, sin []float32) {
	return t.cos[pos*t.dim : (pos+1)*t.dim], t.sin[pos*t.dim : (pos+1)*t.dim]
}

// turn rotates elements j and j+dim/2 of every head by the angle of its token's position.
func (t rotary) turn(threads int, x []float32, g group, heads, dim int) {
	width := heads * dim
	kernel.Parallel(threads, len(g.positions), func(lo, hi int) {
		for i := lo; i < hi; i++ {
			cos, sin := t.at(g.positions[i])
			kernel.RotateHeads(x[i*width:(i+1)*width], x[i*width:(i+1)*width], cos, sin, heads, dim)
		}
	})
}
