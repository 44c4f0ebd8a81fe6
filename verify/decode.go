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

// decoding feeds the last tokens of the first window one by one, next to the same tokens fed at once.
type decoding struct {
	from        int              // the first of them
	float, int8 *runtime.Session // with the tokens before; nil before the first
}

// decode feeds the tokens of w, the first window, that a tile of logits in float mode covers, if they are among the last ones; ref
// are the logits of the source, or nil.
func (c *candidate) decode(ctx context.Context, w []int32, t tile, ref []float32) error {
	d := &c.decoding
	for pos := max(d.from, t.Position); pos < t.Position+t.Rows; pos++ {
		if pos == d.from {
			if err := d.begin(ctx, c, w[:pos]); err != nil {
				return err
			}
		}
		f, err := d.float.Decode(ctx, w[pos])
		if err != nil {
			return err
		}
		e, err := d.int8.Decode(ctx, w[pos])
		if err != nil {
			return err
		}
		at, end := (pos-t.Position)*t.Vocab, (pos-t.Position+1)*t.Vocab
		c.DecodeGap.add(newRow(t.Logits[at:end]).kl(newRow(f)))
		if pos+1 == len(w) {
			d.float, d.int8 = nil, nil
			return nil
		}
		var v *row
		top := 0
		if ref != nil {
			r := newRow(ref[at:end])
			v, top = &r, r.top()
		}
		c.Decode.add(rate(newRow(e), w[pos+1], v, top), v != nil)
	}
	return nil
}

// begin feeds the tokens before to sessions of their own, as those of the candidate still have logits to give.
func (d *decoding) begin(ctx context.Context, c *candidate, before []int32) error {
	d.float, d.int8 = c.float.Fork(), c.int8.Fork()
	d.float.Peaks = c.float.Peaks
	for _, s := range []*runtime.Session{d.float, d.int8} {
		if _, err := s.Prefill(ctx, before); err != nil {
			return err
		}
	}
	c.Decode.begin()
	c.DecodeGap.begin()
	return nil
}
