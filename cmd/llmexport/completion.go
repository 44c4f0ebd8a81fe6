package main

import (
	_ "embed"
	"io"

	"github.com/urfave/cli/v2"
)

//go:embed completion.bash
var bashCompletion string

//go:embed completion.zsh
var zshCompletion string

func (t *tool) completionCommand() *cli.Command {
	script := func(shell string, text func(c *cli.Context) (string, error), example string) *cli.Command {
		return &cli.Command{
			Name: shell, Usage: "print the script for " + shell, CustomHelpTemplate: help(example),
			Action: func(c *cli.Context) error {
				if _, err := arguments(c); err != nil {
					return err
				}
				s, err := text(c)
				if err != nil {
					return err
				}
				_, err = io.WriteString(t.stdout, s)
				return err
			},
		}
	}
	fixed := func(s string) func(*cli.Context) (string, error) {
		return func(*cli.Context) (string, error) { return s, nil }
	}
	return &cli.Command{
		Name:               "completion",
		Usage:              "print a script that completes commands and flags",
		CustomHelpTemplate: cli.SubcommandHelpTemplate + examples("source <(llmexport completion bash)", "llmexport completion fish | source"),
		Subcommands: []*cli.Command{
			script("bash", fixed(bashCompletion), "source <(llmexport completion bash)"),
			script("zsh", fixed(zshCompletion), "source <(llmexport completion zsh)"),
			script("fish", func(c *cli.Context) (string, error) { return c.App.ToFishCompletion() }, "llmexport completion fish | source"),
		},
	}
}
