package forward

import (
	"context"
	"errors"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/runtime/kernel"
)

// branch is a branch of a layer or of a sum.
type branch struct {
	arch.Branch
	block block
}

func (b *branch) cost(hidden int) cost {
	c := b.block.cost()
	if b.Norm != nil {
		c.token += hidden
	}
	if b.block.last() != nil {
		c.token += hidden
	}
	return c
}

// common are the inputs of the block without those of experts that tokens are routed to.
func (b *branch) common() (groups [][]*arch.Linear) {
	switch x := b.block.(type) {
	case experts:
		return append([][]*arch.Linear{{&x.Router}}, x.shared()...)
	case *sum:
		for i := range x.parts {
			groups = append(groups, x.parts[i].common()...)
		}
		return groups
	}
	return b.block.inputs()
}

// adds reports whether the output of the block, at most normalised, is added to the states that it reads, and nothing else is done.
func (b *branch) adds() bool {
	return !b.Parallel && b.SumNorm == nil && b.Factors.Tensor == "" && b.Gain.Tensor == "" && (b.Scale == 0 || b.Scale == 1)
}

// Branch is a branch of a loaded or opened layer, or a part of one whose block is a sum. Its methods divide [Layer.Forward] into steps:
// for a block with a last linear layer [Branch.Read], for a [Mixture] its methods, for a sum the steps of its parts, and then
// [Branch.Add]. Branches that are parallel read the same states, before anything is added to them.
type Branch struct {
	layer *Layer
	of    *branch
	sum   *Branch // that it is a part of, or nil
}

// Branches lists the branches of a loaded or opened layer.
func (l *Layer) Branches() (all []*Branch) {
	for i := range l.branches {
		all = append(all, &Branch{layer: l, of: &l.branches[i]})
	}
	return all
}

// Parallel reports whether the branch reads the same states as the branch before it.
func (b *Branch) Parallel() bool { return b.of.Parallel }

// Plain reports whether the product of the last linear layer is added to the states as it is.
func (b *Branch) Plain() bool { return b.sum == nil && b.of.block.last() != nil && b.of.Plain() }

// Parts lists the parts of a sum, which all read its input; nil for another block.
func (b *Branch) Parts() (all []*Branch) {
	x, ok := b.of.block.(*sum)
	if !ok {
		return nil
	}
	for i := range x.parts {
		all = append(all, &Branch{layer: b.layer, of: &x.parts[i], sum: b})
	}
	return all
}

// Inputs groups the linear layers of the block by the vectors that they read, in the order of the computation. If a single layer
// computes the output of the block, it is the last group.
func (b *Branch) Inputs() (all [][]*Linear) {
	for _, in := range b.of.block.inputs() {
		all = append(all, b.layer.held.all(in))
	}
	return all
}

// Width is the number of values that [Branch.Add] takes for a token: the input of the last linear layer, or without one the
// output of the block.
func (b *Branch) Width() int {
	if last := b.of.block.last(); last != nil {
		return last.Weight.Cols
	}
	return b.layer.model.decoder.Hidden
}

// input returns the input of the block for the states h of the layer.
func (b *Branch) input(s *space, h []float32) ([]float32, error) {
	if b.sum != nil {
		var err error
		if h, err = b.sum.input(s, h); err != nil {
			return nil, err
		}
	}
	if b.of.Norm == nil {
		return h, nil
	}
	x := s.take(s.decoder.Hidden)
	return x, s.norm(x, h, b.of.Norm)
}

// errRead ends a pass that has reached the requested vector.
var errRead = errors.New("read")

// Read writes to dst [tokens, Cols] the vectors that a linear layer of the branch reads, for the states h [tokens, Width]
// before the branch, or before the sum.
func (b *Branch) Read(ctx context.Context, dst, h []float32, w Windows, reader *Linear) error {
	return b.layer.each(ctx, h, w, func(s *space, h []float32) error {
		read := func(x []float32) {
			n := s.tokens() * reader.Cols
			kernel.Copy(s.threads, dst[s.first*reader.Cols:][:n], x[:n])
		}
		if b.sum == nil && reader.of == b.of.block.last() {
			n := s.tokens() * reader.Cols
			if ok, err := s.offloaded(ctx, dst[s.first*reader.Cols:][:n], h, b.of, false); ok || err != nil {
				return err
			}
		}
		s.observe = func(linear *arch.Linear, x []float32) error {
			if linear != reader.of {
				return nil
			}
			read(x)
			return errRead
		}
		x, err := b.input(s, h)
		if err != nil {
			return err
		}
		y, err := b.of.block.run(ctx, s, x)
		switch {
		case errors.Is(err, errRead):
			return nil
		case err != nil:
			return err
		case reader.of != b.of.block.last():
			panic("internal error: forward.Branch.Read: " + reader.Weight.Tensor + " is of another branch")
		}
		if y, err = s.bounded(reader.of, y); err == nil {
			read(y)
		}
		return err
	})
}

// Add adds the output of the branch to h [tokens, Width], the states before it or the outputs of earlier parts of a sum, 0 for
// the first: y [tokens, Width] is the input of the block's last linear layer, or without one its output.
func (b *Branch) Add(ctx context.Context, h, y []float32, w Windows) error {
	last, width := b.of.block.last(), b.Width()
	return b.layer.each(ctx, h, w, func(s *space, h []float32) error {
		if a, ok := b.of.block.(attention); ok && a.Lends {
			x, err := b.input(s, h)
			if err == nil {
				_, err = a.qkv(ctx, s, x, nil)
			}
			if err != nil {
				return err
			}
		}
		out := y[s.first*width:][:s.tokens()*width]
		if last == nil {
			out = s.clone(out)
		} else {
			var err error
			if out, err = s.project(ctx, out, last); err != nil {
				return err
			}
		}
		return s.add(b.of, h, out)
	})
}
