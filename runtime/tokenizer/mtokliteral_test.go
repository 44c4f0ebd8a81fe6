package tokenizer

import (
	"slices"
	"strings"
	"testing"

	"golang.org/x/text/unicode/norm"

	"github.com/llmexport/llmexport/runtime/tokenizer/engine"
	"github.com/llmexport/llmexport/runtime/tokenizer/internal/bytelevel"
	"github.com/llmexport/llmexport/runtime/tokenizer/internal/mtok"
)

// TestLiteral: every composite written as NFD, alone and between letters, comes back; what is composed stays.
func TestLiteral(t *testing.T) {
	normalize := normalizes(t, literal(nfc))
	var lines []string
	for r := rune(1); r <= 0xFFFF; r++ {
		if r < 0xD800 || r > 0xDFFF {
			lines = append(lines, string(r), norm.NFD.String(string(r)), "가"+string(r)+"한")
		}
	}
	i := 0
	for part := range slices.Chunk(lines, 200) {
		if i++; testing.Short() && i%4 != 0 {
			continue
		}
		text := strings.Join(part, "\n")
		if got, err := normalize(text); err != nil || got != nfc(text) {
			t.Fatalf("%+q: %+q, want %+q", text, got, nfc(text))
		}
	}
	for _, s := range []string{"각각 간", "xin chào thế giới", "e\u0301\u0323", "\u00e9\u0323", "a\u0323\u0302\u0301", "👨\u200d👩\u200d👧", "\u200b\u0085\ufeff"} {
		for _, s := range []string{s, norm.NFD.String(s), strings.Repeat(norm.NFD.String(s), 3)} {
			if got, err := normalize(s); err != nil || got != nfc(s) {
				t.Errorf("%+q: %+q, want %+q", s, got, nfc(s))
			}
		}
	}
}

// normalizes gives what the engine's normalizer does, by a tokenizer that has a token for every byte.
func normalizes(t *testing.T, n mtok.Normalizer) func(string) (string, error) {
	t.Helper()
	m := &mtok.File{
		Normalizer: n, PreTokenizer: mtok.PreTokenizer{Tag: mtok.PreByteLevel}, Decoder: mtok.Decoder{Tag: mtok.DecByteLevel},
		Sections: 5, PostProcess: "\x00\x00",
	}
	for b := range 256 {
		m.Model.Vocab = append(m.Model.Vocab, mtok.Token{Text: bytelevel.StandIn(byte(b)), ID: int32(b)})
	}
	mtok.SortVocab(m.Model.Vocab)
	b, err := m.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	e, err := engine.Open(b)
	if err != nil {
		t.Fatal(err)
	}
	return func(s string) (string, error) {
		ids, err := e.TryEncode(s)
		return e.Decode(ids), err
	}
}
