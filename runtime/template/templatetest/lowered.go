package templatetest

import (
	"maps"
	"testing"

	"github.com/llmexport/llmexport/runtime/template"
	"github.com/llmexport/llmexport/runtime/template/engine"
)

// Lowered is a random template that [template.Template.Lower] writes for the engine.
type Lowered struct {
	Source, Text string
	Input        engine.Input
	Want         string // what jinja2 makes of Source
}

// RandomLowered makes a random template and its variables; false where jinja2 refuses them, or something is left.
// The templates have only what is right whatever the values are: no parts of texts, no text of an object, whose keys
// the engine sorts, and no letters beyond ASCII, the case of which it does not know.
func RandomLowered(t testing.TB, seed uint64) (*Lowered, bool) {
	t.Helper()
	g := NewRandom(seed)
	g.Plain = true
	l := &Lowered{Source: g.Template()}
	variables := g.Variables()
	tmpl, err := template.Parse("random", l.Source)
	if err != nil {
		return nil, false
	}
	text, left := tmpl.Lower()
	if l.Text = text; len(left) > 0 {
		return nil, false
	}
	v, err := template.DecodeJSON([]byte(variables))
	if err != nil {
		t.Fatalf("%s: %v", variables, err)
	}
	// What is missing is as transformers gives it, and texts of the tokenizer come from its file.
	values := map[string]any{"add_generation_prompt": false}
	maps.Insert(values, v.(*template.Object).All())
	if l.Want, err = tmpl.Render(t.Context(), values, template.Limits{}); err != nil {
		return nil, false
	}
	var messages []*template.Object
	for _, m := range values["messages"].([]any) {
		messages = append(messages, m.(*template.Object))
	}
	prompt := values["add_generation_prompt"] == true
	for _, id := range []string{"messages", "add_generation_prompt", "bos_token", "eos_token"} {
		delete(values, id)
	}
	if l.Input, err = engine.NewInput(messages, nil, values, prompt); err != nil {
		t.Fatalf("%s: %v", variables, err)
	}
	l.Input.BOS, l.Input.EOS = BOS, EOS
	return l, true
}
