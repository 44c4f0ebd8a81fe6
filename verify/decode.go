package verify

import (
	"context"

	"github.com/llmexport/llmexport/runtime"
)

// decode: feeding tokens one by one gives the same result as feeding them at once (in float mode), and the decode
// path as shipped stays within the divergence limit.
type decode struct{}

func (decode) String() string { return "decode" }

func (decode) Hint(value map[string]float64) string {
	if kl, ok := value["kl"]; ok {
		return closer(kl, value["kl_float"], "verify.kl.max")
	}
	return ours // tokens fed one by one diverge from the same tokens fed at once
}

// maxDecodeKL bounds the difference of two float32 orders of the same sums, as maxGraphKL does.
const maxDecodeKL = 1e-8

func (decode) Check(ctx context.Context, s *Subject) (Finding, error) {
	e, err := s.evaluation(ctx)
	if err != nil {
		return Finding{}, err
	}
	if e.DecodeGap.Len() == 0 {
		return skip("the window is too short")
	}
	gap, _ := e.DecodeGap.Mean()
	value := map[string]float64{"gap": gap, "gap_limit": maxDecodeKL}
	if !(gap <= maxDecodeKL) {
		return fail(value, "tokens fed one by one diverge from the same tokens fed at once: KL %.3g", gap)
	}
	if src, _ := s.float(); src == nil {
		return pass(value, "one by one equals at once: KL %.2g over %d tokens", gap, e.DecodeGap.Len())
	}
	kl, _ := e.Decode.KL.Mean()
	float, _ := e.Float.KL.Mean()
	value["kl"], value["kl_float"] = kl, float
	return atMost(kl, s.Options.Checks.KL.limit(s, float), "nats", value,
		"one by one equals at once (KL %.2g over %d tokens); decode path as shipped: KL %.4g", gap, e.DecodeGap.Len(), kl)
}

// last holds the logits of the last positions of the first window, which are decoded again; from is the first
// of them.
type last struct {
	from       int
	ref, float []float32
}

// keep copies those logits of the tile that belong to the last positions; ref may be nil.
func (l *last) keep(t tile, ref []float32) {
	if lo := max(l.from-t.Position, 0); lo < t.Rows {
		l.float = append(l.float, t.Logits[lo*t.Vocab:]...)
		if ref != nil {
			l.ref = append(l.ref, ref[lo*t.Vocab:]...)
		}
	}
}

// decode feeds the last tokens of w, the first window, one by one.
func (c *candidate) decode(ctx context.Context, w []int32, vocab int) error {
	from := c.last.from
	if from >= len(w) {
		return nil
	}
	for _, s := range []*runtime.Session{c.float, c.int8} {
		s.Reset()
		if _, err := s.Prefill(ctx, w[:from]); err != nil {
			return err
		}
	}
	c.Decode.begin()
	c.DecodeGap.begin()
	for pos := from; pos < len(w); pos++ {
		f, err := c.float.Decode(ctx, w[pos])
		if err != nil {
			return err
		}
		e, err := c.int8.Decode(ctx, w[pos])
		if err != nil {
			return err
		}
		at, end := (pos-from)*vocab, (pos-from+1)*vocab
		c.DecodeGap.add(newRow(c.last.float[at:end]).kl(newRow(f)))
		if pos+1 == len(w) {
			continue
		}
		var ref *row
		top := 0
		if c.last.ref != nil {
			v := newRow(c.last.ref[at:end])
			ref, top = &v, v.top()
		}
		c.Decode.add(rate(newRow(e), w[pos+1], ref, top), ref != nil)
	}
	return nil
}
