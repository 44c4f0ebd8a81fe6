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

func (a latent) run(ctx context.Context, s *space, x []float32) (out []float32, err error) {
	c := x
	if a.QRank != 0 {
		if c, err = s.normed(ctx, x, &a.QDown, a.QNorm); err != nil {
			return nil, err
		}
	}
	l, err := s.normed(ctx, x, &a.KVDown, a.KVNorm)
	if err != nil {
		return nil, err
	}
	kRope, err := s.project(ctx, x, &a.KRope)
	if err != nil {
		return nil, err
	}
	q, err := s.projections(ctx, c, &a.QNope, &a.QRope)
	if err != nil {
		return nil, err
	}
	kv, err := s.projections(ctx, l, &a.KNope, &a.V)
	if err != nil {
		return nil, err
	}
	turn := s.rotation(a.Rope)
	s.rotate(q[1], turn, a.Heads, a.RopeDim)
	s.rotate(kRope, turn, 1, a.RopeDim)
	h := heads{
		count: a.Heads, shared: 1,
		parts: []part{{q: q[0], k: kv[0], dim: a.NopeDim}, {q: q[1], k: kRope, dim: a.RopeDim, one: true}},
		v:     kv[1], out: s.take(a.Heads * a.ValueDim), valueDim: a.ValueDim, scale: a.Scale, mask: causal(0, 0),
	}
	return h.out, s.attend(ctx, a, &h)
}

// normed computes a projection and its norm, if there is one.
func (s *space) normed(ctx context.Context, x []float32, l *arch.Linear, n *arch.Norm) ([]float32, error) {
	y, err := s.project(ctx, x, l)
	if err != nil {
		return nil, err
	}
	return y, s.norm(y, y, n)
}
