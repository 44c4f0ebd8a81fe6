package template

import (
	"encoding/json"
	"errors"
	"math"
	"sync"
	"testing"

	"github.com/llmexport/llmexport/runtime/tensor"
)

func TestChat(t *testing.T) {
	tmpl, err := Parse("chat", "{{ bos_token }}{% for m in messages %}<{{ m.role }}>{{ m['content'] }}{{ m.reasoning_content }}{{ m.thinking }}{% endfor %}"+
		"{% if add_generation_prompt %}<assistant>{% endif %}{{ tools is none }}{{ documents is defined }}{{ x|tojson }}")
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := DecodeJSON([]byte(`[{"role": "user", "content": "Q"}, {"role": "assistant", "content": "A", "reasoning": "R"}]`))
	if err != nil {
		t.Fatal(err)
	}
	extra := map[string]any{"bos_token": "<s>", "x": map[string]any{"b": 1, "a": []string{"c"}}}
	for _, c := range []struct {
		messages any
		prompt   bool
		want     string
	}{
		{[]Message{{"user", "Q"}}, true, `<s><user>Q<assistant>TrueTrue{"a": ["c"], "b": 1}`},
		{parsed, false, `<s><user>Q<assistant>ARRTrueTrue{"a": ["c"], "b": 1}`},
		{[]map[string]any{{"role": "user", "content": "Q"}}, false, `<s><user>QTrueTrue{"a": ["c"], "b": 1}`},
		{[]Message{}, false, `<s>TrueTrue{"a": ["c"], "b": 1}`},
	} {
		got, err := Chat(t.Context(), tmpl, c.messages, c.prompt, extra, Limits{})
		if err != nil || got != c.want {
			t.Errorf("%v: %q, %v, want %q", c.messages, got, err, c.want)
		}
	}
	for _, bad := range []any{nil, "text", []any{1}, []string{"a"}, 5} {
		if _, err := Chat(t.Context(), tmpl, bad, false, extra, Limits{}); !errors.Is(err, tensor.ErrUnsupported) {
			t.Errorf("%v: %v", bad, err)
		}
	}
}

// A template that prints contents only if they are lists of parts gets texts as such lists, and others get them as they are.
func TestParts(t *testing.T) {
	t.Parallel()
	const parts = `{% for m in messages %}{{ m.role }}:{% for c in m.content %}{% if c['type'] == 'text' %}{{ c['text'] }}{% endif %}{% endfor %};{% endfor %}`
	messages := []Message{{"system", ""}, {"user", "What is it?"}, {"assistant", "A cat."}}
	for text, want := range map[string]string{
		parts: "system:;user:What is it?;assistant:A cat.;",
		`{% for m in messages %}{{ m.content }};{% endfor %}`:                                                                          ";What is it?;A cat.;",
		`{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}{{ m.content[0].text }}!{% endif %};{% endfor %}`: ";What is it?;A cat.;",
		`{% for m in messages %}{{ m.role }};{% endfor %}`:                                                                             "system;user;assistant;",
	} {
		tmpl, err := Parse("test", text)
		if err != nil {
			t.Fatal(err)
		}
		got, err := Chat(t.Context(), tmpl, messages, false, nil, Limits{})
		if err != nil || got != want {
			t.Errorf("%s: %q, %v, want %q", text, got, err, want)
		}
	}
}

func TestValues(t *testing.T) {
	tmpl, err := Parse("x", "{{ x }}")
	if err != nil {
		t.Fatal(err)
	}
	ordered := NewObject()
	ordered.Set("b", 1)
	ordered.Set("a", nil)
	ordered.Set("b", 2)
	for _, c := range []struct {
		value any
		want  string
	}{
		{nil, "None"}, {true, "True"}, {int8(-3), "-3"}, {uint16(3), "3"}, {float32(0.5), "0.5"}, {2.0, "2.0"},
		{1e22, "1e+22"}, {math.Inf(-1), "-inf"}, {"é", "é"}, {json.Number("12"), "12"}, {json.Number("1.0"), "1.0"},
		{[]any{1, "a", nil}, "[1, 'a', None]"}, {ordered, "{'b': 2, 'a': None}"}, {[]*Object{ordered}, "[{'b': 2, 'a': None}]"},
		{map[string]any{"b": 1, "a": map[string]any{}}, "{'a': {}, 'b': 1}"},
	} {
		got, err := tmpl.Render(t.Context(), map[string]any{"x": c.value}, Limits{})
		if err != nil || got != c.want {
			t.Errorf("%v: %q, %v, want %q", c.value, got, err, c.want)
		}
	}
	for _, c := range []struct {
		value any
		want  error
	}{
		{struct{}{}, tensor.ErrUnsupported}, {uint64(math.MaxUint64), tensor.ErrUnsupported}, {func() {}, tensor.ErrUnsupported},
		{"\xff", tensor.ErrCorrupt}, {json.Number("99999999999999999999"), tensor.ErrUnsupported}, {[]any{"\xff"}, tensor.ErrCorrupt},
	} {
		if _, err := tmpl.Render(t.Context(), map[string]any{"x": c.value}, Limits{}); !errors.Is(err, c.want) {
			t.Errorf("%v: %v, want %v", c.value, err, c.want)
		}
	}
}

func TestDecodeJSON(t *testing.T) {
	tmpl, err := Parse("x", "{{ x|tojson }}")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []string{
		`{"z": 1, "a": {"y": [], "b": [1, 2.0, -0.0, 1e+20, null, true]}, "é": "\n\""}`, `[]`, `{}`, `"a"`, `5`, `null`,
	} {
		v, err := DecodeJSON([]byte(s))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := tmpl.Render(t.Context(), map[string]any{"x": v}, Limits{}); err != nil || got != s {
			// Only what the reference writes otherwise may differ.
			if want := `{"z": 1, "a": {"y": [], "b": [1, 2.0, -0.0, 1e+20, null, true]}, "é": "\n\""}`; got != want {
				t.Errorf("%s: %s, %v", s, got, err)
			}
		}
	}
	for _, s := range []string{``, `{`, `[1,]`, `{"a"}`, `{"a":1`, `1 2`, `nul`, `{1: 2}`, `]`} {
		if v, err := DecodeJSON([]byte(s)); !errors.Is(err, tensor.ErrCorrupt) || v != nil {
			t.Errorf("%s: %v, %v", s, v, err)
		}
	}
	if _, err := DecodeJSON([]byte(`99999999999999999999`)); !errors.Is(err, tensor.ErrUnsupported) {
		t.Error(err)
	}
}

// TestParallel renders one template from several goroutines.
func TestParallel(t *testing.T) {
	tmpl, err := Parse("x", "{% macro f(a, b=[1]) %}{{ a }}{{ b }}{% endmacro %}{% filter upper %}{% for i in range(50) %}{{ f(i) "+
		"}}{{ x }}{% endfor %}{% endfilter %}")
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]any{"x": []any{1, map[string]any{"a": "b"}}}
	want, err := tmpl.Render(t.Context(), values, Limits{})
	if err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	for range 7 {
		group.Go(func() {
			if got, err := tmpl.Render(t.Context(), values, Limits{}); err != nil || got != want {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
	group.Wait()
}

// TestMarkupCharacters: of a markup the last character is one too, the first is not.
func TestMarkupCharacters(t *testing.T) {
	tmpl, err := Parse("x", "{{ ('ab'|safe|last) + '<' }}{{ ('ab'|safe|first) + '<' }}")
	if err != nil {
		t.Fatal(err)
	}
	if out, err := tmpl.Render(t.Context(), nil, Limits{}); err != nil || out != "b&lt;a<" {
		t.Errorf("%q %v", out, err)
	}
}
