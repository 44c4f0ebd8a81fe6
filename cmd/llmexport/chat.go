package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/urfave/cli/v2"

	"github.com/llmexport/llmexport/internal/exit"
	"github.com/llmexport/llmexport/runtime"
	"github.com/llmexport/llmexport/runtime/chat"
	"github.com/llmexport/llmexport/runtime/tensor"
)

func (t *tool) chatCommand() *cli.Command {
	return &cli.Command{
		Name:      "chat",
		Usage:     "talk to a package",
		ArgsUsage: "PACKAGE",
		Description: "Prompts are made by the package's own chat template. Lines that begin with / are commands; /help lists them. A line\n" +
			"that ends with \\ continues on the next one, and \"\"\" begins and ends a message of several lines. If the package reads\n" +
			"pictures or sound, <img>FILE</img> and <audio>FILE</audio> in a message are the picture and the clip in that file, and\n" +
			"/image FILE and /audio FILE put one before the next message. Ctrl-C stops an answer, a second one leaves. When standard\n" +
			"input is not a terminal, each line is a message and there are no prompts.",
		Flags: append(append([]cli.Flag{
			&cli.StringFlag{Name: "system", Usage: "begin with the system message `TEXT`"},
			&cli.BoolFlag{Name: "think", Usage: "switch thinking on, if the template can"},
			&cli.BoolFlag{Name: "no-think", Usage: "switch thinking off, if the template can"},
			&cli.IntFlag{
				Name: "tokens", Aliases: []string{"n"}, DefaultText: "what the context has room for",
				Usage: "generate at most `N` tokens an answer",
			},
			contextFlag(),
			&cli.BoolFlag{Name: "stats", DefaultText: "on a terminal", Usage: "print the tokens and the speed of each answer to standard error"},
		}, samplingFlags()...), append(computeFlags(), modeFlag())...),
		CustomHelpTemplate: help(
			"llmexport chat dist/qwen3-0.6b-int4",
			"llmexport chat dist/qwen3-0.6b-int4 --system 'Answer in one sentence.' --no-think",
			"echo 'What is the capital of France?' | llmexport chat dist/qwen3-0.6b-int4 --greedy",
		),
		Action: t.chat,
	}
}

// defaultContext bounds the keys and values that a conversation occupies where the user does not.
const defaultContext = 4096

func contextFlag() cli.Flag {
	return &cli.IntFlag{
		Name: "context", DefaultText: fmt.Sprintf("%d, or the positions of the model", defaultContext),
		Usage: "keep at most `N` tokens of a conversation",
	}
}

// contextOption returns the value of --context for a package.
func contextOption(c *cli.Context, p *runtime.Package) (int, error) {
	positions := p.Config.MaxPositions
	if !c.IsSet("context") {
		if positions > 0 {
			return min(defaultContext, positions), nil
		}
		return defaultContext, nil
	}
	n, err := number(c, "context", 16, mostTokens)
	if err == nil && positions > 0 && n > positions {
		err = exit.Usagef("--context %d is more than the %d positions of the model", n, positions)
	}
	return n, err
}

func (t *tool) chat(c *cli.Context) error {
	args, err := arguments(c, "PACKAGE")
	if err != nil {
		return err
	}
	sample, err := sampling(c)
	if err != nil {
		return err
	}
	most, err := number(c, "tokens", 0, mostTokens)
	if err != nil {
		return err
	}
	mode, err := modeOption(c)
	if err != nil {
		return err
	}
	o, err := computeOptions(c, mode)
	if err != nil {
		return err
	}
	if c.Bool("think") && c.Bool("no-think") {
		return exit.Usagef("--think and --no-think exclude each other")
	}
	p, s, err := openSession(c, args[0], o)
	if err != nil {
		return err
	}
	defer p.Close()
	limit, err := contextOption(c, p)
	if err != nil {
		return err
	}
	tmpl, err := openTemplate(p)
	if err != nil {
		return explained(c.Context, args[0], err)
	}
	d := chat.New(p, tmpl, s, limit)
	d.System = c.String("system")
	if d.Reader, err = openReader(c.Context, p, o); err != nil {
		return err
	}
	if c.Bool("think") || c.Bool("no-think") {
		if !tmpl.KnowsThinking(c.Context) {
			return exit.Usagef("the chat template of %s cannot switch thinking on or off", args[0])
		}
		d.Variables = chat.Thinking(c.Bool("think"))
	}
	b := &chatter{
		tool: t, dialogue: d, template: tmpl, stats: c.Bool("stats"),
		options: runtime.GenerateOptions{MaxTokens: most, Sampler: sample(p.Config), Seed: seedOption(c)},
	}
	in, ok := t.stdin.(*os.File)
	if b.terminal = ok && isTerminal(in) && isTerminal(t.screen); !b.terminal {
		return explained(c.Context, args[0], b.run(c.Context, newPipe(t.stdin), nil))
	}
	b.stats = b.stats || !c.IsSet("stats")
	b.dim = os.Getenv("NO_COLOR") == ""
	// Interrupts stop answers: the chatter receives them itself.
	ctx, stop := signal.NotifyContext(context.WithoutCancel(c.Context), syscall.SIGTERM)
	defer stop()
	interrupts := make(chan os.Signal, 1)
	signal.Notify(interrupts, os.Interrupt)
	defer signal.Stop(interrupts)
	lines := newEditor(commandNames(), interrupts)
	defer lines.close()
	b.note("%s, %d tokens of context. /help lists the commands, Ctrl-D leaves.", filepath.Base(filepath.Clean(args[0])), limit)
	if err = b.run(ctx, lines, interrupts); ctx.Err() != nil {
		<-c.Context.Done() // the same signal ends it
		return context.Cause(c.Context)
	}
	return explained(ctx, args[0], err)
}

// openTemplate opens the chat template of a package.
func openTemplate(p *runtime.Package) (*chat.Template, error) {
	t, err := chat.Open(p)
	if errors.Is(err, tensor.ErrUnsupported) {
		return nil, hint(err, "llmexport generate continues a text without one")
	}
	return t, err
}
