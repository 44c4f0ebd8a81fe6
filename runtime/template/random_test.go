//go:build jinja2

package template_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/llmexport/llmexport/runtime/template"
	"github.com/llmexport/llmexport/runtime/tensor"
)

var (
	seed  = flag.Uint64("seed", 1, "of the first random template")
	count = flag.Int("templates", 7000, "random templates, each rendered with several sets of variables")
)

const variablesEach = 3

// TestRandom holds random templates to jinja2 as transformers sets it up: equal texts, or an error of both.
func TestRandom(t *testing.T) {
	const parts = 2
	for part := range parts {
		t.Run("", func(t *testing.T) {
			t.Parallel()
			randomPart(t, part, parts)
		})
	}
}

// randomPart compares one of several parts of the templates and counts the outcomes.
func randomPart(t *testing.T, part, parts int) {
	j := startJinja(t)
	outcomes := map[string]int{}
	for i := part; i < *count; i += parts {
		g := NewRandom(*seed + uint64(i))
		source := g.Template()
		var variables []string
		for range variablesEach {
			variables = append(variables, g.Variables())
		}
		for k, want := range j.render(t, source, variables...) {
			outcome, difference := compareJinja(t, source, variables[k], want)
			if outcomes[outcome]++; difference != "" && outcomes[outcome] <= 10 {
				source, variables := j.reduce(t, source, variables[k])
				want := j.render(t, source, variables)[0]
				_, difference = compareJinja(t, source, variables, want)
				t.Errorf("seed %d: %s\ntemplate %q\nvariables %s", *seed+uint64(i), difference, source, variables)
				break
			}
		}
	}
	for _, outcome := range slices.Sorted(maps.Keys(outcomes)) {
		t.Logf("%6d %s", outcomes[outcome], outcome)
	}
}

// answer is what jinja2 makes of a template.
type answer struct {
	Text        *string
	Error, Skip string
}

var sliced = regexp.MustCompile(`object is not subscriptable|unhashable type: 'slice'`)

// compareJinja names the outcome, and the difference, if there is one.
func compareJinja(t *testing.T, source, variables string, want answer) (outcome, difference string) {
	t.Helper()
	v, err := template.DecodeJSON([]byte(variables))
	if err != nil {
		t.Fatal(variables, err)
	}
	tmpl, err := template.Parse("x", source)
	got := ""
	if err == nil {
		got, err = tmpl.Render(t.Context(), maps.Collect(v.(*template.Object).All()), template.Limits{Now: time.Date(2026, 3, 5, 7, 8, 9, 12345000, time.UTC)})
	}
	switch {
	case want.Skip != "":
		return want.Skip, ""
	case errors.Is(err, tensor.ErrUnsupported):
		if want.Error != "" {
			return "refused, and an error", ""
		}
		_, reason, _ := strings.Cut(err.Error(), ": ")
		return "refused: " + reason, ""
	case errors.Is(err, template.ErrLimit):
		if want.Error != "" {
			return "error", ""
		}
		return "limit", ""
	case err != nil && want.Error != "":
		return "error", ""
	case err != nil && sliced.MatchString(err.Error()):
		return "a slice of a constant that has none", "" // see the documentation of the package
	case err != nil:
		return "different", fmt.Sprintf("error: %v\nwant %q", err, *want.Text)
	case want.Error != "":
		return "different", fmt.Sprintf("got %q\nwant error %s", got, want.Error)
	case got != *want.Text:
		return "different", fmt.Sprintf(" got %q\nwant %q", got, *want.Text)
	}
	return "equal", ""
}

// jinja is a running live.py.
type jinja struct {
	in  io.Writer
	out *bufio.Scanner
}

func startJinja(t *testing.T) *jinja {
	t.Helper()
	python := filepath.Join("..", "..", ".venv", "reference", "bin", "python")
	cmd := exec.CommandContext(t.Context(), python, filepath.Join("testdata", "live.py"))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatalf("%v: run make jinja2", err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Wait()
	})
	s := bufio.NewScanner(out)
	s.Buffer(nil, 1<<28)
	return &jinja{in, s}
}

func (j *jinja) render(t *testing.T, source string, variables ...string) []answer {
	t.Helper()
	job := struct {
		Source    string            `json:"source"`
		Variables []json.RawMessage `json:"variables"`
	}{Source: source}
	for _, v := range variables {
		job.Variables = append(job.Variables, json.RawMessage(v))
	}
	b, err := json.Marshal(job)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := j.in.Write(append(b, '\n')); err != nil {
		t.Fatal(err)
	}
	if !j.out.Scan() {
		t.Fatalf("%q: the worker went away: %v", source, j.out.Err())
	}
	var answers []answer
	if err := json.Unmarshal(j.out.Bytes(), &answers); err != nil {
		t.Fatal(err)
	}
	return answers
}

// reduce shortens a template that differs, and leaves out variables, as long as it differs.
func (j *jinja) reduce(t *testing.T, source, variables string) (string, string) {
	t.Helper()
	differs := func(source, variables string) bool {
		_, d := compareJinja(t, source, variables, j.render(t, source, variables)[0])
		return d != ""
	}
	for size := len(source) / 2; size > 0; size /= 2 {
		for at := 0; at+size <= len(source); {
			if s := source[:at] + source[at+size:]; strings.ToValidUTF8(s, "?") == s && differs(s, variables) {
				source = s
			} else {
				at += max(1, size/2)
			}
		}
	}
	v, err := template.DecodeJSON([]byte(variables))
	if err != nil {
		t.Fatal(err)
	}
	kept := maps.Collect(v.(*template.Object).All())
	for _, k := range slices.Sorted(maps.Keys(kept)) {
		less := maps.Clone(kept)
		delete(less, k)
		if b, err := json.Marshal(less); err == nil && differs(source, string(b)) {
			kept, variables = less, string(b)
		}
	}
	return source, variables
}
