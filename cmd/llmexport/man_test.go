package main

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"
)

// manualPages writes the manual of the program and returns its pages by name.
func manualPages(t *testing.T) (app *cli.App, dir string, pages map[string]string) {
	t.Helper()
	app, dir = (&tool{stdout: io.Discard, stderr: io.Discard}).app(), t.TempDir()
	app.Setup()
	if err := writeManual(dir, app, manual{"2026-11-23", "0.1.0"}); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	pages = map[string]string{}
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		pages[strings.TrimSuffix(e.Name(), ".1")] = string(b)
	}
	return app, dir, pages
}

// Every command has a page with all of its flags and those of its subcommands, which the page of the program names.
func TestManual(t *testing.T) {
	app, _, pages := manualPages(t)
	if len(pages) < 20 {
		t.Fatalf("%d pages", len(pages))
	}
	for _, c := range app.VisibleCommands() {
		if c.Name == "help" {
			continue
		}
		name := "llmexport-" + c.Name
		page := pages[name]
		if !strings.Contains(pages["llmexport"], ".BR "+roff(name)+" (1)\n") {
			t.Errorf("llmexport.1 does not name %s", name)
		}
		for _, part := range append([]*cli.Command{c}, c.Subcommands...) {
			for _, f := range part.VisibleFlags() {
				if flag := `\fB` + roff("--"+f.Names()[0]) + `\fR`; !strings.Contains(page, flag) {
					t.Errorf("%s.1 lacks --%s", name, f.Names()[0])
				}
			}
		}
		for _, section := range []string{"NAME", "SYNOPSIS", "EXAMPLES", "SEE ALSO"} {
			if !strings.Contains(page, "\n.SH "+section+"\n") {
				t.Errorf("%s.1 lacks the section %s", name, section)
			}
		}
	}
}

func TestRoff(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`a\b`: `a\eb`, "--json": `\-\-json`, ".llmexport": `\&.llmexport`, "'s": `\(aqs`, "~/x": `\(ti/x`, "a.b": "a.b",
	} {
		if got := roff(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// The formatters of man find nothing to complain about.
func TestManualLint(t *testing.T) {
	_, dir, pages := manualPages(t)
	for _, lint := range [][]string{{"mandoc", "-Tlint", "-Wwarning"}, {"groff", "-man", "-ww", "-z"}} {
		t.Run(lint[0], func(t *testing.T) {
			program, err := exec.LookPath(lint[0])
			if err != nil {
				t.Skipf("%s is not installed; make shells installs what it can", lint[0])
			}
			args := lint[1:len(lint):len(lint)]
			for name := range pages {
				args = append(args, filepath.Join(dir, name+".1"))
			}
			if out, err := exec.CommandContext(t.Context(), program, args...).CombinedOutput(); err != nil || len(out) > 0 {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}
