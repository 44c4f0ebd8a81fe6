package repository

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/llmexport/llmexport/runtime/tensor"
	"github.com/llmexport/llmexport/runtime/tokenizer"
	"github.com/llmexport/llmexport/runtime/tokenizer/engine"
	"github.com/llmexport/llmexport/runtime/tokenizer/internal/tokenizertest"
)

// hostileUnits make texts that are bad for simpler algorithms when they are repeated.
var hostileUnits = []string{
	"a", "ab", "1", "!", "'", "<", " ", "\n", " \n", "\t", "\u0301", "a\u0301", "a\u0301\u0323", "\u1112\u1161", "\u4e2d",
	"\U0001F469\u200d", "\ufffd", "\xff", "\xe2\x82", "\u2581", "<|im_start|>", "<|im_start", "</s>", "<0x41>",
}

// hostileTokenizers are the small tokenizers of every kind that the tests have.
func hostileTokenizers(t testing.TB) map[string]*tokenizer.Tokenizer {
	t.Helper()
	out := map[string]*tokenizer.Tokenizer{}
	for _, base := range []string{"gpt2", "llama3", "qwen", "tiny-qwen3"} {
		tok, err := tokenizer.Load(tokenizertest.Fixture(t, base))
		if err != nil {
			t.Fatal(err)
		}
		out[base] = tok
	}
	read := func(pattern string, load func([]byte) (*tokenizer.Tokenizer, error)) {
		paths, err := filepath.Glob(filepath.FromSlash(pattern))
		if err != nil || len(paths) == 0 {
			t.Fatalf("%s: no files, %v", pattern, err)
		}
		for _, path := range paths {
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			tok, err := load(b)
			if err != nil {
				t.Fatalf("%s: %v", path, err)
			}
			out[filepath.Base(path)] = tok
		}
	}
	read("../../../verify/tokenizerstest/testdata/*.tokenizer.json", tokenizer.Load)
	read("../testdata/sentencepiece/*.model", func(b []byte) (*tokenizer.Tokenizer, error) {
		d, err := DefineSentencePiece(b)
		if err != nil {
			return nil, err
		}
		return d.Tokenizer()
	})
	return out
}

// TestHostileTexts holds the time to the length of a text: four times the text takes some four times as long, in the
// tokenizer and in the engine's.
func TestHostileTexts(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	for name, tok := range hostileTokenizers(t) {
		encode := func(text string) { tok.Encode(text, false) }
		for _, unit := range hostileUnits {
			linear(t, name, unit, encode)
		}
		b, _, err := tok.MTOK(tokenizer.MTOKOptions{Special: tok.SpecialIDs(), Prefix: tok.PrefixIDs(), ChatTemplate: "{{ messages }}"})
		if errors.Is(err, tensor.ErrUnsupported) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		e, err := engine.Open(b)
		if err != nil {
			t.Fatal(err)
		}
		encode = func(text string) { e.TryEncode(text) }
		for _, unit := range hostileUnits {
			linear(t, name+" as the engine", unit, encode)
		}
	}
}

// linear holds the time for four times the text to some four times as long; a squared length takes 16 times. A machine that
// does other work can stretch one step, so that what grows too much has to do so again from there.
func linear(t *testing.T, name, unit string, encode func(string)) {
	t.Helper()
	const size, times = 1 << 14, 4
	short := strings.Repeat(unit, size/len(unit))
	long := strings.Repeat(short, times)
	a, b, ok := grows(encode, short, long)
	if !ok {
		short, long = long, strings.Repeat(long, times)
		a, b, ok = grows(encode, short, long)
	}
	if !ok {
		t.Fatalf("%s, %q: %d bytes take %v, %d take %v", name, unit, len(short), a, len(long), b)
	}
}

// grows gives the times for two texts, and whether the second is in proportion. The collector and caches make some longer, so
// that a bad one is measured again.
func grows(encode func(string), short, long string) (a, b time.Duration, ok bool) {
	const growth, attempts = 6, 5
	const noise = 250 * time.Millisecond // what a squared length takes at least
	took := func(text string) time.Duration { return tokenizertest.Took(func() { encode(text) }) }
	a, b = took(short), took(long)
	for range attempts {
		if b < noise || b < growth*a {
			return a, b, true
		}
		a, b = min(a, took(short)), min(b, took(long))
	}
	return a, b, b <= noise || b <= growth*a
}
