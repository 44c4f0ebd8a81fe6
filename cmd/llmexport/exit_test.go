package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rs/zerolog"
	"github.com/urfave/cli/v2"

	"github.com/llmexport/llmexport/internal/exit"
	"github.com/llmexport/llmexport/pipeline/source"
	"github.com/llmexport/llmexport/pipeline/stage"
	"github.com/llmexport/llmexport/publish/manifest"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// hostile is what a file, a server or a template may say; none of it reaches a terminal as it is.
const hostile = "a\x1b[2J\x07\u009b1m\u202eb\u2066c\x7f"

func clean(s string) bool {
	return !strings.ContainsAny(s, "\x1b\x07\u009b\u202e\u2066\x7f") && strings.Contains(s, `\x1b`)
}

func TestReport(t *testing.T) {
	damage := manifest.Damaged(fmt.Errorf("x: %w", tensor.ErrCorrupt))
	for name, c := range map[string]struct {
		err   error
		code  int
		hints []string // what each begins with
	}{
		"a failed run": {&stage.FailedError{Checks: []manifest.Check{{Name: "tokenizer"}, {Name: "layers"}}}, exit.Unverified,
			[]string{"tokenizer: llmexport tokenize", "layers: use more bits"}},
		"a failed run with advice": {&stage.FailedError{Checks: []manifest.Check{{Name: "layers"}}, Hint: "name awq"}, exit.Unverified,
			[]string{"name awq", "layers: use more bits"}},
		"a failed check": {failedChecks([]manifest.Check{{Name: "template"}, {Name: "kl", Passed: true}}, "x"), exit.Unverified,
			[]string{"template: llmexport template"}},
		"damage":         {fmt.Errorf("dist: %w", damage), exit.Unverified, []string{"make or pull the package again"}},
		"other bytes":    {fmt.Errorf("x: %w", tensor.ErrCorrupt), exit.Failed, nil},
		"another source": {fmt.Errorf("x: %w", &source.OtherError{Files: []string{"a"}}), exit.Usage, []string{"--source names"}},
		"not supported":  {fmt.Errorf("x: %w", tensor.ErrUnsupported), exit.Unsupported, nil},
		"not there":      {fs.ErrNotExist, exit.Failed, nil},
	} {
		var b strings.Builder
		if code := report(t.Context(), &b, c.err); code != c.code {
			t.Errorf("%s: exit code %d, want %d", name, code, c.code)
		}
		parts := strings.Split(b.String(), "hint: ")[1:]
		if len(parts) != len(c.hints) {
			t.Errorf("%s: hints %q, want %q", name, parts, c.hints)
			continue
		}
		for i, h := range c.hints {
			if !strings.HasPrefix(parts[i], h) {
				t.Errorf("%s: hint %q, want %q", name, parts[i], h)
			}
		}
	}
}

func TestReportEscapes(t *testing.T) {
	var b strings.Builder
	report(t.Context(), &b, hint(errors.New(hostile+"\nsecond line"), hostile))
	if s := b.String(); !clean(s) || strings.Count(s, "\n") != 3 {
		t.Errorf("%q", s)
	}
}

// Messages, rows and JSON of what others wrote.
func TestOutputEscapes(t *testing.T) {
	dir := t.TempDir()
	name := strings.ReplaceAll(hostile, "\x7f", "")
	if err := os.WriteFile(filepath.Join(dir, name), nil, 0o666); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "raises.jinja"), []byte("{{ raise_exception('"+hostile+"') }}"), 0o666); err != nil {
		t.Fatal(err)
	}
	other := t.TempDir()
	if err := os.WriteFile(filepath.Join(other, "x"), nil, 0o666); err != nil {
		t.Fatal(err)
	}
	if _, stdout, stderr := called("", "diff", dir, other); !clean(stdout) {
		t.Errorf("diff: %q %q", stdout, stderr)
	}
	if _, stdout, stderr := called("", "diff", dir, other, "--json"); strings.ContainsAny(stdout, "\u009b\u202e\u2066") || !strings.Contains(stdout, `\u202e`) {
		t.Errorf("diff --json: %q %q", stdout, stderr)
	}
	if code, stdout, stderr := called("", "template", filepath.Join(dir, "raises.jinja")); code == 0 || stdout != "" || !clean(stderr) {
		t.Errorf("template: %q %q", stdout, stderr)
	}
}

// The prompt from standard input is that of the argument, byte by byte.
func TestStdinPrompt(t *testing.T) {
	dir := smallPackage(t)
	first := func(stdin string, args ...string) (string, string) {
		t.Helper()
		code, stdout, stderr := called(stdin, append([]string{"generate", dir, "-n", "6", "--greedy"}, args...)...)
		if code != 0 {
			t.Fatal(stderr)
		}
		count, _, _ := strings.Cut(stderr, " in ")
		return stdout, count
	}
	for _, prompt := range []string{"My fellow", "My fellow\n", "My fellow\r\n", " My\r\nfellow \t\n\n"} {
		want, count := first("", "--", prompt)
		if got, n := first(prompt, "--stdin"); got != want || n != count {
			t.Errorf("%q: %q after %s, want %q after %s", prompt, got, n, want, count)
		}
	}
	_, without := first("My fellow", "--stdin")
	if _, with := first("My fellow\n", "--stdin"); with == without {
		t.Errorf("the line end is no token: %s", with)
	}
}

// Messages on the console, fields and text.
func TestLogEscapes(t *testing.T) {
	var b strings.Builder
	app := (&tool{stdout: io.Discard, stderr: &b}).app()
	app.Commands = []*cli.Command{{Name: "say", Action: func(c *cli.Context) error {
		zerolog.Ctx(c.Context).Info().Str("from", hostile).Err(errors.New(hostile)).Msg(hostile)
		return nil
	}}}
	if err := app.Run([]string{"llmexport", "say"}); err != nil || !clean(b.String()) {
		t.Errorf("%q, %v", b.String(), err)
	}
}
