package main

import (
	"github.com/urfave/cli/v2"

	"github.com/llmexport/llmexport/publish/provenance"
)

func (t *tool) provenanceCommand() *cli.Command {
	return &cli.Command{
		Name:      "provenance",
		Usage:     "print the provenance of a package as an in-toto statement with an SLSA predicate",
		ArgsUsage: "DIR",
		Description: "The statement is derived from the manifest alone; other files are not read. It contains neither time nor machine,\n" +
			"so a package always has the same one. llmexport-sign signs it, after comparing every file.",
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
