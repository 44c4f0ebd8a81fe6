package engine

import "strings"

type tokenKind uint8

const (
	textToken tokenKind = iota
	printStart
	printEnd
	blockStart
	blockEnd
	nameToken
	stringToken
	numberToken
	operatorToken
	punctuationToken
	endToken
	comment // never a token
)

type token struct {
	kind tokenKind
	text string
	line int
}

// blanks are the characters that the marker - of a tag and the methods strip remove.
const blanks = " \n\r\t"

// lexer cuts a template into tokens. It never fails, not even at an unexpected end.
type lexer struct {
	source  string
	at      int
	line    int // of counted
	counted int
	trim    bool // the text that follows loses its blanks in front
	tokens  []token
}

func lex(source string) []token {
	l := &lexer{source: source, line: 1}
	for l.at < len(source) {
		switch l.text() {
		case printStart:
			l.tag(printEnd, "}}")
		case blockStart:
			l.tag(blockEnd, "%}")
		}
	}
	l.add(endToken, "")
	return l.tokens
}

func (l *lexer) add(kind tokenKind, text string) {
	l.line += strings.Count(l.source[l.counted:max(l.at, l.counted)], "\n")
	l.counted = max(l.at, l.counted)
	l.tokens = append(l.tokens, token{kind, text, l.line})
}

// text reads up to the next tag and, unless that is a comment, its opening. It returns the kind of the opening, or
// textToken.
func (l *lexer) text() tokenKind {
	rest := l.source[l.at:]
	kind, length := textToken, len(rest)
	for i := 0; i+1 < len(rest) && kind == textToken; i++ {
		if rest[i] != '{' {
			continue
		}
		switch rest[i+1] {
		case '{':
			kind, length = printStart, i
		case '%':
			kind, length = blockStart, i
		case '#':
			kind, length = comment, i
		}
	}
	s := rest[:length]
	if l.trim {
		s, l.trim = strings.TrimLeft(s, blanks), false
	}
	if kind == textToken {
		if s != "" {
			l.add(textToken, s)
		}
		l.at = len(l.source)
		return kind
	}
	dash := length+2 < len(rest) && rest[length+2] == '-'
	switch {
	case dash:
		s = strings.TrimRight(s, blanks)
	case kind == blockStart:
		// The indentation of a block goes, even when the text begins within a line.
		if line := s[strings.LastIndexByte(s, '\n')+1:]; strings.Trim(line, " \t") == "" {
			s = s[:len(s)-len(line)]
		}
	}
	if s != "" {
		l.add(textToken, s)
	}
	l.at += length + 2
	if dash {
		l.at++
	}
	if kind == comment {
		l.comment()
		return textToken
	}
	l.add(kind, "")
	return kind
}

// comment skips to the end of a comment.
func (l *lexer) comment() {
	end := strings.Index(l.source[l.at:], "#}")
	if end < 0 {
		l.at = len(l.source)
		return
	}
	l.trim = end > 0 && l.source[l.at+end-1] == '-'
	l.at += end + 2
}

// tag reads the tokens of a tag up to its end.
func (l *lexer) tag(end tokenKind, closing string) {
	for {
		for l.at < len(l.source) && isSpace(l.source[l.at]) {
			l.at++
		}
		rest := l.source[l.at:]
		switch {
		case rest == "":
			return
		case strings.HasPrefix(rest, "-"+closing):
			l.add(end, "")
			l.at += 3
			l.trim = true
			return
		case strings.HasPrefix(rest, closing):
			l.add(end, "")
			l.at += 2
			if end == blockEnd && strings.HasPrefix(l.source[l.at:], "\n") {
				l.at++
			}
			return
		}
		l.token(rest)
	}
}

// token reads one token within a tag.
func (l *lexer) token(rest string) {
	c := rest[0]
	n := 1
	switch {
	case isLetter(c):
		for n < len(rest) && (isLetter(rest[n]) || isDigit(rest[n])) {
			n++
		}
		l.add(nameToken, rest[:n])
	case isDigit(c):
		for n < len(rest) && isDigit(rest[n]) {
			n++
		}
		l.add(numberToken, rest[:n])
	case c == '\'' || c == '"':
		var s string
		s, n = unquote(rest)
		l.add(stringToken, s)
	case strings.IndexByte("[](){}:.,\x00", c) >= 0:
		l.add(punctuationToken, rest[:1])
	default:
		if len(rest) > 1 && rest[1] == '=' && strings.IndexByte("=!<>", c) >= 0 {
			n = 2
		}
		l.add(operatorToken, rest[:n])
	}
	l.at += n
}

// unquote reads a string that begins with its quote, and returns its length as written. An unclosed string ends with
// the template.
func unquote(s string) (string, int) {
	quote := s[0]
	var b strings.Builder
	i := 1
	for ; i < len(s) && s[i] != quote; i++ {
		c := s[i]
		if c == '\\' && i+1 < len(s) {
			i++
			switch c = s[i]; c {
			case 'n':
				c = '\n'
			case 'r':
				c = '\r'
			case 't':
				c = '\t'
			case 'b':
				c = '\b'
			case 'f':
				c = '\f'
			}
		}
		b.WriteByte(c)
	}
	return b.String(), min(i+1, len(s))
}

func isSpace(c byte) bool { return c == ' ' || c >= '\t' && c <= '\r' }

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

func isLetter(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_' }
