package verify

import "github.com/llmexport/llmexport/runtime/kernel"

// scores are the statistics of one position.
type scores struct {
	finite      bool    // all logits of the package, in both modes
	peak        float32 // of the logits in float mode
	source      float64
	float, int8 score
}

// score is the result of one way to execute the package at one position.
type score struct {
	nll, kl float64
	same    bool // the most likely token is the reference's
}

// rate compares a row of the package with the reference's, which may be nil.
func rate(r row, next int32, ref *row, refTop int) score {
	s := score{nll: r.nll(next)}
	if ref != nil {
		s.kl, s.same = ref.kl(r), refTop == r.top()
	}
	return s
}

// tileScores fills dst, one element for every next token, from logits [len(dst), vocab]; ref is nil without a
// reference. Positions are independent of each other and computed in parallel.
func tileScores(dst []scores, threads, vocab int, next []int32, ref, float, int8 []float32) {
	kernel.Parallel(threads, len(dst), func(lo, hi int) {
		for i := lo; i < hi; i++ {
			at, end := i*vocab, (i+1)*vocab
			f, e := newRow(float[at:end]), newRow(int8[at:end])
			s := scores{finite: f.finite() && e.finite(), peak: kernel.AbsMax(f.logits)}
			var rr *row
			top := 0
			if ref != nil {
				v := newRow(ref[at:end])
				rr, top = &v, v.top()
				s.source = v.nll(next[i])
			}
			if s.finite {
				s.float, s.int8 = rate(f, next[i], rr, top), rate(e, next[i], rr, top)
			}
			dst[i] = s
		}
	})
}
