package tokenizer

import (
	"slices"
	"strings"
	"testing"

	"golang.org/x/text/unicode/norm"
)

// TestLiteral: every composite written as NFD, alone and between letters, comes back; what is composed stays.
func TestLiteral(t *testing.T) {
	node := literal(nfc)
	n := newEngineNormalizer(&node)
	var lines []string
	for r := rune(1); r <= 0xFFFF; r++ {
		if r < 0xD800 || r > 0xDFFF {
			lines = append(lines, string(r), norm.NFD.String(string(r)), "가"+string(r)+"한")
		}
	}
	for part := range slices.Chunk(lines, 200) {
		text := strings.Join(part, "\n")
		if got, err := n.normalize(text); err != nil || got != nfc(text) {
			t.Fatalf("%+q: %+q, want %+q", text, got, nfc(text))
		}
	}
	for _, s := range []string{"각각 간", "xin chào thế giới", "e\u0301\u0323", "\u00e9\u0323", "a\u0323\u0302\u0301", "👨\u200d👩\u200d👧", "\u200b\u0085\ufeff"} {
		for _, s := range []string{s, norm.NFD.String(s), strings.Repeat(norm.NFD.String(s), 3)} {
			if got, err := n.normalize(s); err != nil || got != nfc(s) {
				t.Errorf("%+q: %+q, want %+q", s, got, nfc(s))
			}
		}
	}
}
