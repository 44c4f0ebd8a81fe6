package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/llmexport/llmexport/internal/exit"
	"github.com/llmexport/llmexport/internal/sheet"
	"github.com/llmexport/llmexport/pipeline/stage"
)

// tool holds what every command shares: the standard streams and the progress display.
type tool struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	screen         io.Writer // the unfiltered stdout; stdout itself escapes control sequences, colours included
	progress       progress
}

// extend, if a file of another build of this program sets it, adds what that build can do to the app, examine to what doctor says, and
// bound keeps a card within so many bytes of its memory.
var (
	extend  func(*cli.App)
	examine func(*examination)
	bound   func(memory int64)
)

func (t *tool) app() *cli.App {
	app := &cli.App{
		Name:      "llmexport",
		Usage:     "turn a Hugging Face checkpoint into a package for MNN",
		ArgsUsage: " ",
		Version:   stage.Version,
		Description: "Exit codes: 0 done, 1 failed, 2 bad recipe or usage, 3 verification failed,\n" +
			"4 source not supported, 130 interrupted.",
		CustomAppHelpTemplate: cli.AppHelpTemplate + examples(
			"llmexport init Qwen/Qwen3-0.6B -o qwen3.yaml",
			"llmexport run qwen3.yaml",
			"llmexport generate dist/qwen3-0.6b-int4 'The capital of France is'",
		),
		Writer:                    t.stdout,
		ErrWriter:                 t.stderr,
		Suggest:                   true,
		EnableBashCompletion:      true,
		DisableSliceFlagSeparator: true, // values of --set contain commas
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "log-level", Value: "info", Usage: "`LEVEL` of messages: debug, info, warn, error or off"},
			&cli.StringFlag{Name: "log-format", Value: "console", Usage: "`FORMAT` of messages: console or json"},
			&cli.StringFlag{Name: "progress", Value: "auto", Usage: "`KIND` of progress: auto, bar, json or none"},
		},
		Before:         t.before,
		Action:         unknownCommand,
		OnUsageError:   usageProblem,
		ExitErrHandler: func(*cli.Context, error) {}, // main prints errors and decides the exit code
		Commands: []*cli.Command{
			t.runCommand(), t.stageCommand(), t.watchCommand(), t.planCommand(), t.initCommand(), t.validateCommand(), t.schemaCommand(),
			t.familiesCommand(), t.devicesCommand(), t.inspectCommand(), t.tokenizeCommand(), t.templateCommand(), t.diffCommand(), t.verifyCommand(),
			t.compareCommand(),
			t.reproduceCommand(), t.provenanceCommand(), t.bomCommand(), t.publishCommand(), t.pullCommand(), t.channelsCommand(), t.rollbackCommand(),
			t.generateCommand(), t.embedCommand(), t.rerankCommand(), t.benchCommand(),
			t.chatCommand(), t.serveCommand(),
			t.cacheCommand(), t.doctorCommand(), t.completionCommand(), t.manCommand(), t.versionCommand(),
		},
	}
	if extend != nil {
		extend(app)
	}
	cli.VersionPrinter = func(*cli.Context) { _ = t.printVersion(false) }
	for _, c := range app.Commands {
		finish(c)
	}
	return app
}

// finish sets the fields that all commands have in common.
func finish(c *cli.Command) {
	c.OnUsageError = usageProblem
	c.HideHelpCommand = true // a help subcommand would shadow a file called help
	switch {
	case len(c.Subcommands) > 0:
		c.ArgsUsage = "COMMAND"
	case c.ArgsUsage == "":
		c.ArgsUsage = " " // an empty one makes the template print a default
	}
	for _, s := range c.Subcommands {
		finish(s)
	}
	if len(c.Subcommands) > 0 {
		c.Action = unknownCommand
	}
}

// unknownCommand is the action of every command that has subcommands.
func unknownCommand(c *cli.Context) error {
	if !c.Args().Present() {
		if c.Command.Name == c.App.Name {
			return cli.ShowAppHelp(c)
		}
		return cli.ShowSubcommandHelp(c)
	}
	name := c.Args().First()
	return hint(exit.Usagef("unknown command %q", name), cli.SuggestCommand(c.Command.Subcommands, name))
}

// usageProblem explains a flag that cannot be parsed.
func usageProblem(c *cli.Context, err error, _ bool) error {
	e := exit.Usagef("%v", err)
	_, name, ok := strings.Cut(err.Error(), "not defined: -")
	if !ok {
		return hint(e, fmt.Sprintf("%s --help lists the flags", c.Command.HelpName))
	}
	if s := cli.SuggestFlag(append(c.App.Flags, c.Command.Flags...), strings.TrimLeft(name, "-"), false); s != "" {
		return hint(e, fmt.Sprintf("Did you mean %q?", s))
	}
	return e
}

// examples formats the EXAMPLES section of a help text.
func examples(lines ...string) string {
	return "\nEXAMPLES:\n   " + strings.Join(lines, "\n   ") + "\n"
}

// help returns the help template of a command with examples.
func help(lines ...string) string { return cli.CommandHelpTemplate + examples(lines...) }

// jsonFlag selects JSON output.
func jsonFlag() cli.Flag { return &cli.BoolFlag{Name: "json", Usage: "print the result as JSON"} }

// show prints what write writes, all of it at once, so that a full disk is one error.
func (t *tool) show(write func(w io.Writer) error) error {
	var b bytes.Buffer
	if err := write(&b); err != nil {
		return err
	}
	_, err := t.stdout.Write(b.Bytes())
	return err
}

// printJSON writes v, indented.
func (t *tool) printJSON(v any) error {
	return t.encode(v, "  ")
}

// encode writes v as JSON. Only strings can contain control sequences, and JSON can escape them.
func (t *tool) encode(v any, indent string) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", indent)
	if err := e.Encode(v); err != nil {
		return err
	}
	_, err := io.WriteString(t.stdout, sheet.EscapeJSON(b.String()))
	return err
}

// arguments returns the positional arguments if there are exactly as many as names.
func arguments(c *cli.Context, names ...string) ([]string, error) {
	if c.NArg() == len(names) {
		return c.Args().Slice(), nil
	}
	what := "needs " + strings.Join(names, " ")
	if len(names) == 0 {
		what = "takes no arguments"
	}
	return nil, hint(exit.Usagef("%s %s, got %d arguments", c.Command.Name, what, c.NArg()), c.Command.HelpName+" --help shows examples")
}
