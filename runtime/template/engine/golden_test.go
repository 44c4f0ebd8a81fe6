package engine_test

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/llmexport/llmexport/runtime/template"
	"github.com/llmexport/llmexport/runtime/template/engine"
	"github.com/llmexport/llmexport/runtime/template/templatetest"
)

var root = filepath.Join("..", "..", "..")

// TestGoldens compares with what engines made. verify/enginetest records that.
func TestGoldens(t *testing.T) {
	golden := templatetest.Load(t, root)
	cases := templatetest.Cases(t, root)
	if len(cases) < 900 {
		t.Fatalf("only %d cases", len(cases))
	}
	for _, c := range cases {
		if len(c.Inputs) == 0 {
			continue
		}
		want, ok := golden.Texts[c.Name]
		if !ok {
			t.Errorf("%s: not recorded: run TestTemplates of verify/enginetest with -update", c.Name)
			continue
		}
		texts := make([]*string, len(c.Inputs))
		for i, in := range c.Inputs {
			tmpl, err := engine.Parse(c.Source)
			var s string
			if err == nil {
				s, err = tmpl.Render(t.Context(), in, template.Limits{Now: golden.Now})
			}
			if err == nil {
				texts[i] = &s
			} else if !errors.Is(err, engine.ErrCrash) && !errors.Is(err, template.ErrLimit) {
				t.Errorf("%s: %v", c.Name, err)
			}
		}
		got := c.Record(texts)
		if (got == nil) != (want == nil) || got != nil && *got != *want {
			t.Errorf("%s\n got %s\nwant %s", c.Name, show(got), show(want))
		}
	}
}

func show(s *string) string {
	if s == nil {
		return "a crash"
	}
	return *s
}

// FuzzRender wants an end in bounded time and memory, and no panic.
func FuzzRender(f *testing.F) {
	seeds := 0
	for _, c := range templatetest.Cases(f, root) {
		if len(c.Source) < 4000 {
			f.Add(c.Source, `{"role": "assistant", "content": [{"type": "text", "text": "x"}]}`, `{"tools": [{"a": 1.5}], "n": -7}`)
			seeds++
		}
	}
	if seeds == 0 {
		f.Fatal("no seeds")
	}
	limits := template.Limits{Steps: 200_000, Output: 1 << 16}
	f.Fuzz(func(t *testing.T, source, message, variables string) {
		tmpl, err := engine.Parse(source)
		if err != nil {
			if tmpl != nil {
				t.Fatal("a template with an error")
			}
			return
		}
		s, err := tmpl.Render(t.Context(), engine.Input{
			Messages: []engine.Message{{Role: "user", Content: message}, {Role: "json", Content: message}},
			Context:  variables, BOS: "<s>", EOS: "</s>", AddGenerationPrompt: true,
		}, limits)
		if err != nil && s != "" || len(s) > limits.Output {
			t.Fatalf("%d bytes, error %v", len(s), err)
		}
	})
}

// TestLimits: what would take too long, too much memory or too much stack is an error.
func TestLimits(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	deep := func(open, end string) string {
		s := ""
		for range 5000 {
			s = open + s
		}
		for range 5000 {
			s += end
		}
		return s
	}
	for _, c := range []struct {
		name, source string
		want         error
	}{
		{"range", "{% for i in range(2000000000) %}{% endfor %}", template.ErrLimit},
		{"doubling", "{% set ns = namespace(x='ab') %}{% for i in range(60) %}{% set ns.x = ns.x + ns.x %}{% endfor %}", template.ErrLimit},
		{"lists", "{% set ns = namespace(x=[1]) %}{% for i in range(60) %}{% set ns.x = ns.x + ns.x %}{% endfor %}", template.ErrLimit},
		{"nesting lists", "{% set ns = namespace(x=[1]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}", template.ErrLimit},
		{"output", "{% for i in range(1000) %}{% for j in range(1000) %}" + deep("x", "") + "{% endfor %}{% endfor %}", template.ErrLimit},
		{"replace", "{% set ns = namespace(x='aa') %}{% for i in range(60) %}{% set ns.x = ns.x.replace('a', 'aaaa') %}{% endfor %}", template.ErrLimit},
		{"indent", "{{ [1] | tojson(indent=2000000000) }}", template.ErrLimit},
		{"macro", "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", template.ErrLimit},
		{"brackets", "{{ " + deep("(", ")") + " }}", template.ErrLimit},
		{"not", "{{ " + deep("not ", "") + " }}", template.ErrLimit},
		{"signs", "{{ " + deep("- ", "") + " }}", template.ErrLimit},
		{"blocks", deep("{% if 1 %}", "{% endif %}"), template.ErrLimit},
		{"elif", "{% if 1 %}" + deep("{% elif 1 %}", ""), template.ErrLimit},
		{"attributes", "{{ x" + deep(".a", "") + " }}", template.ErrLimit},
		{"open list", "{{ [1", engine.ErrCrash},
		{"open dict", "{{ {'a'", engine.ErrCrash},
		{"split", "{% for m in messages %}{{ m.content.split('') }}{% endfor %}", engine.ErrCrash},
		{"fraction", "{{ range(f) }}", template.ErrLimit},
	} {
		t.Run(c.name, func(t *testing.T) {
			tmpl, err := engine.Parse(c.source)
			if err == nil {
				_, err = tmpl.Render(t.Context(), engine.Input{Messages: []engine.Message{{Role: "user", Content: "x"}}, Context: `{"f": 2.5}`}, template.Limits{Steps: 2_000_000})
			}
			if !errors.Is(err, c.want) {
				t.Errorf("error %v, want %v", err, c.want)
			}
		})
	}
}
