package cpu

import (
	"fmt"

	"github.com/llmexport/llmexport/backends/internal/ops"
	"github.com/llmexport/llmexport/runtime/backend"
	"github.com/llmexport/llmexport/runtime/mnn"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// expertBytes is about the memory that the experts of the largest MoE take for each token.
func (e *executable) expertBytes() int64 {
	most := 0
	for _, list := range e.experts {
		sum := 0
		for _, l := range list[0].linears {
			if l != nil {
				sum += l.m.Rows + l.m.Cols
			}
		}
		most = max(most, sum)
	}
	return 4 * int64(most)
}

func (p *planner) moe(n *node, prm *mnn.MoE) error {
	shapes := make([][]int, len(n.inputs))
	for k := range shapes {
		v := p.in(n, k)
		if shapes[k] = v.shape; v.float() == (k == 2) {
			return fmt.Errorf("experts of integers, or chosen by floats: %w", tensor.ErrCorrupt)
		}
	}
	if err := ops.CheckExperts(prm, shapes); err != nil {
		return err
	}
	if shapes[0][0] != p.tokens {
		return fmt.Errorf("experts on %d of %d tokens: %w", shapes[0][0], p.tokens, tensor.ErrUnsupported)
	}
	p.flush()
	v := p.make(shapes[0]...)
	s := &moeStep{
		p: prm, experts: p.e.experts[n.op], width: shapes[0][1], dst: v.floats(),
		x: p.in(n, 0).floats(), weights: p.in(n, 1).floats(), choices: p.in(n, 2).integers(),
	}
	p.step(s)
	return p.put(n, v)
}

// moeStep runs each expert on the rows that chose it, all at once. States do not share a call of an expert, because a single
// row, and in int8 mode the rows after the last group of four, are computed in another way.
type moeStep struct {
	p               *mnn.MoE
	experts         []*executable
	width           int
	dst, x, weights []float32
	choices         []int32
	// single are the frames for one row, by expert, as a decode needs them again and again.
	single []*frame
}

func (s *moeStep) run(f *frame) error {
	tokens, k := f.key.tokens, int(s.p.TopK)
	for i := range f.states {
		from, to := i*tokens, (i+1)*tokens
		works, err := ops.Route(s.p, s.weights[from*k:to*k], s.choices[from*k:to*k])
		if err != nil {
			return err
		}
		x, mix := s.x[from*s.width:to*s.width], ops.NewMix(s.dst[from*s.width:to*s.width], tokens)
		for j := range works {
			if err := s.work(f, &works[j], x, mix); err != nil {
				return fmt.Errorf("expert %d: %w", works[j].Expert, err)
			}
		}
	}
	return nil
}

// work runs an expert on its rows of x.
func (s *moeStep) work(f *frame, w *ops.Work, x []float32, mix *ops.Mix) error {
	sub, err := s.frame(f, w.Expert, len(w.Rows))
	if err != nil {
		return err
	}
	for _, in := range sub.embeddings {
		for i, r := range w.Rows {
			copy(in[i*s.width:(i+1)*s.width], x[r*s.width:])
		}
	}
	sub.call = f.call
	err = sub.execute(f.ctx)
	sub.call, sub.ctx = backend.Call{}, nil
	if err == nil {
		mix.Add(w, sub.logits)
	}
	return err
}

// frame is a frame of an expert for that many rows.
func (s *moeStep) frame(f *frame, expert, rows int) (*frame, error) {
	if rows == 1 && s.single != nil && s.single[expert] != nil {
		return s.single[expert], nil
	}
	sub, err := s.experts[expert].planned(frameKey{
		tokens: rows, states: 1, width: s.width, all: true, observed: f.key.observed, peaks: f.key.peaks,
	}, &f.experts)
	if err != nil {
		return nil, err
	}
	if len(sub.logits) != rows*s.width {
		return nil, fmt.Errorf("%d values for %d rows of %d: %w", len(sub.logits), rows, s.width, tensor.ErrCorrupt)
	}
	if rows == 1 {
		if s.single == nil {
			s.single = make([]*frame, len(s.experts))
		}
		s.single[expert] = sub
	}
	return sub, nil
}
