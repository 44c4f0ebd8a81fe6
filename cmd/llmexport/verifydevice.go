package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/llmexport/llmexport/internal/exit"
	"github.com/llmexport/llmexport/internal/sheet"
	"github.com/llmexport/llmexport/publish/about"
	"github.com/llmexport/llmexport/publish/manifest"
	"github.com/llmexport/llmexport/verify"
	"github.com/llmexport/llmexport/verify/device"
)

// deviceFlags rejects flags of verify that do not go together.
func deviceFlags(c *cli.Context) error {
	names, have := []string{"serial", "dir", "engine-dir", "clean"}, "without"
	if c.Bool("adb") {
		names, have = []string{"source", "window", "windows"}, "with"
	}
	for _, name := range names {
		if c.IsSet(name) {
			return exit.Usagef("--%s has no effect %s --adb", name, have)
		}
	}
	if err := device.CheckDir(c.String("dir")); err != nil {
		return exit.Usagef("--dir: %v", err)
	}
	if dir := c.String("engine-dir"); dir != "" {
		if st, err := os.Stat(dir); err != nil {
			return exit.Usagef("--engine-dir: %v", err)
		} else if !st.IsDir() {
			return exit.Usagef("--engine-dir: %s is not a directory", dir)
		}
	}
	return nil
}

// verifyDevice checks a package on an Android device.
func (t *tool) verifyDevice(c *cli.Context, dir string, m *manifest.Manifest, o verify.Options) error {
	res, err := device.Run(c.Context, dir, m, device.Options{
		Serial: c.String("serial"), Dir: c.String("dir"), EngineDir: c.String("engine-dir"), Clean: c.Bool("clean"),
		Text: o.Text, CacheBytes: o.Memory / 4, Threads: o.Threads,
	})
	if err != nil {
		return deviceError(err)
	}
	failed := res.Failed()
	if c.Bool("json") {
		err = t.printJSON(struct {
			Passed bool `json:"passed"`
			*device.Result
		}{len(failed) == 0, res})
	} else {
		err = printDevice(t.stdout, res)
	}
	if err == nil && len(failed) > 0 {
		err = &verdictError{fmt.Sprintf("%s: %s failed on the device", dir, strings.Join(failed, ", "))}
	}
	return err
}

// deviceError adds the hint of an error.
func deviceError(err error) error {
	var (
		choice  *device.ChoiceError
		problem *device.Error
		output  *device.OutputError
	)
	switch {
	case errors.As(err, &choice):
		return hint(exit.Usagef("%v", choice), "--serial names the one to use")
	case errors.As(err, &problem):
		return hint(err, problem.Hint)
	case errors.As(err, &output):
		return hint(err, output.Hint())
	}
	return err
}

func printDevice(w io.Writer, r *device.Result) error {
	s := sheet.New()
	s.Row("device", r.Phone.String())
	if r.Phone.Memory > 0 {
		s.Row("memory", fmt.Sprintf("%.1f GB, %.1f GB available", float64(r.Phone.Memory)/1e9, float64(r.Phone.Available)/1e9))
	}
	release := r.Engine.Version
	if release == "" {
		release = "of an unknown release"
	}
	s.Row("engine", fmt.Sprintf("MNN %s for %s, %s", release, r.Engine.ABI, r.Engine.Program))
	x := r.Transfer
	s.Row("package", fmt.Sprintf("%s, %d of %d files pushed (%s)", r.Dir, x.Pushed, x.Files, sheet.Size(x.Bytes)))
	if err := s.Write(w, true); err != nil {
		return err
	}
	if err := printChecks(w, r.Checks, deviceMetrics(r.Metrics)); err != nil {
		return err
	}
	if _, err := fmt.Fprintln(w, "\nNot checked:"); err != nil {
		return err
	}
	for _, text := range r.Unchecked {
		if _, err := fmt.Fprintf(w, "- %s\n", sheet.Escape(text)); err != nil {
			return err
		}
	}
	return nil
}

// deviceMetrics shows bytes in MB.
func deviceMetrics(list []about.Measure) []about.Measure {
	const mb = 1e6
	shown := append([]about.Measure(nil), list...)
	for i, m := range shown {
		if m.Unit == "bytes" && m.Value != nil {
			v := *m.Value / mb
			shown[i].Value, shown[i].Unit = &v, "MB"
		}
	}
	return shown
}
