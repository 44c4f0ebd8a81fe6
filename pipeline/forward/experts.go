package forward

import (
	"cmp"
	"context"
	"fmt"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// mixture gives the embedded field a name that differs from its own fields.
type mixture = arch.Experts

type experts struct{ *mixture }

func (e experts) check(m *Model) error {
	hidden, count := m.decoder.Hidden, len(e.Experts)
	switch {
	case e.TopK < 1 || e.TopK > count:
		return fmt.Errorf("%d of %d experts: %w", e.TopK, count, tensor.ErrCorrupt)
	case !finite(e.Scale, 0) || !finite(e.Epsilon, 0):
		return fmt.Errorf("weights of experts times %v, epsilon %v: %w", e.Scale, e.Epsilon, tensor.ErrCorrupt)
	case e.ScaleInput && e.TopK != 1:
		return fmt.Errorf("inputs of %d experts scaled: %w", e.TopK, tensor.ErrCorrupt)
	case e.Scoring != arch.Softmax && e.Scoring != arch.Sigmoid && e.Scoring != arch.TopKSoftmax && e.Scoring != arch.SparseMixer:
		return fmt.Errorf("scoring %q: %w", e.Scoring, tensor.ErrUnsupported)
	case e.Scoring == arch.SparseMixer && (e.TopK != 2 || e.Correction.Tensor != "" || e.Groups > 1 || !finite(e.Near, 0)):
		return fmt.Errorf("%s of %d experts, near being %v, in %d groups: %w",
			e.Scoring, e.TopK, e.Near, e.Groups, tensor.ErrUnsupported)
	}
	if e.Groups > 1 {
		size := count / e.Groups
		if count%e.Groups != 0 || e.GroupTop < 1 || e.GroupTop > size || e.TopGroups < 1 || e.TopGroups > e.Groups || e.TopK > e.TopGroups*size {
			return fmt.Errorf("%d of %d experts out of %d of %d groups by their %d best: %w", e.TopK, count, e.TopGroups, e.Groups, e.GroupTop, tensor.ErrCorrupt)
		}
	}
	if err := cmp.Or(
		m.checkLinears(slot{"experts.router", &e.Router, count, hidden}),
		m.checkVector("experts.correction", e.Correction, count),
		m.checkVector("experts.gains", e.Gains, count),
		m.checkNorm("norm of experts", e.RouterNorm, hidden),
		m.checkNorm("norm of experts", e.Norm, hidden),
	); err != nil {
		return err
	}
	for j := range e.Experts {
		if err := (mlp{&e.Experts[j]}).check(m); err != nil {
			return fmt.Errorf("expert %d: %w", j, err)
		}
	}
	if e.Shared == nil {
		return nil
	}
	if err := (mlp{e.Shared}).check(m); err != nil {
		return fmt.Errorf("shared expert: %w", err)
	}
	return m.checkOptional(slot{"experts.shared_gate", &e.SharedGate, 1, hidden})
}

// wide is the largest working memory of an expert.
func (e experts) wide() int {
	n := 0
	for j := range e.Experts {
		n = max(n, mlp{&e.Experts[j]}.cost().token)
	}
	if e.Shared != nil {
		n = max(n, mlp{e.Shared}.cost().token)
	}
	return n
}

func (e experts) cost() cost {
	c := cost{fixed: len(e.Experts) + max(e.Groups, 1)}
	// Scores; for every choice its weight, its expert, and its place in the list of the expert; input and output of experts, and
	// their sum.
	c.token = len(e.Experts) + 3*e.TopK + 3*e.Router.Weight.Cols + e.wide()
	if e.SharedGate.Weight.Tensor != "" {
		c.token++
	}
	if e.RouterNorm != nil || e.Norm != nil {
		c.token += e.Router.Weight.Cols
	}
	return c
}

func (e experts) last() *arch.Linear { return nil }

// inputs lists the router, the experts in order, and the shared expert. An expert reads the tokens that are routed to it.
func (e experts) inputs() [][]*arch.Linear {
	groups := [][]*arch.Linear{{&e.Router}}
	for j := range e.Experts {
		groups = append(groups, mlp{&e.Experts[j]}.inputs()...)
	}
	if e.Shared != nil {
		shared := mlp{e.Shared}.inputs()
		shared[0] = append(shared[0], present(&e.SharedGate)...)
		groups = append(groups, shared...)
	}
	return groups
}

func (e experts) norms() []*arch.Norm {
	all := []*arch.Norm{e.RouterNorm, e.Norm}
	for j := range e.Experts {
		all = append(all, e.Experts[j].Norm)
	}
	if e.Shared != nil {
		all = append(all, e.Shared.Norm)
	}
	return all
}

func (e experts) run(ctx context.Context, s *space, x []float32) ([]float32, error) {
	n, hidden := s.tokens(), e.Router.Weight.Cols
	weights := s.take(e.TopK)
	in := x
	var normed []float32
	if e.RouterNorm != nil || e.Norm != nil {
		normed = s.take(hidden)
	}
	if e.RouterNorm != nil {
		in = normed
		if err := s.norm(in, x, e.RouterNorm); err != nil {
			return nil, err
		}
	}
	scores, err := s.project(ctx, in, &e.Router)
	if err != nil {
		return nil, err
	}
	if e.Norm != nil {
		if err := s.norm(normed, x, e.Norm); err != nil {
			return nil, err
		}
		x = normed
	}
	v, err := s.vectors(e.Correction, e.Gains)
	if err != nil {
		return nil, err
	}
	correction, gains := v[0], v[1]
	chosen := make([]int32, n*e.TopK)
	if err := s.each(ctx, n, func(i int, b *buffer) error {
		e.route(scores[i*len(e.Experts):(i+1)*len(e.Experts)], correction, chosen[i*e.TopK:(i+1)*e.TopK], weights[i*e.TopK:(i+1)*e.TopK], b)
		for c := i * e.TopK; c < (i+1)*e.TopK && gains != nil; c++ {
			weights[c] *= gains[chosen[c]]
		}
		return nil
	}); err != nil {
		return nil, err
	}

	out, rows, y, wide := s.take(hidden), s.take(hidden), s.take(hidden), s.take(e.wide())
	clear(out)
	choices, ends := e.members(chosen)
	for j, at := 0, int32(0); j < len(e.Experts); j++ {
		mine := choices[at:ends[j]]
		at = ends[j]
		if len(mine) == 0 {
			continue
		}
		kernel.Parallel(s.threads, len(mine), func(lo, hi int) {
			for i, c := range mine[lo:hi] {
				row := rows[(lo+i)*hidden:][:hidden]
				copy(row, x[int(c)/e.TopK*hidden:])
				if e.ScaleInput {
					kernel.Scale(row, row, weights[c])
				}
			}
		})
		if err := e.apply(ctx, s, &e.Experts[j], y, rows, len(mine), wide); err != nil {
			return nil, err
		}
		kernel.Parallel(s.threads, len(mine), func(lo, hi int) {
			for i, c := range mine[lo:hi] {
				row, sum := y[(lo+i)*hidden:][:hidden], out[int(c)/e.TopK*hidden:][:hidden]
				if !e.ScaleInput {
					kernel.Scale(row, row, weights[c])
				}
				kernel.Add(sum, sum, row)
			}
		})
	}
	return out, e.share(ctx, s, out, x, y, wide)
}

// apply writes the output of an expert for n rows of x to y.
func (e experts) apply(ctx context.Context, s *space, by *arch.MLP, y, x []float32, n int, wide []float32) error {
	p, hidden := mlp{by}, e.Router.Weight.Cols
	inner, err := p.inner(ctx, s, x[:n*hidden], n, wide[:n*p.cost().token], nil)
	if err != nil {
		return err
	}
	return s.linear(ctx, y[:n*hidden], inner, n, &p.Down)
}

// share adds the shared expert.
func (e experts) share(ctx context.Context, s *space, out, x, y, wide []float32) error {
	if e.Shared == nil {
		return nil
	}
	n, hidden := s.tokens(), e.Router.Weight.Cols
	if err := e.apply(ctx, s, e.Shared, y, x, n, wide); err != nil {
		return err
	}
	if e.SharedGate.Weight.Tensor != "" {
		gate, err := s.project(ctx, x, &e.SharedGate)
		if err != nil {
			return err
		}
		s.pointwise(gate, sigmoid)
		kernel.Parallel(s.threads, n, func(lo, hi int) {
			for i := lo; i < hi; i++ {
				row := y[i*hidden : (i+1)*hidden]
				kernel.Scale(row, row, gate[i])
			}
		})
	}
	s.addAll(out, y)
	return nil
}

// members sorts choices by expert, and within one in the order of the tokens: those of expert j end before ends[j]. A choice is
// an index into chosen.
func (e experts) members(chosen []int32) (choices, ends []int32) {
	choices, ends = make([]int32, len(chosen)), make([]int32, len(e.Experts)+1)
	for _, j := range chosen {
		ends[j+1]++
	}
	for j := range e.Experts {
		ends[j+1] += ends[j]
	}
	for c, j := range chosen {
		choices[ends[j]] = int32(c)
		ends[j]++
	}
	return choices, ends
}
