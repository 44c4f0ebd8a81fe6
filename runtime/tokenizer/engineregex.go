package tokenizer

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/llmexport/llmexport/runtime/tensor"
	"github.com/llmexport/llmexport/runtime/tokenizer/internal/regex"
)

// regexNode is a set, a group or a negative look-ahead, repeated from min to max times; max -1 is without end.
type regexNode struct {
	kind     uint8
	set      byteSet
	branches [][]regexNode
	min, max int
}

const (
	nodeSet uint8 = iota
	nodeGroup
	nodeNot
)

// engineRegex is a pattern as the engine understands it.
type engineRegex struct {
	branches [][]regexNode
	// first holds the characters that a match of each branch may begin with.
	first []byteSet
}

// firstOf returns the characters that a match of nodes may begin with; all, if it may be empty.
func firstOf(nodes []regexNode) byteSet {
	var s byteSet
	for _, n := range nodes {
		switch n.kind {
		case nodeNot:
			continue
		case nodeSet:
			s.addAll(n.set)
		case nodeGroup:
			for _, b := range n.branches {
				s.addAll(firstOf(b))
			}
		}
		if n.min > 0 {
			return s
		}
	}
	return byteSet{}.negated()
}

// parseEngineRegex reads a pattern as the engine does: leniently, dropping the branches that it does not
// support. strange lists what it reads otherwise than other dialects, for checkEngineRegex.
func parseEngineRegex(pattern string) (re *engineRegex, strange []string, err error) {
	if isWide(pattern) {
		return nil, nil, fmt.Errorf("regex %.400q: characters outside ASCII: %w", pattern, tensor.ErrUnsupported)
	}
	p := engineParser{in: pattern}
	re = &engineRegex{}
	for {
		p.unsupported = false
		branch := p.branch(0)
		if !p.unsupported {
			re.branches = append(re.branches, branch)
		}
		if p.peek() != '|' {
			break
		}
		p.pos++
	}
	if p.pos < len(p.in) {
		p.note("unmatched parenthesis")
	}
	if p.err != nil {
		return nil, nil, fmt.Errorf("regex %.400q: %w", pattern, p.err)
	}
	for _, b := range re.branches {
		re.first = append(re.first, firstOf(b))
	}
	if len(re.branches) == 0 {
		// The engine means to take the pattern of GPT-2 then, but parses a text that it has freed.
		return nil, nil, fmt.Errorf("regex %.400q: no branch that the engine understands, because of %s: %w",
			pattern, strings.Join(p.strange, ", "), tensor.ErrUnsupported)
	}
	return re, p.strange, nil
}

type engineParser struct {
	in          string
	pos         int
	fold        bool
	unsupported bool
	strange     []string
	err         error
}

func (p *engineParser) note(what string) { p.strange = append(p.strange, what) }

func (p *engineParser) end() bool { return p.pos >= len(p.in) || p.err != nil }

func (p *engineParser) peek() byte {
	if p.end() {
		return 0
	}
	return p.in[p.pos]
}

func (p *engineParser) next() byte {
	c := p.peek()
	p.pos = min(p.pos+1, len(p.in))
	return c
}

func (p *engineParser) accept(c byte) bool {
	if p.end() || p.in[p.pos] != c {
		return false
	}
	p.pos++
	return true
}

func (p *engineParser) rune() rune {
	r, n := utf8.DecodeRuneInString(p.in[p.pos:])
	p.pos += n
	return r
}

func (p *engineParser) literal(s *byteSet, c byte) {
	s.add(c)
	if p.fold && (c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z') {
		s.add(c ^ 0x20)
	}
}

func (p *engineParser) alternatives(depth int) [][]regexNode {
	all := [][]regexNode{p.branch(depth)}
	for p.peek() == '|' {
		p.pos++
		all = append(all, p.branch(depth))
	}
	return all
}

func (p *engineParser) branch(depth int) []regexNode {
	if depth > maxNesting {
		p.err = fmt.Errorf("group nested so deep: %w", tensor.ErrUnsupported)
	}
	var nodes []regexNode
	for !p.end() && p.peek() != '|' && p.peek() != ')' {
		if len(nodes) > 0 && nodes[len(nodes)-1].kind == nodeGroup {
			// A group keeps its first match; what follows it does not make it try another.
			p.note("something behind a group")
		}
		n := p.atom(depth)
		p.quantify(&n)
		nodes = append(nodes, n)
	}
	return nodes
}

func (p *engineParser) atom(depth int) regexNode {
	n := regexNode{kind: nodeSet, min: 1, max: 1}
	switch c := p.peek(); {
	case c == '(':
		return p.group(depth)
	case c == '[':
		n.set = p.class()
	case c == '\\':
		p.escape(&n.set)
	case c == '.':
		p.pos++
		n.set = setOf("\n").negated()
	case c >= utf8.RuneSelf:
		p.note("characters outside ASCII")
		n.set.add(foldRune(p.rune()))
	default:
		if strings.IndexByte("^$]}?*+{", c) >= 0 {
			p.note(fmt.Sprintf("%q as a character", c))
		}
		p.literal(&n.set, p.next())
	}
	return n
}

func (p *engineParser) quantify(n *regexNode) {
	switch p.peek() {
	case '+':
		n.min, n.max = 1, -1
	case '*':
		n.min, n.max = 0, -1
	case '?':
		n.min, n.max = 0, 1
	case '{':
		p.pos++
		n.min = p.number(0)
		n.max = n.min
		if p.accept(',') {
			n.max = p.number(-1)
		}
		if !p.accept('}') {
			p.note("repetition without an end")
		}
		p.pos--
	default:
		return
	}
	if n.kind == nodeNot {
		p.note("repeated look-ahead")
	}
	p.pos++
	if p.accept('?') {
		p.note("lazy quantifier")
	}
}

// number reads decimals, or gives what is meant when there are none.
func (p *engineParser) number(none int) int {
	v, from := 0, p.pos
	for c := p.peek(); c >= '0' && c <= '9'; c = p.peek() {
		if v = 10*v + int(c-'0'); v > 1<<20 {
			p.err = fmt.Errorf("repetition of more than a million: %w", tensor.ErrUnsupported)
		}
		p.pos++
	}
	if p.pos == from {
		if none == 0 {
			p.note("repetition without a lower bound")
		}
		return none
	}
	return v
}

func (p *engineParser) group(depth int) regexNode {
	n := regexNode{kind: nodeGroup, min: 1, max: 1}
	p.pos++
	fold := p.fold
	if p.accept('?') {
		switch {
		case p.accept('!'):
			n.kind = nodeNot
		case p.peek() == '=' || p.peek() == '<':
			p.unsupported = true
			p.note("look-behind, positive look-ahead or named group")
			for level := 1; !p.end() && level > 0; {
				switch p.next() {
				case '(':
					level++
				case ')':
					level--
				}
			}
			return regexNode{kind: nodeSet, min: 1, max: 1}
		default:
			flags := p.pos
			for !p.end() && p.peek() != ':' && p.peek() != ')' {
				if p.next() == 'i' {
					p.fold = true
				}
			}
			if f := p.in[flags:p.pos]; f != "" && f != "i" || p.peek() != ':' {
				p.note("flags of a group")
			}
			p.accept(':')
		}
	}
	n.branches = p.alternatives(depth + 1)
	if !p.accept(')') {
		p.note("unmatched parenthesis")
	}
	p.fold = fold
	return n
}

func (p *engineParser) class() byteSet {
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
			lo := foldRune(p.rune())
			hi := lo
			if p.isRange() {
				p.pos++
				if p.peek() >= utf8.RuneSelf {
					hi = foldRune(p.rune())
				} else {
					hi = foldRune(rune(p.next()))
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
				hi = foldRune(p.rune())
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
func (p *engineParser) isRange() bool {
	return p.peek() == '-' && p.pos+1 < len(p.in) && p.in[p.pos+1] != ']'
}

func (p *engineParser) escape(s *byteSet) {
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

func isHex(c byte) bool { return c == '0' || hexValue(c) != 0 }
