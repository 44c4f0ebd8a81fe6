package engine

import (
	"testing"

	"github.com/llmexport/llmexport/runtime/template"
)

func TestSmoke(t *testing.T) {
	tm, err := Parse("{% for m in messages %}<|{{ m.role }}|>{{ m['content'] | trim }}\n{% endfor %}{% if add_generation_prompt %}A:{% endif %}")
	if err != nil {
		t.Fatal(err)
	}
	s, err := tm.Render(t.Context(), Input{Messages: []Message{{"user", " hi "}}, AddGenerationPrompt: true}, template.Limits{})
	t.Logf("%q %v", s, err)
}
