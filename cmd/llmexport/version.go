package main

import (
	"fmt"
	goruntime "runtime"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/llmexport/llmexport/internal/sheet"
	"github.com/llmexport/llmexport/pipeline"
	"github.com/llmexport/llmexport/pipeline/stage"
	"github.com/llmexport/llmexport/runtime/bench"
	"github.com/llmexport/llmexport/runtime/kernel"
)

func (t *tool) versionCommand() *cli.Command {
	return &cli.Command{
		Name:  "version",
		Usage: "print the version",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "cpu", Usage: "show the CPU's instruction sets and the kernels in use"},
			jsonFlag(),
		},
		CustomHelpTemplate: help("llmexport version --json", "llmexport version --cpu"),
		Action: func(c *cli.Context) error {
			if _, err := arguments(c); err != nil {
				return err
			}
			if c.Bool("cpu") {
				return t.printCPU(c.Bool("json"))
			}
			return t.printVersion(c.Bool("json"))
		},
	}
}

// versionFacts is the version in JSON output.
type versionFacts struct {
	Version  string `json:"version"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
	Kernels  string `json:"kernels"`
	// Code is the version of the code that computes, see [pipeline.Code].
	Code string `json:"code"`
}

func newVersionFacts(tier string) (versionFacts, error) {
	code, err := pipeline.Code()
	return versionFacts{stage.Version, goruntime.Version(), goruntime.GOOS + "/" + goruntime.GOARCH, tier, code}, err
}

func (t *tool) printVersion(asJSON bool) error {
	tier, _ := kernel.Tier()
	v, err := newVersionFacts(tier)
	if err != nil {
		return err
	}
	if asJSON {
		return t.printJSON(v)
	}
	_, err = fmt.Fprintf(t.stdout, "llmexport %s %s %s, %s kernels\ncode %s\n", v.Version, v.Go, v.Platform, v.Kernels, v.Code)
	return err
}

// printCPU prints the version and the features of the CPU.
func (t *tool) printCPU(asJSON bool) error {
	tier, ignored := kernel.Tier()
	facts, err := newVersionFacts(tier)
	if err != nil {
		return err
	}
	v := struct {
		versionFacts
		CPU      string   `json:"cpu"`
		Features []string `json:"features"`
		// Note is the reason why the requested kernels do not run.
		Note string `json:"note,omitempty"`
	}{
		facts,
		bench.CPUModel(), append([]string{}, kernel.Features()...), "",
	}
	if ignored != nil {
		v.Note = fmt.Sprintf("%v; falls back to %s", ignored, tier)
	}
	if asJSON {
		return t.printJSON(v)
	}
	s := sheet.New()
	s.Row("llmexport", v.Version)
	s.Row("code", v.Code)
	s.Row("go", v.Go)
	s.Row("platform", v.Platform)
	s.Row("cpu", v.CPU)
	features := strings.Join(v.Features, " ")
	if features == "" {
		features = "none used by the kernels of this build"
	}
	s.Row("instructions", features)
	s.Row("kernels", v.Kernels)
	if v.Note != "" {
		s.Row("note", v.Note)
	}
	return s.Write(t.stdout, true)
}
