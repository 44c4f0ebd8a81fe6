package forward

import (
	"context"
	"slices"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/runtime/kernel"
)

// gradient turns dy, the gradient of the result of run, into that of its input x. It may change dy, and visits what it passes.
type gradient func(dy []float32, v Visitor) ([]float32, error)

// present are the linear layers that have a tensor.
func present(layers ...*arch.Linear) []*arch.Linear {
	return slices.DeleteFunc(layers, func(l *arch.Linear) bool { return l.Weight.Tensor == "" })
}

// readers groups layers that are given the same vector: together, but each with bounds alone.
func readers(layers ...*arch.Linear) (groups [][]*arch.Linear) {
	all := present(layers...)
	same := slices.DeleteFunc(slices.Clone(all), func(l *arch.Linear) bool { return l.Clip != nil })
	if len(same) > 0 {
		groups = append(groups, same)
	}
	for _, l := range all {
		if l.Clip != nil {
			groups = append(groups, []*arch.Linear{l})
		}
	}
	return groups
}

// Visitor receives gradients during the backward pass, a group of whole windows at a time, groups in the order of the tokens.
// Its arguments are valid until it returns and must not be changed. Functions may be nil.
type Visitor struct {
	// Linear gets the inputs x [rows, Cols] of a linear layer, and the gradient of its outputs, dy [rows, Rows]. The gradient of
	// the weights is dyᵀ x, see [Linear.Gradient], that of the bias the sum of the rows of dy. There is a row for every token of
	// the group, but for a layer of an expert only one for every token that is routed to it, in their order; an expert without
	// tokens is not visited.
	Linear func(l *Linear, x, dy []float32)
	// Wants reports what Linear reads of a layer: what it does not may be nil, so that a device need not bring it. A Wants that is nil wants all.
	Wants func(l *Linear) (x, dy bool)
	// Moments lists sums over so many tokens of products of dy, in the place of a call of Linear: if a device adds them, added is called in its place.
	// They stay there until [kernel.Settle]. If they are nil, Linear is called.
	Moments func(l *Linear, tokens int) (sums []kernel.Moment, added func())
	// Norm gets the gradient of a norm's Gamma, summed over the group, or over the tokens that are routed to its expert.
	Norm func(n *Norm, dGamma []float64)
}

// wants reports what the visitor reads of a linear layer.
func (v *Visitor) wants(l *Linear) (x, dy bool) {
	if v.Linear == nil {
		return false, false
	}
	if v.Wants == nil {
		return true, true
	}
	return v.Wants(l)
}

// step holds the values that the forward pass keeps of a branch.
type step struct {
	before []float32 // states that it reads
	y, out []float32 // input and output of the last linear layer, or of the block, the latter if a norm follows
	sum    []float32 // states with the output of the branch, if a norm of the stream follows
	back   gradient
}

// Backward turns dh, the gradient of the output of a loaded layer, into that of its input h, in place: both are [tokens,
// Width]. It needs no Forward before it. Experts that are not in memory are read one at a time. The choice of experts has no
// gradient: the result is exact where it does not change.
func (l *Layer) Backward(ctx context.Context, dh, h []float32, w Windows, v Visitor) error {
	a := l.model.arenas.Get().(*arena)
	defer l.model.arenas.Put(a)
	return l.each(ctx, h, w, func(s *space, h []float32) error {
		s.kept = a
		defer a.reset()
		width := s.decoder.Width()
		dh := dh[s.first*width:][:s.tokens()*width]
		if ok, err := s.backOffloaded(ctx, l.branches, dh, h, v); ok || err != nil {
			return err
		}
		steps, err := s.record(ctx, l.branches, h)
		if err != nil {
			return err
		}
		if s.decoder.Side == 0 {
			return s.back(l.branches, steps, dh, v)
		}
		var stream []float32
		stream, s.dSide = s.part(dh, s.floats)
		err = s.back(l.branches, steps, stream, v)
		s.join(dh, stream, s.dSide)
		return err
	})
}

// record runs the forward pass as far as gradients need it.
func (s *space) record(ctx context.Context, branches []branch, h []float32) (steps []step, err error) {
	h = s.clone(h)
	stream := h // what parallel branches read
	for i := range branches {
		b := &branches[i]
		if !b.Parallel {
			stream = h
		}
		more := i+1 < len(branches)
		t, out, err := s.recordBranch(ctx, b, stream, more || b.SumNorm != nil)
		if err != nil {
			return nil, err
		}
		if more || b.SumNorm != nil {
			h = s.clone(h)
			if err := s.addOnly(b, h, out); err != nil {
				return nil, err
			}
		}
		if b.SumNorm != nil {
			t.sum = s.clone(h)
			if err := s.norm(h, h, b.SumNorm); err != nil {
				return nil, err
			}
		}
		steps = append(steps, t)
	}
	return steps, nil
}

// recordBranch records a branch for the states h, and returns the output of its block if it is wanted.
func (s *space) recordBranch(ctx context.Context, b *branch, h []float32, wanted bool) (t step, out []float32, err error) {
	t.before = h
	x := h
	if b.Norm != nil {
		x = s.take(s.decoder.Hidden)
		if err := s.norm(x, h, b.Norm); err != nil {
			return t, nil, err
		}
	}
	if t.y, t.back, err = b.block.record(ctx, s, x); err != nil || !wanted && b.PostNorm == nil {
		return t, nil, err
	}
	if l := b.block.last(); l != nil {
		out, err = s.project(ctx, t.y, l)
	} else {
		out, err = b.block.run(ctx, s, x)
	}
	if b.PostNorm != nil && err == nil {
		t.out = s.clone(out)
	}
	return t, out, err
}

// back turns dh, the gradient after the branches, into that before them, in place.
func (s *space) back(branches []branch, steps []step, dh []float32, v Visitor) error {
	var parallel []float32 // gradient of the states that parallel branches read
	for i, t := range slices.Backward(steps) {
		b := &branches[i]
		if b.SumNorm != nil {
			s.held.norm(b.SumNorm).back(t.sum, dh, s.decoder.Hidden, v)
		}
		if err := s.gain(b, dh); err != nil {
			return err
		}
		dx, err := s.backBranch(b, t, dh, v)
		switch {
		case err != nil:
			return err
		case parallel != nil:
			s.addAll(parallel, dx)
		default:
			parallel = dx
		}
		if !b.Parallel {
			s.addAll(dh, parallel)
			parallel = nil
		}
	}
	return nil
}

// backBranch returns the gradient of the states that a branch reads, for dh, that of its summand.
func (s *space) backBranch(b *branch, t step, dh []float32, v Visitor) (dx []float32, err error) {
	dy, last := dh, b.block.last()
	if b.PostNorm != nil || b.Factors.Tensor != "" || b.Scale != 0 || last == nil {
		dy = s.clone(dh)
		s.scaleAll(dy, b.Scale)
		if err := s.multiply(b, dy); err != nil {
			return nil, err
		}
		if b.PostNorm != nil {
			s.held.norm(b.PostNorm).back(t.out, dy, s.decoder.Hidden, v)
		}
	}
	if last != nil {
		dy = s.gather(t.y, v, flow{last, dy})
	}
	if dx, err = t.back(dy, v); err == nil && b.Norm != nil {
		s.held.norm(b.Norm).back(t.before, dx, s.decoder.Hidden, v)
	}
	return dx, err
}

// flow is the gradient of the output of a linear layer.
type flow struct {
	linear *arch.Linear
	dy     []float32
}

// gather is the gradient of vectors x [rows, Cols] that the given linear layers read; those without a tensor are skipped.
func (s *space) gather(x []float32, v Visitor, flows ...flow) (dx []float32) {
	var more []float32
	for _, f := range flows {
		if f.linear.Weight.Tensor == "" {
			continue
		}
		l := s.held.linear(f.linear)
		n := len(f.dy) / l.Rows
		if v.Linear != nil {
			v.Linear(l, x, f.dy)
			s.tally.Linear(n, l.Rows, l.Cols) // of the gradient of the weights
		}
		if dx == nil {
			dx = s.floats(len(x))
			l.back(dx, f.dy)
		} else {
			if more == nil {
				more = s.floats(len(x))
			}
			l.back(more, f.dy)
			s.addAll(dx, more)
		}
		s.tally.Linear(n, l.Rows, l.Cols)
	}
	return dx
}
