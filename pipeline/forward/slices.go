package forward

import (
	"cmp"
	"context"
	"fmt"
	"math"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// checkSlices checks the layer in which queries gather rows, if there is one.
func (m *Model) checkSlices(t *arch.Tower) error {
	s := t.Slices
	if s == nil {
		return nil
	}
	a, width := &s.Attention, s.Queries.Cols
	if !t.Grid || t.Cell != 1 || t.Frames != 1 || width < 1 || a.Heads < 1 || a.Heads*a.HeadDim != width || 4*len(s.Frequencies) != width {
		return fmt.Errorf("rows of %d elements gathered by %d heads of %d with %d frequencies: %w",
			width, a.Heads, a.HeadDim, len(s.Frequencies), tensor.ErrCorrupt)
	}
	return cmp.Or(
		m.checkWeight("queries", s.Queries, s.Queries.Rows, width),
		m.checkNorm("norm of queries", s.QueryNorm, width),
		m.checkNorm("norm of keys", s.KeyNorm, width),
		m.checkLinears(
			slot{"keys", &s.Enter, width, t.Hidden}, slot{"gathering.q", &a.Q, width, width}, slot{"gathering.k", &a.K, width, width},
			slot{"gathering.v", &a.V, width, width}, slot{"gathering.o", &a.O, width, width}),
	)
}

// bucketTaps is the learned position of each of n places on an axis that has side of them: the one at the same part of the axis, rounded down.
// The arithmetic is that of engines, in float32.
func bucketTaps(n, side int) [][]tap {
	out := make([][]tap, n)
	for i := range out {
		at := int(float32(float32(i)/float32(n)) * float32(side))
		out[i] = []tap{{min(at, side-1), 1}}
	}
	return out
}

// gather returns what queries gather from the states x of a view.
func (t *Tower) gather(ctx context.Context, g *grid, x []float32) ([]float32, error) {
	s := t.tower.Slices
	width := s.Queries.Cols
	k, err := t.product(ctx, x, &s.Enter)
	if err != nil {
		return nil, err
	}
	queries, err := t.pass.values(s.Queries)
	if err := cmp.Or(err, t.norm(k, s.KeyNorm), t.norm(queries, s.QueryNorm)); err != nil {
		return nil, err
	}
	v, err := t.product(ctx, k, &s.Attention.V)
	if err != nil {
		return nil, err
	}
	for i := range len(k) / width {
		for half, n := range []int{g.whole.Places[1][i], g.whole.Places[0][i]} {
			at := k[i*width+half*width/2:]
			for j, f := range s.Frequencies {
				sin, cos := kernel.Sincos(float64(n) * f)
				at[j] += float32(sin)
				at[len(s.Frequencies)+j] += float32(cos)
			}
		}
	}
	q, err := t.product(ctx, queries, &s.Attention.Q)
	if err != nil {
		return nil, err
	}
	if k, err = t.product(ctx, k, &s.Attention.K); err != nil {
		return nil, err
	}
	t.attendAcross(q, k, v, s.Attention.Heads, width)
	return t.product(ctx, q, &s.Attention.O)
}

// attendAcross replaces queries by the means of values that they attend to.
func (t *Tower) attendAcross(q, k, v []float32, heads, width int) {
	dim, n := width/heads, len(k)/width
	scale := 1 / math.Sqrt(float64(dim))
	kernel.Parallel(t.pass.threads, len(q)/dim, func(lo, hi int) {
		scores := make([]float32, n)
		for u := lo; u < hi; u++ {
			row, at := q[u*dim:(u+1)*dim], u%heads*dim
			for j := range scores {
				sum := 0.0
				for d, x := range k[j*width+at:][:dim] {
					sum += float64(float64(x) * float64(row[d]))
				}
				scores[j] = float32(sum * scale)
			}
			kernel.Softmax(scores)
			mixed := make([]float64, dim)
			for j, p := range scores {
				for d, x := range v[j*width+at:][:dim] {
					mixed[d] += float64(float64(p) * float64(x))
				}
			}
			for d, x := range mixed {
				row[d] = float32(x)
			}
		}
	})
}
