package main

import (
	_ "embed"
	"io"

	"github.com/urfave/cli/v2"
)

// The scripts ask the program for the words that can follow, and complete files where there are none.
var (
	//go:embed completion.bash
	bashCompletion string
	//go:embed completion.zsh
	zshCompletion string
	//go:embed completion.fish
	fishCompletion string
	//go:embed completion.ps1
	powershellCompletion string
)

func (t *tool) completionCommand() *cli.Command {
	script := func(shell, text, use string) *cli.Command {
		return &cli.Command{
			Name: shell, Usage: "print the script for " + shell, CustomHelpTemplate: help(use),
			Action: func(c *cli.Context) error {
				if _, err := arguments(c); err != nil {
					return err
				}
				_, err := io.WriteString(t.stdout, text)
				return err
			},
		}
	}
	return &cli.Command{
		Name:               "completion",
		Usage:              "print a script that completes commands, flags and recipes in a shell",
		CustomHelpTemplate: cli.SubcommandHelpTemplate + examples("source <(llmexport completion bash)", "llmexport completion fish | source"),
		Subcommands: []*cli.Command{
			script("bash", bashCompletion, "source <(llmexport completion bash)"),
			script("zsh", zshCompletion, "source <(llmexport completion zsh)"),
			script("fish", fishCompletion, "llmexport completion fish | source"),
			script("powershell", powershellCompletion, "llmexport completion powershell | Out-String | Invoke-Expression"),
		},
	}
}
