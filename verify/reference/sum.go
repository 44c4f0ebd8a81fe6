package reference

import (
	"context"
	"fmt"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/runtime/tensor"
)

type sum struct {
	*arch.Sum
	parts  []branch
	hidden int
}

func (s *sum) check(m *Model) error {
	if s.hidden = m.decoder.Hidden; len(s.Branches) == 0 {
		return fmt.Errorf("a sum of no branches: %w", tensor.ErrCorrupt)
	}
	for i, b := range s.Branches {
		if b.Parallel || b.Gain.Tensor != "" {
			return fmt.Errorf("branch %d of a sum is parallel or has a factor: %w", i, tensor.ErrCorrupt)
		}
		part, err := m.checkBranch(i, b)
		if err != nil {
			return err
		}
		s.parts = append(s.parts, part)
	}
	return nil
}

func (s *sum) cost() cost {
	var c cost
	for _, p := range s.parts {
		c = c.max(p.block.cost())
	}
	c.token += 2 * s.hidden // input and output of a part
	return c
}

func (s *sum) run(ctx context.Context, m *Model, out, x []float32, space *space) error {
	norm, part := space.take(s.hidden), space.take(s.hidden)
	free := space.free
	clear(out)
	for _, p := range s.parts {
		in := x
		if p.Norm != nil {
			in = norm
			if err := m.norm(in, x, p.Norm); err != nil {
				return err
			}
		}
		space.free = free
		if err := p.block.run(ctx, m, part, in, space); err != nil {
			return err
		}
		if p.PostNorm != nil {
			if err := m.norm(part, part, p.PostNorm); err != nil {
				return err
			}
		}
		m.scaleAll(part, p.Scale)
		m.addAll(out, part)
	}
	return nil
}
