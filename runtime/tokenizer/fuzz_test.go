package tokenizer

import (
	"bytes"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/runtime/tokenizer/engine"
	"github.com/llmexport/llmexport/runtime/tokenizer/internal/tokenizertest"
)

// seeds are files that load.
func seeds(f *testing.F) [][]byte {
	f.Helper()
	out := tokenizertest.Seeds(f)
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
		e, err := engine.Open(b)
		if err != nil {
			t.Fatalf("the writer's file is refused: %v", err)
		}
		if again, err := marshalled(b); err != nil || !bytes.Equal(again, b) {
			t.Fatalf("marshalling gives other bytes, %v", err)
		}
		e.Decode(e.Encode(text))
	})
}

// FuzzEncode: no text is lost, but composed if there is a normalizer.
func FuzzEncode(f *testing.F) {
	for _, s := range tokenizertest.Corpus(f)[:400] {
		f.Add(s)
	}
	var all []*Tokenizer
	for _, base := range []string{"gpt2", "llama3", "tiny-qwen3"} {
		all = append(all, mustLoad(f, tokenizertest.Fixture(f, base)))
	}
	f.Fuzz(func(t *testing.T, text string) {
		if strings.Contains(text, "<|") {
			return // text is not composed with an adjacent special token
		}
		for _, tok := range all {
			want := lossy(text)
			if tok.normalizer != nil {
				want = nfc(want)
			}
			if got := tok.Decode(tok.Encode(text, false), false); got != want {
				t.Errorf("%q became %q, want %q", text, got, want)
			}
		}
	})
}
