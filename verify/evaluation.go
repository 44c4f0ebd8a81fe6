package verify

import "github.com/llmexport/llmexport/publish/manifest"

// Series holds the measurements of one way to execute the package. KL and Top1 need a reference.
type Series struct {
	NLL  Sample // negative log-likelihood of the next token
	KL   Sample // divergence from the reference at the same position
	Same int    // positions at which the most likely token is the reference's
}

// Top1 returns the share of positions whose most likely token is the reference's.
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
	// Float measures the package with expanded weights, Int8 as shipped: quantized activations, prefill.
	Float, Int8 Series
	// Decode measures the package as shipped with the last tokens of the first window fed one by one.
	Decode Series
	// DecodeGap is the divergence, in float mode, between feeding tokens one by one and at once.
	DecodeGap Sample
	// LargestActivation in float mode, and the op that produced it.
	LargestActivation float64
	LargestOp         string
	// NotFinite counts positions whose logits hold a NaN or an infinity.
	NotFinite int

	passages passages
}

// Metrics returns the measurements by their names in a manifest. Those of the package as shipped carry no
// suffix.
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
