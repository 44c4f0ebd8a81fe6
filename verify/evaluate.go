package verify

import (
	"context"
	"fmt"

	"github.com/llmexport/llmexport/backends"
	"github.com/llmexport/llmexport/publish/manifest"
	"github.com/llmexport/llmexport/runtime"
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

func (s *Series) add(r row, next int32, ref *row) {
	s.NLL.add(r.nll(next))
	if ref == nil {
		return
	}
	s.KL.add(ref.kl(r))
	if ref.top() == r.top() {
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

// session opens the package for running; a quarter of the memory may hold expanded weights.
func (s *Subject) session(mode backends.Mode) (*runtime.Session, error) {
	return runtime.NewSession(s.Package, runtime.Options{
		Mode: mode, DynamicOption: s.Package.Config.DynamicOption, Threads: s.Options.Threads, CacheBytes: s.Options.Memory / 4,
	})
}

// windows cuts the text, as the package's own tokenizer reads it, into contexts spread evenly over it. A bos that
// the tokenizer puts before texts stands before each window and is not scored as a prediction target.
func (s *Subject) windows() ([][]int32, error) {
	prefix := s.Package.Tokenizer.Prefix()
	ids := s.Package.Tokenizer.Encode(s.Options.Text)[len(prefix):]
	body := s.Options.Window - len(prefix)
	n := min(s.Options.Windows, len(ids)/max(1, body))
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

// evaluator is the state of one evaluation.
type evaluator struct {
	*Evaluation
	s           *Subject
	float, int8 *runtime.Session
	vocab, rows int
	hidden      []float32 // of the reference, of the current batch of windows
	refRows     []float32
	last        map[int][]float32 // float logits of the positions that are decoded again
}

func evaluate(ctx context.Context, s *Subject) (*Evaluation, error) {
	windows, err := s.windows()
	if err != nil {
		return nil, err
	}
	ev := &evaluator{
		Evaluation: &Evaluation{Window: s.Options.Window, Windows: len(windows)},
		s:          s, vocab: s.Package.Vocabulary(), last: map[int][]float32{},
	}
	if src := s.Source; src != nil && src.Decoder.Vocab != ev.vocab {
		return nil, fmt.Errorf("the package has a vocabulary of %d, the source of %d: %w", ev.vocab, src.Decoder.Vocab, tensor.ErrCorrupt)
	}
	// Logits of three models live at once; tiles of at least 16 rows keep weights from being decoded too often.
	ev.rows = int(max(16, min(256, s.Options.Memory/8/int64(12*ev.vocab))))
	if ev.float, err = s.session(backends.Float); err != nil {
		return nil, err
	}
	if ev.int8, err = s.session(backends.Int8); err != nil {
		return nil, err
	}
	ev.float.Observe = ev.observe
	for done := 0; done < len(windows); {
		n := len(windows) - done
		if s.Source != nil {
			ref := s.Source.Reference
			if n = ref.Fit(windows[done:]); n == 0 {
				return nil, fmt.Errorf("a window of %d tokens does not fit the memory limit", s.Options.Window)
			}
			if ev.hidden, err = ref.Hidden(ctx, windows[done:done+n]); err != nil {
				return nil, err
			}
			ev.refRows = make([]float32, ev.rows*s.Source.Decoder.Vocab+s.Source.Decoder.Vocab)
		}
		for i, w := range windows[done : done+n] {
			if err := ev.window(ctx, done+i, w, i*len(w)); err != nil {
				return nil, err
			}
			s.progress(done+i+1, len(windows))
		}
		done += n
	}
	return ev.Evaluation, ev.decode(ctx, windows[0])
}

func (s *Subject) progress(done, total int) {
	if s.Options.Progress != nil {
		s.Options.Progress(int64(done), int64(total))
	}
}

func (ev *evaluator) observe(op *mnn.Op, _ int, _ []int, values []float32) {
	// The mask's -3e38 and the tables are no activations.
	if op.Type == mnn.OpInput || op.Type == mnn.OpConst {
		return
	}
	for _, v := range values {
		if a := float64(max(v, -v)); a > ev.LargestActivation {
			ev.LargestActivation, ev.LargestOp = a, op.Name
		}
	}
}

// window scores one context; at is its first row in the reference's hidden states.
func (ev *evaluator) window(ctx context.Context, index int, w []int32, at int) error {
	ev.Float.begin()
	ev.Int8.begin()
	ev.Source.begin()
	ev.int8.Reset()
	return ev.float.Score(ctx, w, ev.rows, func(t runtime.Tile) error {
		eight, err := ev.int8.Forward(ctx, w[t.Position:t.Position+t.Rows])
		if err != nil {
			return err
		}
		ref, err := ev.reference(ctx, at+t.Position, t.Rows)
		if err != nil {
			return err
		}
		if t.Vocab != ev.vocab {
			return fmt.Errorf("the graph makes %d logits, the embedding has %d rows", t.Vocab, ev.vocab)
		}
		for r := range t.Rows {
			pos := t.Position + r
			if index == 0 && pos >= len(w)-ev.s.Options.DecodeTokens {
				ev.last[pos] = append([]float32{}, t.Logits[r*t.Vocab:(r+1)*t.Vocab]...)
			}
			if pos+1 < len(w) {
				ev.position(w[pos+1], ref, t.Logits[r*t.Vocab:(r+1)*t.Vocab], eight[r*t.Vocab:(r+1)*t.Vocab], r)
			}
		}
		return nil
	})
}

// reference computes the source's logits of some rows, or nil.
func (ev *evaluator) reference(ctx context.Context, row, n int) ([]float32, error) {
	if ev.s.Source == nil {
		return nil, nil
	}
	d := ev.s.Source.Decoder
	dst := ev.refRows[:n*d.Vocab]
	return dst, ev.s.Source.Reference.Logits(ctx, dst, ev.hidden[row*d.Hidden:(row+n)*d.Hidden])
}

func (ev *evaluator) position(next int32, ref, float, eight []float32, r int) {
	var rr *row
	if ref != nil {
		v := newRow(ref[r*ev.vocab : (r+1)*ev.vocab])
		rr = &v
		ev.Source.add(v.nll(next))
	}
	f, e := newRow(float), newRow(eight)
	if !f.finite() || !e.finite() {
		ev.NotFinite++
		return
	}
	ev.Float.add(f, next, rr)
	ev.Int8.add(e, next, rr)
}

// decode feeds the last tokens of a window one by one.
func (ev *evaluator) decode(ctx context.Context, w []int32) error {
	n := min(ev.s.Options.DecodeTokens, len(w)-2)
	if n <= 0 {
		return nil
	}
	from := len(w) - n
	var ref []float32
	if src := ev.s.Source; src != nil {
		h, err := src.Reference.Hidden(ctx, [][]int32{w})
		if err != nil {
			return err
		}
		ref = make([]float32, n*src.Decoder.Vocab)
		if err := src.Reference.Logits(ctx, ref, h[from*src.Decoder.Hidden:]); err != nil {
			return err
		}
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
		ev.DecodeGap.add(newRow(ev.last[pos]).kl(newRow(f)))
		if pos+1 == len(w) {
			continue
		}
		var rr *row
		if ref != nil {
			v := newRow(ref[(pos-from)*ev.vocab : (pos-from+1)*ev.vocab])
			rr = &v
		}
		ev.Decode.add(newRow(e), w[pos+1], rr)
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
