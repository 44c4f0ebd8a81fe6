package template_test

import (
	"encoding/json"
	"flag"
	"maps"
	"os"
	"testing"

	"github.com/llmexport/llmexport/runtime/template"
	"github.com/llmexport/llmexport/runtime/template/engine"
	"github.com/llmexport/llmexport/runtime/template/lower"
	"github.com/llmexport/llmexport/runtime/template/templatetest"
)

var loweredFile = flag.String("lowered", "", "write the templates of TestRandomLowered into this `FILE`, for verify/enginetest")

// lowered is a random template as package lower writes it for the engine.
type lowered struct {
	Source, Text string
	Input        engine.Input
	Want         string // the text that jinja2 makes of Source
}

// randomLowered makes a random template and its variables; false if jinja2 rejects them, or something has no equivalent.
// The templates use only what is right for all values: no parts of texts, no text of an object, whose keys the engine
// sorts, and no letters outside ASCII, whose case it does not know.
func randomLowered(t testing.TB, seed uint64) (*lowered, bool) {
	t.Helper()
	g := NewRandom(seed)
	g.Plain = true
	l := &lowered{Source: g.Template()}
	variables := g.Variables()
	tmpl, err := template.Parse("random", l.Source)
	if err != nil {
		return nil, false
	}
	text, left := lower.Template(tmpl.Syntax())
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
	l.Input.BOS, l.Input.EOS = templatetest.BOS, templatetest.EOS
	return l, true
}

// TestRandomLowered renders random templates as jinja2 does, and what is lowered from them as the engine does.
func TestRandomLowered(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	const templates = 3000
	var list []*lowered
	for seed := range uint64(templates) {
		l, ok := randomLowered(t, seed)
		if !ok {
			continue
		}
		list = append(list, l)
		e, err := engine.Parse(l.Text)
		got := ""
		if err == nil {
			got, err = e.Render(t.Context(), l.Input, template.Limits{})
		}
		if err != nil || got != l.Want {
			t.Errorf("seed %d: %s\nlowered %s\nmessages %q, context %s\n got %q %v\nwant %q", seed, l.Source, l.Text, l.Input.Messages,
				l.Input.Context, got, err, l.Want)
		}
	}
	if len(list) < templates*2/3 {
		t.Errorf("only %d of %d templates", len(list), templates)
	}
	if *loweredFile != "" {
		b, err := json.Marshal(list)
		if err == nil {
			err = os.WriteFile(*loweredFile, b, 0o666)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}
