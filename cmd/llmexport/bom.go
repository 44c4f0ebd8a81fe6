package main

import (
	"github.com/urfave/cli/v2"

	"github.com/llmexport/llmexport/publish/about"
)

func (t *tool) bomCommand() *cli.Command {
	return &cli.Command{
		Name:      "bom",
		Usage:     "print the bill of materials of a package as CycloneDX 1.6",
		ArgsUsage: "DIR",
		Description: "The bill of materials lists the model, its files, the source checkpoint, its licence, how the weights are stored,\n" +
			"and the measurements. It contains neither time nor machine, so a package always has the same one.",
		CustomHelpTemplate: help("llmexport bom dist/qwen3-0.6b-int4 > bom.cdx.json"),
		Action: func(c *cli.Context) error {
			args, err := arguments(c, "DIR")
			if err != nil {
				return err
			}
			data, err := about.BOM(c.Context, args[0])
			if err != nil {
				return err
			}
			_, err = t.stdout.Write(data)
			return err
		},
	}
}
