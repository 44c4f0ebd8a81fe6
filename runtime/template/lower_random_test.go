package template_test

import (
	"flag"
	"maps"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/runtime/template"
	"github.com/llmexport/llmexport/runtime/template/engine"
	"github.com/llmexport/llmexport/runtime/template/templatetest"
)

var lowered = flag.Int("lowered", 2000, "random templates to lower")

// TestLowerRandom renders random templates as jinja2 does, and what is lowered from them as the engine does.
func TestLowerRandom(t *testing.T) {
	outcomes := map[string]int{}
	left := map[string]int{}
	differences := 0
	for i := range *lowered {
		g := templatetest.NewRandom(uint64(i))
		g.Plain = true
		source := g.Template()
		for range 2 {
			variables := g.Variables()
			outcome, difference := compareLowered(t, source, variables)
			outcomes[outcome]++
			if outcome == "left" {
				left[difference]++
			} else if difference != "" {
				if differences++; differences > 20 {
					continue
				}
				source, variables := reduceLowered(t, source, variables)
				_, difference = compareLowered(t, source, variables)
				t.Errorf("seed %d: %s\ntemplate %q\nvariables %s", i, difference, source, variables)
				break
			}
		}
	}
	t.Logf("%v %v", outcomes, left)
}

func compareLowered(t *testing.T, source, variables string) (outcome, difference string) {
	tmpl, err := template.Parse("x", source)
	if err != nil {
		return "error", ""
	}
	text, left := tmpl.Lower()
	if len(left) > 0 {
		return "left", left[0].Message
	}
	v, err := template.DecodeJSON([]byte(variables))
	if err != nil {
		t.Fatal(variables, err)
	}
	values := maps.Collect(v.(*template.Object).All())
	values["bos_token"], values["eos_token"] = templatetest.BOS, templatetest.EOS
	for _, k := range []string{"tools", "documents"} {
		if _, ok := values[k]; !ok {
			values[k] = nil
		}
	}
	if _, ok := values["add_generation_prompt"]; !ok {
		values["add_generation_prompt"] = false
	}
	want, err := tmpl.Render(t.Context(), values, template.Limits{})
	if err != nil {
		return "error", ""
	}
	var messages []*template.Object
	for _, m := range values["messages"].([]any) {
		messages = append(messages, m.(*template.Object))
	}
	delete(values, "messages")
	delete(values, "bos_token")
	delete(values, "eos_token")
	prompt := values["add_generation_prompt"] == true
	delete(values, "add_generation_prompt")
	in, err := engine.NewInput(messages, nil, values, prompt)
	if err != nil {
		t.Fatal(err)
	}
	in.BOS, in.EOS = templatetest.BOS, templatetest.EOS
	e, err := engine.Parse(text)
	got := ""
	if err == nil {
		got, err = e.Render(t.Context(), in, template.Limits{})
	}
	if err != nil || got != want {
		return "different", "lowered " + text + "\n got " + quoted(got, err) + "\nwant " + quoted(want, nil)
	}
	return "equal", ""
}

func quoted(s string, err error) string {
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(strings.ReplaceAll(s, "\n", "\\n"))
}

// signature is where two results part.
func signature(difference string) string {
	_, rest, _ := strings.Cut(difference, "\n got ")
	got, want, _ := strings.Cut(rest, "\nwant ")
	at := 0
	for at < len(got) && at < len(want) && got[at] == want[at] {
		at++
	}
	return got[at:min(at+3, len(got))] + "/" + want[at:min(at+3, len(want))]
}

func reduceLowered(t *testing.T, source, variables string) (string, string) {
	_, difference := compareLowered(t, source, variables)
	sign := signature(difference)
	differs := func(source, variables string) bool {
		o, d := compareLowered(t, source, variables)
		return o == "different" && signature(d) == sign
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
	return source, variables
}
