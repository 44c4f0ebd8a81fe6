package tokenizer

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

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
		if again, err := e.file.marshal(); err != nil || !bytes.Equal(again, b) {
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
func everyNode() []*mtok {
	bpe := &mtok{
		Special: []int32{3, 300}, Stop: []int32{3}, Prefix: []int32{0},
		Normalizer: normNode{Tag: normSequence, Children: []normNode{
			{Tag: normNone}, {Tag: normReplace, Pattern: "x", Content: "y"}, {Tag: normStrip, Left: true, Right: true},
			{Tag: normTable, Table: []substitution{{'b', "ab"}, {0x2126, "Ω"}}}, {Tag: normEmpty}, {Tag: normPrepend, Content: "▁"},
		}},
		PreTokenizer: preNode{Tag: preSequence, Children: []preNode{
			{Tag: preNone}, {Tag: preDigits, Flag: true}, {Tag: preDigits}, {Tag: preSplit, Regex: `\p{L}+(?!b)|[^a-c]{1,2}|(?i:'s|\d)?`, Flag: true, Behavior: splitMergedWithPrevious},
			{Tag: preSplit, Regex: `a|\bb`, Behavior: splitRemoved}, {Tag: preByteLevel, Flag: true}, {Tag: preSplit, Regex: regex.Llama3},
		}},
		Model: modelNode{
			ByteFallback: true,
			Vocab:        []vocabEntry{{Token: "", ID: 4}, {Token: "", ID: 5}, {Token: "<0x41>", ID: 6}, {Token: "a"}, {Token: "ab", ID: 2}, {Token: "b", ID: 1}, {Token: "é", ID: 3}},
			Merges:       []mergeEntry{{0, 1, 0}},
		},
		Decoder:  decNode{Tag: decSequence, Children: []decNode{{Tag: decFuse}, {Tag: decReplace, Pattern: "▁", Content: " "}, {Tag: decByteLevel}}},
		Added:    []mtokAdded{{300, true, true, true, "<s>"}},
		Sections: 5, Template: "{{ x }}", EOS: "</s>", Flags: 1, BOS: "<s>", PostProcess: "\x02\x00\x01\x03\x00\x00\x00\x00",
	}
	wordPiece := &mtok{
		Special:      []int32{0},
		Normalizer:   normNode{Tag: normBert, Clean: true, Chinese: true, Lower: true},
		PreTokenizer: preNode{Tag: preBert},
		Model: modelNode{
			Tag: modelWordPiece, Unknown: "[UNK]", Prefix: "##", MaxBytes: 100,
			Vocab: []vocabEntry{{Token: "##b", ID: 2}, {Token: "[UNK]"}, {Token: "a", ID: 1}},
		},
		Decoder:  decNode{Tag: decWordPiece, Content: "##", Flag: true},
		Sections: 5, PostProcess: "\x00\x00",
	}
	unigram := &mtok{
		Special:      []int32{0},
		Normalizer:   normNode{Tag: normBertTable, Accents: true, Table: []substitution{{'é', "e\u0301"}}},
		PreTokenizer: preNode{Tag: preMetaspace, Replacement: "▁", Flag: true},
		Model: modelNode{
			Tag: modelUnigram, UnknownID: 0,
			Vocab: []vocabEntry{{Token: "<unk>"}, {Token: "a", ID: 1, Score: -1}, {Token: "ab", ID: 2, Score: -1.5}, {Token: "▁", ID: 3, Score: -2}},
		},
		Decoder: decNode{Tag: decSequence, Children: []decNode{
			{Tag: decByteFallback}, {Tag: decMetaspace, Content: "▁", Flag: true}, {Tag: decStrip, Content: " ", Start: 1}}},
		Sections: 5, PostProcess: "\x00\x00",
	}
	return []*mtok{bpe, wordPiece, unigram}
}

// FuzzOpenMTOK: parse, marshal, same bytes; what opens encodes.
func FuzzOpenMTOK(f *testing.F) {
	for _, m := range everyNode() {
		for m.Sections = 5; m.Sections >= 0; m.Sections-- {
			b, err := m.marshal()
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
		m, err := parseMTOK(file)
		if err != nil {
			if m != nil {
				t.Fatal("an error and a file")
			}
			return
		}
		if again, err := m.marshal(); err != nil || !bytes.Equal(again, file) {
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
		b, err := m.marshal()
		if err != nil {
			t.Fatal(err)
		}
		whole := map[int]bool{}
		for m.Sections = 0; m.Sections < 5; m.Sections++ {
			part, err := m.marshal()
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
