package verify

import (
	"context"
	"fmt"

	"github.com/llmexport/llmexport/backends"
	"github.com/llmexport/llmexport/runtime"
	"github.com/llmexport/llmexport/runtime/mnn"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// evaluation runs the package on the text once.
func (s *Subject) evaluation(ctx context.Context) (*Evaluation, error) {
	if s.eval != nil {
		return s.eval, nil
	}
	e, err := evaluate(ctx, s)
	if err != nil {
		return nil, err
	}
	s.eval = e
	return e, nil
}

const (
	// sessionShare and tileShare of Options.Memory, as divisors, are what a session may keep of weights and what the
	// logits of three models take.
	sessionShare, tileShare = 4, 8

	// batchTokens is how many tokens are taken through the models at a time, in whole windows: with so many, decoding
	// weights that are not kept costs little beside multiplying with them. batchShare of the memory may go to what
	// these tokens are on their way.
	batchTokens, batchShare = 1024, 8
	// leastRows of a tile of logits are worth a pass over the head, whatever the memory.
	leastRows = 16
)

// evaluator is the state of one evaluation.
type evaluator struct {
	*Evaluation
	s           *Subject
	windows     [][]int32
	float, int8 *runtime.Session
	vocab       int
	rows        int // of a tile of logits
	// batchWindows is the number of windows that go through the models together.
	batchWindows int
	ref          []float32
	scores       []scores
	last         last
}

func evaluate(ctx context.Context, s *Subject) (*Evaluation, error) {
	ev, err := newEvaluator(s)
	if err != nil {
		return nil, err
	}
	for done := 0; done < len(ev.windows); {
		n := min(len(ev.windows)-done, ev.batchWindows)
		var hidden []float32
		if s.Source != nil {
			ref := s.Source.Reference
			if n = ref.Fit(ev.windows[done : done+n]); n == 0 {
				return nil, fmt.Errorf("a window of %d tokens does not fit the memory limit", s.Options.Window)
			}
			if hidden, err = ref.Hidden(ctx, ev.windows[done:done+n]); err != nil {
				return nil, err
			}
		}
		if err := ev.batch(ctx, done, n, hidden); err != nil {
			return nil, err
		}
		done += n
	}
	return ev.Evaluation, ev.decode(ctx)
}

func newEvaluator(s *Subject) (*evaluator, error) {
	windows, err := s.windows()
	if err != nil {
		return nil, err
	}
	vocab := s.Package.Vocabulary()
	if src := s.Source; src != nil && src.Decoder.Vocab != vocab {
		return nil, fmt.Errorf("the package has a vocabulary of %d, the source of %d: %w", vocab, src.Decoder.Vocab, tensor.ErrCorrupt)
	}
	rows := tileRows(s.Options, vocab)
	ev := &evaluator{
		Evaluation: &Evaluation{Window: s.Options.Window, Windows: len(windows)},
		s:          s, windows: windows, vocab: vocab, rows: rows, scores: make([]scores, rows),
	}
	if s.Source != nil {
		ev.ref = make([]float32, rows*vocab)
	}
	first := len(windows[0])
	ev.last.from = first - min(s.Options.DecodeTokens, first-2)
	if ev.float, err = s.session(backends.Float); err != nil {
		return nil, err
	}
	if ev.int8, err = s.session(backends.Int8); err != nil {
		return nil, err
	}
	ev.float.Peaks = func(op *mnn.Op, peak float32) { ev.activation(op.Name, peak) }
	token := max(1, ev.float.TokenBytes()+ev.int8.TokenBytes())
	ev.batchWindows = max(1, int(min(batchTokens, s.Options.Memory/batchShare/token))/s.Options.Window)
	return ev, nil
}

// tileRows is how many positions have their logits of three models in memory at a time: a whole window if its logits
// fit.
func tileRows(o Options, vocab int) int {
	rows := o.Memory / tileShare / (3 * 4 * int64(vocab))
	return int(min(int64(o.Window), max(leastRows, rows)))
}

func (s *Subject) progress(done, total int) {
	if s.Options.Progress != nil {
		s.Options.Progress(int64(done), int64(total))
	}
}

// activation notes the largest of an op's output.
func (ev *evaluator) activation(op string, peak float32) {
	if a := float64(peak); a > ev.LargestActivation {
		ev.LargestActivation, ev.LargestOp = a, op
	}
}

// batch scores n windows from first on; hidden are the reference's states of their tokens, or nil.
func (ev *evaluator) batch(ctx context.Context, first, n int, hidden []float32) error {
	windows := ev.windows[first : first+n]
	row := 0 // of hidden
	return sideBySide(ctx, ev.float, ev.int8, windows, ev.rows, func(f, e tile) error {
		if f.Vocab != ev.vocab || e.Vocab != ev.vocab {
			return fmt.Errorf("the graph makes %d logits, the embedding has %d rows", f.Vocab, ev.vocab)
		}
		var ref []float32
		if src := ev.s.Source; src != nil {
			ref = ev.ref[:f.Rows*ev.vocab]
			width := src.Decoder.Hidden
			if err := src.Reference.Logits(ctx, ref, hidden[row*width:(row+f.Rows)*width]); err != nil {
				return err
			}
			row += f.Rows
		}
		if first+f.window == 0 {
			ev.last.keep(f, ref)
		}
		w := windows[f.window]
		ev.tile(f, w, ref, f.Logits, e.Logits)
		if f.Position+f.Rows == len(w) {
			ev.s.progress(first+f.window+1, len(ev.windows))
		}
		return nil
	})
}

// tile takes in the statistics of some positions of the window w.
func (ev *evaluator) tile(t tile, w []int32, ref, float, int8 []float32) {
	if t.Position == 0 {
		ev.Float.begin()
		ev.Int8.begin()
		ev.Source.begin()
	}
	next := w[t.Position+1 : min(t.Position+t.Rows+1, len(w))]
	list := ev.scores[:len(next)]
	tileScores(list, ev.s.Options.Threads, ev.vocab, next, ref, float, int8)
	for _, v := range list {
		ev.activation("logits", v.peak)
		if ref != nil {
			ev.Source.add(v.source)
		}
		if !v.finite {
			ev.NotFinite++
			continue
		}
		ev.Float.add(v.float, ref != nil)
		ev.Int8.add(v.int8, ref != nil)
	}
}
