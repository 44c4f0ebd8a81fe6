package main

import (
	"github.com/urfave/cli/v2"

	"github.com/llmexport/llmexport/publish/about"
)

func (t *tool) bomCommand() *cli.Command {
	return &cli.Command{
		Name:      "bom",
		Usage:     "print the bill of materials of a package, as CycloneDX 1.6",
		ArgsUsage: "DIR",
		Description: "The bill names the model, its files, the checkpoint it was made from, its licence, how it is stored and what was\n" +
			"measured. One package has one bill: it names neither time nor machine.",
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
