package template

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// TestHostile renders templates that want too much; each must end soon, and say why.
func TestHostile(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	// Enough for what the templates do before they go too far, and little enough that the test is quick.
	limits := Limits{Steps: 500_000, Output: 1 << 20, Depth: 100}
	cases := map[string]string{
		"endless recursion":   "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
		"recursive loop":      "{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}",
		"caller recursion":    "{% macro f() %}{% call f() %}{{ caller() }}{% endcall %}{% endmacro %}{{ f() }}",
		"nested loops":        "{% for a in range(9999) %}{% for b in range(9999) %}{% for c in range(9999) %}{% endfor %}{% endfor %}{% endfor %}",
		"long text":           "{{ 'a' * 1000000000 }}",
		"long list":           "{{ [1] * 1000000000 }}",
		"doubling text":       "{% set ns = namespace(s='abcdefgh') %}{% for i in range(99) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}{{ ns.s }}",
		"doubling list":       "{% set ns = namespace(s=[1]) %}{% for i in range(99) %}{% set ns.s = ns.s + ns.s %}{% endfor %}{{ ns.s }}",
		"shared list printed": "{% set ns = namespace(s=[1]) %}{% for i in range(99) %}{% set ns.s = [ns.s, ns.s] %}{% endfor %}{{ ns.s }}",
		"shared list as JSON": "{% set ns = namespace(s=[1]) %}{% for i in range(99) %}{% set ns.s = [ns.s, ns.s] %}{% endfor %}{{ ns.s|tojson }}",
		"shared lists equal": "{% set ns = namespace(s=[1], t=[1]) %}{% for i in range(99) %}{% set ns.s = [ns.s, ns.s] %}{% set " +
			"ns.t = [ns.t, ns.t] %}{% endfor %}{{ ns.s == ns.t }}",
		"shared tuple hashed": "{% set ns = namespace(s=(1,)) %}{% for i in range(99) %}{% set ns.s = (ns.s, ns.s) %}{% endfor %}{{ {ns.s: 1} }}",
		"output":              "{% for i in range(99999) %}{{ 'abcdefghijklmnopqrstuvwxyz' * 9 }}{% endfor %}",
		"replace":             "{{ ('a' * 9999)|replace('', 'b' * 9999) }}",
		"join":                "{{ range(9999)|join('b' * 9999) }}",
		"method join":         "{{ ('b' * 9999).join('a' * 9999) }}",
		"width":               "{{ '%999999999d' % 1 }}",
		"star width":          "{{ '%*d' % (999999999, 1) }}",
		"format width":        "{{ '{:999999999}'.format(1) }}",
		"overflowing width":   "{{ '{:99999999999999999999999999}'.format(1) }}",
		"center":              "{{ 'a'.center(9223372036854775807) }}",
		"indent":              "{{ 'a'|indent(999999999) }}",
		"JSON indent":         "{{ [[1]]|tojson(indent=999999999) }}",
		"tabs":                "{{ '\\t'.expandtabs(999999999) }}",
		"batch":               "{{ [1]|batch(999999999, 0)|list }}",
		"slice":               "{{ [1]|slice(999999999)|list }}",
		"zfill":               "{{ '1'.zfill(999999999) }}",
		"generator":           "{% set ns = namespace(g=range(9999)) %}{% for i in range(999) %}{% set ns.g = ns.g|map('string') %}{% endfor %}{{ ns.g|list }}",
	}
	for name, source := range cases {
		t.Run(name, func(t *testing.T) {
			tmpl, err := Parse(name, source)
			if err != nil {
				t.Fatal(err)
			}
			out, err := tmpl.Render(t.Context(), nil, limits)
			if !errors.Is(err, ErrLimit) || out != "" {
				t.Errorf("%d bytes, %v", len(out), err)
			}
		})
	}
}

// TestCycle has values that contain themselves.
func TestCycle(t *testing.T) {
	for _, source := range []string{
		"{% set ns = namespace() %}{% set ns.a = ns %}{{ ns }}",
		"{% set ns = namespace() %}{% set ns.a = [ns] %}{{ {'x': ns} }}",
		"{% set ns = namespace() %}{% set ns.a = ns %}{{ ns|tojson }}",
	} {
		tmpl, err := Parse("x", source)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tmpl.Render(t.Context(), nil, Limits{}); err == nil {
			t.Errorf("%s: no error", source)
		}
	}
	l := []any{nil}
	l[0] = l
	tmpl, err := Parse("x", "{{ l }}")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tmpl.Render(t.Context(), map[string]any{"l": l}, Limits{}); !errors.Is(err, tensor.ErrUnsupported) {
		t.Error(err)
	}
}

// TestParseLimits has templates that only look harmless to a recursive parser.
func TestParseLimits(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	const n = 100_000
	for name, source := range map[string]string{
		"brackets":  "{{ " + strings.Repeat("(", n) + strings.Repeat(")", n) + " }}",
		"lists":     "{{ " + strings.Repeat("[", n) + strings.Repeat("]", n) + " }}",
		"dicts":     "{{ " + strings.Repeat("{1:", n),
		"signs":     "{{ " + strings.Repeat("-", n) + "1 }}",
		"not":       "{{ " + strings.Repeat("not ", n) + "1 }}",
		"sum":       "{{ 1" + strings.Repeat("+1", n) + " }}",
		"tilde":     "{{ 1" + strings.Repeat("~1", n) + " }}",
		"subscript": "{{ a" + strings.Repeat("[0]", n) + " }}",
		"attribute": "{{ a" + strings.Repeat(".b", n) + " }}",
		"calls":     "{{ a" + strings.Repeat("()", n) + " }}",
		"filters":   "{{ a" + strings.Repeat("|e", n) + " }}",
		"tests":     "{{ a" + strings.Repeat(" is none", n) + " }}",
		"compare":   "{{ 1" + strings.Repeat("<1", n) + " }}",
		"inline if": "{{ 1" + strings.Repeat(" if 1 else 1", n) + " }}",
		"strings":   "{{ " + strings.Repeat("''", n) + " }}",
		"blocks":    strings.Repeat("{% if 1 %}", n) + strings.Repeat("{% endif %}", n),
		"macros":    strings.Repeat("{% macro f() %}", n/2) + strings.Repeat("{% endmacro %}", n/2),
		"targets":   "{% set " + strings.Repeat("(", n) + " = 1 %}",
		"set chain": "{% set x" + strings.Repeat("|e", n) + " %}{% endset %}",
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := Parse(name, source); err == nil {
				t.Error("no error")
			} else if !errors.Is(err, tensor.ErrUnsupported) && !errors.Is(err, tensor.ErrCorrupt) {
				t.Error(err)
			}
		})
	}
	if _, err := Parse("x", strings.Repeat("a", 1<<20+1)); !errors.Is(err, tensor.ErrUnsupported) {
		t.Error(err)
	}
	if _, err := Parse("x", "\xff"); !errors.Is(err, tensor.ErrCorrupt) {
		t.Error(err)
	}
}

func TestContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	tmpl, err := Parse("x", "{% for a in range(9999) %}{{ a }}{% endfor %}")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tmpl.Render(ctx, nil, Limits{}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestErrors(t *testing.T) {
	for source, want := range map[string]string{
		"a\nb\n{{ x.y }}": "m:3: 'x' is undefined",
		"{% for a in [1] %}\n{{ a.b.c }}{% endfor %}": "m:2: 'int' has no attribute 'b'",
		"\n{{ raise_exception('no ' ~ 1) }}":          "m:2: no 1",
		"{{ [].append(1) }}":                          "m:1: access to attribute 'append' of 'list' object is unsafe.",
	} {
		tmpl, err := Parse("m", source)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tmpl.Render(t.Context(), nil, Limits{}); err == nil || err.Error() != want {
			t.Errorf("%q: %v", source, err)
		}
	}
	if _, err := Parse("m", "a\n{% if %}"); err == nil || !strings.HasPrefix(err.Error(), "m:2: ") {
		t.Error(err)
	}
}
