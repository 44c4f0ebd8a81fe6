package engine_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/runtime/tokenizer"
	"github.com/llmexport/llmexport/runtime/tokenizer/engine"
	"github.com/llmexport/llmexport/runtime/tokenizer/internal/mtok"
	"github.com/llmexport/llmexport/runtime/tokenizer/internal/regex"
	"github.com/llmexport/llmexport/runtime/tokenizer/internal/tokenizertest"
)

// written is a tokenizer.json as a tokenizer.mtok.
func written(t testing.TB, file []byte) ([]byte, error) {
	t.Helper()
	tok, err := tokenizer.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	o := tokenizer.MTOKOptions{Special: tok.SpecialIDs(), Prefix: tok.PrefixIDs(), ChatTemplate: "{{ messages }}", EOS: "<|im_end|>"}
	if id, ok := tok.ID("<|im_end|>"); ok {
		o.Stop = []int32{id}
	}
	b, _, err := tok.MTOK(o)
	return b, err
}

// FuzzEncode: no text is lost, but changed as the normalizer says.
func FuzzEncode(f *testing.F) {
	for _, s := range tokenizertest.Corpus(f)[:400] {
		f.Add(s)
	}
	var all []*engine.Tokenizer
	for _, base := range []string{"gpt2", "llama3", "tiny-qwen3"} {
		b, err := written(f, tokenizertest.Fixture(f, base))
		if err != nil {
			f.Fatal(err)
		}
		e, err := engine.Open(b)
		if err != nil {
			f.Fatal(err)
		}
		all = append(all, e)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if strings.Contains(text, "<|") {
			return // special tokens are looked for first, and the text is normalized between them
		}
		for _, e := range all {
			want, err := e.Normalize(text)
			if err != nil {
				t.Fatal(err)
			}
			if got := e.Decode(e.Encode(text)[len(e.Prefix()):]); got != want {
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
			{Tag: mtok.NormTable, Table: []mtok.Substitution{{Char: 'b', Text: "ab"}, {Char: 0x2126, Text: "Ω"}}}, {Tag: mtok.NormEmpty},
			{Tag: mtok.NormPrepend, Content: "▁"},
		}},
		PreTokenizer: mtok.PreTokenizer{Tag: mtok.PreSequence, Children: []mtok.PreTokenizer{
			{Tag: mtok.PreNone}, {Tag: mtok.PreDigits, Flag: true}, {Tag: mtok.PreDigits},
			{Tag: mtok.PreSplit, Regex: `\p{L}+(?!b)|[^a-c]{1,2}|(?i:'s|\d)?`, Flag: true, Behavior: mtok.SplitMergedWithPrevious},
			{Tag: mtok.PreSplit, Regex: `a|\bb`, Behavior: mtok.SplitRemoved}, {Tag: mtok.PreByteLevel, Flag: true}, {Tag: mtok.PreSplit, Regex: regex.Llama3},
		}},
		Model: mtok.Model{
			ByteFallback: true,
			Vocab: []mtok.Token{{Text: "", ID: 4}, {Text: "", ID: 5}, {Text: "<0x41>", ID: 6}, {Text: "a"}, {Text: "ab", ID: 2},
				{Text: "b", ID: 1}, {Text: "é", ID: 3}},
			Merges: []mtok.Merge{{Left: 0, Right: 1}},
		},
		Decoder: mtok.Decoder{Tag: mtok.DecSequence, Children: []mtok.Decoder{{Tag: mtok.DecFuse},
			{Tag: mtok.DecReplace, Pattern: "▁", Content: " "}, {Tag: mtok.DecByteLevel}}},
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

// FuzzOpen: parse, marshal, same bytes; what opens encodes.
func FuzzOpen(f *testing.F) {
	for _, m := range everyNode() {
		for m.Sections = 5; m.Sections >= 0; m.Sections-- {
			b, err := m.Marshal()
			if err != nil {
				f.Fatal(err)
			}
			if _, err := engine.Open(b); err != nil {
				f.Fatal(err)
			}
			f.Add(b, "ab a<s>  Ωx12 é's")
		}
	}
	for _, file := range tokenizertest.Seeds(f) {
		b, err := written(f, file)
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
		e, err := engine.Open(file)
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
			if _, err := engine.Open(b[:i]); (err == nil) != whole[i] {
				t.Errorf("model %d, the first %d bytes: %v", m.Model.Tag, i, err)
			}
			for _, v := range []byte{0, 1, 0x7F, 0xFF, b[i] + 1} {
				spoilt := bytes.Clone(b)
				spoilt[i] = v
				if e, err := engine.Open(spoilt); err == nil {
					e.Decode(e.Encode("ab a<s>  Ωx12 é's"))
				}
			}
		}
	}
}
