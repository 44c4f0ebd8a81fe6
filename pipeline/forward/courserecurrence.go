package forward

import (
	"context"
	"math"
	"slices"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/pipeline/effort"
	"github.com/llmexport/llmexport/runtime/kernel"
)

// delta adds what makes the input of the last layer of a delta net, and returns its matrix.
func (r *course) delta(ctx context.Context, d delta, x int) (out int, ok bool, err error) {
	if r.way != nil { // devices have none
		return 0, false, nil
	}
	plain, z := r.matrix(queries0, d.mixed()), r.matrix(factors, d.values())
	strengths, times := r.matrix(keys0, d.ValueHeads), r.matrix(values0, d.ValueHeads)
	if ok, err := r.linears(ctx, x, d.inputs()[0], plain, z, strengths, times); !ok || err != nil {
		return 0, ok, err
	}
	v, err := (&space{Model: r.model}).vectors(d.Decay, d.DtBias)
	if err != nil {
		return 0, false, err
	}
	mixed := r.matrix(inner, d.mixed())
	if err := r.convolve(&kernel.ConvolveStep{Dst: mixed, Src: plain}, d.Taps, arch.Weight{}); err != nil {
		return 0, false, err
	}
	out = r.matrix(queries0, d.values())
	r.recur(&kernel.RecurrenceStep{Dst: out, Mixed: mixed, Times: times, Rule: true, Strengths: strengths, Eps: unitEpsilon,
		KeyHeads: d.KeyHeads, Heads: d.ValueHeads, Key: d.KeyDim, Value: d.ValueDim, Decay: r.vector(v[0]), Bias: r.vector(v[1]),
		TimeMax: math.Inf(1)}, d.rule().work(d.shared()))
	if ok, err := r.norm(out, out, &d.Norm); !ok || err != nil {
		return 0, ok, err
	}
	r.add(&kernel.GateStep{Dst: z, Matrix: z, By: out})
	return z, true, nil
}

// mamba adds what makes the input of the last layer of Mamba 2, and returns its matrix.
func (r *course) mamba(ctx context.Context, a mamba, x int) (out int, ok bool, err error) {
	if r.way != nil || slices.ContainsFunc(a.Scales[:], func(f float64) bool { return f != 0 && f != 1 }) {
		return 0, false, nil
	}
	z, plain, times := r.matrix(factors, a.inner()), r.matrix(queries0, a.xbc()), r.matrix(values0, a.Heads)
	if ok, err := r.linears(ctx, x, a.inputs()[0], z, plain, times); !ok || err != nil {
		return 0, ok, err
	}
	v, err := (&space{Model: r.model}).vectors(a.DtBias, a.Decay, a.D)
	if err != nil {
		return 0, false, err
	}
	mixed := r.matrix(inner, a.xbc())
	if err := r.convolve(&kernel.ConvolveStep{Dst: mixed, Src: plain}, a.Taps, a.ConvBias); err != nil {
		return 0, false, err
	}
	out = r.matrix(queries0, a.inner())
	r.recur(&kernel.RecurrenceStep{Dst: out, Mixed: mixed, Times: times, KeyHeads: a.Groups, Heads: a.Heads, Key: a.State, Value: a.HeadDim,
		Bias: r.vector(v[0]), Decay: r.vector(v[1]), Direct: r.vector(v[2]), TimeMin: a.TimeMin, TimeMax: a.TimeMax}, a.recurrence().work(a.unitHeads()))
	r.add(&kernel.GateStep{Dst: z, Matrix: z, By: out})
	return r.normed(z, a.Norm)
}

// shortConv adds what makes the input of the last layer of a short convolution, and returns its matrix.
func (r *course) shortConv(ctx context.Context, c shortConv, x int) (out int, ok bool, err error) {
	if r.way != nil {
		return 0, false, nil
	}
	in := r.matrix(queries0, c.In.Weight.Rows)
	if ok, err := r.linear(ctx, in, x, &c.In); !ok || err != nil {
		return 0, ok, err
	}
	out = r.matrix(inner, c.Out.Weight.Cols)
	err = r.convolve(&kernel.ConvolveStep{Dst: out, Src: in, Gated: true}, c.Taps, c.Bias)
	return out, err == nil, err
}

// linears adds linear layers of x, whose results are in the matrices to.
func (r *course) linears(ctx context.Context, x int, of []*arch.Linear, to ...int) (ok bool, err error) {
	for i, l := range of {
		if ok, err = r.linear(ctx, to[i], x, l); !ok || err != nil {
			break
		}
	}
	return ok, err
}

// convolve adds a convolution.
func (r *course) convolve(s *kernel.ConvolveStep, taps []arch.Weight, bias arch.Weight) error {
	v, err := (&space{Model: r.model}).vectors(append(slices.Clone(taps), bias)...)
	if err != nil {
		return err
	}
	s.Taps, s.Bias, s.State = r.vector(slices.Concat(v[:len(taps)]...)), r.vector(v[len(taps)]), r.state()
	width := r.Widths[s.Dst]
	r.work[effort.Scalar] += float64(2 * width * len(taps))
	if !s.Gated {
		r.work[effort.Element] += float64(width)
	}
	r.add(s)
	return nil
}

// recur adds a recurrence, and the gate after it to the work of a row; work is that of a head.
func (r *course) recur(s *kernel.RecurrenceStep, work effort.Work) {
	s.Together, s.State = chunkTokens, r.state()
	r.work = r.work.Plus(work.Times(float64(s.Heads)))
	r.work[effort.Element] += float64(r.Widths[s.Dst])
	r.add(s)
}

// state is the next of those that steps leave for the next token.
func (r *course) state() (n int) {
	if r.cache != nil {
		n = r.Pasts.States
		r.Pasts.States++
	}
	return n
}
