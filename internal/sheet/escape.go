package sheet

import (
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Escape escapes characters with an effect on terminals, as Go does in strings: control characters, colours, changes of
// the text direction, and invalid UTF-8. It keeps newlines, tabs, spaces of every kind, and the joiners of letters and
// emoji.
func Escape(s string) string {
	if strings.IndexFunc(s, obeyed) < 0 && utf8.ValidString(s) {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, s[0])
		case !obeyed(r):
			b.WriteString(s[:n])
		case r < 0x80:
			fmt.Fprintf(&b, `\x%02x`, r)
		case r <= 0xffff:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			fmt.Fprintf(&b, `\U%08x`, r)
		}
		s = s[n:]
	}
	return b.String()
}

// EscapeJSON is [Escape] for a JSON document, in which only strings need escaping.
func EscapeJSON(s string) string {
	if strings.IndexFunc(s, obeyed) < 0 {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		switch {
		case !obeyed(r):
			b.WriteRune(r)
		case r <= 0xffff:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&b, `\u%04x\u%04x`, high, low)
		}
	}
	return b.String()
}

// obeyed reports whether a terminal may do anything but show a character.
func obeyed(r rune) bool {
	const nonJoiner, joiner = 0x200c, 0x200d
	return !unicode.IsPrint(r) && !unicode.Is(unicode.Zs, r) && r != '\n' && r != '\t' && r != nonJoiner && r != joiner
}

// Screen is a writer to a terminal that applies [Escape].
type Screen struct {
	W    io.Writer
	part []byte // an incomplete character
}

// Write implements io.Writer. A character may be split over several calls.
func (s *Screen) Write(b []byte) (int, error) {
	all := append(s.part, b...)
	end := len(all)
	for i := end - 1; i >= 0 && i >= end-utf8.UTFMax; i-- {
		if utf8.RuneStart(all[i]) {
			if !utf8.FullRune(all[i:]) {
				end = i
			}
			break
		}
	}
	s.part = append([]byte(nil), all[end:]...)
	if _, err := io.WriteString(s.W, Escape(string(all[:end]))); err != nil {
		return 0, err
	}
	return len(b), nil
}
