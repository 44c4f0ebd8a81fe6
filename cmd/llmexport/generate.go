package main

import (
	"fmt"
	"io"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/llmexport/llmexport/internal/exit"
	"github.com/llmexport/llmexport/runtime"
	"github.com/llmexport/llmexport/runtime/backend"
)

func (t *tool) generateCommand() *cli.Command {
	return &cli.Command{
		Name:      "generate",
		Usage:     "generate text with a package",
		ArgsUsage: "PACKAGE PROMPT",
		Description: "The prompt is used as it is, without a chat template. If the package reads pictures, <img>FILE</img> in the prompt is\n" +
			"the picture in that file; if it reads sound, <audio>FILE</audio> is the clip in that WAV or FLAC file. Sampling follows the\n" +
			"package's config.json unless flags override it. The speed is printed to standard error.",
		Flags: append([]cli.Flag{
			&cli.IntFlag{Name: "tokens", Aliases: []string{"n"}, Value: 64, Usage: "generate at most `N` tokens"},
			&cli.BoolFlag{Name: "int8", Usage: "quantize activations, as the engine does with memory: low"},
			&cli.BoolFlag{Name: "stdin", Usage: "read the whole prompt from standard input"},
		}, append(samplingFlags(), computeFlags()...)...),
		CustomHelpTemplate: help(
			"llmexport generate dist/qwen3-0.6b-int4 'The capital of France is'",
			"llmexport generate dist/qwen3-0.6b-int4 --stdin --greedy -n 200 < prompt.txt",
			"llmexport generate dist/llava-1.5-7b-int4 'USER: <img>photo.jpg</img> What is this? ASSISTANT:'",
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
	most, err := number(c, "tokens", 1, mostTokens)
	if err != nil {
		return err
	}
	mode := backend.Float
	if c.Bool("int8") {
		mode = backend.Int8
	}
	o, err := computeOptions(c, mode)
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
	p, s, err := openSession(c, args[0], o)
	if err != nil {
		return err
	}
	defer p.Close()
	tokens, err := readPrompt(c, p, s, prompt, o)
	if err != nil {
		return err
	}
	if len(tokens) == 0 {
		return exit.Usagef("the prompt is empty")
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
	err = s.Generate(c.Context, tokens, runtime.GenerateOptions{MaxTokens: most, Sampler: sample(p.Config), Seed: seedOption(c)}, func(token int32) bool {
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

// readPrompt turns a prompt into tokens. Pictures and clips are read by the parts of the package for them, and shown to the session.
func readPrompt(c *cli.Context, p *runtime.Package, s *runtime.Session, prompt string, o runtime.Options) ([]int32, error) {
	r, err := openReader(c.Context, p, o)
	if err != nil {
		return nil, err
	}
	if r == nil {
		return p.Tokenizer.Encode(prompt), nil
	}
	in, err := r.Read(c.Context, prompt)
	if err != nil {
		return nil, err
	}
	s.Show(in.Pictures...)
	return in.Tokens, nil
}
