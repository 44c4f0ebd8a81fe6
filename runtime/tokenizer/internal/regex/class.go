package regex

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/llmexport/llmexport/runtime/tokenizer/internal/chars"
)

var escapedAssertions = map[byte]assertion{'A': textStart, 'z': textEnd, 'Z': lastLineEnd, 'b': wordBoundary, 'B': noWordBoundary}

// escape reads a backslash and what follows, outside of a class.
func (p *reParser) escape(o reOptions) (n *reNode, letter rune, err error) {
	if set, ok, err := p.escapedSet(false); ok || err != nil {
		return &reNode{op: reSet, set: set}, -1, err
	}
	if p.pos+1 < len(p.in) {
		if a, ok := escapedAssertions[p.in[p.pos+1]]; ok {
			p.pos += 2
			return &reNode{op: reAssert, assert: a}, -1, nil
		}
	}
	switch {
	case p.skip(`\R`):
		return &reNode{op: reAtomic, subs: []*reNode{{op: reAlternate, subs: []*reNode{
			{op: reConcat, subs: []*reNode{{op: reSet, set: chars.Set{{'\r', '\r'}}}, {op: reSet, set: chars.Set{{'\n', '\n'}}}}},
			{op: reSet, set: chars.Set{{'\n', '\r'}, {0x85, 0x85}, {0x2028, 0x2029}}},
		}}}}, -1, nil
	case p.skip(`\N`):
		return &reNode{op: reSet, set: chars.Set{{'\n', '\n'}}.Negate()}, -1, nil
	case p.skip(`\O`):
		return &reNode{op: reSet, set: chars.Set{}.Negate()}, -1, nil
	}
	numbered := p.peek(`\x`) || p.peek(`\u`)
	c, err := p.escapedChar()
	if err != nil {
		return nil, -1, err
	}
	if numbered && o.fold {
		return nil, -1, p.refuse("character by number in a group that ignores case")
	}
	n, err = p.literal(c, o)
	return n, c, err
}

// escapedSet reads \s, \p{..} and their like, inside a class and outside.
func (p *reParser) escapedSet(inClass bool) (chars.Set, bool, error) {
	if p.pos+1 >= len(p.in) {
		return nil, false, p.corrupt("pattern that ends with a backslash")
	}
	c := p.in[p.pos+1]
	name := map[byte]string{'s': "space", 'd': "digit", 'w': "word", 'h': "xdigit", 'p': "p"}[c|0x20]
	if name == "" {
		return nil, false, nil
	}
	negate := c < 'a'
	if name != "p" {
		p.pos += 2
	} else {
		open := p.pos + 2
		if open >= len(p.in) {
			return nil, false, p.corrupt("property")
		}
		if p.in[open] != '{' {
			return nil, false, p.refuse("property without braces")
		}
		end := strings.IndexByte(p.in[open:], '}')
		if end < 0 {
			return nil, false, p.corrupt("property without end")
		}
		name = p.in[open+1 : open+end]
		if strings.HasPrefix(name, "^") {
			name, negate = name[1:], !negate
		}
		p.pos = open + end + 1
	}
	set, ok := property(name)
	if !ok {
		return nil, false, p.refuse(fmt.Sprintf("property %q", name))
	}
	if !inClass && propertyKey(name) == "word" {
		set = bareWord()
	}
	if negate {
		set = set.Negate()
	}
	return set, true, nil
}

// escapedChar reads an escaped character, inside a class and outside.
func (p *reParser) escapedChar() (rune, error) {
	rest := p.in[p.pos+1:]
	switch c := rest[0]; {
	case c == 'x' || c == 'u':
		digits, size := "", 0
		switch {
		case strings.HasPrefix(rest, "x{"):
			end := strings.IndexByte(rest, '}')
			if end < 0 {
				return 0, p.refuse(`escape \x`)
			}
			digits, size = rest[2:end], end+1
		case c == 'x' && len(rest) >= 3:
			digits, size = rest[1:3], 3
		case c == 'u' && len(rest) >= 5:
			digits, size = rest[1:5], 5
		}
		v, err := strconv.ParseUint(digits, 16, 32)
		// \x80 and above are bytes, not characters.
		if err != nil || v > unicode.MaxRune || size == 3 && v >= utf8.RuneSelf || v >= 0xD800 && v < 0xE000 {
			return 0, p.refuse(`escape \` + string(c))
		}
		p.pos += 1 + size
		return rune(v), nil
	case c == 'a':
		p.pos += 2
		return '\a', nil
	case c == 'e':
		p.pos += 2
		return 0x1B, nil
	case c >= '0' && c <= '9' || c == 'k':
		return 0, p.refuse("back reference")
	case c == 'g':
		return 0, p.refuse("call of a group")
	default:
		plain, ok := PlainEscape(c)
		if !ok {
			return 0, p.refuse(fmt.Sprintf(`escape \%c`, c))
		}
		p.pos += 2
		return plain, nil
	}
}

// PlainEscape is the character that a backslash and c stand for, where that is so in every dialect.
func PlainEscape(c byte) (rune, bool) {
	switch c {
	case 'r':
		return '\r', true
	case 'n':
		return '\n', true
	case 't':
		return '\t', true
	case 'f':
		return '\f', true
	case 'v':
		return '\v', true
	}
	// Punctuation stands for itself.
	return rune(c), c > ' ' && c < 0x7F && !(c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z')
}

// class reads a bracket expression.
func (p *reParser) class(o reOptions, depth int) (chars.Set, error) {
	set, negate, err := p.brackets(depth)
	if err != nil {
		return nil, err
	}
	if o.fold {
		for c := range multiFold().sources {
			if !negate && set.Has(c) {
				return nil, p.refuse("class of letters that fold to several")
			}
		}
		set = foldClosure(set)
	}
	if negate {
		set = set.Negate()
	}
	return set, nil
}

// brackets reads a bracket expression; the set is not negated yet.
func (p *reParser) brackets(depth int) (set chars.Set, negate bool, err error) {
	if depth > maxRegexDepth {
		return nil, false, p.refuse("class nested so deep")
	}
	p.pos++
	negate = p.skip("^")
	var all chars.Set // what stands before the last &&
	intersect := false
	var ranges []chars.Range
	last := rune(-1) // the last character, if a range may begin with it
	first := true
	for ; ; first = false {
		if p.pos >= len(p.in) {
			return nil, false, p.corrupt("class without end")
		}
		switch {
		case p.peek("]") && !first:
			p.pos++
			set = chars.NewSet(ranges...)
			if intersect {
				set = all.Intersect(set)
			}
			return set, negate, nil
		case p.peek("[:"):
			name, _, ok := strings.Cut(p.in[p.pos+2:], ":]")
			if !ok {
				return nil, false, p.refuse("[: in a class")
			}
			s, ok := posixSet(name)
			if !ok {
				return nil, false, p.refuse(fmt.Sprintf("class [:%s:]", name))
			}
			p.pos += len("[:") + len(name) + len(":]")
			ranges, last = append(ranges, s...), -1
		case p.peek("["):
			s, not, err := p.brackets(depth + 1)
			if err != nil {
				return nil, false, err
			}
			if not {
				s = s.Negate()
			}
			ranges, last = append(ranges, s...), -1
		case p.skip("&&"):
			set = chars.NewSet(ranges...)
			if intersect {
				set = all.Intersect(set)
			}
			all, intersect, ranges, last = set, true, nil, -1
		case p.peek(`\`):
			s, ok, err := p.escapedSet(true)
			if err != nil {
				return nil, false, err
			}
			if ok {
				if p.peek("-") && !p.peek("-]") && !p.peek("-&&") {
					return nil, false, p.corrupt("range that begins with a class")
				}
				ranges, last = append(ranges, s...), -1
				continue
			}
			fallthrough
		default:
			hyphen := p.peek("-")
			c, err := p.classChar()
			if err != nil {
				return nil, false, err
			}
			if !hyphen || last < 0 || p.peek("]") || p.peek("&&") {
				ranges, last = append(ranges, chars.Range{c, c}), c
				continue
			}
			if p.peek("[") {
				return nil, false, p.refuse("range that ends with a class")
			}
			if p.peek(`\`) {
				if _, ok, err := p.escapedSet(true); ok || err != nil {
					return nil, false, p.corrupt("range that ends with a class")
				}
			}
			hi, err := p.classChar()
			if err != nil {
				return nil, false, err
			}
			if hi < last {
				return nil, false, p.corrupt(fmt.Sprintf("range %q to %q", last, hi))
			}
			ranges, last = append(ranges, chars.Range{last, hi}), -1
		}
	}
}

// classChar reads one character of a class, an escaped one too.
func (p *reParser) classChar() (rune, error) {
	if p.pos >= len(p.in) {
		return 0, p.corrupt("class without end")
	}
	if p.peek(`\`) {
		if p.pos+1 >= len(p.in) {
			return 0, p.corrupt("pattern that ends with a backslash")
		}
		if p.skip(`\b`) {
			return '\b', nil
		}
		return p.escapedChar()
	}
	c, n := utf8.DecodeRuneInString(p.in[p.pos:])
	p.pos += n
	return c, nil
}

// posixSet is the set of [[:name:]].
func posixSet(name string) (chars.Set, bool) {
	name, negate := strings.CutPrefix(name, "^")
	if !slices.Contains([]string{"alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "space", "upper", "word", "xdigit"}, name) {
		return nil, false
	}
	set := propertySets[name]()
	if negate {
		set = set.Negate()
	}
	return set, true
}
