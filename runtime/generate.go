package runtime

import (
	"context"
	"math/rand/v2"
	"slices"
)

// GenerateOptions configures Generate.
type GenerateOptions struct {
	// MaxTokens bounds the number of generated tokens.
	MaxTokens int
	// Sampler chooses tokens; nil is greedy.
	Sampler *Sampler
	// Seed of the random numbers of a Sampler.
	Seed uint64
	// Chosen, if set, is called with every token before it is yielded, a stop token included, and with the logits [vocabulary]
	// that it was chosen from, which are valid during the call.
	Chosen func(token int32, logits []float32)
}

// Generate appends a prompt and yields generated tokens until a stop token, MaxTokens, or yield returns
// false. The stop token is not yielded.
func (s *Session) Generate(ctx context.Context, prompt []int32, o GenerateOptions, yield func(token int32) bool) error {
	rng := rand.New(rand.NewPCG(o.Seed, 0x6c6c6d))
	stop := s.pkg.Tokenizer.Stop()
	seen := Seen{}
	seen.add(s.tokens)
	seen.add(prompt)
	logits, err := s.Prefill(ctx, prompt)
	s.shown = nil // after an error there may be some left
	for n := 0; err == nil && n < o.MaxTokens; n++ {
		t := o.Sampler.Next(logits, seen, rng)
		seen[t]++
		if o.Chosen != nil {
			o.Chosen(t, logits)
		}
		if slices.Contains(stop, t) || !yield(t) {
			return nil
		}
		if n+1 < o.MaxTokens {
			logits, err = s.Decode(ctx, t)
		}
	}
	return err
}
