package template

import (
	"slices"
	"testing"
)

func TestEngineConstructs(t *testing.T) {
	for _, c := range []struct {
		source string
		want   []string // names, with the line if it is not 1
	}{
		{"{% for m in messages %}{{ m.role + m['content'] | trim }}{% if loop.first and not loop.last %}x{% endif %}{% endfor %}", nil},
		{"{% macro m(a) %}{{ a | string }}{% endmacro %}{{ m(1) }}{{ range(3) }}{{ s.split('x')[-1].lstrip('\\n') }}", nil},
		{"{% if a and b or not (c and d) %}{{ 'x' if a and b else 'y' }}{% endif %}", nil},
		{"{% generation %}x{% endgeneration %}", nil},
		{"{{ a | default('x') | tojson(2) }}\n{{ a | trim('x') }}", []string{"filter tojson", "arguments of the filter tojson", "filter default", "2 arguments of the filter trim"}},
		{"{{ a is divisibleby(3) }}{{ a is integer }}", []string{"test divisibleby", "arguments of the test divisibleby", "test integer"}},
		{"{{ raise_exception('x') }}{{ d.items() }}{{ s.split() }}{{ s.replace('a', 'b', 1) }}", []string{"function raise_exception", "method items", "method split without separator", "method replace"}},
		{"{{ 7 % 2 }}{{ 1 < 2 < 3 }}{{ 1.5 }}{{ 'x' if a }}", []string{"operator %", "chain of comparisons", "number with a fraction", "condition without else"}},
		{"{% set x = a or b %}", []string{"value of or"}},
		{"{% set x, y = a %}{% set z %}1{% endset %}", []string{"set of several names", "set block"}},
		{"{% macro m(a, b=1) %}{% endmacro %}{% call m(1) %}{% endcall %}", []string{"macro m: default values", "call block"}},
		{"{% for x in l recursive %}{% break %}{{ loop.previtem }}{{ loop.cycle(1) }}{% else %}x{% endfor %}",
			[]string{"recursive loop", "break", "loop.previtem", "loop.cycle", "else of a loop"}},
		{"{{ 'a'.strip() }}{{ (l | list)[0] }}{{ [1][0] }}", []string{"method strip of what is no name", "index of what is no name", "filter list", "index of what is no name"}},
		{"{{ namespace(d) }}{{ l | map('upper') }}{{ l | map(attribute='a', default=1) }}", []string{"namespace of a dict", "filter map with a filter", "arguments of the filter map"}},
		{"{% with a = 1 %}{% endwith %}{% filter upper %}x{% endfilter %}", []string{"with block", "filter block"}},
	} {
		tmpl, err := Parse("t", c.source)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, k := range tmpl.EngineConstructs() {
			name := k.Name
			if k.Line > 1 {
				name = string(rune('0'+k.Line)) + " " + name
			}
			if k.Effect == "" {
				t.Errorf("%s has no effect", k.Name)
			}
			got = append(got, name)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s\n got %q\nwant %q", c.source, got, c.want)
		}
	}
}
