package tokenizer

import (
	"errors"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// TestEngineRefuses: what the engine reads but would not survive, or would compute forever, is named.
func TestEngineRefuses(t *testing.T) {
	vocab := func(tokens ...string) modelNode { return (&nodeVocab{}).model(modelNode{}, tokens, noScore) }
	split := func(regex string) *mtok {
		return &mtok{PreTokenizer: preNode{Tag: preSplit, Regex: regex}, Model: vocab("a")}
	}
	wordPiece := vocab("a")
	wordPiece.Tag, wordPiece.Unknown = modelWordPiece, "[UNK]"
	unigram := vocab("a", "<0x41>")
	unigram.Tag, unigram.ByteFallback = modelUnigram, true
	large := vocab("a")
	large.Tag, large.Vocab[0].Score = modelUnigram, -1e30
	merges := vocab("a", "b")
	merges.Merges = []mergeEntry{{0, 1, 0}}
	mapping := preNode{Tag: preSequence}
	for range 9 {
		mapping.Children = append(mapping.Children, preNode{Tag: preByteLevel})
	}
	for name, c := range map[string]struct {
		file *mtok
		kind error
		want string
	}{
		"no branch":       {split(`(?<=a)b|\bc`), tensor.ErrUnsupported, "no branch"},
		"wide escape":     {split(`[\x41é]+`), tensor.ErrUnsupported, "in a class"},
		"wide group":      {split(`(é|a)`), tensor.ErrUnsupported, `"("`},
		"unknown token":   {&mtok{Model: wordPiece}, tensor.ErrCorrupt, "[UNK]"},
		"byte token":      {&mtok{Model: unigram}, tensor.ErrUnsupported, "<0x00>"},
		"score":           {&mtok{Model: large}, tensor.ErrUnsupported, "-1e+30"},
		"merge":           {&mtok{Model: merges}, tensor.ErrCorrupt, "merge to no token"},
		"printed":         {&mtok{Model: vocab("<0xzz>")}, tensor.ErrUnsupported, "printed"},
		"mapped too much": {&mtok{PreTokenizer: mapping, Model: vocab("a")}, tensor.ErrUnsupported, "512 times longer"},
	} {
		t.Run(name, func(t *testing.T) {
			b, err := c.file.marshal()
			if err != nil {
				t.Fatal(err)
			}
			if _, err = OpenMTOK(b); !errors.Is(err, c.kind) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

// TestEngineHostile: texts that the engine does not get through are encoded all the same, in time, with an error.
func TestEngineHostile(t *testing.T) {
	cases := nodeCases()
	for _, c := range []struct{ file, text, want string }{
		{"pre metaspace", strings.Repeat("ab", 1<<19), "pairs"},
		{"pre wide", strings.Repeat("中", 1<<18), "stack"},
		{"map llama3", strings.Repeat("a", 1<<20), ""},
		{"map llama3", strings.Repeat(" ", 1<<20), ""},
		{"unigram", strings.Repeat("中", 1<<18), ""},
		{"wordpiece", strings.Repeat("a", 1<<20), ""},
		{`pre split a*`, strings.Repeat("ba", 1<<19), ""},
	} {
		m := cases[c.file]
		if m == nil {
			for name := range cases {
				if strings.HasPrefix(name, c.file) {
					m = cases[name]
				}
			}
		}
		b, err := m.marshal()
		if err != nil {
			t.Fatal(err)
		}
		e, err := OpenMTOK(b)
		if err != nil {
			t.Fatal(err)
		}
		ids, err := e.TryEncode(c.text)
		switch {
		case c.want == "" && err == nil:
		case c.want == "":
			if !errors.Is(err, tensor.ErrUnsupported) || !strings.Contains(err.Error(), "pairs") {
				t.Errorf("%s: %v", c.file, err)
			}
		case !errors.Is(err, tensor.ErrUnsupported) || !strings.Contains(err.Error(), c.want):
			t.Errorf("%s: %v, want %q", c.file, err, c.want)
		}
		t.Logf("%s, %.8q...: %d ids, %v", c.file, c.text, len(ids), err != nil)
	}
}

// TestSince: two nodes end older engines.
func TestSince(t *testing.T) {
	for name, m := range nodeCases() {
		b, err := m.marshal()
		if err != nil {
			t.Fatal(err)
		}
		e, err := OpenMTOK(b)
		if err != nil {
			t.Fatal(err)
		}
		newer := strings.Contains(name, "strip") && strings.HasPrefix(name, "norm") || strings.Contains(name, "sequence none") ||
			name == "norm sequence" || name == "added bpe"
		if got := e.Since(); (got == "3.6.0") != newer {
			t.Errorf("%s: since %s", name, got)
		}
	}
}

// TestEngineGrowth: a normalizer that makes a text grow without bound is stopped when it runs.
func TestEngineGrowth(t *testing.T) {
	doubling := normNode{Tag: normSequence}
	for range 40 {
		doubling.Children = append(doubling.Children, normNode{Tag: normReplace, Pattern: "a", Content: "aa"})
	}
	b, err := (&mtok{Normalizer: doubling, Model: modelNode{Vocab: []vocabEntry{{Token: "a"}}}}).marshal()
	if err != nil {
		t.Fatal(err)
	}
	e, err := OpenMTOK(b)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.TryEncode(strings.Repeat("a", 1000)); !errors.Is(err, tensor.ErrUnsupported) {
		t.Errorf("error %v", err)
	}
}
