package tokenizer

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/runtime/tokenizer/internal/mtok"
	"github.com/llmexport/llmexport/runtime/tokenizer/internal/regex"
	"github.com/llmexport/llmexport/runtime/tokenizer/internal/tokenizertest"
)

// seeds are small files with all the components of the golden tests: the fuzzer makes little of large ones.
func seeds(f *testing.F) [][]byte {
	f.Helper()
	var all map[string]golden
	tokenizertest.ReadJSON(f, "ids.json", &all)
	out := [][]byte{[]byte(tokenizertest.Small)}
	for _, g := range all {
		if len(g.Parts) > 0 {
			out = append(out, tokenizertest.Patched(f, []byte(tokenizertest.Small), g.Parts))
		}
	}
	// Components without the vocabulary that they come with.
	for _, base := range []string{"llama3", "qwen"} {
		var file map[string]json.RawMessage
		if err := json.Unmarshal(tokenizertest.Fixture(f, base), &file); err != nil {
			f.Fatal(err)
		}
		out = append(out, tokenizertest.Patched(f, []byte(tokenizertest.Small), map[string]json.RawMessage{
			"normalizer": file["normalizer"], "pre_tokenizer": file["pre_tokenizer"],
			"added_tokens":   json.RawMessage(`[{"id":3,"content":"<x>","single_word":false,"lstrip":true,"rstrip":true,"normalized":true,"special":true}]`),
			"post_processor": json.RawMessage(strings.ReplaceAll(string(file["post_processor"]), "903", "3")),
			"model":          json.RawMessage(`{"type":"BPE","ignore_merges":true,"vocab":{"a":0,"b":1,"ab":2},"merges":["a b"]}`),
		}))
	}
	if len(out) < 10 {
		f.Fatalf("only %d seeds", len(out))
	}
	_, cases := smallCases(f)
	for _, c := range cases {
		out = append(out, c.File)
	}
	for _, b := range out {
		if _, err := Load(b); err != nil {
			f.Fatal(err)
		}
	}
	return out
}

// FuzzLoad: a file that loads encodes and decodes anything, and what it writes can be read.
func FuzzLoad(f *testing.F) {
	texts := tokenizertest.Corpus(f)
	for i, b := range seeds(f) {
		f.Add(b, texts[100+i])
	}
	f.Fuzz(func(t *testing.T, file []byte, text string) {
		tok, err := Load(file)
		if err != nil {
			if tok != nil {
				t.Fatal("an error and a tokenizer")
			}
			return
		}
		for _, id := range tok.Encode(text, true) {
			if _, ok := tok.Token(id); !ok {
				t.Fatalf("id %d is no token", id)
			}
		}
		for _, skip := range []bool{false, true} {
			ids := append(tok.Encode(text, true), -1, 0, 1, int32(tok.VocabSize()), 0)
			if got, want := streamed(t, tok.Stream(skip), ids, true), tok.Decode(ids, skip); got != want {
				t.Fatalf("the stream of %v gives %q, not %q", ids, got, want)
			}
		}
		b, err := mtokOf(tok)
		if err != nil {
			return
		}
		e, err := OpenMTOK(b)
		if err != nil {
			t.Fatalf("the writer's file is refused: %v", err)
		}
		if again, err := e.file.Marshal(); err != nil || !bytes.Equal(again, b) {
			t.Fatalf("marshalling gives other bytes, %v", err)
		}
		e.Decode(e.Encode(text))
	})
}

// FuzzEncode: no text is lost. Tokenizer and Engine compose it if there is a normalizer.
func FuzzEncode(f *testing.F) {
	for _, s := range tokenizertest.Corpus(f)[:400] {
		f.Add(s)
	}
	type both struct {
		tok    *Tokenizer
		engine *Engine
	}
	var all []both
	for _, base := range []string{"gpt2", "llama3", "tiny-qwen3"} {
		tok := mustLoad(f, tokenizertest.Fixture(f, base))
		b, err := mtokOf(tok)
		if err != nil {
			f.Fatal(err)
		}
		e, err := OpenMTOK(b)
		if err != nil {
			f.Fatal(err)
		}
		all = append(all, both{tok, e})
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, b := range all {
			// The engine looks for special tokens first, as the cut of the text at them shows here.
			composed, err := b.engine.normalizer.normalize(text)
			if err != nil {
				t.Fatal(err)
			}
			if got := b.engine.Decode(b.engine.Encode(text)[len(b.engine.Prefix()):]); got != composed && !strings.Contains(text, "<|") {
				t.Errorf("engine: %q became %q, want %q", text, got, composed)
			}
			if strings.Contains(text, "<|") {
				continue // text is not composed with a special token beside it
			}
			want := lossy(text)
			if b.tok.normalizer != nil {
				want = nfc(want)
			}
			if got := b.tok.Decode(b.tok.Encode(text, false), false); got != want {
				t.Errorf("%q became %q, want %q", text, got, want)
			}
		}
	})
}

// everyNode are files, one a model, with all kinds of nodes between them.
func everyNode() []*mtok.File {
	bpe := &mtok.File{
		Special: []int32{3, 300}, Stop: []int32{3}, Prefix: []int32{0},
		Normalizer: mtok.Normalizer{Tag: mtok.NormSequence, Children: []mtok.Normalizer{
			{Tag: mtok.NormNone}, {Tag: mtok.NormReplace, Pattern: "x", Content: "y"}, {Tag: mtok.NormStrip, Left: true, Right: true},
			{Tag: mtok.NormTable, Table: []mtok.Substitution{{Char: 'b', Text: "ab"}, {Char: 0x2126, Text: "Ω"}}}, {Tag: mtok.NormEmpty}, {Tag: mtok.NormPrepend, Content: "▁"},
		}},
		PreTokenizer: mtok.PreTokenizer{Tag: mtok.PreSequence, Children: []mtok.PreTokenizer{
			{Tag: mtok.PreNone}, {Tag: mtok.PreDigits, Flag: true}, {Tag: mtok.PreDigits}, {Tag: mtok.PreSplit, Regex: `\p{L}+(?!b)|[^a-c]{1,2}|(?i:'s|\d)?`, Flag: true, Behavior: mtok.SplitMergedWithPrevious},
			{Tag: mtok.PreSplit, Regex: `a|\bb`, Behavior: mtok.SplitRemoved}, {Tag: mtok.PreByteLevel, Flag: true}, {Tag: mtok.PreSplit, Regex: regex.Llama3},
		}},
		Model: mtok.Model{
			ByteFallback: true,
			Vocab:        []mtok.Token{{Text: "", ID: 4}, {Text: "", ID: 5}, {Text: "<0x41>", ID: 6}, {Text: "a"}, {Text: "ab", ID: 2}, {Text: "b", ID: 1}, {Text: "é", ID: 3}},
			Merges:       []mtok.Merge{{Left: 0, Right: 1}},
		},
		Decoder:  mtok.Decoder{Tag: mtok.DecSequence, Children: []mtok.Decoder{{Tag: mtok.DecFuse}, {Tag: mtok.DecReplace, Pattern: "▁", Content: " "}, {Tag: mtok.DecByteLevel}}},
		Added:    []mtok.Added{{ID: 300, Special: true, LStrip: true, RStrip: true, Content: "<s>"}},
		Sections: 5, Template: "{{ x }}", EOS: "</s>", Flags: 1, BOS: "<s>", PostProcess: "\x02\x00\x01\x03\x00\x00\x00\x00",
	}
	wordPiece := &mtok.File{
		Special:      []int32{0},
		Normalizer:   mtok.Normalizer{Tag: mtok.NormBert, Clean: true, Chinese: true, Lower: true},
		PreTokenizer: mtok.PreTokenizer{Tag: mtok.PreBert},
		Model: mtok.Model{
			Tag: mtok.ModelWordPiece, Unknown: "[UNK]", Prefix: "##", MaxBytes: 100,
			Vocab: []mtok.Token{{Text: "##b", ID: 2}, {Text: "[UNK]"}, {Text: "a", ID: 1}},
		},
		Decoder:  mtok.Decoder{Tag: mtok.DecWordPiece, Content: "##", Flag: true},
		Sections: 5, PostProcess: "\x00\x00",
	}
	unigram := &mtok.File{
		Special:      []int32{0},
		Normalizer:   mtok.Normalizer{Tag: mtok.NormBertTable, Accents: true, Table: []mtok.Substitution{{Char: 'é', Text: "e\u0301"}}},
		PreTokenizer: mtok.PreTokenizer{Tag: mtok.PreMetaspace, Replacement: "▁", Flag: true},
		Model: mtok.Model{
			Tag: mtok.ModelUnigram, UnknownID: 0,
			Vocab: []mtok.Token{{Text: "<unk>"}, {Text: "a", ID: 1, Score: -1}, {Text: "ab", ID: 2, Score: -1.5}, {Text: "▁", ID: 3, Score: -2}},
		},
		Decoder: mtok.Decoder{Tag: mtok.DecSequence, Children: []mtok.Decoder{
			{Tag: mtok.DecByteFallback}, {Tag: mtok.DecMetaspace, Content: "▁", Flag: true}, {Tag: mtok.DecStrip, Content: " ", Start: 1}}},
		Sections: 5, PostProcess: "\x00\x00",
	}
	return []*mtok.File{bpe, wordPiece, unigram}
}

// FuzzOpenMTOK: parse, marshal, same bytes; what opens encodes.
func FuzzOpenMTOK(f *testing.F) {
	for _, m := range everyNode() {
		for m.Sections = 5; m.Sections >= 0; m.Sections-- {
			b, err := m.Marshal()
			if err != nil {
				f.Fatal(err)
			}
			if _, err := OpenMTOK(b); err != nil {
				f.Fatal(err)
			}
			f.Add(b, "ab a<s>  Ωx12 é's")
		}
	}
	for _, file := range seeds(f) {
		b, err := mtokOf(mustLoad(f, file))
		if err != nil {
			continue // the golden tests say which are refused
		}
		f.Add(b, "it's <|im_end|> 42")
	}
	f.Fuzz(func(t *testing.T, file []byte, text string) {
		m, err := mtok.Parse(file)
		if err != nil {
			if m != nil {
				t.Fatal("an error and a file")
			}
			return
		}
		if again, err := m.Marshal(); err != nil || !bytes.Equal(again, file) {
			t.Fatalf("marshalling gives other bytes, %v", err)
		}
		e, err := OpenMTOK(file)
		if err != nil {
			return
		}
		for _, id := range e.Encode(text) {
			if id < 0 || int(id) >= e.VocabSize() {
				t.Fatalf("id %d of %d", id, e.VocabSize())
			}
			e.Decode([]int32{id})
		}
	})
}

// TestDamage truncates a file at every byte and spoils each of them: nothing may panic, and no truncated file may pass
// for a whole one except where optional parts begin.
func TestDamage(t *testing.T) {
	for _, m := range everyNode() {
		b, err := m.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		whole := map[int]bool{}
		for m.Sections = 0; m.Sections < 5; m.Sections++ {
			part, err := m.Marshal()
			if err != nil {
				t.Fatal(err)
			}
			whole[len(part)] = true
		}
		for i := range b {
			if _, err := OpenMTOK(b[:i]); (err == nil) != whole[i] {
				t.Errorf("model %d, the first %d bytes: %v", m.Model.Tag, i, err)
			}
			for _, v := range []byte{0, 1, 0x7F, 0xFF, b[i] + 1} {
				spoilt := bytes.Clone(b)
				spoilt[i] = v
				if e, err := OpenMTOK(spoilt); err == nil {
					e.Decode(e.Encode("ab a<s>  Ωx12 é's"))
				}
			}
		}
	}
}
