package source

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// files writes files of a checkpoint and returns its directory.
func files(t testing.TB, list map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range list {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestModules: modules are read with their configurations, which lie within the checkpoint.
func TestModules(t *testing.T) {
	list, err := readModules("../../testdata/sentence/bert-cls")
	if err != nil || len(list) != 3 || !strings.HasSuffix(list[1].Type, "Pooling") || list[0].Config != nil || !strings.Contains(string(list[1].Config), "cls") {
		t.Errorf("%v, %v", list, err)
	}
	if list, err = readModules("../../testdata/tiny-qwen3"); list != nil || err != nil {
		t.Errorf("%v, %v", list, err)
	}
	for _, text := range []string{`{`, `{"type": "x"}`, `[{"type": 1}]`, `[{"type": "x", "path": "../1_Pooling"}]`, `[{"type": "x", "path": "/etc"}]`} {
		if list, err := readModules(files(t, map[string]string{modulesFile: text})); list != nil || !errors.Is(err, tensor.ErrCorrupt) {
			t.Errorf("%s: %v, %v", text, list, err)
		}
	}
}

// TestUse: what sentence-transformers does to a text is told to the user, or refused where the engine cannot do it.
func TestUse(t *testing.T) {
	notes, err := readUse(files(t, map[string]string{
		wordsFile:      `{"max_seq_length": 256, "do_lower_case": false}`,
		sentenceConfig: `{"prompts": {"query": "query: ", "document": ""}, "default_prompt_name": null, "similarity_fn_name": "cosine"}`,
	}))
	want := []string{
		"sentence-transformers reads the first 256 tokens of a text only; the engine reads all",
		`the model expects "query: " before a text of the kind "query"`,
	}
	if err != nil || !slices.Equal(notes, want) {
		t.Errorf("%q, %v", notes, err)
	}
	if notes, err := readUse(t.TempDir()); len(notes) > 0 || err != nil {
		t.Errorf("%q, %v", notes, err)
	}
	for _, c := range []struct {
		file, text, want string
		kind             error
	}{
		{wordsFile, `{"do_lower_case": true}`, "do_lower_case is not supported", tensor.ErrUnsupported},
		{sentenceConfig, `{"prompts": {"a": "b"}, "default_prompt_name": "a"}`, `default_prompt_name "a" is not supported`, tensor.ErrUnsupported},
		{sentenceConfig, `{"prompts": ["a"]}`, sentenceConfig, tensor.ErrCorrupt},
	} {
		if notes, err := readUse(files(t, map[string]string{c.file: c.text})); notes != nil || !errors.Is(err, c.kind) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %q, %v", c.text, notes, err)
		}
	}
}

// TestPackSentence: the ids around a text are those of the tokenizer, or the model is refused.
func TestPackSentence(t *testing.T) {
	for dir, want := range map[string]string{"bert-cls": "[SEP]", "xlm-roberta-cls": "</s>", "roberta-mean": "</s>", "qwen3-embedding": "<|endoftext|>"} {
		f, tok, err := ReadFacts("../../testdata/sentence/" + dir)
		if err == nil {
			err = f.PackSentence(tok, false)
		}
		if err != nil || !f.Pooled || f.ChatTemplate != "" || !strings.HasSuffix(f.PackagedTemplate, "{% endfor %}{{ '"+want+"' }}") {
			t.Errorf("%s: %q, %v", dir, f.PackagedTemplate, err)
		}
	}
	f, tok, err := ReadFacts("../../testdata/sentence/xlm-roberta-pairs")
	if err == nil {
		err = f.PackSentence(tok, true)
	}
	if err != nil || f.Prefix != nil || f.PackagedTemplate != "" {
		t.Errorf("%+v, %v", f, err)
	}
	if f, tok, err = ReadFacts("../../testdata/sentence/bert-cls"); err == nil {
		err = f.PackSentence(tok, true)
	}
	if !errors.Is(err, tensor.ErrUnsupported) || !strings.Contains(err.Error(), "puts ids [2] and [3] around a text") {
		t.Error(err)
	}
}

// FuzzModules: any files give modules within the checkpoint, or an error.
func FuzzModules(f *testing.F) {
	seeds, err := filepath.Glob("../../testdata/sentence/*/" + modulesFile)
	if err != nil || len(seeds) == 0 {
		f.Fatalf("no seeds: %v", err)
	}
	for _, path := range seeds {
		b, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(b), `{"max_seq_length": 1}`, `{"prompts": {"a": "b"}}`)
	}
	f.Add(`[{"type": "a", "path": "../x"}]`, `{}`, `{"default_prompt_name": "x"}`)
	f.Fuzz(func(t *testing.T, modules, words, all string) {
		dir := files(t, map[string]string{modulesFile: modules, wordsFile: words, sentenceConfig: all})
		list, err := readModules(dir)
		for _, m := range list {
			if m.Path != "" && !filepath.IsLocal(m.Path) {
				t.Fatal(m.Path)
			}
		}
		if _, use := readUse(dir); err != nil && list != nil || use != nil && !errors.Is(use, tensor.ErrCorrupt) && !errors.Is(use, tensor.ErrUnsupported) {
			t.Fatal(err, use)
		}
	})
}
