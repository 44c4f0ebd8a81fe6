package verify

import (
	"context"

	"github.com/llmexport/llmexport/runtime/kernel"
)

func exp(v float64) float64 { return kernel.Exp(v) }

// absurd is the perplexity above which a model does not model the text.
func (s *Subject) absurd() float64 {
	if l := s.Options.Limits.SourcePerplexity; l != 0 {
		return l
	}
	return float64(s.Package.Vocabulary()) / 4
}

// sourceSane: the source itself models the text. A checkpoint that was damaged, or whose config.json belongs to
// another one, can be packaged faithfully and is still useless.
type sourceSane struct{}

func (sourceSane) String() string { return "source" }

func (sourceSane) Check(ctx context.Context, s *Subject) (Finding, error) {
	if src, reason := s.float(); src == nil {
		return skip("%s", reason)
	}
	e, err := s.evaluation(ctx)
	if err != nil {
		return Finding{}, err
	}
	mean, _ := e.Source.Mean()
	limit := s.absurd()
	ppl := exp(mean)
	value := map[string]float64{"perplexity": ppl, "limit": limit}
	return verdict(ppl <= limit, value, "the source has perplexity %.4g on %s; more than %.4g would be absurd", ppl, s.Options.TextName, limit)
}

// perplexity of the package as shipped, against the source's.
type perplexity struct{}

func (perplexity) String() string { return "perplexity" }

func (perplexity) Check(ctx context.Context, s *Subject) (Finding, error) {
	e, err := s.evaluation(ctx)
	if err != nil {
		return Finding{}, err
	}
	if e.NotFinite > 0 {
		return fail(map[string]float64{"not_finite": float64(e.NotFinite)}, "%d positions have logits that are NaN or infinite", e.NotFinite)
	}
	mean, se := e.Int8.NLL.Mean()
	ppl := exp(mean)
	value := map[string]float64{"perplexity": ppl, "std_err": ppl * se}
	if src, _ := s.float(); src == nil {
		limit := s.absurd()
		value["limit"] = limit
		return verdict(ppl <= limit, value, "perplexity %.4f ± %.2g on %s", ppl, ppl*se, s.Options.TextName)
	}
	src, _ := e.Source.Mean()
	ratio := exp(mean - src)
	value["ratio"], value["limit"] = ratio, s.Options.Limits.PerplexityRatio
	return verdict(ratio <= s.Options.Limits.PerplexityRatio, value, "perplexity %.4f ± %.2g, source %.4f, ratio %.4f", ppl, ppl*se, exp(src), ratio)
}

// divergence is the mean KL divergence of the package as shipped from the source.
type divergence struct{}

func (divergence) String() string { return "kl" }

func (divergence) Check(ctx context.Context, s *Subject) (Finding, error) {
	if src, reason := s.float(); src == nil {
		return skip("%s", reason)
	}
	e, err := s.evaluation(ctx)
	if err != nil {
		return Finding{}, err
	}
	if e.Int8.KL.Len() == 0 {
		return fail(nil, "no position has finite logits")
	}
	kl, se := e.Int8.KL.Mean()
	float, _ := e.Float.KL.Mean()
	limit := s.klLimit(float)
	value := map[string]float64{
		"kl": kl, "std_err": se, "kl_float": float, "median": e.Int8.KL.Quantile(0.5), "p99": e.Int8.KL.Quantile(0.99),
		"max": e.Int8.KL.Quantile(1), "same_top_token": e.Int8.Top1(), "limit": limit,
	}
	return verdict(kl <= limit, value, "KL %.4g ± %.1g nats (weights alone %.4g), median %.3g, 99 %% %.3g, max %.3g, same top token %.2f %%",
		kl, se, float, value["median"], value["p99"], value["max"], 100*e.Int8.Top1())
}

// decode: feeding tokens one by one gives what feeding them at once gives (in float mode), and the decode path as
// shipped keeps the divergence limit.
type decode struct{}

func (decode) String() string { return "decode" }

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
	limit := s.klLimit(float)
	value["kl"], value["limit"] = kl, limit
	return verdict(kl <= limit, value, "one by one equals at once (KL %.2g over %d tokens); decode path as shipped: KL %.4g", gap, e.DecodeGap.Len(), kl)
}

// activations: nothing a device computes in fp16 comes near the largest half, 65504, unless the package asks for
// more precision.
type activations struct{}

func (activations) String() string { return "activations" }

// maxActivation leaves a factor of two for texts that excite the model more than the evaluated one.
const maxActivation = 3e4

func (activations) Check(ctx context.Context, s *Subject) (Finding, error) {
	e, err := s.evaluation(ctx)
	if err != nil {
		return Finding{}, err
	}
	value := map[string]float64{"largest": e.LargestActivation, "limit": maxActivation}
	if e.LargestActivation > maxActivation && s.Package.Config.Precision == "low" {
		return fail(value, "%s reaches %.3g, which fp16 devices may overflow on: the package needs precision: normal", e.LargestOp, e.LargestActivation)
	}
	return pass(value, "largest activation %.4g, at %s; precision %s", e.LargestActivation, e.LargestOp, s.Package.Config.Precision)
}
