package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/urfave/cli/v2"

	"github.com/llmexport/llmexport/internal/digest"
	"github.com/llmexport/llmexport/internal/sheet"
	"github.com/llmexport/llmexport/pipeline/stage"
	"github.com/llmexport/llmexport/publish/about"
	"github.com/llmexport/llmexport/publish/manifest"
	"github.com/llmexport/llmexport/recipes"
	"github.com/llmexport/llmexport/verify"
	"github.com/llmexport/llmexport/verify/device"
)

func (t *tool) verifyCommand() *cli.Command {
	return &cli.Command{
		Name:      "verify",
		Usage:     "check a package, with or without its source",
		ArgsUsage: "DIR",
		Description: "Windows and limits are those of the package's recipe, by default those for the most common bit width of its\n" +
			"tensors. Comparing checks are skipped without the source. The exit code is 3 when a check fails.\n" +
			"With --adb, the engine on an Android device runs the package, and its output is compared with that of this computer.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "source", Usage: "`CHECKPOINT` directory that the package was made from"},
			&cli.StringFlag{Name: "text", Usage: "evaluate on the text in `FILE` instead of the built-in one"},
			&cli.IntFlag{Name: "window", DefaultText: "from the recipe", Usage: "`N` tokens per window"},
			&cli.IntFlag{Name: "windows", DefaultText: "from the recipe", Usage: "`N` windows spread over the text, 0 for all"},
			&cli.StringFlag{Name: "memory", Value: recipes.DefaultLimits().Memory.String(), Usage: "memory limit `SIZE`"},
			&cli.IntFlag{Name: "threads", Usage: "`N` threads, 0 for all cores"},
			&cli.BoolFlag{Name: "adb", Usage: "run the package on an Android device instead"},
			&cli.StringFlag{Name: "serial", DefaultText: "the only device", Usage: "`SERIAL` of the device, with --adb"},
			&cli.StringFlag{Name: "dir", Value: device.DefaultDir, Usage: "directory `DIR` on the device, with --adb"},
			&cli.StringFlag{Name: "engine-dir", Usage: "copy the engine in `DIR` to the device, with --adb"},
			&cli.BoolFlag{Name: "clean", Usage: "remove what was copied to the device at the end, with --adb"},
			htmlFlag("also write the report as a page to `FILE`"),
			jsonFlag(),
		},
		CustomHelpTemplate: help(
			"llmexport verify dist/qwen3-0.6b-int4",
			"llmexport verify dist/qwen3-0.6b-int4 --source ./Qwen3-0.6B --text book.txt --windows 0",
			"llmexport verify dist/qwen3-0.6b-int4 --source ./Qwen3-0.6B --html report.html",
			"llmexport verify dist/qwen3-0.6b-int4 --adb --engine-dir ./MNN/project/android/build_64",
		),
		Action: t.verify,
	}
}

func (t *tool) verify(c *cli.Context) error {
	args, err := arguments(c, "DIR")
	if err != nil {
		return err
	}
	dir := args[0]
	if err := checkPackage(dir); err != nil {
		return err
	}
	m, err := readManifest(dir)
	if err != nil {
		return err
	}
	if err := deviceFlags(c); err != nil {
		return err
	}
	if err := checkPage(c); err != nil {
		return err
	}
	o, err := t.verifyOptions(c, m)
	if err != nil {
		return err
	}
	if c.Bool("adb") {
		return t.verifyDevice(c, dir, m, o)
	}
	res, err := stage.VerifyPackage(c.Context, dir, c.String("source"), o)
	t.progress.stop()
	if err != nil {
		return err
	}
	checks, metrics := res.Measures()
	failed := res.Failed()
	if c.Bool("json") {
		if checks == nil {
			checks = []about.Measure{}
		}
		err = t.printJSON(struct {
			Passed  bool            `json:"passed"`
			Checks  []about.Measure `json:"checks"`
			Metrics []about.Measure `json:"metrics"`
		}{len(failed) == 0, checks, append([]about.Measure{}, metrics...)})
	} else {
		err = printChecks(t.stdout, checks, metrics)
	}
	err = errors.Join(err, verifyPage(c, dir, m, res))
	if err == nil && len(failed) > 0 {
		err = failedChecks(res.Checks, fmt.Sprintf("%s: %s failed", dir, strings.Join(failed, ", ")))
	}
	return err
}

// verifyOptions returns the options of the package's recipe, overridden by the flags.
func (t *tool) verifyOptions(c *cli.Context, m *manifest.Manifest) (verify.Options, error) {
	l, err := t.packageLimits(c)
	if err != nil {
		return verify.Options{}, err
	}
	holdMemory(l.Memory)
	o, err := stage.OptionsOf(m, l)
	if err != nil {
		return o, err
	}
	if c.IsSet("window") {
		const leastWindow = 8
		if o.Window, err = number(c, "window", leastWindow, mostTokens); err != nil {
			return o, err
		}
	}
	if c.IsSet("windows") {
		if o.Windows, err = number(c, "windows", 0, mostTokens); err != nil {
			return o, err
		}
	}
	o.DecodeTokens = min(o.DecodeTokens, o.Window/2)
	if file := c.String("text"); file != "" {
		b, err := os.ReadFile(file)
		if err != nil {
			return o, err
		}
		if !utf8.Valid(b) {
			return o, fmt.Errorf("%s is not UTF-8", file)
		}
		o.Text, o.TextName, o.TextSHA256 = string(b), filepath.Base(file), digest.Of(b).Hex()
	}
	return o, nil
}

func printChecks(w io.Writer, checks, metrics []about.Measure) error {
	s := sheet.New("check", "result", ">value", "limit", "detail")
	for _, c := range checks {
		s.Row(c.Name, string(c.Outcome), value(c), c.Limit, c.Detail)
	}
	if err := s.Write(w, true); err != nil {
		return err
	}
	s = sheet.New("measure", ">value", ">standard error")
	for _, m := range metrics {
		stderr := ""
		if m.StdErr != 0 {
			stderr = fmt.Sprintf("%.6g", m.StdErr)
		}
		s.Row(m.Name, value(m), stderr)
	}
	return s.Write(w, false)
}

func value(m about.Measure) string {
	if m.Value == nil {
		return ""
	}
	return strings.TrimSpace(fmt.Sprintf("%.6g %s", *m.Value, m.Unit))
}
