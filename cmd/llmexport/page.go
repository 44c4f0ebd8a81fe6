package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/urfave/cli/v2"

	"github.com/llmexport/llmexport/internal/exit"
	"github.com/llmexport/llmexport/internal/jsondoc"
	"github.com/llmexport/llmexport/pipeline/stage"
	"github.com/llmexport/llmexport/publish/about"
	"github.com/llmexport/llmexport/publish/manifest"
	pages "github.com/llmexport/llmexport/publish/report"
	"github.com/llmexport/llmexport/verify"
)

// htmlFlag is the flag of commands that write a page.
func htmlFlag(usage string) cli.Flag { return &cli.StringFlag{Name: "html", Usage: usage} }

// checkPage rejects a file of --html that cannot be written, before any work is done.
func checkPage(c *cli.Context) error {
	file := c.String("html")
	if file == "" {
		return nil
	}
	if st, err := os.Stat(file); err == nil && st.IsDir() {
		return exit.Usagef("--html %s is a directory, not a file", file)
	}
	if st, err := os.Stat(filepath.Dir(file)); err != nil || !st.IsDir() {
		return exit.Usagef("--html %s: there is no directory %s", file, filepath.Dir(file))
	}
	return nil
}

// runPage writes the page of all packages of a run, with their times, to the file of --html or into the cache, and returns its
// path: empty if no package was made.
func runPage(c *cli.Context, first *stage.Run, results []outcome) (string, error) {
	var list []*about.Report
	for _, o := range results {
		if o.Report != nil {
			list = append(list, o.Report)
		}
	}
	if list == nil {
		return "", nil
	}
	data, err := pages.Run(first.Recipe.Name, list)
	if err != nil {
		return "", err
	}
	file := c.String("html")
	if file == "" {
		file = filepath.Join(cacheDir(c, first), "report-"+first.Recipe.Name+".html")
	}
	return file, os.WriteFile(file, data, 0o666)
}

// maxReport bounds the report in a package, in bytes.
const maxReport = 64 << 20

// packageReport is the report of a package, nil manifest or not, with the results of a verification.
func packageReport(ctx context.Context, dir string, m *manifest.Manifest, res *verify.Result) (*about.Report, error) {
	r := &about.Report{}
	if m == nil {
		o, err := look(dir)
		if err != nil {
			return nil, err
		}
		r.Name, r.MinimumEngine = filepath.Base(dir), o.MinimumEngine
		for _, f := range o.Files {
			r.PackageBytes += f.Bytes
		}
	} else if data, err := m.ReadFile(ctx, dir, about.ReportName, maxReport); err != nil || data == nil || jsondoc.Decode(data, r) != nil {
		r = about.NewReport(m)
	}
	r.Checks, r.Metrics = res.Measures()
	r.SetLayers(res.Checks)
	r.Divergence, r.Verified = res.Divergence, len(res.Failed()) == 0
	if r.Calibration == nil {
		r.Matrices = res.Matrices
	}
	return r, nil
}

// verifyPage writes the page of a verification to the file of --html.
func verifyPage(c *cli.Context, dir string, m *manifest.Manifest, res *verify.Result) error {
	file := c.String("html")
	if file == "" {
		return nil
	}
	r, err := packageReport(c.Context, dir, m, res)
	if err != nil {
		return err
	}
	data, err := pages.Package(r)
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return os.WriteFile(file, data, 0o666)
}
