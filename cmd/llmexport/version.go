package main

import (
	"fmt"
	goruntime "runtime"
	"runtime/debug"
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
		Usage: "print the version, the commit and the kernels in use",
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
	Version string `json:"version"`
	// Commit and Date, in the form of RFC 3339, are empty where the build had no version control; Modified reports whether the
	// tree differed from the commit.
	Commit   string `json:"commit,omitempty"`
	Date     string `json:"date,omitempty"`
	Modified bool   `json:"modified,omitempty"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
	Kernels  string `json:"kernels"`
	// Code is the version of the code that computes, see [pipeline.Code].
	Code string `json:"code"`
}

func newVersionFacts(tier string) (versionFacts, error) {
	code, err := pipeline.Code()
	v := versionFacts{
		Version: stage.Version, Go: goruntime.Version(), Platform: goruntime.GOOS + "/" + goruntime.GOARCH, Kernels: tier, Code: code,
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			switch s.Key {
			case "vcs.revision":
				v.Commit = s.Value
			case "vcs.time":
				v.Date = s.Value
			case "vcs.modified":
				v.Modified = s.Value == "true"
			}
		}
	}
	return v, err
}

// built names the commit and its day; empty if they are unknown.
func (v versionFacts) built() string {
	if v.Commit == "" {
		return ""
	}
	day, _, _ := strings.Cut(v.Date, "T")
	text := fmt.Sprintf("%s of %s", v.Commit, day)
	if v.Modified {
		text += ", modified"
	}
	return text
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
	text := fmt.Sprintf("llmexport %s %s %s, %s kernels\n", v.Version, v.Go, v.Platform, v.Kernels)
	if b := v.built(); b != "" {
		text += "commit " + b + "\n"
	}
	_, err = fmt.Fprintf(t.stdout, "%scode %s\n", text, v.Code)
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
	if b := v.built(); b != "" {
		s.Row("commit", b)
	}
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
