package forward

import (
	"cmp"
	"context"
	"fmt"
	"math"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/pipeline/effort"
	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// unitEpsilon is added to the sum of squares of a query or a key before division by its root. It belongs to the gated delta rule
// of Qwen3-Next and Qwen3.5 (l2norm in transformers).
const unitEpsilon = 1e-6

// statePasses is how often a token reads or changes the state of a head: it decays, recalls, learns and answers.
const statePasses = 4

type delta struct{ *arch.DeltaNet }

func (d delta) keys() int   { return d.KeyHeads * d.KeyDim }
func (d delta) values() int { return d.ValueHeads * d.ValueDim }

func (d delta) check(m *Model) error {
	if d.KeyHeads < 1 || d.ValueHeads < 1 || d.ValueHeads%d.KeyHeads != 0 {
		return fmt.Errorf("%d value heads, %d key heads: %w", d.ValueHeads, d.KeyHeads, tensor.ErrCorrupt)
	}
	for _, dims := range [][]int{{d.KeyHeads, d.KeyDim}, {d.ValueHeads, d.ValueDim}, {d.KeyDim, d.ValueDim}} {
		if _, err := width("heads", dims...); err != nil {
			return err
		}
	}
	hidden, qkv := m.decoder.Hidden, 2*d.keys()+d.values()
	return cmp.Or(
		m.checkTaps(d.Taps, arch.Weight{}, qkv),
		m.checkWeight("decay", d.Decay, d.ValueHeads, 0),
		m.checkWeight("time bias", d.DtBias, d.ValueHeads, 0),
		m.checkNorm("delta norm", &d.Norm, d.ValueDim),
		m.checkLinears(
			slot{"delta.qkv", &d.QKV, qkv, hidden}, slot{"delta.z", &d.Z, d.values(), hidden},
			slot{"delta.b", &d.B, d.ValueHeads, hidden}, slot{"delta.a", &d.A, d.ValueHeads, hidden},
			slot{"delta.out", &d.Out, hidden, d.values()},
		),
	)
}

func (d delta) cost() cost {
	return cost{
		token: 2*d.keys() + 3*d.values() + 2*d.ValueHeads,
		fixed: d.KeyDim*d.ValueDim + 2*d.KeyDim + d.ValueDim,
	}
}

func (d delta) past() pastShape {
	return pastShape{inputs: (len(d.Taps) - 1) * (2*d.keys() + d.values()), sums: d.ValueHeads * d.KeyDim * d.ValueDim}
}

func (d delta) last() *arch.Linear { return &d.Out }

func (d delta) inputs() [][]*arch.Linear {
	return [][]*arch.Linear{{&d.QKV, &d.Z, &d.B, &d.A}, {&d.Out}}
}

func (d delta) norms() []*arch.Norm { return []*arch.Norm{&d.Norm} }

func (d delta) run(ctx context.Context, s *space, x []float32) ([]float32, error) {
	in, err := s.projections(ctx, x, &d.QKV, &d.Z, &d.B, &d.A)
	if err != nil {
		return nil, err
	}
	qkv, z, beta, keep := in[0], in[1], in[2], in[3]
	if err := s.convolve(ctx, d, qkv, 2*d.keys()+d.values(), d.Taps, arch.Weight{}); err != nil {
		return nil, err
	}
	s.siluAll(qkv)
	v, err := s.vectors(d.Decay, d.DtBias)
	if err != nil {
		return nil, err
	}
	decay, bias := v[0], v[1]
	s.pointwise(beta, sigmoid)
	for i, a := range keep {
		h := i % d.ValueHeads
		keep[i] = float32(kernel.Exp(float64(decay[h]) * softplus(float64(a)+float64(bias[h]))))
	}
	o := s.take(d.values())
	s.tally.Add(effort.Element, len(qkv)+len(z))
	s.tally.Add(effort.Scalar, 2*statePasses*s.tokens()*d.ValueHeads*d.KeyDim*d.ValueDim)
	if err := s.each(ctx, len(s.lengths)*d.ValueHeads, func(u int, b *buffer) error {
		d.remember(s, o, qkv, beta, keep, u/d.ValueHeads, u%d.ValueHeads, b)
		return nil
	}); err != nil {
		return nil, err
	}
	if err := s.norm(o, o, &d.Norm); err != nil {
		return nil, err
	}
	s.siluAll(z)
	s.mulAll(o, z)
	return o, nil
}

// remember runs the recurrence of one value head over the tokens of a window. keep is exp(g).
func (d delta) remember(s *space, o, qkv, beta, keep []float32, window, head int, b *buffer) {
	kd, vd := d.KeyDim, d.ValueDim
	state, rest := cut(grow(&b.floats, d.cost().fixed), kd*vd) // [KeyDim, ValueDim]
	q, rest := cut(rest, kd)
	k, rest := cut(rest, kd)
	change, _ := cut(rest, vd)
	state = s.sums(d, window, head*kd*vd, (head+1)*kd*vd, state)
	keyHead, start := head/(d.ValueHeads/d.KeyHeads), s.starts[window]
	for t := start; t < start+s.lengths[window]; t++ {
		row := qkv[t*(2*d.keys()+d.values()):]
		unit(q, row[keyHead*kd:][:kd], 1/math.Sqrt(float64(kd)))
		unit(k, row[d.keys()+keyHead*kd:][:kd], 1)
		v := row[2*d.keys()+head*vd:][:vd]
		kernel.Scale(state, state, keep[t*d.ValueHeads+head])
		kernel.MatMul(change, k, state, 1, vd, kd, vd, kd, vd)
		for j := range change {
			change[j] = (v[j] - change[j]) * beta[t*d.ValueHeads+head]
		}
		addOuter(state, k, change)
		kernel.MatMul(o[t*d.values()+head*vd:], q, state, 1, vd, kd, vd, kd, vd)
	}
}

// unit scales x to the length factor.
func unit(dst, x []float32, factor float64) {
	sum := unitEpsilon
	for _, v := range x {
		sum += float64(float64(v) * float64(v))
	}
	factor /= math.Sqrt(sum)
	for i, v := range x {
		dst[i] = float32(float64(v) * factor)
	}
}

// addOuter adds x yᵀ to s [len(x), len(y)].
func addOuter(s, x, y []float32) {
	for i, f := range x {
		row := s[i*len(y) : (i+1)*len(y)]
		for j, v := range y {
			row[j] += float32(f * v)
		}
	}
}
