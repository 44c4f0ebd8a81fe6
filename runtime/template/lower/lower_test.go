package lower_test

import (
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/runtime/template"
	"github.com/llmexport/llmexport/runtime/template/engine"
	"github.com/llmexport/llmexport/runtime/template/lower"
	"github.com/llmexport/llmexport/runtime/template/templatetest"
	"github.com/llmexport/llmexport/runtime/tensor"
)

const lowerVariables = `{"tools": [{"name": "f", "p": {"a": [1, null, true], "z": 1}}], "n": 7, "s": "a-b-c", "l": [3, 1, 2], "e": [],
"d": {"k": "v", "m": null}, "people": [{"name": "Ann", "age": 30}, {"name": "Bob", "age": 25}, {"age": 1}], "text": " x "}`

// TestLower renders a snippet as jinja2 does, and what is lowered from it as the engine does.
func TestLower(t *testing.T) {
	v, err := template.DecodeJSON([]byte(lowerVariables))
	if err != nil {
		t.Fatal(err)
	}
	variables := map[string]any{"documents": nil, "add_generation_prompt": false}
	for k, w := range v.(*template.Object).All() {
		variables[k] = w
	}
	for _, source := range []string{
		"a\n  {% if n %}\n  b\n  {% endif %}\nc\n\n", "{{ '{%' }}{% raw %}{{ x }}{% endraw %}", "{# c #}x{#- d -#} y",
		"{{ n }} {{ none }} {{ true }} {{ l }} {{ nope }}|{{ d.m }} {{ 'it\\'s \"q\"\\n' }}",
		"{{ s or 'x' }}{{ '' or 'y' }}{{ n and 'z' }}{{ e or l }}", "{{ not n }}{{ 1 < 2 < 3 }}{{ 1 < 3 < 2 }}",
		"{{ 'a' if n > 5 }}{{ 'a' if n > 50 }}|", "{{ 1 ~ 2 }}{{ 'a' ~ nope ~ none ~ true }}", "{{ n % 3 }}{{ '-' * 3 }}",
		"{{ nope|default('x') }}{{ ''|default('x', true) }}{{ d.zz|default('y') }}{{ d['k']|default('y') }}",
		"{{ l|first }}{{ l|last }}{{ l|reverse|list }}{{ l|join('+') }}{{ people[:2]|map(attribute='name')|join(', ') }}",
		"{{ l|map('string')|join }}{{ people|selectattr('age', 'gt', 26)|list|length }}{{ people|rejectattr('name')|list|length }}",
		"{{ l|select('odd')|list }}{{ l|reject('equalto', 1)|list }}{{ people|selectattr('name', 'defined')|list|length }}",
		"{{ s|replace('-', '+') }}{{ text|trim }}{{ n|trim }}{{ s|upper }}{{ l|length }}{{ nope|length }}{{ l|count }}",
		"{{ tools|tojson }}{{ tools|tojson(indent=2) }}{{ s|tojson }}",
		"{{ s.split('-', 1)[1] }}{{ s.split('-')[-1] }}{{ s.startswith(('x', 'a')) }}{{ ' x '.strip() }}{{ s.upper() }}{{ '+'.join(['p', 'q']) }}",
		"{{ d.get('k') }}{{ d.get('zz') }}{{ d.get('zz', 3) }}{{ d.keys()|list }}{{ d.values()|list }}{{ 'k' in d }}",
		"{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}", "{% for k in d %}{{ k }}{{ d[k] }}{% endfor %}",
		"{% for x in l %}{{ loop.index }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.previtem }}|{{ loop.nextitem }}{% endfor %}",
		"{% for x in l %}{{ loop.cycle('a', 'b') }}{% endfor %}", "{% for x in l if x > 1 %}{{ loop.last }}{{ x }}{% endfor %}",
		"{% for x in l %}{% if x == 1 %}{% break %}{% endif %}{{ x }}{% endfor %}", "{% for x in l %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% endfor %}",
		"{% for x in e %}a{% else %}b{% endfor %}{% for x in l %}a{% else %}b{% endfor %}",
		"{% for x in l %}{% if loop.previtem is defined %}{{ x }}{% endif %}{% if l[loop.index0 + 1] is defined %}+{% endif %}{% endfor %}",
		"{% macro f(x, y=2, z=none) %}[{{ x }}{{ y }}{{ z }}{{ w is defined }}]{% endmacro %}{{ f(1) }}{{ f(1, z=3) }}{{ f() }}",
		"{% macro f() %}<{{ caller() }}>{% endmacro %}{% call f() %}{{ n }}{% endcall %}",
		"{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set a, b = b, a %}{{ a }}{{ b }}", "{% set x %}q{{ n }}{% endset %}{{ x }}{% set y | upper %}q{% endset %}{{ y }}",
		"{% filter upper %}a{{ s }}{% endfilter %}", "{% with a = n, b = 2 %}{{ a }}{{ b }}{% endwith %}{{ a }}", "{% generation %}{{ n }}{% endgeneration %}",
		"{% set ns = namespace(x=1) %}{% for i in l %}{% set ns.x = ns.x + i %}{% endfor %}{{ ns.x }}",
		"{{ n is odd }}{{ n is divisibleby 7 }}{{ n is integer }}{{ d is mapping }}{{ nope is mapping }}{{ l is iterable }}{{ d is " +
			"sequence }}{{ n is in [7] }}{{ s is eq 'x' }}",
		"{{ d == {'k': 'w', 'm': none} }}{{ people[0] == people[1] }}{{ people[0] != people[0] }}", "{{ '<{}>{}'.format(n, s) }}",
		"{% for k, v in d|dictsort %}{{ k }}{% endfor %}",
		"{% if n == 8 %}{{ raise_exception('x') }}{% elif n == 7 %}seven{% else %}{{ raise_exception('y') }}{% endif %}",
		"{% set t = d|tojson %}{{ t[:-1] }}", "{{ d.é is defined }}", "{{ (s ~ 'x').split('x')[0] }}{{ [l, e][0][1] }}{{ ({'a': {'b': 1}}).a.b }}",
		"", "{# c #}", "{% filter map('upper')|join('-') %}{% endfilter %}", "{{ s }}{% set x | replace('a', s) %}a{% endset %}{{ x }}",
		"{{ [nope, 1]|join('+') }}{{ people|join('+', attribute='name') }}",
		"{% for x in l %}{% for y in e %}{% else %}{% if x == 1 %}{% break %}{% endif %}{% endfor %}{{ x }}{% endfor %}",
		"{% for x in l %}{% continue %}{% else %}quirk{% endfor %}{% for x in l %}{% if x == 1 %}{% break %}{% endif %}{% else %}no{% endfor %}",
		"{% for x in l %}{% generation %}{{ loop.revindex }}{% endgeneration %}{% endfor %}", "{% generation %}{% set s = 1 %}{{ s }}{% endgeneration %}{{ s }}",
		"{% macro f() %}{{ caller() }}{% endmacro %}{% for x in l %}{% call f() %}{{ loop.revindex0 }}{% endcall %}{% endfor %}",
		"{{ true is number }}{{ n is number }}{{ s is number }}",
	} {
		t.Run("", func(t *testing.T) {
			tmpl, err := template.Parse("x", source)
			if err != nil {
				t.Fatal(err)
			}
			want, err := tmpl.Render(t.Context(), variables, template.Limits{})
			if err != nil {
				t.Fatal(err)
			}
			lowered, left := lower.Template(tmpl.Syntax())
			if len(left) > 0 {
				t.Errorf("%s: %v", source, left)
			}
			e, err := engine.Parse(lowered)
			if err != nil {
				t.Fatal(err)
			}
			got, err := e.Render(t.Context(), engine.Input{Context: lowerVariables}, template.Limits{})
			if err != nil || got != want {
				t.Errorf("%s\nlowered %s\n got %q %v\nwant %q", source, lowered, got, err, want)
			}
		})
	}
}

// TestLowerLeaves has what the engine has no words for; the error says where it stands.
func TestLowerLeaves(t *testing.T) {
	for source, want := range map[string]string{
		"\n{{ 'a'|title }}": `x:2: the filter "title"`, "{{ 'a'.zfill(3) }}": `the method "zfill"`, "{{ 2 ** 3 }}": "the operator **", "{{ 1.5 }}": "a number with a fraction",
		"{% for x in l recursive %}{% endfor %}": "a recursive loop", "{{ 1 is sameas(1, 2) }}": `the test "sameas"`, "{{ lipsum() }}": `the function "lipsum"`,
		"{{ l|tojson(sort_keys=true) }}": `the argument "sort_keys" of tojson`, "{{ loop.index }}{% for x in l %}{{ loop.changed(x) }}{% endfor %}": "loop.changed",
		"{% set é = 1 %}{{ [é] }}": `the name "é"`, "{{ l|map(attribute='n@me')|list }}": `this form of the filter "map"`,
		"{{ l|join('', 'a.0') }}": `the filter "join"`, "{{ (s|trim)[0] }}": "a part of a text",
		"{{ 'ab'|first }}": "a part of a text", "{{ 2147483648 }}": "a number of more than 32 bits",
		"{% for x in l %}{% with a = 1 %}{{ loop.index }}{% endwith %}{% endfor %}":                      "loop in a with block",
		"{% for x in l %}{% generation %}{% set a = 1 %}{{ loop.index }}{% endgeneration %}{% endfor %}": "a generation block",
		"{% macro f() %}{{ caller() }}{% endmacro %}{% call f() %}{{ f() }}{% endcall %}":                "a call block within another",
		"{% macro f(a) %}{% endmacro %}{% macro f(b) %}{% endmacro %}{{ f(1) }}":                         `the call of one of several macros "f"`, "{{ l|selectattr('-')|list }}": `the filter "selectattr"`,
	} {
		tmpl, err := template.Parse("x", source)
		if err != nil {
			t.Fatal(err)
		}
		_, left := lower.Template(tmpl.Syntax())
		if len(left) != 1 || !errors.Is(left[0], tensor.ErrUnsupported) || !strings.Contains(left[0].Error(), want) {
			t.Errorf("%s: %v, want %s", source, left, want)
		}
	}
}

// FuzzLower wants a template that the engine reads to its end, of a size that the original bounds.
func FuzzLower(f *testing.F) {
	data, err := os.ReadFile("../testdata/goldens.json")
	if err != nil {
		f.Fatal(err)
	}
	var file struct {
		Cases []struct{ Source string }
	}
	if err := json.Unmarshal(data, &file); err != nil || len(file.Cases) == 0 {
		f.Fatal(err, "no seeds")
	}
	for _, c := range file.Cases {
		f.Add(c.Source)
	}
	for _, s := range templatetest.Sources(f, "../testdata/templates") {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, source string) {
		tmpl, err := template.Parse("fuzz", source)
		if err != nil {
			return
		}
		lowered, _ := lower.Template(tmpl.Syntax())
		if len(lowered) > 1000*(len(source)+10) {
			t.Fatalf("%d bytes of %d", len(lowered), len(source))
		}
		if _, err := engine.Parse(lowered); err != nil {
			t.Fatalf("%q: %v", lowered, err)
		}
	})
}
