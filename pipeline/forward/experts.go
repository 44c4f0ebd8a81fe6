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
	return append(groups, e.shared()...)
}

// shared are the inputs of the shared expert, if there is one.
func (e experts) shared() [][]*arch.Linear {
	if e.Shared == nil {
		return nil
	}
	groups := mlp{e.Shared}.inputs()
	groups[0] = append(groups[0], present(&e.SharedGate)...)
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
	r, err := e.choose(ctx, s, x, false)
	if err != nil {
		return nil, err
	}
	hidden := e.Router.Weight.Cols
	out, rows, y, wide := s.take(hidden), s.take(hidden), s.take(hidden), s.take(e.wide())
	clear(out)
	for j := range e.Experts {
		mine := r.of(j)
		if len(mine) == 0 {
			continue
		}
		rows := rows[:len(mine)*hidden]
		e.pick(s, rows, r.x, mine)
		weights := r.weightsOf(mine)
		if e.ScaleInput {
			s.scaleRows(rows, weights)
		}
		if err := e.apply(ctx, s, &e.Experts[j], y, rows, len(mine), wide); err != nil {
			return nil, err
		}
		y := y[:len(mine)*hidden]
		if !e.ScaleInput {
			s.scaleRows(y, weights)
		}
		e.scatter(s, out, y, mine)
	}
	return out, e.share(ctx, s, out, r.x, y, wide)
}

// pick copies the tokens of some choices from x [tokens, Hidden].
func (e experts) pick(s *space, rows, x []float32, choices []int32) {
	hidden := e.Router.Weight.Cols
	kernel.Parallel(s.threads, len(choices), func(lo, hi int) {
		for i, c := range choices[lo:hi] {
			copy(rows[(lo+i)*hidden:][:hidden], x[int(c)/e.TopK*hidden:])
		}
	})
}

// scatter adds rows to the tokens of their choices in sum [tokens, Hidden]. An expert is chosen once for a token.
func (e experts) scatter(s *space, sum, rows []float32, choices []int32) {
	hidden := e.Router.Weight.Cols
	kernel.Parallel(s.threads, len(choices), func(lo, hi int) {
		for i, c := range choices[lo:hi] {
			token := sum[int(c)/e.TopK*hidden:][:hidden]
			kernel.Add(token, token, rows[(lo+i)*hidden:][:hidden])
		}
	})
}

// scaleRows multiplies each row by its factor.
func (m *Model) scaleRows(rows, factors []float32) {
	width := len(rows) / len(factors)
	kernel.Parallel(m.threads, len(factors), func(lo, hi int) {
		for i := lo; i < hi; i++ {
			row := rows[i*width : (i+1)*width]
			kernel.Scale(row, row, factors[i])
		}
	})
}

// apply writes the output of an expert for n rows of x to y.
func (e experts) apply(ctx context.Context, s *space, by *arch.MLP, y, x []float32, n int, wide []float32) error {
	p, hidden := mlp{by}, e.Router.Weight.Cols
	inner, err := p.inner(ctx, s, x[:n*hidden], n, wide[:n*p.cost().token], nil)
	if err != nil {
		return err
	}
	return s.linear(ctx, inner, n, output{&p.Down, y[:n*hidden]})
}

// share adds the shared expert.
func (e experts) share(ctx context.Context, s *space, out, x, y, wide []float32) error {
	if e.Shared == nil {
		return nil
	}
	if err := e.apply(ctx, s, e.Shared, y, x, s.tokens(), wide); err != nil {
		return err
	}
	if e.SharedGate.Weight.Tensor != "" {
		if err := s.gated(ctx, y, x, &e.SharedGate); err != nil {
			return err
		}
	}
	s.addAll(out, y)
	return nil
}

func (e experts) record(ctx context.Context, s *space, x []float32) ([]float32, gradient, error) {
	return nil, func(dy []float32, v Visitor) ([]float32, error) {
		// Other branches of the layer may be those that devices do not compute.
		if ok, err := s.turnedBack(ctx, dy, x, v, func(r *course, d int) (int, bool, error) {
			if _, ok, err := r.experts(ctx, e, 0, false); !ok || err != nil {
				return 0, ok, err
			}
			return r.way.block(d), true, nil
		}); ok || err != nil {
			return dy, err
		}
		r, err := e.choose(ctx, s, x, true)
		if err != nil {
			return nil, err
		}
		return e.back(ctx, s, r, x, dy, v)
	}, nil
}

// back turns do, the gradient of the output, into that of the input x. It computes the experts again, one at a time: the
// activations of all of them would take TopK times the memory of an MLP.
func (e experts) back(ctx context.Context, s *space, r *routing, x, do []float32, v Visitor) ([]float32, error) {
	hidden := e.Router.Weight.Cols
	dx, dWeights := make([]float32, len(x)), make([]float32, len(r.weights))
	for j := range e.Experts {
		if mine := r.of(j); len(mine) > 0 {
			if err := e.backExpert(ctx, s, r, &e.Experts[j], mine, dx, dWeights, do, v); err != nil {
				return nil, err
			}
		}
	}
	if e.Shared != nil {
		if err := e.backShared(ctx, s, r.x, dx, do, v); err != nil {
			return nil, err
		}
	}
	if e.Norm != nil {
		s.held.norm(e.Norm).back(x, dx, hidden, v)
	}
	dRead := s.gather(r.read, v, flow{&e.Router, e.backScores(s, r, dWeights)})
	if e.RouterNorm != nil {
		s.held.norm(e.RouterNorm).back(x, dRead, hidden, v)
	}
	s.addAll(dx, dRead)
	return dx, nil
}

// backExpert adds the gradient of the tokens of an expert to dx, and writes those of their weights.
func (e experts) backExpert(
	ctx context.Context, s *space, r *routing, by *arch.MLP, mine []int32, dx, dWeights, do []float32, v Visitor,
) error {
	hidden, weights := e.Router.Weight.Cols, r.weightsOf(mine)
	x, d := make([]float32, len(mine)*hidden), make([]float32, len(mine)*hidden)
	e.pick(s, x, r.x, mine)
	e.pick(s, d, do, mine)
	in, factors := x, weights
	if e.ScaleInput {
		in, factors = s.clone(x), nil
		s.scaleRows(in, weights)
	}
	dIn, dFactors, err := e.through(ctx, s, by, in, d, factors, v)
	if err != nil {
		return err
	}
	if e.ScaleInput {
		dFactors = s.rowProducts(dIn, x, len(mine))
		s.scaleRows(dIn, weights)
	}
	for i, c := range mine {
		dWeights[c] = dFactors[i]
	}
	e.scatter(s, dx, dIn, mine)
	return nil
}

// backShared adds the gradient of the input of the shared expert, and of its gate, to dx.
func (e experts) backShared(ctx context.Context, s *space, x, dx, do []float32, v Visitor) error {
	var gate []float32
	if e.SharedGate.Weight.Tensor != "" {
		var err error
		if gate, err = s.project(ctx, x, &e.SharedGate); err != nil {
			return err
		}
		s.pointwise(gate, sigmoids)
	}
	dIn, dGate, err := e.through(ctx, s, e.Shared, x, s.clone(do), gate, v)
	if err != nil {
		return err
	}
	s.addAll(dx, dIn)
	if gate != nil {
		for i, g := range gate {
			dGate[i] *= float32(g * (1 - g))
		}
		s.addAll(dx, s.gather(x, v, flow{&e.SharedGate, dGate}))
	}
	return nil
}

// through returns the gradient of the rows x that an expert reads, for do, that of its output times a factor for each row, and
// that of the factors; without factors, do is that of the output. It changes do.
//
// The gradient of a factor is the product of do and the output y = Down z + b, which is that of z and Downᵀ do plus that of b and
// do: y is not needed. Weights that are not in memory are read, and given up again.
func (e experts) through(
	ctx context.Context, s *space, by *arch.MLP, x, do, factors []float32, v Visitor,
) (dx, dFactors []float32, err error) {
	p, n, w := mlp{by}, len(x)/e.Router.Weight.Cols, new(product)
	read, err := s.held.load(p.inputs()...)
	for _, l := range read {
		defer l.Drop()
	}
	if err != nil {
		return nil, nil, err
	}
	z, err := p.inner(ctx, s, x, n, make([]float32, n*p.cost().token), w)
	if err != nil {
		return nil, nil, err
	}
	down := s.held.linear(&p.Down)
	dz := make([]float32, n*down.Cols)
	down.back(dz, do)
	if factors != nil {
		dFactors = s.rowProducts(z, dz, n)
		for i := range dFactors {
			if down.Bias != nil {
				dFactors[i] += float32(dotProduct(down.Bias, do[i*down.Rows:(i+1)*down.Rows]))
			}
		}
		s.scaleRows(do, factors)
		s.scaleRows(dz, factors)
	}
	if v.Linear != nil {
		v.Linear(down, z, do)
	}
	return p.back(s, w, dz, v), dFactors, nil
}

// rowProducts returns the products of the rows of x and y, n each.
func (m *Model) rowProducts(x, y []float32, n int) []float32 {
	width, all := len(x)/n, make([]float32, n)
	kernel.Parallel(m.threads, n, func(lo, hi int) {
		for i := lo; i < hi; i++ {
			all[i] = float32(dotProduct(x[i*width:(i+1)*width], y[i*width:(i+1)*width]))
		}
	})
	return all
}
