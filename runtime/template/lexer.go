package template

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// kind says what a token is.
type kind uint8

const (
	tokenEOF kind = iota
	tokenText
	tokenPrint    // {{
	tokenPrintEnd // }}
	tokenTag      // {%
	tokenTagEnd   // %}
	tokenName
	tokenString
	tokenInteger
	tokenFloat
	tokenOperator
)

// token is one word of a template. Of text and strings it holds the text that they stand for.
type token struct {
	kind  kind
	text  string // what is written: a name, an operator, a literal after unescaping
	value any    // of a number
	line  int
}

func (t token) String() string {
	switch t.kind {
	case tokenEOF:
		return "end of template"
	case tokenText:
		return "text"
	case tokenPrint:
		return "{{"
	case tokenPrintEnd:
		return "}}"
	case tokenTag:
		return "{%"
	case tokenTagEnd:
		return "%}"
	case tokenString:
		return "a string"
	}
	return t.text
}

// lexer cuts a template into tokens, with trim_blocks and lstrip_blocks: the line feed after a tag is dropped, and
// blanks between the start of a line and a tag as well.
type lexer struct {
	source    string
	position  int
	line      int
	tokens    []token
	brackets  []byte // closing brackets that are due
	lineStart bool   // the match before this position ended with a line feed
}

// lex cuts source. A single line feed at the end of a template does not count.
func lex(source string) ([]token, error) {
	source = strings.TrimSuffix(normalizeNewlines(source), "\n")
	l := &lexer{source: source, line: 1, lineStart: true}
	for l.position < len(l.source) {
		if err := l.text(); err != nil {
			return nil, err
		}
	}
	l.add(tokenEOF, "", nil)
	return l.tokens, nil
}

func normalizeNewlines(s string) string {
	if !strings.Contains(s, "\r") {
		return s
	}
	return strings.ReplaceAll(strings.ReplaceAll(s, "\r\n", "\n"), "\r", "\n")
}

func (l *lexer) corrupt(format string, args ...any) error {
	return &Error{Line: l.line, Kind: "TemplateSyntaxError", Message: fmt.Sprintf(format, args...), err: tensor.ErrCorrupt}
}

func (l *lexer) add(k kind, text string, value any) {
	l.tokens = append(l.tokens, token{k, text, value, l.line})
}

// skip goes n bytes ahead.
func (l *lexer) skip(n int) {
	part := l.source[l.position : l.position+n]
	l.line += strings.Count(part, "\n")
	l.position += n
	if n > 0 {
		l.lineStart = part[n-1] == '\n'
	}
}

// space is the length of the white space at the position plus n.
func (l *lexer) space(n int) int {
	rest := l.source[l.position+n:]
	return len(rest) - len(strings.TrimLeftFunc(rest, isSpace))
}

// text takes text up to the next tag, and that tag.
func (l *lexer) text() error {
	rest := l.source[l.position:]
	at := 0
	for {
		i := strings.IndexByte(rest[at:], '{')
		if i < 0 || at+i+1 >= len(rest) {
			l.add(tokenText, rest, nil)
			l.skip(len(rest))
			return nil
		}
		at += i
		if c := rest[at+1]; c == '%' || c == '{' || c == '#' {
			break
		}
		at++
	}
	mark, begin := rest[at+1], at+2
	sign := byte(0)
	if begin < len(rest) && (rest[begin] == '-' || rest[begin] == '+') {
		sign = rest[begin]
		begin++
	}
	l.takeText(rest[:at], sign, mark != '{')
	raw := 0
	if mark == '%' {
		raw = rawBegin(rest[begin:])
	}
	first := token{line: l.line}
	switch {
	case raw > 0:
		l.skip(begin + raw - at)
		return l.raw()
	case mark == '#':
		l.skip(begin - at)
		return l.comment()
	case mark == '{':
		first.kind = tokenPrint
	default:
		first.kind = tokenTag
	}
	l.tokens = append(l.tokens, first)
	l.skip(begin - at)
	return l.code(first.kind == tokenTag)
}

// takeText takes the text before a tag, without the white space that the tag's sign or the rule of lines removes.
func (l *lexer) takeText(text string, sign byte, lines bool) {
	kept := text
	switch {
	case sign == '-':
		kept = strings.TrimRightFunc(text, isSpace)
	case sign == 0 && lines:
		start := strings.LastIndexByte(text, '\n') + 1
		if (start > 0 || l.lineStart) && strings.TrimFunc(text[start:], isSpace) == "" {
			kept = text[:start]
		}
	}
	if kept != "" {
		l.add(tokenText, kept, nil)
	}
	l.skip(len(text))
}

// rawBegin is the length of what ends the tag {% raw %}, from behind its sign, or 0.
func rawBegin(s string) int {
	t, ok := strings.CutPrefix(strings.TrimLeftFunc(s, isSpace), "raw")
	if !ok {
		return 0
	}
	t = strings.TrimLeftFunc(t, isSpace)
	if u, ok := strings.CutPrefix(t, "-%}"); ok {
		return len(s) - len(strings.TrimLeftFunc(u, isSpace))
	}
	if u, ok := strings.CutPrefix(t, "%}"); ok {
		return len(s) - len(u)
	}
	return 0
}

// raw takes the text up to {% endraw %}, and that.
func (l *lexer) raw() error {
	rest := l.source[l.position:]
	for at := 0; ; at += 2 {
		i := strings.Index(rest[at:], "{%")
		if rest == "" {
			return nil // the reference does not mind at the very end
		}
		if i < 0 {
			return l.corrupt("missing end of raw directive")
		}
		at += i
		t, sign := rest[at+2:], byte(0)
		if t != "" && (t[0] == '-' || t[0] == '+') {
			sign, t = t[0], t[1:]
		}
		t, ok := strings.CutPrefix(strings.TrimLeftFunc(t, isSpace), "endraw")
		if !ok {
			continue
		}
		t = strings.TrimLeftFunc(t, isSpace)
		if n := tagEnd(t, "%}", true); n > 0 {
			l.takeText(rest[:at], sign, true)
			l.skip(len(rest) - at - len(t) + n)
			return nil
		}
	}
}

// comment takes a comment's text and end.
func (l *lexer) comment() error {
	rest := l.source[l.position:]
	at := strings.Index(rest, "#}")
	if rest == "" {
		return nil // as for raw
	}
	if at < 0 {
		return l.corrupt("missing end of comment tag")
	}
	if at > 0 && (rest[at-1] == '-' || rest[at-1] == '+') {
		at--
	}
	l.skip(at + tagEnd(rest[at:], "#}", true))
	return nil
}

// tagEnd is the length of the end of a tag with the white space that it removes, or 0 when s begins otherwise.
func tagEnd(s, end string, block bool) int {
	switch {
	case strings.HasPrefix(s, "-"+end):
		rest := s[1+len(end):]
		return len(s) - len(strings.TrimLeftFunc(rest, isSpace))
	case block && strings.HasPrefix(s, "+"+end):
		return 1 + len(end)
	case block && strings.HasPrefix(s, end+"\n"):
		return len(end) + 1
	case strings.HasPrefix(s, end):
		return len(end)
	}
	return 0
}

// code takes the words of a tag up to its end.
func (l *lexer) code(tag bool) error {
	end, last := "}}", tokenPrintEnd
	if tag {
		end, last = "%}", tokenTagEnd
	}
	l.brackets = l.brackets[:0]
	for l.position < len(l.source) {
		rest := l.source[l.position:]
		if len(l.brackets) == 0 {
			if n := tagEnd(rest, end, tag); n > 0 {
				l.add(last, "", nil)
				l.skip(n)
				return nil
			}
		}
		if n := l.space(0); n > 0 {
			l.skip(n)
			continue
		}
		if err := l.word(rest); err != nil {
			return err
		}
	}
	return nil
}

// word takes one name, literal or operator.
func (l *lexer) word(rest string) error {
	if n, value, err := l.number(rest); n > 0 || err != nil {
		if err != nil {
			return err
		}
		k := tokenInteger
		if _, ok := value.(float64); ok {
			k = tokenFloat
		}
		l.add(k, rest[:n], value)
		l.skip(n)
		return nil
	}
	if n := len(rest) - len(strings.TrimLeftFunc(rest, isWord)); n > 0 {
		if first, _ := utf8.DecodeRuneInString(rest); first != '_' && !unicode.IsLetter(first) {
			return l.corrupt("invalid character in identifier %q", rest[:n])
		}
		l.add(tokenName, rest[:n], nil)
		l.skip(n)
		return nil
	}
	if rest[0] == '\'' || rest[0] == '"' {
		return l.string(rest)
	}
	n := operatorLength(rest)
	if n == 0 {
		r, _ := utf8.DecodeRuneInString(rest)
		return l.corrupt("unexpected character %q", r)
	}
	if err := l.balance(rest[0]); err != nil {
		return err
	}
	l.add(tokenOperator, rest[:n], nil)
	l.skip(n)
	return nil
}

func isWord(r rune) bool {
	return r == '_' || unicode.In(r, unicode.L, unicode.N, unicode.Mn, unicode.Mc, unicode.Pc)
}

func operatorLength(s string) int {
	for _, op := range []string{"//", "**", "==", "!=", ">=", "<="} {
		if strings.HasPrefix(s, op) {
			return 2
		}
	}
	if strings.IndexByte("+-/*%~[](){}><=.:|,;", s[0]) >= 0 {
		return 1
	}
	return 0
}

// balance keeps count of brackets, as an end of a tag inside of brackets is none.
func (l *lexer) balance(c byte) error {
	switch c {
	case '(':
		l.brackets = append(l.brackets, ')')
	case '[':
		l.brackets = append(l.brackets, ']')
	case '{':
		l.brackets = append(l.brackets, '}')
	case ')', ']', '}':
		n := len(l.brackets)
		if n == 0 {
			return l.corrupt("unexpected %q", c)
		}
		if l.brackets[n-1] != c {
			return l.corrupt("unexpected %q, expected %q", c, l.brackets[n-1])
		}
		l.brackets = l.brackets[:n-1]
	}
	return nil
}
