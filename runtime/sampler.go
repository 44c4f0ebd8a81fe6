package runtime

import (
	"math"
	"math/rand/v2"
	"slices"
	"sync"

	"github.com/llmexport/llmexport/runtime/kernel"
)

// Sampler draws from softmax(logits/Temperature) after dropping unlikely tokens, in the order top-k, top-p,
// min-p. A nil Sampler, or Temperature 0, selects the most likely token.
type Sampler struct {
	Temperature float64
	// TopK keeps the k most likely tokens; 0 keeps all.
	TopK int
	// TopP keeps the smallest set of most likely tokens whose probabilities add up to TopP; 0 and 1 keep all.
	TopP float64
	// MinP drops tokens below this absolute probability, as the engine does; 0 keeps all.
	MinP float64
	// Penalty divides the positive logits of tokens that occurred before and multiplies the negative ones; 0 and 1 have
	// no effect.
	Penalty float64
	// Presence is subtracted from the logits of tokens that were generated before, and Frequency once for each time; 0 has no
	// effect. These are the penalties of OpenAI's interface.
	Presence, Frequency float64
}

// Seen holds the tokens of a conversation with the number of times that each was generated, 0 for those of prompts only.
type Seen map[int32]int

// add notes the tokens of a prompt.
func (s Seen) add(prompt []int32) {
	for _, t := range prompt {
		s[t] += 0
	}
}

// Sampler returns the sampler that the package is configured with: nil for greedy.
func (c *Config) Sampler() *Sampler {
	switch c.SamplerType {
	case "greedy":
		return nil
	default:
		s := &Sampler{Temperature: c.Temperature, TopK: c.TopK, TopP: c.TopP, MinP: c.MinP}
		if len(c.MixedSamplers) == 0 {
			return s
		}
		// The engine applies only the samplers in the list, whatever the values of the others.
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

// Next picks a token. seen has the tokens that occurred before. Ties go to the smaller token.
// NaNs are never drawn. If no probabilities can be computed, as next to +Inf, Next picks the largest logit.
func (s *Sampler) Next(logits []float32, seen Seen, rng *rand.Rand) int32 {
	if s == nil {
		return int32(kernel.ArgMax(logits))
	}
	c := candidatePool.Get().(*candidates)
	defer c.release()
	if s.Penalty > 0 && s.Penalty != 1 || s.Presence != 0 || s.Frequency != 0 {
		logits = c.penalize(logits, seen, s)
	}
	best := kernel.ArgMax(logits)
	if s.Temperature <= 0 {
		return int32(best)
	}
	c.rank(logits, best, s)
	if !(c.sum >= 1) || math.IsInf(c.sum, 0) {
		return int32(best)
	}
	cut := s.TopP > 0 && s.TopP < 1
	kept, mass := c.limit, 1.0
	if cut || s.MinP > 0 || c.limit < len(logits) {
		for kept, mass = 0, 0; kept < c.limit; kept++ {
			p := c.at(kept) / c.sum
			if kept > 0 && (p < s.MinP || cut && mass >= s.TopP) {
				break
			}
			mass += p
		}
	}
	u := rng.Float64() * mass * c.sum
	last := 0
	for i := range kept {
		p := c.at(i)
		if p == 0 {
			break // u is left over from rounding
		}
		if last, u = i, u-p; u < 0 {
			break
		}
	}
	return c.order[last]
}

// candidates are the tokens that may be drawn. Because vocabularies are large, the memory is reused by later draws, and a
// draw sorts no more tokens than it needs.
type candidates struct {
	penalized   []float32
	logits      []float32
	top         float32
	temperature float64
	limit       int // number of tokens that may be drawn
	sum         float64

	order []int32   // the most likely tokens, in descending order
	p     []float64 // their probabilities, times sum
}

var candidatePool = sync.Pool{New: func() any { return new(candidates) }}

// firstCandidates is the number of tokens that are sorted first if the number needed is unknown.
const firstCandidates = 64

func (c *candidates) release() {
	c.logits = nil // they belong to the caller
	candidatePool.Put(c)
}

// penalize returns a copy of logits in which the tokens seen are less likely.
func (c *candidates) penalize(logits []float32, seen Seen, s *Sampler) []float32 {
	c.penalized = append(c.penalized[:0], logits...)
	penalty := float32(1)
	if s.Penalty > 0 {
		penalty = float32(s.Penalty)
	}
	for t, times := range seen {
		if int(t) >= len(logits) {
			continue
		}
		v := logits[t]
		if v >= 0 {
			v /= penalty
		} else {
			v *= penalty
		}
		if times > 0 {
			v -= float32(s.Presence) + float32(float32(s.Frequency)*float32(times))
		}
		c.penalized[t] = v
	}
	return c.penalized
}

// rank starts a draw from logits, the largest of which is at index best.
func (c *candidates) rank(logits []float32, best int, s *Sampler) {
	c.logits, c.top, c.temperature = logits, logits[best], s.Temperature
	c.p, c.sum = c.p[:0], 0
	if s.TopK > 0 && s.TopK < len(logits) {
		c.sort(s.TopK)
		c.limit = len(c.p)
		for _, p := range c.p {
			c.sum += p
		}
		return
	}
	c.limit = len(logits)
	var d [512]float32
	for len(logits) > 0 {
		n := min(len(logits), len(d))
		for i, v := range logits[:n] {
			d[i] = v - c.top
		}
		c.sum += kernel.SumExp(d[:n], 0, 1/s.Temperature)
		logits = logits[n:]
	}
}

// sort finds the n most likely tokens.
func (c *candidates) sort(n int) {
	c.order = kernel.TopK(c.order, c.logits, n)
	for _, t := range c.order[len(c.p):] {
		c.p = append(c.p, kernel.Exp(float64(c.logits[t]-c.top)/c.temperature))
	}
}

// at returns the probability, times sum, of token i in descending order.
func (c *candidates) at(i int) float64 {
	for n := max(firstCandidates, 8*len(c.p)); i >= len(c.p); n *= 8 {
		c.sort(n)
	}
	return c.p[i]
}
