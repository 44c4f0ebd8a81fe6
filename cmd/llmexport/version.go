package main

import (
	"fmt"
	goruntime "runtime"

	"github.com/urfave/cli/v2"

	"github.com/llmexport/llmexport/pipeline/stage"
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
	if asJSON {
		return t.printJSON(struct {
			Version  string `json:"version"`
			Go       string `json:"go"`
			Platform string `json:"platform"`
		}{stage.Version, goruntime.Version(), platform})
	}
	_, err := fmt.Fprintf(t.stdout, "llmexport %s %s %s\n", stage.Version, goruntime.Version(), platform)
	return err
}
