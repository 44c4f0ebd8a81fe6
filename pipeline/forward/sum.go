package forward

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
		if b.Parallel || b.Gain.Tensor != "" || b.SumNorm != nil {
			return fmt.Errorf("branch %d of a sum is parallel or has a factor or a norm of the stream: %w", i, tensor.ErrCorrupt)
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
		c = c.max(p.cost(s.hidden))
	}
	c.token += s.hidden
	return c
}

func (s *sum) last() *arch.Linear { return nil }

func (s *sum) inputs() (groups [][]*arch.Linear) {
	for _, p := range s.parts {
		groups = append(groups, p.block.inputs()...)
	}
	return groups
}

func (s *sum) norms() (all []*arch.Norm) {
	for _, p := range s.parts {
		all = append(all, append(p.block.norms(), p.Norm, p.PostNorm)...)
	}
	return all
}

func (s *sum) run(ctx context.Context, space *space, x []float32) ([]float32, error) {
	total := space.take(s.hidden)
	free := space.free
	clear(total)
	for i := range s.parts {
		space.free = free
		out, err := space.branch(ctx, &s.parts[i], x)
		if err == nil {
			err = space.finish(&s.parts[i], out)
		}
		if err != nil {
			return nil, err
		}
		space.addAll(total, out)
	}
	return total, nil
}

func (s *sum) record(ctx context.Context, space *space, x []float32) ([]float32, gradient, error) {
	var steps []step
	for i := range s.parts {
		t, _, err := space.recordBranch(ctx, &s.parts[i], x, false)
		if err != nil {
			return nil, nil, err
		}
		steps = append(steps, t)
	}
	return nil, func(dy []float32, v Visitor) (dx []float32, err error) {
		dx = make([]float32, len(x))
		for i, t := range steps {
			d, err := space.backBranch(&s.parts[i], t, dy, v)
			if err != nil {
				return nil, err
			}
			space.addAll(dx, d)
		}
		return dx, nil
	}, nil
}
