package syntax

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/llmexport/llmexport/runtime/tensor"
)

var (
	floatPattern   = regexp.MustCompile(`^(?i:(?:[0-9]+_)*[0-9]+(?:(?:\.(?:[0-9]+_)*[0-9]+)?e[+-]?(?:[0-9]+_)*[0-9]+|\.(?:[0-9]+_)*[0-9]+))`)
	integerPattern = regexp.MustCompile(`^(?i:0b(?:_?[01])+|0o(?:_?[0-7])+|0x(?:_?[0-9a-f])+|[1-9](?:_?[0-9])*|0(?:_?0)*)`)
)

// maxNumber bounds the bytes of a number.
const maxNumber = 1000

// number reads a number at the start of rest: its length, 0 if there is none, and its value, an int64 or a float64.
func (l *lexer) number(rest string) (int, any) {
	if rest[0] < '0' || rest[0] > '9' {
		return 0, nil
	}
	rest = rest[:min(len(rest), maxNumber)]               // patterns take time by the length of the text
	if l.position == 0 || l.source[l.position-1] != '.' { // x.0.1 is two subscripts
		if m := floatPattern.FindString(rest); m != "" {
			f, err := strconv.ParseFloat(strings.ReplaceAll(m, "_", ""), 64)
			if err != nil && !errors.Is(err, strconv.ErrRange) {
				panic(l.corrupt("%v", err))
			}
			return len(m), f
		}
	}
	m := integerPattern.FindString(rest)
	i, err := strconv.ParseInt(strings.ReplaceAll(m, "_", ""), 0, 64)
	if err != nil {
		panic(unsupported(l.line, "%s does not fit 64 bits", m))
	}
	return len(m), i
}

// string takes a string literal.
func (l *lexer) string(rest string) {
	end := 1
	for end < len(rest) && rest[end] != rest[0] {
		if rest[end] == '\\' {
			end++
		}
		end++
	}
	if end >= len(rest) {
		panic(l.corrupt("unexpected character %q", rest[0]))
	}
	s, err := unescape(rest[1:end])
	if err != nil {
		panic(&Error{Line: l.line, Kind: "TemplateSyntaxError", Message: "a string", Err: err})
	}
	l.add(tokenString, s, nil)
	l.skip(end + 1)
}

// simpleEscapes are the escapes of one letter.
var simpleEscapes = map[byte]string{
	'\n': "", '\\': `\`, '\'': "'", '"': `"`, 'a': "\a", 'b': "\b", 'f': "\f", 'n': "\n", 'r': "\r", 't': "\t", 'v': "\v",
}

// unescape replaces the escapes of a Python string. Unknown ones stay as written.
func unescape(s string) (string, error) {
	if !strings.Contains(s, `\`) {
		return s, nil
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		c := s[i]
		if c != '\\' || i+1 == len(s) {
			b.WriteByte(c)
			i++
			continue
		}
		e := s[i+1]
		i += 2
		if t, ok := simpleEscapes[e]; ok {
			b.WriteString(t)
			continue
		}
		digits := map[byte]int{'x': 2, 'u': 4, 'U': 8}[e]
		switch {
		case e >= '0' && e <= '7':
			n := 1
			for n < 3 && i-1+n < len(s) && s[i-1+n] >= '0' && s[i-1+n] <= '7' {
				n++
			}
			v, _ := strconv.ParseUint(s[i-1:i-1+n], 8, 32)
			b.WriteRune(rune(v))
			i += n - 1
		case digits > 0:
			if i+digits > len(s) {
				return "", fmt.Errorf("truncated \\%c escape: %w", e, tensor.ErrCorrupt)
			}
			v, err := strconv.ParseUint(s[i:i+digits], 16, 32)
			if err != nil || v > utf8.MaxRune {
				return "", fmt.Errorf("illegal \\%c escape: %w", e, tensor.ErrCorrupt)
			}
			if !utf8.ValidRune(rune(v)) {
				return "", fmt.Errorf("half of a surrogate pair, \\%c%s: %w", e, s[i:i+digits], tensor.ErrUnsupported)
			}
			b.WriteRune(rune(v))
			i += digits
		case e == 'N':
			return "", fmt.Errorf("a character by name, \\N: %w", tensor.ErrUnsupported)
		case e >= utf8.RuneSelf:
			// jinja2 escapes characters outside ASCII before it reads escapes, so that a backslash before
			// such a character escapes that escape's backslash.
			r, n := utf8.DecodeRuneInString(s[i-1:])
			switch {
			case r < 0x100:
				fmt.Fprintf(&b, `\x%02x`, r)
			case r < 0x10000:
				fmt.Fprintf(&b, `\u%04x`, r)
			default:
				fmt.Fprintf(&b, `\U%08x`, r)
			}
			i += n - 1
		default:
			b.WriteByte('\\')
			b.WriteByte(e)
		}
	}
	return b.String(), nil
}
