package main

import (
	"math"
	"math/rand/v2"

	"github.com/urfave/cli/v2"

	"github.com/llmexport/llmexport/runtime"
)

// samplingFlags are those of commands that draw tokens.
func samplingFlags() []cli.Flag {
	return []cli.Flag{
		&cli.BoolFlag{Name: "greedy", Usage: "always take the likeliest token"},
		&cli.Float64Flag{Name: "temperature", Usage: "divide logits by `T`"},
		&cli.IntFlag{Name: "top-k", Usage: "sample from the `K` likeliest tokens; 0 for all"},
		&cli.Float64Flag{Name: "top-p", Usage: "sample from the likeliest tokens with a total probability of `P`"},
		&cli.Uint64Flag{Name: "seed", Usage: "`SEED` of the random numbers; random if it is not given"},
	}
}

// sampling reads the sampling flags. The result makes the sampler of a package, with its options overridden by the
// flags.
func sampling(c *cli.Context) (func(*runtime.Config) *runtime.Sampler, error) {
	temperature, err := real(c, "temperature", 0, math.MaxFloat64)
	if err != nil {
		return nil, err
	}
	topK, err := number(c, "top-k", 0, math.MaxInt32)
	if err != nil {
		return nil, err
	}
	topP, err := real(c, "top-p", 0, 1)
	if err != nil {
		return nil, err
	}
	return func(config *runtime.Config) *runtime.Sampler {
		if c.Bool("greedy") {
			return nil
		}
		s := config.Sampler()
		if s == nil {
			if !c.IsSet("temperature") && !c.IsSet("top-k") && !c.IsSet("top-p") {
				return nil
			}
			s = &runtime.Sampler{Temperature: 1}
		}
		if c.IsSet("temperature") {
			s.Temperature = temperature
		}
		if c.IsSet("top-k") {
			s.TopK = topK
		}
		if c.IsSet("top-p") {
			s.TopP = topP
		}
		return s
	}, nil
}

// seedOption returns the value of --seed, or a random one.
func seedOption(c *cli.Context) uint64 {
	if c.IsSet("seed") {
		return c.Uint64("seed")
	}
	return rand.Uint64()
}
