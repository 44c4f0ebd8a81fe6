package forward

import (
	"context"
	"fmt"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/tensor"
)

type mamba struct{ *arch.Mamba2 }

func (a mamba) inner() int { return a.Heads * a.HeadDim }
func (a mamba) xbc() int   { return a.inner() + 2*a.Groups*a.State }

func (a mamba) check(m *Model) error {
	if a.Heads < 1 || a.Groups < 1 || a.Heads%a.Groups != 0 {
		return fmt.Errorf("%d heads in %d groups: %w", a.Heads, a.Groups, tensor.ErrCorrupt)
	}
	for _, dims := range [][]int{{a.Heads, a.HeadDim}, {a.Groups, a.State}, {a.State, a.HeadDim}} {
		if _, err := width("heads", dims...); err != nil {
			return err
		}
	}
	if !(a.TimeMin >= 0 && a.TimeMax > a.TimeMin) {
		return fmt.Errorf("times from %v to %v: %w", a.TimeMin, a.TimeMax, tensor.ErrCorrupt)
	}
	if err := m.checkNorm("mamba norm", a.Norm, a.inner()); err != nil {
		return err
	}
	if err := m.checkTaps(a.Taps, a.ConvBias, a.xbc()); err != nil {
		return err
	}
	for _, w := range []struct {
		name string
		arch.Weight
	}{{"time bias", a.DtBias}, {"decay", a.Decay}, {"direct factor", a.D}} {
		if err := m.checkWeight(w.name, w.Weight, a.Heads, 0); err != nil {
			return err
		}
	}
	hidden := m.decoder.Hidden
	return m.checkLinears(
		slot{"mamba.z", &a.Z, a.inner(), hidden}, slot{"mamba.xbc", &a.XBC, a.xbc(), hidden},
		slot{"mamba.dt", &a.Dt, a.Heads, hidden}, slot{"mamba.out", &a.Out, hidden, a.inner()},
	)
}

func (a mamba) cost() cost {
	return cost{token: 2*a.inner() + a.xbc() + a.Heads, fixed: a.State*a.HeadDim + a.HeadDim}
}

// scaleParts multiplies x, b and c of every row.
func (a mamba) scaleParts(rows []float32) {
	at := 0
	for k, n := range []int{a.inner(), a.Groups * a.State, a.Groups * a.State} {
		if f := float32(a.Scales[1+k]); f != 0 && f != 1 {
			for lo := at; lo < len(rows); lo += a.xbc() {
				kernel.Scale(rows[lo:lo+n], rows[lo:lo+n], f)
			}
		}
		at += n
	}
}

func (a mamba) last() *arch.Linear { return &a.Out }

func (a mamba) run(ctx context.Context, s *space, x []float32) ([]float32, error) {
	var z, xbc, dt []float32
	for _, p := range []struct {
		to     *[]float32
		linear *arch.Linear
	}{{&z, &a.Z}, {&xbc, &a.XBC}, {&dt, &a.Dt}} {
		var err error
		if *p.to, err = s.project(ctx, x, p.linear); err != nil {
			return nil, err
		}
	}
	s.scaleAll(z, a.Scales[0])
	s.scaleAll(dt, a.Scales[4])
	a.scaleParts(xbc)
	if err := s.convolve(ctx, xbc, a.xbc(), a.Taps, a.ConvBias); err != nil {
		return nil, err
	}
	s.siluAll(xbc)
	var vectors [3][]float32
	for i, w := range []arch.Weight{a.DtBias, a.Decay, a.D} {
		var err error
		if vectors[i], err = s.vector(w); err != nil {
			return nil, err
		}
	}
	bias, decay, direct := vectors[0], vectors[1], vectors[2]
	for i, t := range dt {
		dt[i] = float32(min(max(softplus(float64(t)+float64(bias[i%a.Heads])), a.TimeMin), a.TimeMax))
	}
	o := s.take(a.inner())
	if err := s.each(ctx, len(s.lengths)*a.Heads, func(u int, b *buffer) error {
		head := u % a.Heads
		a.remember(o, xbc, dt, decay[head], direct[head], head, s.starts[u/a.Heads], s.lengths[u/a.Heads], b)
		return nil
	}); err != nil {
		return nil, err
	}
	s.siluAll(z)
	s.mulAll(o, z)
	if a.Norm == nil {
		return o, nil
	}
	return o, s.norm(o, o, a.Norm)
}

// remember runs the recurrence of one head over the n tokens from start on.
func (a mamba) remember(o, xbc, dt []float32, decay, direct float32, head, start, n int, buf *buffer) {
	state, timed := cut(grow(&buf.floats, a.cost().fixed), a.State*a.HeadDim) // [State, HeadDim]
	clear(state)
	group := head / (a.Heads / a.Groups)
	for t := start; t < start+n; t++ {
		row := xbc[t*a.xbc() : (t+1)*a.xbc()]
		x := row[head*a.HeadDim:][:a.HeadDim]
		b := row[a.inner()+group*a.State:][:a.State]
		c := row[a.inner()+(a.Groups+group)*a.State:][:a.State]
		y := o[t*a.inner()+head*a.HeadDim:][:a.HeadDim]
		time := dt[t*a.Heads+head]
		kernel.Scale(state, state, float32(kernel.Exp(float64(time)*float64(decay))))
		kernel.Scale(timed, x, time)
		addOuter(state, b, timed)
		kernel.MatMul(y, c, state, 1, a.HeadDim, a.State, a.HeadDim, a.State, a.HeadDim)
		for j, v := range x {
			y[j] += float32(direct * v)
		}
	}
}
