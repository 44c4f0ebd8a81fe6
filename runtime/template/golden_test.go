package template

import (
	"encoding/json"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// now is the time at which the goldens were made.
var now = time.Date(2026, 3, 5, 7, 8, 9, 12_345_000, time.UTC)

// golden is what the reference made of one template.
type golden struct {
	Source  string          `json:"source"`
	Values  json.RawMessage `json:"values"`
	Output  string          `json:"output"`
	Error   string          `json:"error"`
	When    string          `json:"when"`
	Message string          `json:"message"`
}

// values decodes an object for Render.
func values(t *testing.T, data []byte) map[string]any {
	t.Helper()
	v, err := DecodeJSON(data)
	if err != nil {
		t.Fatal(err)
	}
	o := v.(*Object)
	m := map[string]any{}
	for i, k := range o.keys {
		m[k.(string)] = o.values[i]
	}
	return m
}

// check renders one golden's template and compares.
func check(t *testing.T, g golden, with map[string]any) {
	t.Helper()
	var out string
	tmpl, err := Parse("golden", g.Source)
	if (err != nil) != (g.When == "parse") {
		t.Fatalf("%s\nparsing: %v, want %s %s %s", g.Source, err, g.When, g.Error, g.Message)
	}
	if err == nil {
		out, err = tmpl.Render(t.Context(), with, Limits{Now: now})
	}
	if (err != nil) != (g.Error != "") {
		t.Fatalf("%s\nerror %v, output %q\nwant  %s %q", g.Source, err, out, g.Error+" "+g.Message, g.Output)
	}
	if err != nil && g.When == "render" {
		e, ok := errors.AsType[*Error](err)
		if !ok || e.Kind != g.Error && e.Err == nil {
			t.Errorf("%s\nerror %v, want %s: %s", g.Source, err, g.Error, g.Message)
		}
		if g.Error == "TemplateError" && e.Message != g.Message {
			t.Errorf("%s\nraises %q, want %q", g.Source, e.Message, g.Message)
		}
	}
	if out != g.Output {
		t.Errorf("%s\n got %q\nwant %q", g.Source, out, g.Output)
	}
}

// TestGoldens compares with jinja2 as transformers configures it. testdata/goldens.py makes the goldens.
func TestGoldens(t *testing.T) {
	data, err := os.ReadFile("testdata/goldens.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Values json.RawMessage `json:"values"`
		Cases  []golden        `json:"cases"`
	}
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	if len(file.Cases) < 300 {
		t.Fatalf("only %d goldens", len(file.Cases))
	}
	with := values(t, file.Values)
	for _, g := range file.Cases {
		t.Run("", func(t *testing.T) { check(t, g, with) })
	}
}

// TestUnsupported names what jinja2 has and this package lacks.
func TestUnsupported(t *testing.T) {
	for _, source := range []string{
		"{% include 'x' %}", "{% import 'x' as y %}", "{% from 'x' import y %}", "{% extends 'x' %}",
		"{% block x %}{% endblock %}", "{% autoescape true %}{% endautoescape %}", "{{ self.x() }}", "{{ 'a'|urlize }}",
		"{{ '\\N{BULLET}' }}", "{{ 99999999999999999999 }}", "{{ '\\ud800' }}", "{{ a[1:2, 3] }}",
	} {
		if _, err := Parse("x", source); !errors.Is(err, tensor.ErrUnsupported) {
			t.Errorf("%s: %v", source, err)
		}
	}
	for _, source := range []string{
		"{{ 9223372036854775807 + 1 }}", "{{ 2 ** 63 }}", "{{ 2 ** -1 }}", "{{ 2.0 ** 2 }}", "{{ lipsum() }}", "{{ 'a'.encode() }}",
		"{{ -9223372036854775807 - 2 }}", "{{ 5000000000 * 5000000000 }}", "{{ '9223372036854775808'|int }}", "{{ strftime_now('%U') }}",
	} {
		tmpl, err := Parse("x", source)
		if err != nil {
			t.Fatal(err)
		}
		if out, err := tmpl.Render(t.Context(), nil, Limits{}); !errors.Is(err, tensor.ErrUnsupported) {
			t.Errorf("%s: %q %v", source, out, err)
		}
	}
}
