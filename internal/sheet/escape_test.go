package sheet

import (
	"strings"
	"testing"
)

func TestEscape(t *testing.T) {
	for in, want := range map[string]string{
		"plain, \"quoted\" and \\ too": "plain, \"quoted\" and \\ too",
		"\x1b[31mred\x07\r\b\x7f":      `\x1b[31mred\x07\x0d\x08\x7f`,
		"\u009b2J":                     `\u009b2J`, // CSI in one character
		"a\u202eb\u2066c\u200fd\ufeff": `a\u202eb\u2066c\u200fd\ufeff`,
		"\u2028\u2029":                 `\u2028\u2029`,
		"\U000e0041":                   `\U000e0041`, // a tag
		"\xff\xe2\x80":                 `\xff\xe2\x80`,
		"line\nand\ttab":               "line\nand\ttab",
		"日本\u3000語 äé 👩\u200d👧 ف\u200cا \u00a0": "日本\u3000語 äé 👩\u200d👧 ف\u200cا \u00a0",
		"\ufffd": "\ufffd",
	} {
		if got := Escape(in); got != want {
			t.Errorf("%q is shown as %s, want %s", in, got, want)
		}
	}
	if got := Plain("a\nb\tc\x1b"); got != `a b c\x1b` {
		t.Errorf("on one line: %q", got)
	}
}

// Rows hold texts of every type.
func TestRowEscapes(t *testing.T) {
	type name string
	s := New("file", ">bytes")
	s.Row("a\x1b[2J", int64(3))
	s.Row(name("\u202eb\n"), 1.5)
	var b strings.Builder
	if err := s.Write(&b, true); err != nil {
		t.Fatal(err)
	}
	if got := b.String(); strings.ContainsAny(got, "\x1b\u202e") || strings.Count(got, "\n") != 3 || !strings.Contains(got, `\x1b[2J`) {
		t.Errorf("%q", got)
	}
}

// However a text is cut, the terminal gets the same.
func TestScreen(t *testing.T) {
	const text = "é👩\x1b[1m日\u202e\xf0\x9f!\xe2"
	want := Escape(text[:len(text)-1])
	for n := 1; n <= len(text); n++ {
		var b strings.Builder
		w := &Screen{W: &b}
		for rest := text; rest != ""; rest = rest[min(n, len(rest)):] {
			part := rest[:min(n, len(rest))]
			if got, err := w.Write([]byte(part)); err != nil || got != len(part) {
				t.Fatal(got, err)
			}
		}
		if b.String() != want {
			t.Errorf("in parts of %d: %q, want %q", n, b.String(), want)
		}
	}
}
