package forward

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// latent computes the full heads from the latent, following the formula: how a device would cache them does not matter here.
type latent struct{ *arch.LatentAttention }

func (a latent) check(m *Model) error {
	hidden := m.decoder.Hidden
	widths := [3]int{}
	for i, dim := range []int{a.NopeDim, a.RopeDim, a.ValueDim} {
		var err error
		if widths[i], err = width("heads", a.Heads, dim); err != nil {
			return err
		}
	}
	nope, rope, value := widths[0], widths[1], widths[2]
	if _, err := width("a latent", a.KVRank); err != nil {
		return err
	}
	if !finite(a.Scale, 0) || a.Scale == 0 {
		return fmt.Errorf("scale %v: %w", a.Scale, tensor.ErrCorrupt)
	}
	query := hidden
	if a.QRank != 0 {
		var err error
		if query, err = width("queries", a.QRank); err != nil {
			return err
		}
		err = cmp.Or(m.checkLinear("attention.q_down", &a.QDown, query, hidden), m.checkNorm("query norm", a.QNorm, query))
		if err != nil {
			return err
		}
	}
	return cmp.Or(
		m.addRope(a.Rope, a.RopeDim),
		m.checkNorm("latent norm", a.KVNorm, a.KVRank),
		m.checkLinears(
			slot{"attention.q_nope", &a.QNope, nope, query}, slot{"attention.q_rope", &a.QRope, rope, query},
			slot{"attention.kv_down", &a.KVDown, a.KVRank, hidden}, slot{"attention.k_rope", &a.KRope, a.RopeDim, hidden},
			slot{"attention.k_nope", &a.KNope, nope, a.KVRank}, slot{"attention.v", &a.V, value, a.KVRank},
			slot{"attention.o", &a.O, hidden, value},
		),
	)
}

func (a latent) cost() cost {
	c := attendCost(a.NopeDim + a.RopeDim)
	c.token = a.QRank + a.KVRank + a.RopeDim + a.Heads*(2*a.NopeDim+a.RopeDim+2*a.ValueDim)
	return c
}

// The state are full keys and values: those of the latent alone would be multiplied again for every later token.
func (a latent) past() pastShape {
	return pastShape{heads: a.Heads, key: a.NopeDim + a.RopeDim, value: a.ValueDim}
}

func (a latent) last() *arch.Linear { return &a.O }

func (a latent) inputs() [][]*arch.Linear {
	groups := [][]*arch.Linear{{&a.KVDown, &a.KRope}, {&a.KNope, &a.V}, {&a.O}}
	if a.QRank == 0 {
		groups[0] = append([]*arch.Linear{&a.QNope, &a.QRope}, groups[0]...)
		return groups
	}
	groups[0] = append([]*arch.Linear{&a.QDown}, groups[0]...)
	return slices.Insert(groups, 1, []*arch.Linear{&a.QNope, &a.QRope})
}

func (a latent) norms() []*arch.Norm { return []*arch.Norm{a.QNorm, a.KVNorm} }

func (a latent) run(ctx context.Context, s *space, x []float32) ([]float32, error) {
	w, err := a.compute(ctx, s, x, false)
	if err != nil {
		return nil, err
	}
	return w.out, nil
}

// compressed holds the values that the backward pass of latent attention needs.
type compressed struct {
	heads
	x, query, latent []float32    // input, and what the projections of the queries and of the keys read
	plain            [2][]float32 // query and latent from before their norms
}

// compute is the attention of the block; keep says that the backward pass follows.
func (a latent) compute(ctx context.Context, s *space, x []float32, keep bool) (w *compressed, err error) {
	w = &compressed{x: x, query: x}
	if a.QRank != 0 {
		if w.plain[0], w.query, err = s.normed(ctx, x, &a.QDown, a.QNorm, keep); err != nil {
			return nil, err
		}
	}
	if w.plain[1], w.latent, err = s.normed(ctx, x, &a.KVDown, a.KVNorm, keep); err != nil {
		return nil, err
	}
	kRope, err := s.project(ctx, x, &a.KRope)
	if err != nil {
		return nil, err
	}
	q, err := s.projections(ctx, w.query, &a.QNope, &a.QRope)
	if err != nil {
		return nil, err
	}
	kv, err := s.projections(ctx, w.latent, &a.KNope, &a.V)
	if err != nil {
		return nil, err
	}
	turn := s.rotation(a.Rope)
	s.rotate(q[1], turn, a.Heads, a.RopeDim)
	s.rotate(kRope, turn, 1, a.RopeDim)
	w.heads = heads{
		count: a.Heads, shared: 1,
		parts: []part{{q: q[0], k: kv[0], dim: a.NopeDim}, {q: q[1], k: kRope, dim: a.RopeDim, one: true}},
		v:     kv[1], out: s.take(a.Heads * a.ValueDim), valueDim: a.ValueDim, scale: a.Scale, mask: causal(0, 0),
	}
	return w, s.attend(ctx, a, &w.heads)
}

// normed computes a projection and its norm, if there is one; plain is the projection, if it is kept.
func (s *space) normed(ctx context.Context, x []float32, l *arch.Linear, n *arch.Norm, keep bool) (plain, y []float32, err error) {
	if y, err = s.project(ctx, x, l); err != nil {
		return nil, nil, err
	}
	if keep {
		plain = s.clone(y)
	}
	return plain, y, s.norm(y, y, n)
}

func (a latent) record(ctx context.Context, s *space, x []float32) ([]float32, gradient, error) {
	w, err := a.compute(ctx, s, x, true)
	if err != nil {
		return nil, nil, err
	}
	return w.out, func(dy []float32, v Visitor) ([]float32, error) { return a.back(s, w, dy, v), nil }, nil
}

// back turns do, the gradient of the input of O, into that of the input of the block.
func (a latent) back(s *space, w *compressed, do []float32, v Visitor) []float32 {
	s.attendBack(&w.heads, do)
	nope, rope := w.parts[0], w.parts[1]
	turn := s.rotation(a.Rope).back()
	s.rotate(rope.q, turn, a.Heads, a.RopeDim)
	s.rotate(rope.k, turn, 1, a.RopeDim)
	dQuery := s.gather(w.query, v, flow{&a.QNope, nope.q}, flow{&a.QRope, rope.q})
	dLatent := s.gather(w.latent, v, flow{&a.KNope, nope.k}, flow{&a.V, w.v})
	if a.KVNorm != nil {
		s.held.norm(a.KVNorm).back(w.plain[1], dLatent, a.KVRank, v)
	}
	flows := []flow{{&a.KVDown, dLatent}, {&a.KRope, rope.k}}
	if a.QRank == 0 {
		dx := s.gather(w.x, v, flows...)
		s.addAll(dx, dQuery)
		return dx
	}
	if a.QNorm != nil {
		s.held.norm(a.QNorm).back(w.plain[0], dQuery, a.QRank, v)
	}
	return s.gather(w.x, v, append([]flow{{&a.QDown, dQuery}}, flows...)...)
}
