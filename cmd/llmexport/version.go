package main

import (
	"fmt"
	goruntime "runtime"

	"github.com/urfave/cli/v2"

	"github.com/llmexport/llmexport/pipeline/stage"
	"github.com/llmexport/llmexport/runtime/kernel"
)

func (t *tool) versionCommand() *cli.Command {
	return &cli.Command{
		Name:               "version",
		Usage:              "print the version",
		Flags:              []cli.Flag{jsonFlag()},
		CustomHelpTemplate: help("llmexport version --json"),
		Action: func(c *cli.Context) error {
			if _, err := arguments(c); err != nil {
				return err
			}
			return t.printVersion(c.Bool("json"))
		},
	}
}

func (t *tool) printVersion(asJSON bool) error {
	platform := goruntime.GOOS + "/" + goruntime.GOARCH
	tier, _ := kernel.Tier()
	if asJSON {
		return t.printJSON(struct {
			Version  string `json:"version"`
			Go       string `json:"go"`
			Platform string `json:"platform"`
			Kernels  string `json:"kernels"`
		}{stage.Version, goruntime.Version(), platform, tier})
	}
	_, err := fmt.Fprintf(t.stdout, "llmexport %s %s %s, %s kernels\n", stage.Version, goruntime.Version(), platform, tier)
	return err
}
