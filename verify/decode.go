package verify

import (
	"context"

	"github.com/llmexport/llmexport/runtime"
)

// last are the logits of the last positions of the first window, which are decoded again: from is the first.
type last struct {
	from       int
	ref, float []float32
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
