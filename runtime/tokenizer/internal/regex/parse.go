package regex

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/llmexport/llmexport/runtime/tensor"
	"github.com/llmexport/llmexport/runtime/tokenizer/internal/chars"
)

type reOp uint8

const (
	reEmpty     reOp = iota
	reSet            // one character of set
	reConcat         // subs one after another
	reAlternate      // the first of subs that fits
	reRepeat         // subs[0], min to max times
	reAtomic         // subs[0], without a second try
	reLook           // subs[0] stands here, or before here; or does not
	reAssert         // a place in the text
)

type assertion uint8

const (
	lineStart assertion = iota
	lineEnd
	textStart
	textEnd
	lastLineEnd
	wordBoundary
	noWordBoundary
)

// unbounded is the max of a repetition without one.
const unbounded = -1

// reNode is a pattern, or a part of one.
type reNode struct {
	op             reOp
	set            chars.Set
	subs           []*reNode
	min, max       int
	lazy           bool
	behind, negate bool
	assert         assertion
}

const (
	// maxRegexDepth bounds groups within groups.
	maxRegexDepth = 64
	// maxRegexRepeat bounds the numbers in braces; the parts are written out one by one.
	maxRegexRepeat = 1000
)

// reOptions are what (?i) and (?m) set.
type reOptions struct {
	fold   bool // ignore case
	dotAll bool // the dot matches line ends
}

type reParser struct {
	in  string
	pos int
}

func (p *reParser) peek(text string) bool { return strings.HasPrefix(p.in[p.pos:], text) }

// skip moves past text if it comes next.
func (p *reParser) skip(text string) bool {
	if p.peek(text) {
		p.pos += len(text)
		return true
	}
	return false
}

func (p *reParser) refuse(what string) error {
	return fmt.Errorf("%s at byte %d: %w", what, p.pos, tensor.ErrUnsupported)
}

func (p *reParser) corrupt(what string) error {
	return fmt.Errorf("%s at byte %d: %w", what, p.pos, tensor.ErrCorrupt)
}

func (p *reParser) parse() (*reNode, error) {
	n, err := p.alternation(reOptions{}, 0)
	if err == nil && p.pos < len(p.in) {
		err = p.corrupt("unmatched parenthesis")
	}
	return n, err
}

// alternation reads up to the end or to a closing parenthesis.
func (p *reParser) alternation(o reOptions, depth int) (*reNode, error) {
	if depth > maxRegexDepth {
		return nil, p.refuse("group nested so deep")
	}
	var branches []*reNode
	for {
		n, err := p.branch(o, depth)
		if err != nil {
			return nil, err
		}
		branches = append(branches, n)
		if !p.skip("|") {
			break
		}
	}
	if len(branches) == 1 {
		return branches[0], nil
	}
	return &reNode{op: reAlternate, subs: branches}, nil
}

func (p *reParser) branch(o reOptions, depth int) (*reNode, error) {
	var list []*reNode
	before := rune(-1) // the letter before this one, when case is ignored
	for p.pos < len(p.in) && !p.peek("|") && !p.peek(")") {
		if p.peek("(?#") {
			if err := p.comment(); err != nil {
				return nil, err
			}
			continue
		}
		if next, ok := p.option(o); ok {
			// The option holds to the end of the group, over all further branches.
			n, err := p.alternation(next, depth+1)
			if err != nil {
				return nil, err
			}
			list = append(list, n)
			break
		}
		n, letter, err := p.atom(o, depth)
		if err != nil {
			return nil, err
		}
		if o.fold && letter >= 0 {
			letter = foldOf(letter)
			if multiFold().starts[[2]rune{before, letter}] {
				return nil, p.refuse("letters that fold to a single one")
			}
		}
		before = letter
		for quantified := true; quantified; {
			if n, quantified, err = p.quantifier(n); err != nil {
				return nil, err
			}
			if quantified {
				before = -1
			}
		}
		list = append(list, n)
	}
	switch len(list) {
	case 0:
		return &reNode{op: reEmpty}, nil
	case 1:
		return list[0], nil
	}
	return &reNode{op: reConcat, subs: list}, nil
}

func (p *reParser) comment() error {
	for p.pos < len(p.in) {
		switch p.in[p.pos] {
		case '\\':
			p.pos++
		case ')':
			p.pos++
			return nil
		}
		p.pos++
	}
	p.pos = len(p.in)
	return p.corrupt("comment without end")
}

// option reads (?i) and the like, which hold for what follows.
func (p *reParser) option(o reOptions) (reOptions, bool) {
	if !p.peek("(?") {
		return o, false
	}
	start := p.pos
	p.pos += 2
	if o, ok := p.options(o); ok && p.skip(")") {
		return o, true
	}
	p.pos = start
	return o, false
}

// options reads letters that set options, and after a minus letters that unset them.
func (p *reParser) options(o reOptions) (reOptions, bool) {
	on := true
	start := p.pos
	for p.pos < len(p.in) {
		switch p.in[p.pos] {
		case '-':
			on = false
		case 'i':
			o.fold = on
		case 'm':
			o.dotAll = on
		default:
			return o, p.pos > start
		}
		p.pos++
	}
	return o, false
}

// atom reads the target of a quantifier, or an assertion. letter is the character, or -1 if it is not a single one.
func (p *reParser) atom(o reOptions, depth int) (n *reNode, letter rune, err error) {
	switch c := p.in[p.pos]; c {
	case '(':
		n, err = p.group(o, depth)
		return n, -1, err
	case '[':
		set, err := p.class(o, depth)
		return &reNode{op: reSet, set: set}, -1, err
	case '\\':
		return p.escape(o)
	case '.':
		p.pos++
		if o.dotAll {
			return &reNode{op: reSet, set: chars.Set{}.Negate()}, -1, nil
		}
		return &reNode{op: reSet, set: chars.Set{{'\n', '\n'}}.Negate()}, -1, nil
	case '^':
		p.pos++
		return &reNode{op: reAssert, assert: lineStart}, -1, nil
	case '$':
		p.pos++
		return &reNode{op: reAssert, assert: lineEnd}, -1, nil
	case '*', '+', '?':
		return nil, -1, p.corrupt("quantifier without a target")
	case '{':
		if _, _, ok := p.interval(); ok {
			return nil, -1, p.corrupt("quantifier without a target")
		}
	}
	c, size := utf8.DecodeRuneInString(p.in[p.pos:])
	p.pos += size
	n, err = p.literal(c, o)
	return n, c, err
}

// literal is one character.
func (p *reParser) literal(c rune, o reOptions) (*reNode, error) {
	if !o.fold {
		return &reNode{op: reSet, set: chars.Set{{c, c}}}, nil
	}
	if multiFold().sources[c] {
		return nil, p.refuse("letter that folds to several")
	}
	return &reNode{op: reSet, set: foldSet(c)}, nil
}

func (p *reParser) group(o reOptions, depth int) (*reNode, error) {
	n := &reNode{}
	p.pos++
	bag := true // Oniguruma inspects only groups that neither capture nor set options
	switch {
	case p.peek("*"):
		return nil, p.refuse("callout")
	case !p.skip("?"):
	case p.skip(":"):
		bag = false
	case p.skip("="):
		n.op = reLook
	case p.skip("!"):
		n.op, n.negate = reLook, true
	case p.skip("<="):
		n.op, n.behind = reLook, true
	case p.skip("<!"):
		n.op, n.behind, n.negate = reLook, true, true
	case p.skip(">"):
		n.op = reAtomic
	case p.skip("<"):
		end := strings.IndexByte(p.in[p.pos:], '>')
		if end <= 0 || !plainName(p.in[p.pos:p.pos+end]) {
			return nil, p.refuse("name of a group")
		}
		p.pos += end + 1
	case p.peek("("):
		return nil, p.refuse("condition")
	case p.peek("~"):
		return nil, p.refuse("absent operator")
	case p.peek("{"):
		return nil, p.refuse("callout")
	default:
		next, ok := p.options(o)
		if !ok || !p.skip(":") {
			return nil, p.refuse("kind of group")
		}
		o = next
	}
	sub, err := p.alternation(o, depth+1)
	if err != nil {
		return nil, err
	}
	if !p.skip(")") {
		return nil, p.corrupt("group without end")
	}
	if n.op == reEmpty {
		if bag && noTarget(sub) {
			sub = &reNode{op: reConcat, subs: []*reNode{sub}}
		}
		return sub, nil
	}
	n.subs = []*reNode{sub}
	return n, nil
}

// noTarget reports whether no quantifier may follow: after assertions, and alternatives with an assertion.
func noTarget(n *reNode) bool {
	return n.op == reAssert || n.op == reLook || n.op == reAlternate && slices.ContainsFunc(n.subs, noTarget)
}

func plainName(s string) bool {
	for i := range len(s) {
		if c := s[i] | 0x20; !(c >= 'a' && c <= 'z' || s[i] == '_' || i > 0 && s[i] >= '0' && s[i] <= '9') {
			return false
		}
	}
	return true
}

// quantifier reads one quantifier after n, if there is one.
func (p *reParser) quantifier(n *reNode) (*reNode, bool, error) {
	for p.peek("(?#") {
		if err := p.comment(); err != nil {
			return nil, false, err
		}
	}
	q := &reNode{op: reRepeat, subs: []*reNode{n}, max: unbounded}
	possessive, exact := false, false
	start := p.pos
	switch {
	case p.skip("*"):
	case p.skip("+"):
		q.min = 1
	case p.skip("?"):
		q.max = 1
	case p.peek("{"):
		lo, hi, ok := p.interval()
		if !ok {
			return n, false, nil
		}
		if exact = lo == hi; hi != unbounded && hi < lo {
			// In Oniguruma the wrong order makes it possessive.
			lo, hi, possessive = hi, lo, true
		}
		if max(lo, hi) > maxRegexRepeat {
			return nil, false, p.refuse("repetition that often")
		}
		q.min, q.max = lo, hi
	default:
		return n, false, nil
	}
	braces := p.in[start] == '{'
	switch {
	case exact, possessive:
		// {n}? is an optional {n}, and a quantifier after a possessive one is separate.
	case p.skip("?"):
		q.lazy = true
	case !braces && p.skip("+"):
		possessive = true
	}
	if noTarget(n) {
		return nil, false, p.corrupt("quantifier of an assertion")
	}
	if q.max > 1 && n.nullable() {
		return nil, false, p.refuse("bounded repetition of what can be empty")
	}
	if possessive {
		return &reNode{op: reAtomic, subs: []*reNode{q}}, true, nil
	}
	return q, true, nil
}

// interval reads {n}, {n,}, {,m} or {n,m}. Anything else in braces is text.
func (p *reParser) interval() (lo, hi int, ok bool) {
	start := p.pos
	p.pos++
	lo, hasLow := p.number()
	hi = lo
	if p.skip(",") {
		var hasHigh bool
		if hi, hasHigh = p.number(); !hasHigh {
			hi = unbounded
		}
		ok = hasLow || hasHigh
	} else {
		ok = hasLow
	}
	if !ok || !p.skip("}") {
		p.pos = start
		return 0, 0, false
	}
	return lo, hi, true
}

func (p *reParser) number() (n int, ok bool) {
	for p.pos < len(p.in) && p.in[p.pos] >= '0' && p.in[p.pos] <= '9' {
		n = min(n*10+int(p.in[p.pos]-'0'), maxRegexRepeat+1)
		p.pos++
		ok = true
	}
	return n, ok
}

// nullable reports whether n can match nothing.
func (n *reNode) nullable() bool {
	switch n.op {
	case reSet:
		return false
	case reConcat:
		for _, s := range n.subs {
			if !s.nullable() {
				return false
			}
		}
		return true
	case reAlternate:
		for _, s := range n.subs {
			if s.nullable() {
				return true
			}
		}
		return false
	case reRepeat:
		return n.min == 0 || n.subs[0].nullable()
	case reAtomic:
		return n.subs[0].nullable()
	}
	return true
}
