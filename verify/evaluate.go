package verify

import (
	"context"
	"fmt"

	"github.com/llmexport/llmexport/runtime"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// evaluation runs the package on the text once.
func (s *Subject) evaluation(ctx context.Context) (*Evaluation, error) {
	if s.eval != nil {
		return s.eval, nil
	}
	ev, err := newEvaluator([]*Subject{s})
	if err != nil {
		return nil, err
	}
	if err := ev.run(ctx); err != nil {
		return nil, err
	}
	s.eval = ev.candidates[0].Evaluation
	return s.eval, nil
}

const (
	// sessionShare, codeShare, expertShare and tileShare of Options.Memory, as divisors, are the memory for the cached weights of a
	// session, for its codes in int8, for its cached experts, and for the logits of three models.
	sessionShare, codeShare, expertShare, tileShare = 4, 4, 16, 8

	// batchTokens is the number of tokens that are run through the models at a time, in whole windows: with that
	// many, decoding uncached weights is cheap compared with the products. batchShare limits the memory for the
	// states of these tokens.
	batchTokens, batchShare = 1024, 8
	// leastRows is the minimal number of rows of a tile of logits, whatever the memory: each tile costs a
	// pass over the head.
	leastRows = 16
)

// KeptShare is the part of Options.Memory that weights in the sessions of a package may take.
const KeptShare = 2./sessionShare + 1./codeShare + 2./expertShare

// LeastBytes is about the least memory that both sessions of a package take for activations and logits, where a layer of the source
// takes so many bytes for a token: a batch of windows and the beginning of one whose end is fed one by one; the smallest tiles of three
// models; and the logits of what runs in half precision.
func LeastBytes(vocab, window int, token int64) int64 {
	return 4*int64(window)*token + 4*int64(vocab)*int64(3*leastRows+HalfTokens(window))
}

// evaluator runs packages of the same vocabulary and one source on the same windows.
type evaluator struct {
	options    Options
	source     *Source // nil without one
	windows    [][]int32
	candidates []*candidate
	// sessions are the sessions of the candidates: float and int8 of the first, and so on.
	sessions []*runtime.Session
	vocab    int
	rows     int // of a tile of logits
	from     int // the first position of a window whose logits are needed
	later    int // what counts as a window in progress and is run after all of them
	// batchWindows is the number of windows that go through the models together.
	batchWindows int
	ref          []float32
	scores       []scores
}

// newEvaluator prepares the evaluation of subjects with the same source and options; the memory of the options is the
// share of one subject.
func newEvaluator(subjects []*Subject) (*evaluator, error) {
	s := subjects[0]
	windows, err := s.windows()
	if err != nil {
		return nil, err
	}
	length := len(windows[0])
	if from := s.Options.ScoreFrom; from < 0 || from > length-2 {
		return nil, fmt.Errorf("no position of a window of %d tokens is scored from %d on", length, from)
	}
	vocab := s.Package.Vocabulary()
	if src := s.Source; src != nil && src.Model.Vocab != vocab {
		return nil, fmt.Errorf("the package has a vocabulary of %d, but the source has one of %d: %w", vocab, src.Model.Vocab, tensor.ErrCorrupt)
	}
	rows := tileRows(s.Options, vocab)
	src, _ := s.float()
	ev := &evaluator{
		options: s.Options, source: src, windows: windows, vocab: vocab, rows: rows, scores: make([]scores, rows), batchWindows: len(windows),
	}
	if src != nil {
		ev.ref = make([]float32, rows*vocab)
	}
	if len(subjects) == 1 && s.runsPhone() {
		ev.later = 1
	}
	decodeFrom := length - min(s.Options.DecodeTokens, length-2)
	ev.from = min(s.Options.ScoreFrom, decodeFrom)
	for _, s := range subjects {
		c, err := newCandidate(s, decodeFrom)
		if err != nil {
			return nil, err
		}
		c.Window, c.Windows = s.Options.Window, len(windows)
		ev.candidates, ev.sessions = append(ev.candidates, c), append(ev.sessions, c.float, c.int8)
		token := max(1, c.float.TokenBytes()+c.int8.TokenBytes())
		ev.batchWindows = min(ev.batchWindows, max(1, int(min(batchTokens, s.Options.Memory/batchShare/token))/s.Options.Window))
	}
	return ev, nil
}

// tileRows returns the number of positions whose logits of three models are in memory at a time: a whole window if
// it fits.
func tileRows(o Options, vocab int) int {
	rows := o.Memory / tileShare / (3 * 4 * int64(vocab))
	return int(min(int64(o.Window), max(leastRows, rows)))
}

// run evaluates all windows.
func (ev *evaluator) run(ctx context.Context) error {
	for done := 0; done < len(ev.windows); {
		n := min(len(ev.windows)-done, ev.batchWindows)
		var hidden []float32
		if ev.source != nil {
			ref := ev.source.Reference
			var err error
			if n = ref.Fit(ev.windows[done : done+n]); n == 0 {
				return fmt.Errorf("a window of %d tokens does not fit the memory limit", ev.options.Window)
			}
			if hidden, err = ref.Hidden(ctx, ev.windows[done:done+n]); err != nil {
				return err
			}
		}
		if err := ev.batch(ctx, done, n, hidden); err != nil {
			return err
		}
		done += n
	}
	return nil
}

// batch scores n windows from first on; hidden are the reference's states of their tokens, or nil.
func (ev *evaluator) batch(ctx context.Context, first, n int, hidden []float32) error {
	windows := ev.windows[first : first+n]
	return sideBySide(ctx, ev.sessions, windows, ev.from, ev.rows, func(tiles []tile) error {
		t := tiles[0]
		for _, x := range tiles {
			if x.Vocab != ev.vocab {
				return fmt.Errorf("the graph computes %d logits, but the embedding has %d rows", x.Vocab, ev.vocab)
			}
		}
		w := windows[t.window]
		var ref []float32
		if src := ev.source; src != nil {
			ref = ev.ref[:t.Rows*ev.vocab]
			width, at := src.Model.Hidden, t.window*len(w)+t.Position
			if err := src.Reference.Logits(ctx, ref, hidden[at*width:(at+t.Rows)*width]); err != nil {
				return err
			}
		}
		for i, c := range ev.candidates {
			float, int8 := tiles[2*i], tiles[2*i+1]
			if first+t.window == 0 {
				if err := c.decode(ctx, w, float, ref); err != nil {
					return err
				}
			}
			if t.Position == ev.from {
				c.begin()
			}
			ev.tile(c, first+t.window, ref, float, int8)
		}
		if t.Position+t.Rows == len(w) && ev.options.Progress != nil {
			ev.options.Progress(int64(first+t.window+1), int64(len(ev.windows)+ev.later))
		}
		return nil
	})
}

// tile adds the statistics of the scored positions of a window.
func (ev *evaluator) tile(c *candidate, window int, ref []float32, float, int8 tile) {
	w := ev.windows[window]
	lo := max(ev.options.ScoreFrom-float.Position, 0)
	hi := min(float.Rows, len(w)-1-float.Position)
	if lo >= hi {
		return
	}
	scored := func(logits []float32) []float32 { return logits[lo*ev.vocab:] }
	if ref != nil {
		ref = scored(ref)
	}
	list := ev.scores[:hi-lo]
	next := w[float.Position+lo+1 : float.Position+hi+1]
	tileScores(list, ev.options.Threads, ev.vocab, next, ref, scored(float.Logits), scored(int8.Logits))
	c.add(list, ref != nil)
	if ref == nil {
		return
	}
	for i, s := range list {
		at := float.Position + lo + i
		if !s.finite || !c.passages.wants(window, at, s.int8.kl) {
			continue
		}
		row := func(logits []float32) row { return newRow(logits[i*ev.vocab : (i+1)*ev.vocab]) }
		c.passages.add(passage{
			window: window, position: at, kl: s.int8.kl, before: w[max(0, at+1-passageBefore) : at+1], next: w[at+1],
			source: row(ref).most(passageTokens), pkg: row(scored(int8.Logits)).most(passageTokens),
		})
	}
}
