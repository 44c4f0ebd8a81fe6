package verify

import (
	"context"

	"github.com/llmexport/llmexport/backends/cpu"
	"github.com/llmexport/llmexport/publish/manifest"
	"github.com/llmexport/llmexport/runtime"
	"github.com/llmexport/llmexport/runtime/backend"
	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/mnn"
)

const (
	// halfShare and halfPrompt are how many tokens of the first window are run in half precision: that share of the window, as a divisor, and
	// that many at most; the last halfSingle of them one by one. For the emulation a token is as much work as dozens of them in float.
	halfShare, halfPrompt, halfSingle = 16, 32, 2
	// largestHalf is the largest finite half. The engine's conversions leave larger values there.
	largestHalf = 65504
	// maxHalfKL is the largest divergence that half precision may add: on models that it suits it adds less than 0.001 nats, and 0.02 where
	// it flips the routers of random weights.
	maxHalfKL = 0.05
)

// halfRun is what a package computes at `precision: low` on CPUs of phones, next to what it does in float.
type halfRun struct {
	tokens int
	// half has the divergence from the package in float, and float has its likelihoods.
	half  Series
	float Sample
	// beyond is the first op that leaves the range of halves, with its largest magnitude; NaN if it is not a number.
	beyond string
	peak   float32
}

// runsHalf reports whether the package lets devices compute in half precision.
func (s *Subject) runsHalf() bool { return s.Package.Config.Precision == "low" }

// HalfTokens is how many tokens of a window are run in half precision.
func HalfTokens(window int) int {
	return min(max(window/halfShare, halfSingle+2), halfPrompt, window-1)
}

// halves runs the beginning of the text in half precision.
func (s *Subject) halves(ctx context.Context) (*halfRun, error) {
	if s.halved != nil {
		return s.halved, nil
	}
	half, err := runtime.NewSession(s.Package, cpu.Backend{}, runtime.Options{Mode: backend.Float, Half: true, Threads: s.Options.Threads})
	if err != nil {
		return nil, err
	}
	h := &halfRun{}
	half.Peaks = func(op *mnn.Op, peak float32) {
		if h.beyond == "" && !(peak < largestHalf) {
			h.beyond, h.peak = op.Name, peak
		}
	}
	if s.Package.Task() != runtime.Generate {
		ids := s.ids()
		h.tokens = min(halfPrompt, len(ids))
		_, err = half.Vector(ctx, ids[:h.tokens])
	} else {
		err = h.compare(ctx, s, half)
	}
	if err != nil {
		return nil, err
	}
	if s.Options.Progress != nil && s.eval != nil {
		n := int64(s.eval.Windows + 1)
		s.Options.Progress(n, n)
	}
	s.halved = h
	return h, nil
}

// compare feeds both sessions the first tokens of the first window, the last of them one by one.
func (h *halfRun) compare(ctx context.Context, s *Subject, half *runtime.Session) error {
	windows, err := s.windows()
	if err != nil {
		return err
	}
	w, vocab := windows[0], s.Package.Vocabulary()
	rows := tileRows(s.Options, vocab)
	h.tokens = HalfTokens(len(w))
	float, err := s.session(backend.Float)
	if err != nil {
		return err
	}
	h.half.begin()
	h.float.begin()
	for at := 0; at < h.tokens; {
		n := max(h.tokens-halfSingle-at, 1)
		if err := float.Feed(ctx, w[at:at+n]); err != nil {
			return err
		}
		got, err := half.Forward(ctx, w[at:at+n])
		if err != nil {
			return err
		}
		var want []float32
		for i := range n {
			k := i % rows
			if k == 0 {
				if want, err = float.Logits(ctx, i, min(i+rows, n)); err != nil {
					return err
				}
			}
			f, g := newRow(want[k*vocab:(k+1)*vocab]), newRow(got[i*vocab:(i+1)*vocab])
			switch {
			case !f.finite():
			case g.finite():
				h.half.add(rate(g, w[at+i+1], &f, f.top()), true)
				h.float.add(f.nll(w[at+i+1]))
			case h.beyond == "":
				h.beyond, h.peak = "logits", kernel.AbsMax(g.logits)
			}
		}
		at += n
	}
	return nil
}

// metrics adds the measurements to those of a manifest.
func (h *halfRun) metrics(m map[string]manifest.Metric) {
	if h == nil || h.half.KL.Len() == 0 {
		return
	}
	kl, se := h.half.KL.Mean()
	m["kl_half"] = manifest.Metric{Value: kl, StdErr: se}
	mean, se := h.half.NLL.Mean()
	m["perplexity_half"] = manifest.Metric{Value: exp(mean), StdErr: exp(mean) * se}
	mean, se = h.float.Mean()
	m["perplexity_half_float"] = manifest.Metric{Value: exp(mean), StdErr: exp(mean) * se}
}
