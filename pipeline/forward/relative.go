package forward

import (
	"cmp"
	"fmt"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// relative computes what positions add to scores as products of queries and keys. The vector s of a distance i-j consists of sines and
// cosines, so by their addition theorems r·s(i-j) is the product of r turned by i, see turn, and s(j), where r = Keysᵀ (q + Place).
type relative struct {
	*arch.Relative
	heads, dim, hidden int
}

func (a attention) relative() relative {
	return relative{a.Relative, a.Heads, a.HeadDim, a.Relative.Keys.Weight.Cols}
}

func (a attention) checkRelative(m *Model) error {
	r := a.Relative
	if r == nil {
		return nil
	}
	n := a.Heads * a.HeadDim
	if !a.Bidirectional || a.KVHeads != a.Heads || a.Rope != nil || a.Window != 0 || a.Square != 0 || a.Slopes != nil || m.decoder.Hidden%2 != 0 ||
		r.Keys.Bias.Tensor != "" {
		return fmt.Errorf("scores by the distance together with other rules, or an odd number of elements: %w", tensor.ErrUnsupported)
	}
	return cmp.Or(
		m.checkWeight("content", r.Content, n, 0), m.checkWeight("place", r.Place, n, 0), m.checkWeight("keys of distances", r.Keys.Weight, n, m.decoder.Hidden),
	)
}

// parts returns the queries and keys for queries q and keys k, and changes q.
func (r relative) parts(s *space, q, k []float32) ([]part, error) {
	v, err := s.vectors(r.Content, r.Place, r.Keys.Weight)
	if err != nil {
		return nil, err
	}
	width := r.heads * r.dim
	placed := s.clone(q)
	s.eachToken(func(i int) {
		kernel.Add(placed[i*width:(i+1)*width], placed[i*width:(i+1)*width], v[1])
		kernel.Add(q[i*width:(i+1)*width], q[i*width:(i+1)*width], v[0])
	})
	turned, keys := s.take(r.heads*r.hidden), s.take(r.hidden)
	kernel.Parallel(s.threads, r.heads, func(h, end int) {
		for ; h < end; h++ {
			kernel.MatMul(turned[h*r.hidden:], placed[h*r.dim:], v[2][h*r.dim*r.hidden:], s.tokens(), r.hidden, r.dim, r.heads*r.hidden, width, r.hidden)
		}
	})
	rates := arch.RelativeRates(r.hidden)
	r.turn(s, turned, rates)
	s.eachToken(func(j int) {
		for n, rate := range rates {
			sin, cos := kernel.Sincos(float64(s.positions[j]) * rate)
			keys[j*r.hidden+2*n], keys[j*r.hidden+2*n+1] = float32(sin), float32(cos)
		}
	})
	return []part{{q: q, k: k, dim: r.dim}, {q: turned, k: keys, dim: r.hidden, one: true}}, nil
}

// turn replaces the pairs (a, b) of x [tokens, heads, hidden] by (b sin - a cos, a sin + b cos) of their angles at the positions of tokens. It
// is its own transpose.
func (r relative) turn(s *space, x []float32, rates []float64) {
	s.eachToken(func(i int) {
		for n, rate := range rates {
			sin, cos := kernel.Sincos(float64(s.positions[i]) * rate)
			for h := range r.heads {
				at := x[(i*r.heads+h)*r.hidden+2*n:]
				a, b := float64(at[0]), float64(at[1])
				at[0] = float32(float64(b*sin) - float64(a*cos))
				at[1] = float32(float64(a*sin) + float64(b*cos))
			}
		}
	})
}

// back adds to dq, the gradient of the queries with Content, that of the queries with Place. turned is the gradient of the second part; it is
// changed.
func (r relative) back(s *space, dq, turned []float32) error {
	keys, err := s.vector(r.Keys.Weight)
	if err != nil {
		return err
	}
	r.turn(s, turned, arch.RelativeRates(r.hidden))
	width := r.heads * r.dim
	dp := s.take(width)
	kernel.Parallel(s.threads, r.heads, func(h, end int) {
		columns := make([]float32, r.dim*r.hidden)
		for ; h < end; h++ {
			transpose(columns, keys[h*r.dim*r.hidden:], r.dim, r.hidden, r.dim, r.hidden)
			kernel.MatMul(dp[h*r.dim:], turned[h*r.hidden:], columns, s.tokens(), r.dim, r.hidden, width, r.heads*r.hidden, r.dim)
		}
	})
	s.addAll(dq, dp)
	return nil
}
