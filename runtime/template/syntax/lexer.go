package syntax

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// kind is the kind of a token.
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

// token is a text, a bracket of a tag, or a word within a tag.
type token struct {
	kind  kind
	text  string // as written; of a string its value
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

// lexer cuts a template into tokens, with trim_blocks and lstrip_blocks: the line feed after a tag is dropped, and so
// are blanks between the start of a line and a tag.
type lexer struct {
	source    string
	position  int
	line      int
	tokens    []token
	brackets  []byte // the closing ones to come
	lineStart bool   // the match before this position ended with a line feed
}

// lex cuts source, without a single line feed at its end. It panics with an *Error.
func lex(source string) []token {
	source = strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(source)
	l := &lexer{source: strings.TrimSuffix(source, "\n"), line: 1, lineStart: true}
	for l.position < len(l.source) {
		l.text()
	}
	l.add(tokenEOF, "", nil)
	return l.tokens
}

func (l *lexer) corrupt(format string, args ...any) *Error { return corrupt(l.line, format, args...) }

func (l *lexer) add(k kind, text string, value any) {
	l.tokens = append(l.tokens, token{k, text, value, l.line})
}

// skip moves past n bytes.
func (l *lexer) skip(n int) {
	part := l.source[l.position : l.position+n]
	l.line += strings.Count(part, "\n")
	l.position += n
	if n > 0 {
		l.lineStart = part[n-1] == '\n'
	}
}

// text takes text up to the next tag, and that tag.
func (l *lexer) text() {
	rest := l.source[l.position:]
	at := 0
	for {
		i := strings.IndexByte(rest[at:], '{')
		if i < 0 || at+i+1 >= len(rest) {
			l.add(tokenText, rest, nil)
			l.skip(len(rest))
			return
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
		l.raw()
		return
	case mark == '#':
		l.skip(begin - at)
		l.comment()
		return
	case mark == '{':
		first.kind = tokenPrint
	default:
		first.kind = tokenTag
	}
	l.tokens = append(l.tokens, first)
	l.skip(begin - at)
	l.code(first.kind == tokenTag)
}

// takeText takes the text before a tag, without the white space that the tag's sign or lstrip_blocks removes.
func (l *lexer) takeText(text string, sign byte, lines bool) {
	kept := text
	switch {
	case sign == '-':
		kept = strings.TrimRightFunc(text, IsSpace)
	case sign == 0 && lines:
		start := strings.LastIndexByte(text, '\n') + 1
		if (start > 0 || l.lineStart) && strings.TrimFunc(text[start:], IsSpace) == "" {
			kept = text[:start]
		}
	}
	if kept != "" {
		l.add(tokenText, kept, nil)
	}
	l.skip(len(text))
}

// rawBegin returns the length of the tag {% raw %} after its sign, or 0 if s is another tag.
func rawBegin(s string) int {
	t, ok := strings.CutPrefix(strings.TrimLeftFunc(s, IsSpace), "raw")
	if !ok {
		return 0
	}
	t = strings.TrimLeftFunc(t, IsSpace)
	if u, ok := strings.CutPrefix(t, "-%}"); ok {
		return len(s) - len(strings.TrimLeftFunc(u, IsSpace))
	}
	if u, ok := strings.CutPrefix(t, "%}"); ok {
		return len(s) - len(u)
	}
	return 0
}

// raw takes the text up to {% endraw %}, and that tag.
func (l *lexer) raw() {
	rest := l.source[l.position:]
	for at := 0; ; at += 2 {
		i := strings.Index(rest[at:], "{%")
		if rest == "" {
			return // jinja2 accepts that at the very end
		}
		if i < 0 {
			panic(l.corrupt("missing end of raw directive"))
		}
		at += i
		t, sign := rest[at+2:], byte(0)
		if t != "" && (t[0] == '-' || t[0] == '+') {
			sign, t = t[0], t[1:]
		}
		t, ok := strings.CutPrefix(strings.TrimLeftFunc(t, IsSpace), "endraw")
		if !ok {
			continue
		}
		t = strings.TrimLeftFunc(t, IsSpace)
		if n := tagEnd(t, "%}", true); n > 0 {
			l.takeText(rest[:at], sign, true)
			l.skip(len(rest) - at - len(t) + n)
			return
		}
	}
}

// comment takes the text and the end of a comment.
func (l *lexer) comment() {
	rest := l.source[l.position:]
	at := strings.Index(rest, "#}")
	if rest == "" {
		return // as for raw
	}
	if at < 0 {
		panic(l.corrupt("missing end of comment tag"))
	}
	if at > 0 && (rest[at-1] == '-' || rest[at-1] == '+') {
		at--
	}
	l.skip(at + tagEnd(rest[at:], "#}", true))
}

// tagEnd returns the length of the end of a tag and of the white space that it removes, or 0 if s begins with neither.
func tagEnd(s, end string, block bool) int {
	switch {
	case strings.HasPrefix(s, "-"+end):
		rest := s[1+len(end):]
		return len(s) - len(strings.TrimLeftFunc(rest, IsSpace))
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
func (l *lexer) code(tag bool) {
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
				return
			}
		}
		if n := len(rest) - len(strings.TrimLeftFunc(rest, IsSpace)); n > 0 {
			l.skip(n)
			continue
		}
		l.word(rest)
	}
}

// word takes one name, literal or operator.
func (l *lexer) word(rest string) {
	if n, value := l.number(rest); n > 0 {
		k := tokenInteger
		if _, ok := value.(float64); ok {
			k = tokenFloat
		}
		l.add(k, rest[:n], value)
		l.skip(n)
		return
	}
	if n := len(rest) - len(strings.TrimLeftFunc(rest, IsWord)); n > 0 {
		if first, _ := utf8.DecodeRuneInString(rest); first != '_' && !unicode.IsLetter(first) {
			panic(l.corrupt("invalid character in identifier %q", rest[:n]))
		}
		l.add(tokenName, rest[:n], nil)
		l.skip(n)
		return
	}
	if rest[0] == '\'' || rest[0] == '"' {
		l.string(rest)
		return
	}
	n := operatorLength(rest)
	if n == 0 {
		r, _ := utf8.DecodeRuneInString(rest)
		panic(l.corrupt("unexpected character %q", r))
	}
	l.balance(rest[0])
	l.add(tokenOperator, rest[:n], nil)
	l.skip(n)
}

// IsSpace is Python's str.isspace of one character.
func IsSpace(c rune) bool { return unicode.IsSpace(c) || c >= 0x1c && c <= 0x1f }

// IsWord reports whether a character may stand in a name.
func IsWord(r rune) bool {
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

// balance tracks brackets: within them the end of a tag has no effect.
func (l *lexer) balance(c byte) {
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
			panic(l.corrupt("unexpected %q", c))
		}
		if l.brackets[n-1] != c {
			panic(l.corrupt("unexpected %q, expected %q", c, l.brackets[n-1]))
		}
		l.brackets = l.brackets[:n-1]
	}
}
