package main

import (
	"context"

	"github.com/urfave/cli/v2"

	"github.com/llmexport/llmexport/publish/about"
	"github.com/llmexport/llmexport/publish/provenance"
)

func (t *tool) bomCommand() *cli.Command {
	return t.documentCommand(about.BOM, cli.Command{
		Name:  "bom",
		Usage: "print the bill of materials of a package as CycloneDX 1.6",
		Description: "The bill of materials lists the model, its files, the source checkpoint, its licence, how the weights are stored,\n" +
			"and the measurements. It contains neither time nor machine, so a package always has the same one.",
		CustomHelpTemplate: help("llmexport bom dist/qwen3-0.6b-int4 > bom.cdx.json"),
	})
}

func (t *tool) provenanceCommand() *cli.Command {
	statement := func(ctx context.Context, dir string) ([]byte, error) {
		_, statement, err := provenance.Of(ctx, dir)
		return statement, err
	}
	return t.documentCommand(statement, cli.Command{
		Name:  "provenance",
		Usage: "print the provenance of a package as an in-toto statement with an SLSA predicate",
		Description: "The statement is derived from the manifest and the report; other files are not read. It contains neither time nor\n" +
			"machine, so a package always has the same one. llmexport-sign signs it, after comparing every file.",
		CustomHelpTemplate: help("llmexport provenance dist/qwen3-0.6b-int4 > provenance.json"),
	})
}

// documentCommand completes a command that prints a document about the package in a directory.
func (t *tool) documentCommand(of func(ctx context.Context, dir string) ([]byte, error), c cli.Command) *cli.Command {
	c.ArgsUsage = "DIR"
	c.Action = func(c *cli.Context) error {
		args, err := arguments(c, "DIR")
		if err != nil {
			return err
		}
		document, err := of(c.Context, args[0])
		if err != nil {
			return err
		}
		_, err = t.stdout.Write(document)
		return err
	}
	return &c
}
