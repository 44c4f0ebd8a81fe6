package forward

import (
	"context"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/pipeline/effort"
	"github.com/llmexport/llmexport/runtime/kernel"
)

// experts adds a mixture that reads matrix x, and returns the matrix of its output.
func (r *course) experts(ctx context.Context, e experts, x int) (out int, ok bool, err error) {
	if e.Scoring == arch.SparseMixer || e.ScaleInput || e.SharedGate.Weight.Tensor != "" {
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
	step.Src, step.Dst = x, r.matrix(outputs, hidden)
	if e.Norm != nil {
		step.Src = r.matrix(normed, hidden)
		if ok, err := r.norm(step.Src, x, e.Norm); !ok || err != nil {
			return 0, ok, err
		}
	}
	r.add(step)
	var t effort.Tally
	t.Linear(e.TopK, step.Wide, hidden)
	t.Linear(e.TopK, step.Wide, hidden)
	t.Linear(e.TopK, hidden, step.Wide)
	r.work = r.work.Plus(t.Done())
	r.work[effort.Element] += float64(e.TopK * step.Wide)
	if e.Shared == nil {
		return step.Dst, true, nil
	}
	shared, ok, err := r.mlp(ctx, mlp{e.Shared}, step.Src)
	if !ok || err != nil {
		return 0, ok, err
	}
	y := r.matrix(queries0, hidden)
	if ok, err := r.linear(ctx, y, shared, &e.Shared.Down); !ok || err != nil {
		return 0, ok, err
	}
	r.add(&kernel.AddStep{Dst: step.Dst, Src: y})
	return step.Dst, true, nil
}
