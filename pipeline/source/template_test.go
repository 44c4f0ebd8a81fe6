package source

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/runtime/template/conversations"
	"github.com/llmexport/llmexport/runtime/tensor"
	"github.com/llmexport/llmexport/verify"
)

// unrepresentable are templates of the collection that nothing that the engine renders is equal to, with what the
// error names.
var unrepresentable = map[string]string{
	"NousResearch-Hermes-3-Llama-3.1-8B-tool_use": "of 9 conversations, and it could not be rewritten: tool-call: ",
}

// measuredTemplates are the rows of docs/internals/templates.json, which verify/enginetest writes, by the SHA-256 of a template.
func measuredTemplates(t *testing.T) map[string]struct {
	Package  string
	Emulated int
} {
	t.Helper()
	var file struct {
		Templates map[string]struct {
			Package  string
			Emulated int
		}
	}
	b, err := os.ReadFile("../../docs/internals/templates.json")
	if err == nil {
		err = json.Unmarshal(b, &file)
	}
	if err != nil {
		t.Fatal(err)
	}
	return file.Templates
}

// TestRepresentable packs every template of the collection of runtime/template, for a model whose tokenizer puts nothing
// before a prompt and for one that puts bos there, and compares what the engine makes of the result.
func TestRepresentable(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	t.Parallel()
	files, err := filepath.Glob("../../runtime/template/testdata/templates/*.jinja")
	if err != nil || len(files) < 25 {
		t.Fatal(len(files), err)
	}
	as, measured := map[string]int{}, measuredTemplates(t)
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".jinja")
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, prefix := range []string{"", "<s>"} {
			f := &Facts{ChatTemplate: string(source), BOS: "<s>", EOS: "</s>"}
			err := f.PackTemplate(t.Context(), false, prefix)
			if want := unrepresentable[name]; want != "" {
				if !errors.Is(err, tensor.ErrUnsupported) || !strings.Contains(err.Error(), want) {
					t.Errorf("%s: %v, want %q", name, err, want)
				}
				continue
			}
			if err != nil {
				t.Errorf("%s, prefix %q: %v", name, prefix, err)
				continue
			}
			found, err := f.compareTemplate(t.Context(), f.PackagedTemplate, prefix)
			if err != nil || len(found.Different) > 0 || found.Equal+len(found.Refused) != len(conversations.All()) {
				t.Errorf("%s: %v %+v", name, err, found)
			}
			how := "as it is"
			if len(f.Warnings) > 0 {
				how = "rewritten"
			}
			as[how]++
			sum := sha256.Sum256(source)
			if row := measured[hex.EncodeToString(sum[:])]; row.Package != how || row.Emulated != found.Equal {
				t.Errorf("%s: %s, %d equal; docs/internals/templates.json has %+v: run make templates-doc", name, how, found.Equal, row)
			}
		}
	}
	t.Log(as)
}

// TestSimplified makes a plain template of one that the engine cannot render.
func TestSimplified(t *testing.T) {
	t.Parallel()
	const source = "{{ bos_token }}{% for m in messages %}<|{{ m.role }}|>\n{{ m.content|trim }}<|end|>\n{% endfor %}" +
		"{% if tools %}{{ tools|tojson|wordcount }}{% endif %}{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
	for _, prefix := range []string{"", "<s>"} {
		f := &Facts{ChatTemplate: source, BOS: "<s>", EOS: "</s>"}
		err := f.PackTemplate(t.Context(), false, prefix)
		if !errors.Is(err, tensor.ErrUnsupported) || !strings.Contains(err.Error(), `the filter "wordcount"`) || !strings.Contains(err.Error(), "chat_template:3") {
			t.Error(err)
		}
		if err := f.PackTemplate(t.Context(), true, prefix); err != nil {
			t.Fatal(err)
		}
		found, err := f.compareTemplate(t.Context(), f.PackagedTemplate, prefix)
		if err != nil {
			t.Fatal(err)
		}
		if !f.Simplified || len(f.Warnings) != 1 || !strings.Contains(f.Warnings[0], "tools") || found.Equal < len(verify.PlainConversations) {
			t.Errorf("%v %v %d", f.Simplified, f.Warnings, found.Equal)
		}
	}
}

// TestAllRefused: a template that renders nothing proves nothing.
// Templates of models that read pictures print contents only if they are lists of parts, which the engine makes of texts. They can be packed.
func TestParts(t *testing.T) {
	t.Parallel()
	const text = `{% if message['content'][0]['type'] == 'image' %}{{ ':' }}{% else %}{{ ': ' }}{% endif %}{% for line in message['content'] %}` +
		`{% if line['type'] == 'text' %}{{ line['text'] }}{% elif line['type'] == 'image' %}{{ '<image>' }}{% endif %}{% endfor %}`
	for _, template := range []string{
		`<|im_start|>{% for message in messages %}{{ message['role'] | capitalize }}` + text + "<end>\n{% endfor %}{% if add_generation_prompt %}{{ 'Assistant:' }}{% endif %}",
		`{% for message in messages %}{{ message['role'].upper() }}: {% for c in message['content'] | selectattr('type', 'equalto', 'text') %}{{ c['text'] + ' ' }}` +
			`{% endfor %}{% endfor %}{% if add_generation_prompt %}{{ 'ASSISTANT:' }}{% endif %}`,
	} {
		f := &Facts{ChatTemplate: template}
		if err := f.PackTemplate(t.Context(), false, ""); err != nil {
			t.Errorf("%s: %v", template, err)
		}
	}
}

func TestAllRefused(t *testing.T) {
	t.Parallel()
	f := &Facts{ChatTemplate: "{{ raise_exception('no') }}", EOS: "</s>"}
	if err := f.PackTemplate(t.Context(), true, ""); !errors.Is(err, tensor.ErrUnsupported) || !strings.Contains(err.Error(), "refuses all") {
		t.Error(err)
	}
}
