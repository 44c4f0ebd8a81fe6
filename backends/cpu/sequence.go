package cpu

import (
	"fmt"

	"github.com/llmexport/llmexport/backends/internal/ops"
	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/mnn"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// parallelStep is a step whose work is divided among the workers.
type parallelStep struct {
	n int
	kernel.Task
}

func (s *parallelStep) run(f *frame) error {
	kernel.ParallelTask(f.threads, s.n, s.Task)
	return nil
}

// task is a kernel.Task.
type task func(lo, hi int)

// Do implements kernel.Task.
func (t task) Do(lo, hi int) { t(lo, hi) }

// each plans f for 0 to n-1.
func (p *planner) each(n int, f task) { p.step(&parallelStep{n, f}) }

// permute is another view of the same memory if no element moves, and else a copy.
func (p *planner) permute(n *node, prm *mnn.Permute) error {
	x := p.in(n, 0)
	m, err := ops.NewPermutation(prm, x.shape)
	if err != nil {
		return err
	}
	if m.Still {
		v := *x
		v.shape = m.Shape
		return p.put(n, v)
	}
	if x.float() {
		p.flush()
		v := p.make(m.Shape...)
		dst, src := v.floats(), x.floats()
		p.each(m.Parts(), func(lo, hi int) { ops.Permuted(m, dst, src, lo, hi) })
		return p.put(n, v)
	}
	v := place{shape: m.Shape, ints: make([]int32, x.count())}
	src := x.integers()
	if x.known != nil {
		ops.Permuted(m, v.ints, src, 0, m.Parts())
		v.known, v.ints = v.ints, nil
		return p.put(n, v)
	}
	p.each(m.Parts(), func(lo, hi int) { ops.Permuted(m, v.ints, src, lo, hi) })
	return p.put(n, v)
}

// rowsPerTask is how many rows of a router a worker takes at a time.
const rowsPerTask = 64

func (p *planner) topK(n *node, prm *mnn.TopK) error {
	if len(n.inputs) != 2 || len(n.outputs) != 2 {
		return fmt.Errorf("TopKV2 with %d inputs and %d outputs: %w", len(n.inputs), len(n.outputs), tensor.ErrUnsupported)
	}
	x, k := p.in(n, 0), p.in(n, 1)
	if !x.float() {
		return fmt.Errorf("the largest of integers: %w", tensor.ErrUnsupported)
	}
	if k.known == nil {
		return fmt.Errorf("a number of elements that is computed: %w", tensor.ErrUnsupported)
	}
	shape, err := ops.TopKShape(prm, x.shape, k.known)
	if err != nil {
		return err
	}
	p.flush()
	values := p.make(shape...)
	places := place{shape: shape, ints: make([]int32, ops.Count(shape))}
	width, count := x.shape[len(x.shape)-1], int(k.known[0])
	dst, src := values.floats(), x.floats()
	rows := len(src) / width
	p.each((rows+rowsPerTask-1)/rowsPerTask, func(lo, hi int) {
		ops.TopK(dst, places.ints, src, width, count, lo*rowsPerTask, min(hi*rowsPerTask, rows))
	})
	p.set(n.outputs[0], values)
	p.set(n.outputs[1], places)
	return nil
}

func (p *planner) gatherElements(n *node) error {
	x, index := p.in(n, 0), p.in(n, 1)
	if !x.float() {
		return fmt.Errorf("gather of integers along an axis: %w", tensor.ErrUnsupported)
	}
	if index.float() {
		return fmt.Errorf("float input where integers are needed: %w", tensor.ErrCorrupt)
	}
	axis := []int32{0}
	if len(n.inputs) > 2 {
		if axis = p.in(n, 2).known; axis == nil {
			return fmt.Errorf("an axis that is computed: %w", tensor.ErrUnsupported)
		}
	}
	g, err := ops.NewElementGather(x.shape, index.shape, axis)
	if err != nil {
		return err
	}
	p.flush()
	v := p.make(g.Shape...)
	p.step(&gatherElementsStep{g, v.floats(), x.floats(), index.integers()})
	return p.put(n, v)
}

type gatherElementsStep struct {
	*ops.ElementGather
	dst, x []float32
	index  []int32
}

func (s *gatherElementsStep) run(*frame) error { return s.Do(s.dst, s.x, s.index) }

func (p *planner) reduction(n *node, prm *mnn.Reduction) error {
	x := p.in(n, 0)
	if len(n.inputs) != 1 || !x.float() {
		return fmt.Errorf("reduction of integers, or over dimensions that are an input: %w", tensor.ErrUnsupported)
	}
	fold, err := ops.NewFold(prm, x.shape)
	if err != nil {
		return err
	}
	p.flush()
	v := p.make(fold.Shape...)
	p.step(&foldStep{fold, v.floats(), x.floats()})
	return p.put(n, v)
}

type foldStep struct {
	*ops.Fold
	dst, x []float32
}

func (s *foldStep) run(*frame) error {
	s.Do(s.dst, s.x)
	return nil
}

func (p *planner) matMul(n *node, prm *mnn.BatchMatMul) error {
	a, b := p.in(n, 0), p.in(n, 1)
	if len(n.inputs) != 2 || !a.float() || !b.float() {
		return fmt.Errorf("matrix product of integers, or with %d inputs: %w", len(n.inputs), tensor.ErrUnsupported)
	}
	m, err := ops.NewMatMul(prm, a.shape, b.shape)
	if err != nil {
		return err
	}
	p.flush()
	v := p.make(m.Shape...)
	dst, x, y := v.floats(), a.floats(), b.floats()
	p.each(m.Products(), func(lo, hi int) { m.Do(dst, x, y, lo, hi) })
	return p.put(n, v)
}

func (p *planner) recurrence(n *node, prm *mnn.LinearAttention) error {
	shapes := make([][]int, len(n.inputs))
	for k := range shapes {
		x := p.in(n, k)
		if shapes[k] = x.shape; !x.float() {
			return fmt.Errorf("linear attention on integers: %w", tensor.ErrCorrupt)
		}
	}
	r, err := ops.NewRecurrence(prm, shapes, p.tokens, &p.e.options)
	if err != nil {
		return err
	}
	p.flush()
	v := p.make(r.Shape...)
	s := &recurrenceStep{Recurrence: r, op: p.e.recurrence[n.op], dst: v.floats()}
	for k := range s.in {
		s.in[k] = p.in(n, k).floats()
	}
	p.step(s)
	return p.put(n, v)
}

// recurrenceStep is a LinearAttention, one state after the other.
type recurrenceStep struct {
	*ops.Recurrence
	op    int // index of the states' recurrences
	dst   []float32
	in    [4][]float32
	apart []float32 // channels of one of several states
}

func (s *recurrenceStep) run(f *frame) error {
	states := len(f.states)
	for i, st := range f.states {
		l, err := s.State(st.Linear[s.op], st.Positions)
		if err != nil {
			return err
		}
		st.Linear[s.op] = l
		part := func(x []float32) []float32 { return x[i*len(x)/states : (i+1)*len(x)/states] }
		in := s.in
		if states > 1 {
			in[0] = s.channels(f.key.tokens, i, states)
			if len(s.in[1]) >= states { // a convolution does not look at them
				in[1], in[2] = part(s.in[1]), part(s.in[2])
			}
		}
		s.Run(part(s.dst), in, l, f.threads)
	}
	return nil
}

// channels are those of state i: a channel is as long as all states have tokens.
func (s *recurrenceStep) channels(tokens, i, states int) []float32 {
	all := s.in[0]
	if s.apart == nil {
		s.apart = make([]float32, len(all)/states)
	}
	for to := 0; to < len(s.apart); to += tokens {
		copy(s.apart[to:to+tokens], all[to*states+i*tokens:])
	}
	return s.apart
}
