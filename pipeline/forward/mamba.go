package forward

import (
	"cmp"
	"context"
	"fmt"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/pipeline/effort"
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
	hidden := m.decoder.Hidden
	return cmp.Or(
		m.checkNorm("mamba norm", a.Norm, a.inner()),
		m.checkTaps(a.Taps, a.ConvBias, a.xbc()),
		m.checkWeight("time bias", a.DtBias, a.Heads, 0),
		m.checkWeight("decay", a.Decay, a.Heads, 0),
		m.checkWeight("direct factor", a.D, a.Heads, 0),
		m.checkLinears(
			slot{"mamba.z", &a.Z, a.inner(), hidden}, slot{"mamba.xbc", &a.XBC, a.xbc(), hidden},
			slot{"mamba.dt", &a.Dt, a.Heads, hidden}, slot{"mamba.out", &a.Out, hidden, a.inner()},
		),
	)
}

func (a mamba) cost() cost {
	return cost{token: 2*a.inner() + a.xbc() + a.Heads, fixed: a.State*a.HeadDim + a.HeadDim}
}

// scaleParts multiplies x, b and c of every row by their factors.
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

func (a mamba) past() pastShape {
	return pastShape{inputs: (len(a.Taps) - 1) * a.xbc(), sums: a.Heads * a.State * a.HeadDim}
}

func (a mamba) last() *arch.Linear { return &a.Out }

func (a mamba) inputs() [][]*arch.Linear { return [][]*arch.Linear{{&a.Z, &a.XBC, &a.Dt}, {&a.Out}} }

func (a mamba) norms() []*arch.Norm { return []*arch.Norm{a.Norm} }

func (a mamba) run(ctx context.Context, s *space, x []float32) ([]float32, error) {
	in, err := s.projections(ctx, x, &a.Z, &a.XBC, &a.Dt)
	if err != nil {
		return nil, err
	}
	z, xbc, dt := in[0], in[1], in[2]
	s.scaleAll(z, a.Scales[0])
	s.scaleAll(dt, a.Scales[4])
	a.scaleParts(xbc)
	if err := s.convolve(ctx, a, xbc, a.xbc(), a.Taps, a.ConvBias); err != nil {
		return nil, err
	}
	s.siluAll(xbc)
	v, err := s.vectors(a.DtBias, a.Decay, a.D)
	if err != nil {
		return nil, err
	}
	bias, decay, direct := v[0], v[1], v[2]
	for i, t := range dt {
		dt[i] = float32(min(max(softplus(float64(t)+float64(bias[i%a.Heads])), a.TimeMin), a.TimeMax))
	}
	o := s.take(a.inner())
	s.tally.Add(effort.Element, len(xbc)+len(z))
	s.tally.Add(effort.Scalar, 2*3*s.tokens()*a.Heads*a.State*a.HeadDim) // the state decays, learns and answers
	if err := s.each(ctx, len(s.lengths)*a.Heads, func(u int, b *buffer) error {
		head := u % a.Heads
		a.remember(s, o, xbc, dt, decay[head], direct[head], u/a.Heads, head, b)
		return nil
	}); err != nil {
		return nil, err
	}
	s.siluAll(z)
	s.mulAll(o, z)
	return o, s.norm(o, o, a.Norm)
}

// remember runs the recurrence of one head over the tokens of a window.
func (a mamba) remember(s *space, o, xbc, dt []float32, decay, direct float32, window, head int, buf *buffer) {
	state, timed := cut(grow(&buf.floats, a.cost().fixed), a.State*a.HeadDim) // [State, HeadDim]
	size := a.State * a.HeadDim
	state = s.sums(a, window, head*size, (head+1)*size, state)
	group, start := head/(a.Heads/a.Groups), s.starts[window]
	for t := start; t < start+s.lengths[window]; t++ {
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
