package syntax

import (
	"errors"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// TestSource writes trees and reads them again: the text does not change any more.
func TestSource(t *testing.T) {
	for _, source := range []string{
		"a{{ x.y['z'][1:-2] | trim }}\n{% if a and not b %}\n{{ 'it\\'s' }}{% elif c is none %}-{% else %}{{ {'k': [1, none]} }}{% endif %}\n",
		"{% for k, v in d.items() if v %}{% set ns.x = ns.x + 1 %}{{ f(k, b=2) if v in [1] else 'x' ~ v }}{% endfor %}",
		"{% macro m(a, b) %}{{ '{{' }}{{ -a < b }}{% endmacro %}\n\n",
	} {
		tree, err := Parse("t", source)
		if err != nil {
			t.Fatal(err)
		}
		once := Source(tree.Body)
		again, err := Parse("t", once)
		if err != nil {
			t.Fatalf("%s: %v", once, err)
		}
		if twice := Source(again.Body); twice != once {
			t.Errorf("%q\nbecame %q\nthen   %q", source, once, twice)
		}
	}
}

// TestUses lists the filters and tests of a template; those directly in an if are soft.
func TestUses(t *testing.T) {
	tree, err := Parse("t", "{{ a | f }}\n{% if b is g %}{{ c | h }}{% set x = d is i %}{% endif %}{{ e | j if k }}{% set y | l %}{% endset %}")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, u := range tree.Uses {
		s := u.Kind + " " + u.Name
		if u.Soft {
			s += " soft"
		}
		got = append(got, s)
	}
	want := "filter f, test g soft, filter h soft, test i soft, filter j soft, filter l"
	if s := strings.Join(got, ", "); s != want || tree.Uses[1].Line != 2 {
		t.Errorf("%s, want %s", s, want)
	}
}

// TestErrors: an error has the name of the template and a line.
func TestErrors(t *testing.T) {
	for source, want := range map[string]string{
		"\n{% break %}": "t:2: break outside of a loop", "{{ 'a": "t:1: unexpected character", "a\n\n{% include 'x' %}": "t:3: {% include %} is not supported",
	} {
		tree, err := Parse("t", source)
		if tree != nil || err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: %v, %v, want %s", source, tree, err, want)
		}
		if !errors.Is(err, tensor.ErrCorrupt) && !errors.Is(err, tensor.ErrUnsupported) {
			t.Error(err)
		}
	}
}
