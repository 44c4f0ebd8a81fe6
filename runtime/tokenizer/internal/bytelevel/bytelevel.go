// Package bytelevel spells bytes as byte-level BPE does.
package bytelevel

import (
	"strings"
	"unicode/utf8"
)

// Byte-level BPE spells every byte as one printable code point, its stand-in: printable Latin-1 bytes
// stand for themselves, the others are numbered upwards from U+0100.
var (
	standIn  [256]string
	standFor = map[rune]byte{}
)

func init() {
	next := rune(256)
	for b := range 256 {
		r := rune(b)
		if !(b >= 33 && b <= 126 || b >= 161 && b <= 172 || b >= 174) {
			r, next = next, next+1
		}
		standIn[b] = string(r)
		standFor[r] = byte(b)
	}
}

// StandIn is the stand-in of a byte.
func StandIn(b byte) string { return standIn[b] }

// Byte is the byte that a stand-in is for.
func Byte(standIn rune) (byte, bool) {
	b, ok := standFor[standIn]
	return b, ok
}

// Encode spells the bytes of s as stand-ins.
func Encode(s string) string {
	var b strings.Builder
	b.Grow(2 * len(s))
	for i := range len(s) {
		b.WriteString(standIn[s[i]])
	}
	return b.String()
}

// Decode undoes Encode. It reports false if s holds a code point that is not a stand-in.
func Decode(s string) (string, bool) {
	b := make([]byte, 0, len(s))
	for _, r := range s {
		c, ok := standFor[r]
		if !ok {
			return "", false
		}
		b = append(b, c)
	}
	return string(b), true
}

// Whole is the length of b without a character at its end that more bytes could complete.
func Whole(b []byte) int {
	for back := 1; back < utf8.UTFMax && back <= len(b); back++ {
		if utf8.RuneStart(b[len(b)-back]) {
			if !utf8.FullRune(b[len(b)-back:]) {
				return len(b) - back
			}
			break
		}
	}
	return len(b)
}
