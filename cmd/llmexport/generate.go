package main

import (
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"runtime/debug"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/llmexport/llmexport/backends/cpu"
	"github.com/llmexport/llmexport/recipes"
	"github.com/llmexport/llmexport/runtime"
	"github.com/llmexport/llmexport/runtime/backend"
)

func (t *tool) generateCommand() *cli.Command {
	return &cli.Command{
		Name:      "generate",
		Usage:     "generate text with a package",
		ArgsUsage: "PACKAGE PROMPT",
		Description: "The prompt is used as it is, without a chat template. Sampling follows the package's config.json unless flags\n" +
			"override it. The speed is printed to standard error.",
		Flags: []cli.Flag{
			&cli.IntFlag{Name: "tokens", Aliases: []string{"n"}, Value: 64, Usage: "generate at most `N` tokens"},
			&cli.BoolFlag{Name: "int8", Usage: "quantize activations, as the engine does with memory: low"},
			&cli.BoolFlag{Name: "greedy", Usage: "always take the likeliest token"},
			&cli.Float64Flag{Name: "temperature", Usage: "divide logits by `T`"},
			&cli.IntFlag{Name: "top-k", Usage: "sample from the `K` likeliest tokens; 0 for all"},
			&cli.Float64Flag{Name: "top-p", Usage: "sample from the likeliest tokens with a total probability of `P`"},
			&cli.Uint64Flag{Name: "seed", Usage: "`SEED` of the random numbers; random if it is not given"},
			&cli.BoolFlag{Name: "stdin", Usage: "read the whole prompt from standard input"},
			&cli.StringFlag{Name: "memory", Value: recipes.DefaultLimits().Memory.String(), Usage: "`SIZE` of memory for expanded weights"},
			&cli.IntFlag{Name: "threads", Usage: "`N` threads, 0 for all cores"},
		},
		CustomHelpTemplate: help(
			"llmexport generate dist/qwen3-0.6b-int4 'The capital of France is'",
			"llmexport generate dist/qwen3-0.6b-int4 --stdin --greedy -n 200 < prompt.txt",
		),
		Action: t.generate,
	}
}

func (t *tool) generate(c *cli.Context) error {
	names := []string{"PACKAGE", "PROMPT"}
	if c.Bool("stdin") {
		names = names[:1]
	}
	args, err := arguments(c, names...)
	if err != nil {
		return err
	}
	memory, err := memoryOption(c)
	if err != nil {
		return err
	}
	most, err := number(c, "tokens", 1, mostTokens)
	if err != nil {
		return err
	}
	threads, err := number(c, "threads", 0, mostThreads)
	if err != nil {
		return err
	}
	sample, err := sampling(c)
	if err != nil {
		return err
	}
	var prompt string
	if c.Bool("stdin") {
		b, err := io.ReadAll(t.stdin)
		if err != nil {
			return err
		}
		prompt = string(b)
	} else {
		prompt = args[1]
	}
	// Opening allocates much that stays and little garbage; collecting it would take a fifth of the time to the first
	// token.
	collect := debug.SetGCPercent(-1)
	defer debug.SetGCPercent(collect)
	p, err := runtime.Open(args[0])
	if err != nil {
		return explained(c.Context, args[0], err)
	}
	defer p.Close()
	tokens := p.Tokenizer.Encode(prompt)
	if len(tokens) == 0 {
		return usagef("the prompt is empty")
	}
	o := runtime.Options{Threads: threads, CacheBytes: memory, DynamicOption: p.Config.DynamicOption}
	if c.Bool("int8") {
		o.Mode = backend.Int8
	}
	s, err := runtime.NewSession(p, cpu.Backend{}, o)
	if err != nil {
		return explained(c.Context, args[0], err)
	}
	debug.SetGCPercent(collect)
	seed := c.Uint64("seed")
	if !c.IsSet("seed") {
		seed = rand.Uint64()
	}
	text := p.Tokenizer.Stream() // holds back incomplete characters
	var failed error
	write := func(s string) bool {
		if s != "" && failed == nil {
			_, failed = io.WriteString(t.stdout, s)
		}
		return failed == nil
	}
	var first time.Time
	n, start := 0, time.Now()
	err = s.Generate(c.Context, tokens, runtime.GenerateOptions{MaxTokens: most, Sampler: sample(p.Config), Seed: seed}, func(token int32) bool {
		if n++; n == 1 {
			first = time.Now()
		}
		return write(text.Next(token))
	})
	write(text.Close() + "\n")
	if err != nil {
		return explained(c.Context, args[0], err)
	}
	if failed != nil {
		return failed
	}
	if n > 1 {
		fmt.Fprintf(&t.progress, "%d prompt tokens in %.2f s, then %.1f tokens/s (%d tokens)\n",
			len(tokens), first.Sub(start).Seconds(), float64(n-1)/time.Since(first).Seconds(), n)
	} else {
		fmt.Fprintf(&t.progress, "%d prompt tokens in %.2f s, %d tokens\n", len(tokens), time.Since(start).Seconds(), n)
	}
	return nil
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
