package verify

import (
	"context"
	"errors"

	"github.com/llmexport/llmexport/backends/cpu"
	"github.com/llmexport/llmexport/publish/manifest"
	"github.com/llmexport/llmexport/runtime"
	"github.com/llmexport/llmexport/runtime/backend"
	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/mnn"
	"github.com/llmexport/llmexport/runtime/tensor"
)

const (
	// halfShare and halfPrompt are how many tokens of the first window are run in half precision: that share of the window, as a divisor, and
	// that many at most; the last halfSingle of them one by one. For the emulation a token is as much work as dozens of them in float.
	halfShare, halfPrompt, halfSingle = 16, 32, 2
	// largestHalf is the largest finite half. The engine's conversions leave larger values there.
	largestHalf = 65504
	// maxHalfKL is the largest divergence that half precision may add, to that of int8 activations as well: on models that it suits it adds less
	// than 0.001 nats, and 0.02 where it flips the routers of random weights.
	maxHalfKL = 0.05
)

// halfRun is what a package computes on CPUs of phones, next to what it does in float.
type halfRun struct {
	tokens int
	// half has the divergence from the package in float, and float has its likelihoods.
	half  Series
	float Sample
	// halfInt8 has that with int8 activations, too, if the package has them, and int8 what they cost in float32.
	halfInt8, int8 Series
	// arm has that of int8 activations alone on arm64, of a package that is not run in half precision.
	arm Series
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

// runsPhone reports whether the package is run as on CPUs of phones.
func (s *Subject) runsPhone() bool {
	return s.runsHalf() || s.quantizesActivations() && s.Package.Task() == runtime.Generate
}

// quantizesActivations reports whether the package lets CPUs compute with int8 activations.
func (s *Subject) quantizesActivations() bool { return s.Package.Config.Memory == "low" }

// phoneSession is a session that computes as a phone does. What leaves the range of half precision is noted in h.
func (s *Subject) phoneSession(h *halfRun, mode backend.Mode) (*runtime.Session, error) {
	o := runtime.Options{Mode: mode, DynamicOption: s.Package.Config.DynamicOption, Threads: s.Options.Threads}
	if o.Half = s.runsHalf(); !o.Half {
		o.Arm = kernel.ArmI8MM
	}
	sess, err := runtime.NewSession(s.Package, cpu.Backend{}, o)
	if err == nil && o.Half {
		sess.Peaks = func(op *mnn.Op, peak float32) {
			if h.beyond == "" && !(peak < largestHalf) {
				h.beyond, h.peak = op.Name, peak
			}
		}
	}
	return sess, err
}

// phone runs the beginning of the text as on CPUs of phones.
func (s *Subject) phone(ctx context.Context) (*halfRun, error) {
	if s.halved != nil {
		return s.halved, nil
	}
	h := &halfRun{}
	var err error
	if s.Package.Task() != runtime.Generate {
		var half *runtime.Session
		if half, err = s.phoneSession(h, backend.Float); err == nil {
			ids := s.ids()
			h.tokens = min(halfPrompt, len(ids))
			_, err = half.Vector(ctx, ids[:h.tokens])
		}
	} else {
		err = h.compare(ctx, s)
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

// compare compares what phones compute with the package in float, in half precision and with activations in int8. One session runs
// at a time, because its operators compute the logits of all positions at once.
func (h *halfRun) compare(ctx context.Context, s *Subject) error {
	float, err := s.session(backend.Float)
	if err != nil {
		return err
	}
	if s.runsHalf() {
		half, err := s.phoneSession(h, backend.Float)
		if err != nil {
			return err
		}
		if err := h.follow(ctx, s, float, half, &h.half); err != nil {
			return err
		}
	}
	if !s.quantizesActivations() {
		return nil
	}
	phone, err := s.phoneSession(h, backend.Int8)
	switch {
	case errors.Is(err, tensor.ErrUnsupported): // blocks whose columns the engine fills up: nobody knows with what
		return nil
	case err != nil:
		return err
	case !s.runsHalf():
		return h.follow(ctx, s, float, phone, &h.arm)
	}
	if err := h.follow(ctx, s, float, phone, &h.halfInt8); err != nil {
		return err
	}
	x86, err := s.session(backend.Int8)
	if err != nil {
		return err
	}
	return h.follow(ctx, s, float, x86, &h.int8)
}

// follow feeds a session and that in float, from its beginning, the first tokens of the first window, the last of them one by one.
func (h *halfRun) follow(ctx context.Context, s *Subject, float, session *runtime.Session, series *Series) error {
	windows, err := s.windows()
	if err != nil {
		return err
	}
	w := windows[0]
	rows := tileRows(s.Options, s.Package.Vocabulary())
	h.tokens = HalfTokens(len(w))
	float.Reset()
	if series == &h.half {
		h.float.begin()
	}
	series.begin()
	for at := 0; at < h.tokens; {
		n := max(h.tokens-halfSingle-at, 1)
		for _, x := range []*runtime.Session{float, session} {
			if err := x.Feed(ctx, w[at:at+n]); err != nil {
				return err
			}
		}
		for from := 0; from < n; from += rows {
			to := min(from+rows, n)
			want, err := float.Logits(ctx, from, to)
			if err != nil {
				return err
			}
			got, err := session.Logits(ctx, from, to)
			if err != nil {
				return err
			}
			h.add(series, want, got, w[at+from+1:at+to+1])
		}
		at += n
	}
	return nil
}

// add compares the logits of some positions, whose next tokens are those.
func (h *halfRun) add(series *Series, want, got []float32, next []int32) {
	vocab := len(want) / len(next)
	for i, token := range next {
		f, g := newRow(want[i*vocab:(i+1)*vocab]), newRow(got[i*vocab:(i+1)*vocab])
		switch {
		case !f.finite():
		case g.finite():
			series.add(rate(g, token, &f, f.top()), true)
			if series == &h.half {
				h.float.add(f.nll(token))
			}
		case h.beyond == "":
			h.beyond, h.peak = "logits", kernel.AbsMax(g.logits)
		}
	}
}

// metrics adds the measurements to those of a manifest.
func (h *halfRun) metrics(m map[string]manifest.Metric) {
	if h == nil {
		return
	}
	for name, series := range map[string]*Series{"kl_half": &h.half, "kl_half_int8": &h.halfInt8, "kl_arm_int8": &h.arm} {
		if series.KL.Len() > 0 {
			kl, se := series.KL.Mean()
			m[name] = manifest.Metric{Value: kl, StdErr: se}
		}
	}
	if h.half.KL.Len() == 0 {
		return
	}
	mean, se := h.half.NLL.Mean()
	m["perplexity_half"] = manifest.Metric{Value: exp(mean), StdErr: exp(mean) * se}
	mean, se = h.float.Mean()
	m["perplexity_half_float"] = manifest.Metric{Value: exp(mean), StdErr: exp(mean) * se}
}
