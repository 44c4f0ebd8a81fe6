package verify

import (
	"context"
	"fmt"
	"slices"

	"github.com/llmexport/llmexport/backends"
	"github.com/llmexport/llmexport/publish/manifest"
	"github.com/llmexport/llmexport/runtime"
	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/mnn"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// Series is what was measured of one way to execute the package. KL and Top1 need a reference.
type Series struct {
	NLL  Sample // negative log-likelihood of the next token
	KL   Sample // divergence from the reference at the same position
	Same int    // positions at which the most likely token is the reference's
}

// Top1 is the share of positions whose most likely token is the reference's.
func (s *Series) Top1() float64 { return float64(s.Same) / float64(max(1, s.KL.Len())) }

func (s *Series) add(v score, compared bool) {
	s.NLL.add(v.nll)
	if !compared {
		return
	}
	s.KL.add(v.kl)
	if v.same {
		s.Same++
	}
}

func (s *Series) begin() { s.NLL.begin(); s.KL.begin() }

// Evaluation holds the measurements that several checks share.
type Evaluation struct {
	Window, Windows int
	// Source is the reference itself; empty without one.
	Source Sample
	// Float runs the package with expanded weights, Int8 as shipped: quantized activations, prefill.
	Float, Int8 Series
	// Decode feeds the last tokens of the first window one by one, as shipped.
	Decode Series
	// DecodeGap is the divergence, in float mode, of feeding tokens one by one from feeding them at once.
	DecodeGap Sample
	// LargestActivation in float mode, and the op that made it.
	LargestActivation float64
	LargestOp         string
	// NotFinite counts positions whose logits hold a NaN or an infinity.
	NotFinite int
}

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

// session is the package ready to run, with nothing before it and nobody observing. There is one for each mode,
// because it keeps weights in the form in which they are multiplied.
func (s *Subject) session(mode backends.Mode) (*runtime.Session, error) {
	sess := s.sessions[mode]
	if sess == nil {
		var err error
		if sess, err = runtime.NewSession(s.Package, runtime.Options{
			Mode: mode, DynamicOption: s.Package.Config.DynamicOption, Threads: s.Options.Threads, CacheBytes: s.Options.Memory / sessionShare,
		}); err != nil {
			return nil, err
		}
		if s.sessions == nil {
			s.sessions = map[backends.Mode]*runtime.Session{}
		}
		s.sessions[mode] = sess
	}
	sess.Reset()
	sess.Observe = nil
	return sess, nil
}

// windows cuts the text, as the package's own tokenizer reads it, into contexts spread evenly over it. A bos that
// the tokenizer puts before texts stands before each window and is not scored as a prediction target.
func (s *Subject) windows() ([][]int32, error) {
	prefix := s.Package.Tokenizer.Prefix()
	ids := s.Package.Tokenizer.Encode(s.Options.Text)[len(prefix):]
	body := s.Options.Window - len(prefix)
	n := len(ids) / max(1, body)
	if s.Options.Windows > 0 {
		n = min(n, s.Options.Windows)
	}
	if body < 2 || n < 1 {
		return nil, fmt.Errorf("the text has %d tokens, too few for a window of %d", len(ids), s.Options.Window)
	}
	stride := len(ids) / n
	var list [][]int32
	for i := range n {
		w := append([]int32{}, prefix...)
		list = append(list, append(w, ids[i*stride:i*stride+body]...))
	}
	return list, nil
}

// sessionShare and tileShare divide Options.Memory: what a session may keep of weights, and what the logits of three
// models take.
const (
	sessionShare = 4
	tileShare    = 8
)

const (
	// batchTokens is how many tokens are taken through the models at a time, in whole windows: with so many, decoding
	// weights that are not kept costs little beside multiplying with them.
	batchTokens = 8192
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
	rows        int // of a tile of logits, and one more where a window ends
	ref         []float32
	scores      []scores
	peaks       []float32 // of an op's output, by blocks
	last        last
}

// last are the logits of the last positions of the first window, which are decoded again: from is the first.
type last struct {
	from       int
	ref, float []float32
}

func evaluate(ctx context.Context, s *Subject) (*Evaluation, error) {
	ev, err := newEvaluator(s)
	if err != nil {
		return nil, err
	}
	for done := 0; done < len(ev.windows); {
		n := min(len(ev.windows)-done, max(1, batchTokens/s.Options.Window))
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
		s:          s, windows: windows, vocab: vocab, rows: rows, scores: make([]scores, rows+1),
	}
	if s.Source != nil {
		ev.ref = make([]float32, (rows+1)*vocab)
	}
	first := len(windows[0])
	ev.last.from = first - min(s.Options.DecodeTokens, first-2)
	if ev.float, err = s.session(backends.Float); err != nil {
		return nil, err
	}
	if ev.int8, err = s.session(backends.Int8); err != nil {
		return nil, err
	}
	ev.float.Observe = ev.observe
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

// peakBlock is how many values of an op's output are searched at a time.
const peakBlock = 1 << 16

func (ev *evaluator) observe(op *mnn.Op, _ int, _ []int, values []float32) {
	// The mask's -3e38 and the tables are no activations.
	if op.Type == mnn.OpInput || op.Type == mnn.OpConst {
		return
	}
	blocks := (len(values) + peakBlock - 1) / peakBlock
	ev.peaks = slices.Grow(ev.peaks[:0], blocks)[:blocks]
	kernel.Parallel(ev.s.Options.Threads, blocks, func(lo, hi int) {
		for i := lo; i < hi; i++ {
			ev.peaks[i] = absMax(values[i*peakBlock : min((i+1)*peakBlock, len(values))])
		}
	})
	for _, v := range ev.peaks {
		if a := float64(v); a > ev.LargestActivation {
			ev.LargestActivation, ev.LargestOp = a, op.Name
		}
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

// keep copies what the tile has of the last positions; ref may be nil.
func (l *last) keep(t tile, ref []float32) {
	if lo := max(l.from-t.Position, 0); lo < t.Rows {
		l.float = append(l.float, t.Logits[lo*t.Vocab:]...)
		if ref != nil {
			l.ref = append(l.ref, ref[lo*t.Vocab:]...)
		}
	}
}

// decode feeds the last tokens of the first window one by one.
func (ev *evaluator) decode(ctx context.Context) error {
	w, from := ev.windows[0], ev.last.from
	if from >= len(w) {
		return nil
	}
	for _, s := range []*runtime.Session{ev.float, ev.int8} {
		s.Reset()
		if _, err := s.Prefill(ctx, w[:from]); err != nil {
			return err
		}
	}
	ev.Decode.begin()
	ev.DecodeGap.begin()
	for pos := from; pos < len(w); pos++ {
		f, err := ev.float.Decode(ctx, w[pos])
		if err != nil {
			return err
		}
		e, err := ev.int8.Decode(ctx, w[pos])
		if err != nil {
			return err
		}
		at, end := (pos-from)*ev.vocab, (pos-from+1)*ev.vocab
		ev.DecodeGap.add(newRow(ev.last.float[at:end]).kl(newRow(f)))
		if pos+1 == len(w) {
			continue
		}
		var ref *row
		top := 0
		if ev.last.ref != nil {
			v := newRow(ev.last.ref[at:end])
			ref, top = &v, v.top()
		}
		ev.Decode.add(rate(newRow(e), w[pos+1], ref, top), ref != nil)
	}
	return nil
}

// Metrics are the measurements by the names under which a manifest keeps them. Those of the package as shipped
// carry no suffix.
func (e *Evaluation) Metrics() map[string]manifest.Metric {
	m := map[string]manifest.Metric{}
	mean := func(name string, s *Sample) {
		if s.Len() > 0 {
			v, se := s.Mean()
			m[name] = manifest.Metric{Value: v, StdErr: se}
		}
	}
	ppl := func(name string, s *Sample) {
		if s.Len() > 0 {
			v, se := s.Mean()
			p := exp(v)
			m[name] = manifest.Metric{Value: p, StdErr: p * se}
		}
	}
	ppl("perplexity", &e.Int8.NLL)
	ppl("perplexity_float", &e.Float.NLL)
	ppl("perplexity_source", &e.Source)
	mean("kl", &e.Int8.KL)
	mean("kl_float", &e.Float.KL)
	mean("kl_decode", &e.Decode.KL)
	if e.Int8.KL.Len() > 0 {
		m["kl_median"] = manifest.Metric{Value: e.Int8.KL.Quantile(0.5)}
		m["kl_p99"] = manifest.Metric{Value: e.Int8.KL.Quantile(0.99)}
		m["kl_max"] = manifest.Metric{Value: e.Int8.KL.Quantile(1)}
		m["same_top_token"] = manifest.Metric{Value: e.Int8.Top1()}
	}
	m["scored_tokens"] = manifest.Metric{Value: float64(e.Int8.NLL.Len())}
	m["largest_activation"] = manifest.Metric{Value: e.LargestActivation}
	return m
}
