package verify

import "context"

// KL checks the mean KL divergence from the source to the package as shipped, in nats.
type KL struct {
	Limit
	// noise replaces divergenceNoise, in tests.
	noise float64
}

// largestKL is the default of Max.
var largestKL = byBits{16: 1e-3, 8: 0.02, 6: 0.03, 5: 0.06, 4: 0.15, 3: 0.5, 2: 1}

// divergenceNoise is the factor of the divergence of the weights alone that is always allowed if the checks weights and
// graph have passed, so that only noise is left, and the recipe sets no limit. On 64 mixtures of experts and state-space
// models of random weights, whose routers flip, int8 activations multiplied the weights' divergence by 2.3 over a window,
// and by 4.3 over 32 tokens.
const divergenceNoise = 6

func (*KL) String() string { return "kl" }

// Hint implements Check.
func (*KL) Hint(value map[string]float64) string {
	return closer(value["kl"], value["kl_float"], "verify.kl.max")
}

// Validate implements Validator.
func (k *KL) Validate() (key, problem string) { return k.notNegative() }

// limit returns the largest divergence allowed to a package whose weights alone have divergence float.
func (k *KL) limit(s *Subject, float float64) float64 {
	if k.Max != nil {
		return *k.Max
	}
	limit := largestKL[s.Options.Bits]
	if s.faithful {
		noise := k.noise
		if noise == 0 {
			noise = divergenceNoise
		}
		limit = max(limit, noise*float)
	}
	return limit
}

// Check implements Check.
func (k *KL) Check(ctx context.Context, s *Subject) (Finding, error) {
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
	value := map[string]float64{
		"kl": kl, "std_err": se, "kl_float": float, "median": e.Int8.KL.Quantile(0.5), "p99": e.Int8.KL.Quantile(0.99),
		"max": e.Int8.KL.Quantile(1), "same_top_token": e.Int8.Top1(),
	}
	return atMost(kl, k.limit(s, float), "nats", value,
		"KL %.4g ± %.1g nats (weights alone %.4g), median %.3g, 99 %% %.3g, max %.3g, same top token %.2f %%",
		kl, se, float, value["median"], value["p99"], value["max"], 100*e.Int8.Top1())
}
