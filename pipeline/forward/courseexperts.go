package forward

import (
	"context"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/pipeline/effort"
	"github.com/llmexport/llmexport/runtime/kernel"
)

// experts adds a mixture that reads matrix x, and returns the matrix of its output. With a way back the output is left out unless it is wanted.
func (r *course) experts(ctx context.Context, e experts, x int, wanted bool) (out int, ok bool, err error) {
	if e.Scoring == arch.SparseMixer || e.ScaleInput || r.way != nil && e.SharedGate.Weight.Tensor != "" {
		return 0, false, nil
	}
	hidden := r.model.decoder.Hidden
	step := &kernel.ExpertsStep{Routing: e.routing(), Wide: e.Experts[0].Intermediate}
	for j := range e.Experts {
		p := mlp{&e.Experts[j]}
		if !p.chained() || p.Norm != nil || p.Intermediate != step.Wide {
			return 0, false, nil
		}
		for _, m := range []struct {
			of *arch.Linear
			to *[]kernel.Factor
		}{{&p.Gate, &step.Gate}, {&p.Up, &step.Up}, {&p.Down, &step.Down}} {
			f, err := r.factor(ctx, m.of)
			if f.missing() || f.bias != nil || err != nil {
				return 0, false, err
			}
			*m.to = append(*m.to, f.right())
		}
	}
	v, err := (&space{Model: r.model}).vectors(e.Correction, e.Gains)
	if err != nil {
		return 0, false, err
	}
	step.Correction, step.Gains = r.vector(v[0]), r.vector(v[1])
	read := x
	if e.RouterNorm != nil {
		read = r.matrix(outputs, hidden)
		if ok, err := r.norm(read, x, e.RouterNorm); !ok || err != nil {
			return 0, ok, err
		}
	}
	step.Scores = r.matrix(inner, len(e.Experts))
	if ok, err := r.linear(ctx, step.Scores, read, &e.Router); !ok || err != nil {
		return 0, ok, err
	}
	step.Src = x
	if e.Norm != nil {
		step.Src = r.matrix(normed, hidden)
		if ok, err := r.norm(step.Src, x, e.Norm); !ok || err != nil {
			return 0, ok, err
		}
	}
	if wanted {
		step.Dst = r.matrix(outputs, hidden)
		r.add(step)
		r.work = r.work.Plus(e.products(step.Wide, 3, 1))
	}
	shared := 0
	if e.Shared != nil {
		if shared, ok, err = r.mlp(ctx, mlp{e.Shared}, step.Src); !ok || err != nil {
			return 0, ok, err
		}
		if wanted {
			y := r.matrix(queries0, hidden)
			if ok, err := r.linear(ctx, y, shared, &e.Shared.Down); !ok || err != nil {
				return 0, ok, err
			}
			if e.SharedGate.Weight.Tensor != "" {
				if ok, err := r.gated(ctx, y, r.matrix(factors, 1), step.Src, &e.SharedGate); !ok || err != nil {
					return 0, ok, err
				}
			}
			r.add(&kernel.AddStep{Dst: step.Dst, Src: y})
		}
	}
	if r.way != nil {
		sharedBack := r.way.block
		r.way.block = func(d int) int {
			dx, scores := r.expertsBack(e, step, d)
			if e.Shared != nil {
				r.add(&kernel.AddStep{Dst: dx, Src: sharedBack(r.gather(shared, linearBack{&e.Shared.Down, d}))})
			}
			dx = r.normBack(dx, x, e.Norm)
			r.add(&kernel.AddStep{Dst: dx, Src: r.normBack(r.gather(read, linearBack{&e.Router, scores}), x, e.RouterNorm)})
			return dx
		}
	}
	return step.Dst, true, nil
}

// expertsBack adds the way back through the experts of a mixture for d, and returns the matrices of the gradients of what they read and of the
// scores.
func (r *course) expertsBack(e experts, of *kernel.ExpertsStep, d int) (dx, scores int) {
	w, hidden, wide := r.way, r.Widths[of.Src], e.TopK*of.Wide
	s := &kernel.ExpertsBackStep{Of: of, DOut: d, DSrc: r.fresh(hidden), DScores: r.fresh(len(e.Experts)), DGate: r.fresh(wide), DUp: r.fresh(wide),
		Inner: r.fresh(wide), Ends: make([]int32, len(e.Experts))}
	var all [][3]*Linear
	var in, dDown bool
	for j := range e.Experts {
		p := &e.Experts[j]
		gate, up, down := r.held.linear(&p.Gate), r.held.linear(&p.Up), r.held.linear(&p.Down)
		if gate.W == nil || up.W == nil || down.W == nil {
			w.ok = false
			return d, d
		}
		s.GateBack, s.UpBack, s.DownBack = append(s.GateBack, gate.backFactor()), append(s.UpBack, up.backFactor()), append(s.DownBack, down.backFactor())
		x, _ := w.wants(gate)
		y, _ := w.wants(up)
		_, dy := w.wants(down)
		in, dDown = in || x || y, dDown || dy
		all = append(all, [3]*Linear{down, gate, up})
	}
	if in {
		s.In = r.fresh(e.TopK * hidden)
	}
	if dDown {
		s.DDown = r.fresh(e.TopK * hidden)
	}
	for j, of := range all {
		w.seen = append(w.seen, visit{of: of[0], x: s.Inner, dy: s.DDown, experts: s, expert: j}, visit{of: of[1], x: s.In, dy: s.DGate, experts: s, expert: j},
			visit{of: of[2], x: s.In, dy: s.DUp, experts: s, expert: j})
	}
	r.add(s)
	w.work = w.work.Plus(e.products(of.Wide, 4, 2))
	if w.full {
		w.work = w.work.Plus(e.products(of.Wide, 2, 0))
	}
	return s.DSrc, s.DScores
}

// products is the work of so many products of a token with matrices of its experts, and of so many activations. The weights of all experts are
// read.
func (e experts) products(wide, products, activations int) effort.Work {
	var t effort.Tally
	size := products * wide * e.Router.Weight.Cols
	t.Add(effort.Product, 2*e.TopK*size)
	t.Add(effort.Memory, 4*len(e.Experts)*size)
	t.Add(effort.Element, activations*e.TopK*wide)
	return t.Done()
}
