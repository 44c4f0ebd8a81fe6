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
	starts := make([]int, len(g.lengths))
	for i := 1; i < len(starts); i++ {
		starts[i] = starts[i-1] + g.lengths[i-1]
	}
	qWidth, kvWidth := a.Heads*a.HeadDim, a.KVHeads*a.HeadDim
	kernel.Parallel(m.threads, len(g.lengths)*a.Heads, func(lo, hi int) {
		b := m.buffers.Get().(*buffer)
		defer m.buffers.Put(b)
		for u := lo; u < hi && ctx.Err() == nil; u++ {
			window, head := u/a.Heads, u%a.Heads
			kvHead := head / (a.Heads / a.KVHeads)
			start, n := starts[window], g.lengths[window]
			if n == 0 {
				continue
			}
			at := start*kvWidth + kvHead*a.HeadDim
			attendHead(q[start*qWidth+head*a.HeadDim:], k[at:], v[at:], n, a.HeadDim, qWidth, kvWidth, b)
		}
	})
	return ctx.Err()
}

// attendHead is attend for one head of one window of n tokens; rows are qWidth and kvWidth apart. A block
// of queries is read before its place takes the result.
func attendHead(q, k, v []float32, n, dim, qWidth, kvWidth int, b *buffer) {
	scale := float32(1 / math.Sqrt(float64(dim)))
	buf := grow(&b.scores, (queryRows+dim)*n)
	scores, turned := buf[:queryRows*n], buf[queryRows*n:]
	for j := range n { // values as [dim, n], rows of weights for the second product
		for c, x := range v[j*kvWidth : j*kvWidth+dim] {
			turned[c*n+j] = x
		}
	}
	for i0 := 0; i0 < n; i0 += queryRows {
		rows := min(queryRows, n-i0)
		seen := i0 + rows
		kernel.MatMulT(scores, q[i0*qWidth:], k, rows, seen, dim, n, qWidth, kvWidth)
		for i := range rows {
			row := scores[i*n : i*n+seen]
			past, future := row[:i0+i+1], row[i0+i+1:]
			for j := range past {
				past[j] *= scale
			}
			kernel.Softmax(past)
			clear(future) // zeros add nothing to the sums below
		}
		kernel.MatMulT(q[i0*qWidth:], scores, turned, rows, dim, seen, qWidth, n, n)
	}
}

// rotary holds cosine and sine of every angle, [positions, half] each.
type rotary struct {
	half     int
	cos, sin []float32
}

// newRotary takes angles, sines and cosines in float64 and rounds once. kernel.Sincos gives the same bits on every
// architecture, so that measured numbers, which reach manifests, do too.
func newRotary(r *arch.Rope, positions int) rotary {
	half := r.Dim / 2
	t := rotary{half: half, cos: make([]float32, positions*half), sin: make([]float32, positions*half)}
	for pos := range positions {
		for j, f := range r.InvFreq {
			s, c := kernel.Sincos(float64(pos) * f)
			t.cos[pos*half+j], t.sin[pos*half+j] = float32(c), float32(s)
		}
	}
	return t
}

// turn rotates elements j and j+half of every head by the angle of its token's position.
func (t rotary) turn(threads int, x []float32, g group, heads, dim int) {
	kernel.Parallel(threads, len(g.positions), func(lo, hi int) {
		for i := lo; i < hi; i++ {
			at := g.positions[i] * t.half
			cos, sin := t.cos[at:at+t.half], t.sin[at:at+t.half]
			for h := range heads {
				head := x[(i*heads+h)*dim : (i*heads+h+1)*dim]
				left, right := head[:t.half], head[t.half:2*t.half]
				for j, a := range left {
					b, c, s := right[j], cos[j], sin[j]
					left[j] = float32(a*c) - float32(b*s)
					right[j] = float32(b*c) + float32(a*s)
				}
			}
		}
	})
}
