package conversations

import (
	"errors"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/runtime/template"
	"github.com/llmexport/llmexport/runtime/tensor"
)

func TestAll(t *testing.T) {
	all := All()
	if len(all) < 14 {
		t.Errorf("only %d conversations", len(all))
	}
	roles, tools, calls, off, cont := map[any]bool{}, 0, 0, 0, 0
	for _, c := range all {
		if c.About == "" {
			t.Errorf("%s does not say what it tries", c.Name)
		}
		for _, m := range c.Messages {
			role, _ := m.Get("role")
			roles[role] = true
			if _, ok := m.Get("tool_calls"); ok {
				calls++
			}
		}
		if c.Tools != nil {
			tools++
		}
		if c.Context["enable_thinking"] == false {
			off++
		}
		if c.Continue {
			cont++
		}
	}
	for _, role := range []string{"system", "user", "assistant", "tool", "developer"} {
		if !roles[role] {
			t.Errorf("no message of role %s", role)
		}
	}
	if tools == 0 || calls == 0 || off == 0 || cont == 0 {
		t.Errorf("%d with tools, %d calls, %d without thinking, %d to continue", tools, calls, off, cont)
	}
}

func TestParse(t *testing.T) {
	c, err := Parse("x", []byte(`[{"role": "user", "content": "a"}]`))
	if err != nil || len(c.Messages) != 1 || !c.AddGenerationPrompt || c.Tools != nil {
		t.Errorf("%+v, %v", c, err)
	}
	for source, want := range map[string]string{
		`{`:                              "conversation x: ",
		`3`:                              `the value of "messages" is of the wrong type`,
		`[]`:                             "no messages",
		`[1]`:                            "message 0 is not an object",
		`{"messages": {}}`:               `the value of "messages" is of the wrong type`,
		`{"tools": 1}`:                   `the value of "tools" is of the wrong type`,
		`{"message": []}`:                `unknown key "message"`,
		`{"messages":[{}],"context":[]}`: `the value of "context" is of the wrong type`,
		`{"messages":[{}],"add_generation_prompt":true,"continue_final_message":true}`: "exclude each other",
	} {
		if _, err := Parse("x", []byte(source)); !errors.Is(err, tensor.ErrCorrupt) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", source, err)
		}
	}
}

// TestContinueRefused has last messages that nothing can continue.
func TestContinueRefused(t *testing.T) {
	for name, source := range map[string]string{
		"no content": `{"messages":[{"role":"assistant"}],"continue_final_message":true}`,
		"no text":    `{"messages":[{"role":"assistant","content":[{"type":"image"}]}],"continue_final_message":true}`,
		"not shown":  `{"messages":[{"role":"assistant","content":"x"}],"continue_final_message":true}`,
	} {
		c, err := Parse(name, []byte(source))
		if err != nil {
			t.Fatal(err)
		}
		tmpl, err := template.Parse("x", "nothing")
		if err != nil {
			t.Fatal(err)
		}
		if out, err := c.Render(With(t.Context(), tmpl, "", "", template.Limits{})); err == nil {
			t.Errorf("%s: %q", name, out)
		}
	}
}

// FuzzParse wants a conversation that renders, or an error that says of which kind it is.
func FuzzParse(f *testing.F) {
	entries, err := files.ReadDir("data")
	if err != nil || len(entries) == 0 {
		f.Fatal(err, "no seeds")
	}
	for _, e := range entries {
		b, err := files.ReadFile("data/" + e.Name())
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	tmpl, err := template.Parse("x", "{% for m in messages %}{{ m }}{% endfor %}")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := Parse("x", data)
		if err != nil {
			if !errors.Is(err, tensor.ErrCorrupt) && !errors.Is(err, tensor.ErrUnsupported) {
				t.Fatal(err)
			}
			return
		}
		// A continued answer may well be missing from the text; nothing may panic.
		if _, err := c.Render(With(t.Context(), tmpl, "<s>", "", template.Limits{Steps: 1_000_000})); err != nil && !c.Continue &&
			!errors.Is(err, template.ErrLimit) {
			t.Fatal(err)
		}
	})
}
