package main

import (
	"github.com/urfave/cli/v2"

	"github.com/llmexport/llmexport/publish/provenance"
)

func (t *tool) provenanceCommand() *cli.Command {
	return &cli.Command{
		Name:      "provenance",
		Usage:     "print what a package was made of, as an in-toto statement with SLSA provenance",
		ArgsUsage: "DIR",
		Description: "One package has one statement: it names neither time nor machine. It repeats what the manifest says and does\n" +
			"not look at the other files. llmexport-sign signs it, after comparing every file.",
		CustomHelpTemplate: help("llmexport provenance dist/qwen3-0.6b-int4 > provenance.json"),
		Action: func(c *cli.Context) error {
			args, err := arguments(c, "DIR")
			if err != nil {
				return err
			}
			_, statement, err := provenance.Of(c.Context, args[0])
			if err != nil {
				return err
			}
			_, err = t.stdout.Write(statement)
			return err
		},
	}
}
