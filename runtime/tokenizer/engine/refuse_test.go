package engine

import (
	"errors"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/runtime/tensor"
	"github.com/llmexport/llmexport/runtime/tokenizer/internal/mtok"
)

// TestEngineRefuses: what the engine reads but would not survive, or would compute forever, is named.
func TestEngineRefuses(t *testing.T) {
	vocab := func(tokens ...string) mtok.Model { return (&nodeVocab{}).model(mtok.Model{}, tokens, noScore) }
	split := func(regex string) *mtok.File {
		return &mtok.File{PreTokenizer: mtok.PreTokenizer{Tag: mtok.PreSplit, Regex: regex}, Model: vocab("a")}
	}
	wordPiece := vocab("a")
	wordPiece.Tag, wordPiece.Unknown = mtok.ModelWordPiece, "[UNK]"
	unigram := vocab("a", "<0x41>")
	unigram.Tag, unigram.ByteFallback = mtok.ModelUnigram, true
	large := vocab("a")
	large.Tag, large.Vocab[0].Score = mtok.ModelUnigram, -1e30
	merges := vocab("a", "b")
	merges.Merges = []mtok.Merge{{Left: 0, Right: 1}}
	mapping := mtok.PreTokenizer{Tag: mtok.PreSequence}
	for range 9 {
		mapping.Children = append(mapping.Children, mtok.PreTokenizer{Tag: mtok.PreByteLevel})
	}
	for name, c := range map[string]struct {
		file *mtok.File
		kind error
		want string
	}{
		"no branch":       {split(`(?<=a)b|\bc`), tensor.ErrUnsupported, "no branch"},
		"wide escape":     {split(`[\x41é]+`), tensor.ErrUnsupported, "in a class"},
		"wide group":      {split(`(é|a)`), tensor.ErrUnsupported, `"("`},
		"unknown token":   {&mtok.File{Model: wordPiece}, tensor.ErrCorrupt, "[UNK]"},
		"byte token":      {&mtok.File{Model: unigram}, tensor.ErrUnsupported, "<0x00>"},
		"score":           {&mtok.File{Model: large}, tensor.ErrUnsupported, "-1e+30"},
		"merge":           {&mtok.File{Model: merges}, tensor.ErrCorrupt, "merge to no token"},
		"printed":         {&mtok.File{Model: vocab("<0xzz>")}, tensor.ErrUnsupported, "printed"},
		"mapped too much": {&mtok.File{PreTokenizer: mapping, Model: vocab("a")}, tensor.ErrUnsupported, "512 times longer"},
	} {
		t.Run(name, func(t *testing.T) {
			b, err := c.file.Marshal()
			if err != nil {
				t.Fatal(err)
			}
			if _, err = Open(b); !errors.Is(err, c.kind) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

// TestStreamedBytes: a token that looks like a byte behind its decoding is one, streamed or not.
func TestStreamedBytes(t *testing.T) {
	m := (&nodeVocab{}).model(mtok.Model{}, []string{"<0x<0x34>1>", "a"}, noScore)
	b, err := (&mtok.File{Model: m}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	e, err := Open(b)
	if err != nil {
		t.Fatal(err)
	}
	s := e.Stream()
	if got := s.Next(0) + s.Next(1) + s.Close(); got != "Aa" || e.Decode([]int32{0, 1}) != got {
		t.Errorf("streamed %q, decoded %q", got, e.Decode([]int32{0, 1}))
	}
}

// TestEngineHostile: texts that the engine does not get through are encoded all the same, in time, with an error.
func TestEngineHostile(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
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
		b, err := m.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		e, err := Open(b)
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
		b, err := m.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		e, err := Open(b)
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
	doubling := mtok.Normalizer{Tag: mtok.NormSequence}
	for range 40 {
		doubling.Children = append(doubling.Children, mtok.Normalizer{Tag: mtok.NormReplace, Pattern: "a", Content: "aa"})
	}
	b, err := (&mtok.File{Normalizer: doubling, Model: mtok.Model{Vocab: []mtok.Token{{Text: "a"}}}}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	e, err := Open(b)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.TryEncode(strings.Repeat("a", 1000)); !errors.Is(err, tensor.ErrUnsupported) {
		t.Errorf("error %v", err)
	}
}
