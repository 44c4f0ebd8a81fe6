package forward

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// differentiable is a block with a backward pass.
type differentiable interface {
	block
	// record computes the same as run and returns the backward pass. All weights are in memory.
	record(ctx context.Context, s *space, x []float32) ([]float32, gradient, error)
}

// gradient turns dy, the gradient of record's result, into that of its input. It may change dy.
type gradient func(dy []float32, v Visitor) []float32

// CheckBackward rejects, with tensor.ErrUnsupported, a decoder without a backward pass, and names the first layer and block that
// lack one.
func CheckBackward(d *arch.Decoder) error {
	for i, l := range d.Layers {
		for _, b := range l {
			block, err := newBlock(b.Block)
			if err == nil {
				_, err = gradients(branch{b, block})
			}
			if err != nil {
				return fmt.Errorf("layer %d: %w", i, err)
			}
		}
	}
	return nil
}

// gradients returns the block of a branch if it has a backward pass.
func gradients(b branch) (differentiable, error) {
	d, ok := b.block.(differentiable)
	switch {
	case b.Parallel:
		return nil, fmt.Errorf("parallel branches have no backward pass: %w", tensor.ErrUnsupported)
	case !ok:
		name := strings.TrimPrefix(fmt.Sprintf("%T", b.Block), "*arch.")
		return nil, fmt.Errorf("%s has no backward pass: %w", name, tensor.ErrUnsupported)
	}
	return d, nil
}

// present are the linear layers that have a tensor.
func present(layers ...*arch.Linear) []*arch.Linear {
	return slices.DeleteFunc(layers, func(l *arch.Linear) bool { return l.Weight.Tensor == "" })
}

// Visitor receives gradients during the backward pass, a group of whole windows at a time, groups in the order of the tokens.
// Its arguments are valid until it returns and must not be changed. Either function may be nil.
type Visitor struct {
	// Linear gets the inputs x [tokens, Cols] of a linear layer, and the gradient of its outputs, dy [tokens, Rows]. The
	// gradient of the weights is dyᵀ x, see [Linear.Gradient], that of the bias the sum of the rows of dy.
	Linear func(l *Linear, x, dy []float32)
	// Norm gets the gradient of a norm's Gamma, summed over the group.
	Norm func(n *Norm, dGamma []float64)
}

// step holds the values that the forward pass keeps of a branch.
type step struct {
	before []float32 // states
	y, out []float32 // input and output of the last linear layer, the latter if a norm follows
	back   gradient
}

// Backward turns dh, the gradient of the output of a loaded layer, into that of its input h, in place: both are [tokens,
// Hidden]. It needs no Forward before it.
func (l *Layer) Backward(ctx context.Context, dh, h []float32, w Windows, v Visitor) error {
	return l.each(h, w, func(s *space, h []float32) error {
		s.free = nil
		steps, err := s.record(ctx, l.branches, h)
		if err != nil {
			return err
		}
		dh := dh[s.first*s.decoder.Hidden:][:len(h)]
		for i, x := range slices.Backward(steps) {
			if err := s.back(&l.branches[i], x, dh, v); err != nil {
				return err
			}
		}
		return nil
	})
}

// record runs the forward pass as far as gradients need it.
func (s *space) record(ctx context.Context, branches []branch, h []float32) (steps []step, err error) {
	h = s.clone(h)
	for i := range branches {
		b, t := &branches[i], step{before: h}
		x := h
		if b.Norm != nil {
			x = s.take(s.decoder.Hidden)
			if err := s.norm(x, h, b.Norm); err != nil {
				return nil, err
			}
		}
		if t.y, t.back, err = b.block.(differentiable).record(ctx, s, x); err != nil {
			return nil, err
		}
		if i+1 < len(branches) || b.PostNorm != nil {
			out, err := s.project(ctx, t.y, b.block.last())
			if err != nil {
				return nil, err
			}
			if b.PostNorm != nil {
				t.out = s.clone(out)
			}
			h = s.clone(h)
			if err := s.add(b, h, out); err != nil {
				return nil, err
			}
		}
		steps = append(steps, t)
	}
	return steps, nil
}

// back runs the backward pass of a branch on dh.
func (s *space) back(b *branch, t step, dh []float32, v Visitor) error {
	if err := s.gain(b, dh); err != nil {
		return err
	}
	dy := dh
	if b.PostNorm != nil || b.Scale != 0 {
		dy = s.clone(dh)
		s.scaleAll(dy, b.Scale)
		if b.PostNorm != nil {
			s.held.norm(b.PostNorm).back(t.out, dy, s.decoder.Hidden, v)
		}
	}
	dx := t.back(s.gather(t.y, v, flow{b.block.last(), dy}), v)
	if b.Norm != nil {
		s.held.norm(b.Norm).back(t.before, dx, s.decoder.Hidden, v)
	}
	s.addAll(dh, dx)
	return nil
}

// flow is the gradient of the output of a linear layer.
type flow struct {
	linear *arch.Linear
	dy     []float32
}

// gather is the gradient of a vector x that the given linear layers read; those without a tensor are skipped.
func (s *space) gather(x []float32, v Visitor, flows ...flow) (dx []float32) {
	for _, f := range flows {
		if f.linear.Weight.Tensor == "" {
			continue
		}
		l := s.held.linear(f.linear)
		if v.Linear != nil {
			v.Linear(l, x, f.dy)
		}
		d := s.take(l.Cols)
		l.back(d, f.dy)
		if dx == nil {
			dx = d
		} else {
			s.addAll(dx, d)
		}
	}
	return dx
}
