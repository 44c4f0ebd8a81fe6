package dialect

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/llmexport/llmexport/runtime/tokenizer/internal/regex"
)

func (p *parser) class() byteSet {
	var s byteSet
	p.pos++
	negate := p.accept('^')
	if p.accept(']') {
		p.note("class that begins with a bracket")
		s.add(']')
	}
	for !p.end() && p.peek() != ']' {
		switch c := p.peek(); {
		case c == '\\':
			p.escape(&s)
			if p.peek() == '-' && p.pos+1 < len(p.in) && p.in[p.pos+1] != ']' {
				p.note("range from an escape")
			}
		case c >= utf8.RuneSelf:
			p.note("characters outside ASCII")
			lo := Fold(p.rune())
			hi := lo
			if p.isRange() {
				p.pos++
				if p.peek() >= utf8.RuneSelf {
					hi = Fold(p.rune())
				} else {
					hi = Fold(rune(p.next()))
				}
			}
			s.addAll(setOf("", string([]byte{min(lo, hi), max(lo, hi)})))
		default:
			if c == '[' || c == '&' && strings.HasPrefix(p.in[p.pos:], "&&") {
				p.note("set operation in a class")
			}
			lo := p.next()
			if !p.isRange() {
				p.literal(&s, lo)
				continue
			}
			p.pos++
			var hi byte
			switch c := p.peek(); {
			case c == '\\':
				p.note("range to an escape")
				p.pos++
				hi = p.next()
				if r, ok := map[byte]byte{'n': '\n', 'r': '\r', 't': '\t'}[hi]; ok {
					hi = r
				}
			case c >= utf8.RuneSelf:
				p.note("characters outside ASCII")
				hi = Fold(p.rune())
				s.addAll(setOf("", string([]byte{min(lo, hi), max(lo, hi)})))
				continue
			default:
				hi = p.next()
			}
			for b := int(lo); b <= int(hi); b++ {
				p.literal(&s, byte(b))
			}
		}
	}
	if !p.accept(']') {
		p.note("class without an end")
	}
	if negate {
		return s.negated()
	}
	return s
}

// isRange reports whether a dash follows that does not end the class.
func (p *parser) isRange() bool {
	return p.peek() == '-' && p.pos+1 < len(p.in) && p.in[p.pos+1] != ']'
}

func (p *parser) escape(s *byteSet) {
	p.pos++
	switch c := p.next(); c {
	case 'p', 'P':
		if !p.accept('{') {
			p.note("property")
			return
		}
		var name string
		if end := strings.IndexByte(p.in[p.pos:], '}'); end >= 0 {
			name = p.in[p.pos : p.pos+end]
			p.pos += end + 1
		} else {
			name, p.pos = p.in[p.pos:], len(p.in)
		}
		set := byteSet{}
		switch {
		case strings.HasPrefix(name, "L"):
			set = setLetters
		case strings.HasPrefix(name, "N"):
			set = setNumbers
		case strings.HasPrefix(name, "M"):
			set = setMarks
		case strings.HasPrefix(name, "P"):
			set = setPunctuation
		case strings.HasPrefix(name, "S"):
			set = setSymbols
		case strings.HasPrefix(name, "Z"):
			set = setSpaces
		}
		if len(name) != 1 || !strings.Contains("LNMPS", name) {
			p.note(fmt.Sprintf("property %q", name))
		}
		if c == 'P' {
			set = set.negated()
		}
		s.addAll(set)
	case 's':
		s.addAll(setSpaces)
	case 'S':
		s.addAll(setSpaces.negated())
	case 'd', 'D', 'w', 'W':
		p.note(`escape \` + string(c))
		set := setNumbers
		if c == 'w' || c == 'W' {
			set = setWord
		}
		if c == 'D' || c == 'W' {
			set = set.negated()
		}
		s.addAll(set)
	case 'r':
		s.add('\r')
	case 'n':
		s.add('\n')
	case 't':
		s.add('\t')
	case 'f':
		s.add('\f')
	case 'v':
		s.add('\v')
	case 'x':
		p.note(`escape \x`)
		if p.pos+1 < len(p.in) {
			s.add(hexValue(p.next())<<4 | hexValue(p.next()))
		}
	case 'b', 'B', 'A', 'Z', '1', '2', '3', '4', '5', '6', '7', '8', '9':
		p.unsupported = true
		p.note(`escape \` + string(c))
		p.literal(s, c)
	default:
		if _, ok := regex.PlainEscape(c); !ok {
			p.note(fmt.Sprintf(`escape \%c`, c))
		}
		p.literal(s, c)
	}
}

func hexValue(c byte) byte {
	switch {
	case c >= '0' && c <= '9':
		return c - '0'
	case c >= 'a' && c <= 'f':
		return c - 'a' + 10
	case c >= 'A' && c <= 'F':
		return c - 'A' + 10
	}
	return 0
}
