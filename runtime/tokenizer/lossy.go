package tokenizer

import (
	"strings"
	"unicode/utf8"
)

// lossy replaces invalid UTF-8 by U+FFFD, one for each maximal part of a sequence that could have been continued: the rule
// of the Unicode standard, which Rust and Python follow and Go does not.
func lossy(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	var b strings.Builder
	b.Grow(len(s) + 16)
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && n == 1 {
			n = badPrefix(s[i:])
		}
		b.WriteRune(r)
		i += n
	}
	return b.String()
}

// badPrefix is the length of the maximal invalid part at the start of s.
func badPrefix(s string) int {
	need, lo, hi := 0, byte(0x80), byte(0xBF)
	switch c := s[0]; {
	case c >= 0xC2 && c <= 0xDF:
		need = 1
	case c == 0xE0:
		need, lo = 2, 0xA0
	case c == 0xED:
		need, hi = 2, 0x9F
	case c >= 0xE1 && c <= 0xEF:
		need = 2
	case c == 0xF0:
		need, lo = 3, 0x90
	case c >= 0xF1 && c <= 0xF3:
		need = 3
	case c == 0xF4:
		need, hi = 3, 0x8F
	}
	n := 1
	for ; need > 0 && n < len(s) && s[n] >= lo && s[n] <= hi; need-- {
		n, lo, hi = n+1, 0x80, 0xBF
	}
	return n
}
