package dialect

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// node is a set, a group or a negative look-ahead, repeated from min to max times; max -1 is without end.
type node struct {
	kind     uint8
	set      byteSet
	branches [][]node
	min, max int
}

const (
	nodeSet uint8 = iota
	nodeGroup
	nodeNot
)

// foldedRegex is a pattern as the engine reads it.
type foldedRegex struct {
	branches [][]node
	// first holds the characters that a match of each branch may begin with.
	first []byteSet
}

// firstOf returns the characters that a match of nodes may begin with; all, if it may be empty.
func firstOf(nodes []node) byteSet {
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

// parse reads a pattern as the engine does: leniently, dropping the branches that it does not
// support. strange lists constructs that it reads differently from other dialects, for check.
func parse(pattern string) (re *foldedRegex, strange []string, err error) {
	if isWide(pattern) {
		return nil, nil, fmt.Errorf("regex %.400q: characters outside ASCII: %w", pattern, tensor.ErrUnsupported)
	}
	p := parser{in: pattern}
	re = &foldedRegex{}
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

// deepest bounds nested groups.
const deepest = 8

type parser struct {
	in          string
	pos         int
	fold        bool
	unsupported bool
	strange     []string
	err         error
}

func (p *parser) note(what string) { p.strange = append(p.strange, what) }

func (p *parser) end() bool { return p.pos >= len(p.in) || p.err != nil }

func (p *parser) peek() byte {
	if p.end() {
		return 0
	}
	return p.in[p.pos]
}

func (p *parser) next() byte {
	c := p.peek()
	p.pos = min(p.pos+1, len(p.in))
	return c
}

func (p *parser) accept(c byte) bool {
	if p.end() || p.in[p.pos] != c {
		return false
	}
	p.pos++
	return true
}

func (p *parser) rune() rune {
	r, n := utf8.DecodeRuneInString(p.in[p.pos:])
	p.pos += n
	return r
}

func (p *parser) literal(s *byteSet, c byte) {
	s.add(c)
	if p.fold && (c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z') {
		s.add(c ^ 0x20)
	}
}

func (p *parser) alternatives(depth int) [][]node {
	all := [][]node{p.branch(depth)}
	for p.peek() == '|' {
		p.pos++
		all = append(all, p.branch(depth))
	}
	return all
}

func (p *parser) branch(depth int) []node {
	if depth > deepest {
		p.err = fmt.Errorf("group nested so deep: %w", tensor.ErrUnsupported)
	}
	var nodes []node
	for !p.end() && p.peek() != '|' && p.peek() != ')' {
		if len(nodes) > 0 && nodes[len(nodes)-1].kind == nodeGroup {
			// A group keeps its first match; what follows it does not make it try another.
			p.note("an expression after a group")
		}
		n := p.atom(depth)
		p.quantify(&n)
		nodes = append(nodes, n)
	}
	return nodes
}

func (p *parser) atom(depth int) node {
	n := node{kind: nodeSet, min: 1, max: 1}
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
		n.set.add(Fold(p.rune()))
	default:
		if strings.IndexByte("^$]}?*+{", c) >= 0 {
			p.note(fmt.Sprintf("%q as a character", c))
		}
		p.literal(&n.set, p.next())
	}
	return n
}

func (p *parser) quantify(n *node) {
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

// number reads decimals; none is the value if there are none.
func (p *parser) number(none int) int {
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

func (p *parser) group(depth int) node {
	n := node{kind: nodeGroup, min: 1, max: 1}
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
			return node{kind: nodeSet, min: 1, max: 1}
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
