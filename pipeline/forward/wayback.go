package forward

import (
	"context"
	"slices"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/pipeline/effort"
	"github.com/llmexport/llmexport/runtime/kernel"
)

// way is the way back of a course through branches: what a device does in the place of record and back.
type way struct {
	block func(d int) int // adds the way back through the block that was added last, see gradient
	turns []func(d int) int
	seen  []visit
	work  effort.Work                  // of a row, on the way back
	wants func(l *Linear) (x, dy bool) // see Visitor
	full  bool                         // gradients of weights are computed, too
	norms bool                         // and those of gammas
	ok    bool                         // as far as it is known
}

// visit is what a visitor sees: of a linear layer the matrices of its inputs, and of the gradients of its outputs, of a norm sums of gradients.
type visit struct {
	of    *Linear
	x, dy int
	added func() // in the place of a call, or nil
	norm  *Norm
	sums  []float64
	// Of a layer of an expert x and dy are matrices of choices, or 0.
	experts *kernel.ExpertsBackStep
	expert  int
}

// projection is a linear layer whose result is normalised: the matrices before and after the norm.
type projection struct {
	of        *arch.Linear
	norm      *arch.Norm
	plain, at int
}

// backOffloaded lets the device turn dh, the gradient after branches, into that before them, where the states are h, see turnedBack.
func (s *space) backOffloaded(ctx context.Context, branches []branch, dh, h []float32, v Visitor) (bool, error) {
	return s.turnedBack(ctx, dh, h, v, func(r *course, d int) (int, bool, error) {
		at := 0
		for i := range branches {
			if ok, err := r.branchBack(ctx, &branches[i], &at, i+1 < len(branches)); !ok || err != nil {
				return 0, ok, err
			}
		}
		for _, turn := range slices.Backward(r.way.turns) {
			d = turn(d)
		}
		return d, true, nil
	})
}

// turnedBack lets the device turn dh, the gradient of the result of a course that reads h, into that of h. add adds the course and its way back for
// matrix d. It reports false if the device does not; dh is as before then, and nothing was visited.
func (s *space) turnedBack(ctx context.Context, dh, h []float32, v Visitor, add func(r *course, d int) (dx int, ok bool, err error)) (bool, error) {
	r := s.course(h, nil)
	if r == nil {
		return false, nil
	}
	r.way = &way{ok: true, wants: v.wants, full: v.Linear != nil, norms: v.Norm != nil}
	given := r.fresh(s.decoder.Hidden)
	r.Given = []kernel.Carried{{Matrix: given, Data: dh}}
	d, ok, err := add(r, given)
	if !ok || err != nil {
		return false, err
	}
	if !r.way.ok {
		return false, nil
	}
	r.Result, r.Out = d, s.floats(len(dh))
	here := map[int][]float32{0: h, given: dh}
	take := func(matrix int, wanted bool) {
		if wanted && here[matrix] == nil {
			here[matrix] = s.floats(r.Rows * r.Widths[matrix])
			r.Taken = append(r.Taken, kernel.Carried{Matrix: matrix, Data: here[matrix]})
		}
	}
	for i := range r.way.seen {
		t := &r.way.seen[i]
		if t.norm != nil {
			continue
		}
		if v.Moments != nil && t.experts == nil {
			var sums []kernel.Moment
			if sums, t.added = v.Moments(t.of, r.Rows); sums != nil {
				for _, m := range sums {
					m.Matrix = t.dy
					r.Moments = append(r.Moments, m)
				}
				continue
			}
		}
		x, dy := v.wants(t.of)
		take(t.x, x)
		take(t.dy, dy)
	}
	r.work = r.work.Plus(r.way.work)
	if !r.offload(s) { // what is not finite on the way makes the result not finite
		return false, nil
	}
	for _, t := range r.way.seen {
		switch {
		case t.norm != nil:
			t.norm.visit(t.sums, v)
		case t.added != nil:
			t.added()
		case v.Linear == nil:
		case t.experts == nil:
			v.Linear(t.of, here[t.x], here[t.dy])
		default:
			if x, dy, ok := r.ofExpert(t, here); ok {
				v.Linear(t.of, x, dy)
			}
		}
	}
	kernel.Copy(s.threads, dh, r.Out)
	return true, context.Cause(ctx)
}

// ofExpert returns the rows of a layer of an expert, and reports whether there are any.
func (r *course) ofExpert(t visit, here map[int][]float32) (x, dy []float32, ok bool) {
	from, to := 0, int(t.experts.Ends[t.expert])
	if t.expert > 0 {
		from = int(t.experts.Ends[t.expert-1])
	}
	rows := func(matrix int) []float32 {
		if matrix == 0 || here[matrix] == nil {
			return nil
		}
		width := r.Widths[matrix] / t.experts.Of.Routing.TopK
		return here[matrix][from*width : to*width]
	}
	return rows(t.x), rows(t.dy), to > from
}

// branchBack adds a branch for the states at, which become those after it if more follows, and its way back. It reports whether devices compute it.
func (r *course) branchBack(ctx context.Context, b *branch, at *int, more bool) (bool, error) {
	if !b.adds() || !b.chained() {
		return false, nil
	}
	before, wanted := *at, more || b.PostNorm != nil
	out, ok, err := r.output(ctx, b, before, wanted)
	if !ok || err != nil {
		return ok, err
	}
	block := r.way.block
	if more {
		if *at, ok, err = r.normed(out, b.PostNorm); !ok || err != nil {
			return ok, err
		}
		r.add(&kernel.AddStep{Dst: *at, Src: before})
	}
	r.way.turns = append(r.way.turns, func(d int) int {
		dx := r.normBack(block(r.normBack(d, out, b.PostNorm)), before, b.Norm)
		r.add(&kernel.AddStep{Dst: dx, Src: d})
		return dx
	})
	return true, nil
}

// linearBack is the matrix of the gradient of the output of a linear layer.
type linearBack struct {
	of *arch.Linear
	dy int
}

// gather adds the gradient of the matrix x that linear layers read, see [space.gather], and returns its matrix.
func (r *course) gather(x int, flows ...linearBack) (dx int) {
	w := r.way
	for i, f := range flows {
		l := r.held.linear(f.of)
		if l.W == nil {
			w.ok = false
			return dx
		}
		w.seen = append(w.seen, visit{of: l, x: x, dy: f.dy})
		to := r.fresh(l.Cols)
		r.add(&kernel.LinearStep{Dst: to, Src: f.dy, Weights: l.backFactor()})
		if i == 0 {
			dx = to
		} else {
			r.add(&kernel.AddStep{Dst: dx, Src: to})
		}
		var t effort.Tally
		t.Linear(1, l.Rows, l.Cols)
		if w.full {
			t.Linear(1, l.Rows, l.Cols)
		}
		w.work = w.work.Plus(t.Done())
	}
	return dx
}

// normBack adds the way back through a norm that read x, if it is not nil, and returns the matrix of the result.
func (r *course) normBack(d, x int, n *arch.Norm) int {
	if n == nil {
		return d
	}
	read := r.held.norm(n)
	s := &kernel.NormBackStep{Dst: r.next(d), Src: d, X: x, Gamma: r.vector(read.Gamma), Eps: read.Eps}
	if width := len(read.Gamma); r.way.norms {
		s.Span = gradientTokens * r.Widths[d] / width
		s.Sums = make([]float64, (r.Rows+gradientTokens-1)/gradientTokens*width)
		r.way.seen = append(r.way.seen, visit{norm: read, sums: s.Sums})
	}
	r.add(s)
	return s.Dst
}

// mlpBack adds [mlp.back] for d, and returns the matrix of the result.
func (r *course) mlpBack(p mlp, x, gate, up, plain, d int) int {
	d = r.normBack(d, plain, p.Norm)
	r.way.work[effort.Element] += float64(p.Intermediate)
	r.add(&kernel.GateBackStep{Matrix: gate, By: up, D: d})
	return r.gather(x, linearBack{&p.Gate, gate}, linearBack{&p.Up, up})
}

// attentionBack adds [attention.back] for d, and returns the matrix of the result.
func (r *course) attentionBack(a attention, x int, all []projection, of *kernel.AttendStep, d int) int {
	d = r.normBack(d, of.Dst, a.OutNorm)
	h := heads{count: a.Heads, shared: a.Heads / a.KVHeads, parts: []part{{dim: a.HeadDim}}, valueDim: a.HeadDim, mask: a.mask()}
	most := max(1, gradientRows/h.shared)
	back := &kernel.AttendBackStep{
		Queries: of.Queries, Keys: of.Keys, Values: of.Values, Weights: of.Weights, Out: of.Dst, DOut: d, Scores: r.next(of.Weights),
		DQueries: r.next(of.Queries), DKeys: r.next(of.Keys), DValues: r.next(of.Values), Heads: a.Heads, Scale: of.Scale, Together: most,
		Span: func(at int) (from, first int) {
			from, _ = h.span(queries{0, h.shared, at / most * most, at%most + 1}, at+1)
			first, _ = h.mask(at, at+1)
			return from, first
		},
	}
	r.add(back)
	r.scores = r.scores.Plus(h.work(r.Windows, most, 5))
	if a.Rope != nil && a.Rope.Dim > 0 {
		t := r.model.turned(a.Rope, r.Longest())
		n := r.Longest() * t.dim
		sin := make([]float32, n)
		for i, v := range t.sin[:n] {
			sin[i] = -v
		}
		r.turn(a, back.DQueries, back.DKeys, t.dim, t.cos[:n], sin)
	}
	flows := make([]linearBack, len(all))
	for i, dy := range []int{back.DQueries, back.DKeys, back.DValues} {
		flows[i] = linearBack{all[i].of, r.normBack(dy, all[i].plain, all[i].norm)}
	}
	return r.gather(x, flows...)
}
