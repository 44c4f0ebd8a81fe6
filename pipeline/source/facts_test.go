package source

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/runtime/tensor"
	"github.com/llmexport/llmexport/runtime/tokenizer"
)

const tinyCheckpoint = "../../testdata/tiny-qwen3"

// factsDir is a checkpoint of small files only: the tokenizer of the tiny model, and what a test writes.
func factsDir(t *testing.T, list map[string]string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(tinyCheckpoint, "tokenizer.json"))
	if err != nil {
		t.Fatal(err)
	}
	list["tokenizer.json"] = string(b)
	if list["config.json"] == "" {
		list["config.json"] = "{}"
	}
	return files(t, list)
}

func TestTemplateSources(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		files  map[string]string
		chosen string
		all    string
	}{
		{"none", map[string]string{}, "", ""},
		{"a string", map[string]string{"tokenizer_config.json": `{"chat_template": "A"}`}, "A", "default=A"},
		{"a list", map[string]string{"tokenizer_config.json": `{"chat_template": [{"name": "tool_use", "template": "T"}, {"name": "default", "template": "D"}]}`}, "D", "default=D tool_use=T"},
		{"a list without default", map[string]string{"tokenizer_config.json": `{"chat_template": [{"name": "rag", "template": "R"}]}`}, "", "rag=R"},
		{"a file wins", map[string]string{"tokenizer_config.json": `{"chat_template": "A"}`, "chat_template.jinja": "F"}, "F", "default=F"},
		{"files", map[string]string{"chat_template.jinja": "F", "additional_chat_templates/tool_use.jinja": "T",
			"additional_chat_templates/x.txt": "X"}, "F", "default=F tool_use=T"},
		{"of a processor", map[string]string{"chat_template.json": `{"chat_template": "P"}`}, "P", "default=P"},
		{"of a processor and a tokenizer", map[string]string{"chat_template.json": `{"chat_template": "P"}`, "tokenizer_config.json": `{"chat_template": "A"}`}, "A", "default=A"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, _, err := ReadFacts(factsDir(t, c.files))
			if err != nil {
				t.Fatal(err)
			}
			var all []string
			for name, text := range f.Templates {
				all = append(all, name+"="+text)
			}
			slices.Sort(all)
			if got := strings.Join(all, " "); f.ChatTemplate != c.chosen || got != c.all {
				t.Errorf("%q of %q, want %q of %q", f.ChatTemplate, got, c.chosen, c.all)
			}
		})
	}
}

// TestTemplatesCorrupt has values that are no templates; the error names the file.
func TestTemplatesCorrupt(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"tokenizer_config.json": `{"chat_template": 3}`, "chat_template.json": `{"chat_template": {"name": "x"}}`, "generation_config.json": "[",
	} {
		_, _, err := ReadFacts(factsDir(t, map[string]string{name: text}))
		if !errors.Is(err, tensor.ErrCorrupt) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestStopSources has every place that names a token at which to stop.
func TestStopSources(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile(filepath.Join(tinyCheckpoint, "tokenizer.json"))
	if err != nil {
		t.Fatal(err)
	}
	tok, err := tokenizer.Load(b)
	if err != nil {
		t.Fatal(err)
	}
	added := tok.AddedTokens()
	if len(added) < 2 {
		t.Fatalf("only %d added tokens", len(added))
	}
	first, last := added[0], added[len(added)-1]
	for _, c := range []struct {
		name  string
		files map[string]string
		want  []int32
	}{
		{"config", map[string]string{"config.json": `{"eos_token_id": 3}`}, []int32{3}},
		{"text_config", map[string]string{"config.json": `{"eos_token_id": 3, "text_config": {"eos_token_id": [5, 4]}}`}, []int32{3, 4, 5}},
		{"a list of generation_config", map[string]string{"config.json": `{"eos_token_id": 3}`, "generation_config.json": `{"eos_token_id": [3, 7]}`}, []int32{3, 7}},
		{"tokenizer_config", map[string]string{"tokenizer_config.json": `{"eos_token": {"content": "` + first.Content + `"}}`}, []int32{first.ID}},
		{"the end of an answer", map[string]string{"chat_template.jinja": "{% for m in messages %}{{ m.role }}:{{ m.content }} " +
			last.Content + "\n{% endfor %}"}, []int32{last.ID}},
		{"nothing at the end of an answer", map[string]string{"chat_template.jinja": "{% for m in messages %}" + first.Content + "{{ m.content }}{% endfor %}"}, nil},
		{"a template that raises", map[string]string{"chat_template.jinja": "{{ raise_exception('no') }}"}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, _, err := ReadFacts(factsDir(t, c.files))
			if err != nil || !slices.Equal(f.Stop, c.want) {
				t.Errorf("%v, %v, want %v", f.Stop, err, c.want)
			}
		})
	}
}
