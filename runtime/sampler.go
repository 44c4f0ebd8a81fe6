package runtime

import (
	"cmp"
	"math/rand/v2"
	"slices"

	"github.com/llmexport/llmexport/runtime/kernel"
)

// Sampler draws from softmax(logits/Temperature) after dropping unlikely tokens, in the order top-k, top-p,
// min-p. A nil Sampler, or Temperature 0, takes the most likely token.
type Sampler struct {
	Temperature float64
	// TopK keeps the k most likely tokens; 0 keeps all.
	TopK int
	// TopP keeps the smallest set of most likely tokens that holds this probability; 0 and 1 keep all.
	TopP float64
	// MinP drops tokens below this probability, as an absolute number as in the engine; 0 keeps all.
	MinP float64
	// Penalty divides positive logits of tokens that occurred before, and multiplies negative ones; 0 and 1 change
	// nothing.
	Penalty float64
}

// Sampler returns what the package's configuration asks for: nil for greedy.
func (c *Config) Sampler() *Sampler {
	switch c.SamplerType {
	case "greedy":
		return nil
	default:
		s := &Sampler{Temperature: c.Temperature, TopK: c.TopK, TopP: c.TopP, MinP: c.MinP}
		if len(c.MixedSamplers) == 0 {
			return s
		}
		// The engine applies only the samplers that are named, whatever the values of the others.
		named := func(n string) bool { return slices.Contains(c.MixedSamplers, n) }
		if !named("topK") {
			s.TopK = 0
		}
		if !named("topP") {
			s.TopP = 0
		}
		if !named("minP") && !named("min_p") {
			s.MinP = 0
		}
		if !named("temperature") {
			s.Temperature = 1
		}
		if named("penalty") {
			s.Penalty = c.RepetitionPenalty
		}
		return s
	}
}

type candidate struct {
	token int32
	logit float32
	p     float64
}

// Next picks a token; seen are those that occurred before, the prompt's included. Ties go to the smaller token.
func (s *Sampler) Next(logits []float32, seen map[int32]bool, rng *rand.Rand) int32 {
	if s != nil && s.Penalty > 0 && s.Penalty != 1 {
		logits = slices.Clone(logits)
		for t := range seen {
			if int(t) >= len(logits) {
				continue
			}
			if v := logits[t]; v >= 0 {
				logits[t] = v / float32(s.Penalty)
			} else {
				logits[t] = v * float32(s.Penalty)
			}
		}
	}
	if s == nil || s.Temperature <= 0 {
		best := 0
		for i, v := range logits {
			if v > logits[best] {
				best = i
			}
		}
		return int32(best)
	}
	c := make([]candidate, len(logits))
	for i, v := range logits {
		c[i] = candidate{token: int32(i), logit: v}
	}
	slices.SortFunc(c, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(b.logit, a.logit), cmp.Compare(a.token, b.token))
	})
	if s.TopK > 0 && s.TopK < len(c) {
		c = c[:s.TopK]
	}
	sum := 0.0
	for i := range c {
		c[i].p = kernel.Exp(float64(c[i].logit-c[0].logit) / s.Temperature)
		sum += c[i].p
	}
	kept, mass := 0, 0.0
	for kept < len(c) {
		p := c[kept].p / sum
		if kept > 0 && (p < s.MinP || (s.TopP > 0 && s.TopP < 1 && mass >= s.TopP)) {
			break
		}
		mass += p
		kept++
	}
	u := rng.Float64() * mass * sum
	for i := range kept {
		if u -= c[i].p; u < 0 {
			return c[i].token
		}
	}
	return c[kept-1].token
}
