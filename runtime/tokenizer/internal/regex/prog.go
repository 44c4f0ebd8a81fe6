package regex

import (
	"fmt"
	"sync"

	"github.com/llmexport/llmexport/runtime/tensor"
	"github.com/llmexport/llmexport/runtime/tokenizer/internal/chars"
)

type instOp uint8

const (
	iMatch      instOp = iota // the end of the pattern, or of the body of a look or an atomic group
	iSet                      // a character of set
	iSetBack                  // a character of set before here, inside a look-behind
	iSplit                    // next, and if that fails alt
	iLoop                     // as many characters of set as there are, or fewer
	iRun                      // as many characters of set as there are, and not fewer
	iAssert                   // a place in the text
	iLook                     // the body at alt matches here, or does not
	iAtomic                   // the body at alt, once
	iEmptyBegin               // a turn of a loop begins that can match nothing
	iEmptyEnd                 // such a turn ends: on to alt if it matched nothing
)

// reInst is an instruction of a pattern.
type reInst struct {
	op        instOp
	assert    assertion
	negate    bool
	cached    bool // iAtomic: the body is not bounded, so that its ends are remembered
	loop      uint8
	next, alt int32
	memo      int32 // iSplit and iLoop: number of the remembered state
	run       int32 // iLoop and iRun: number of the run
	set       *chars.Table
}

const (
	// maxRegexProgram bounds the instructions, and with them the time for each character.
	maxRegexProgram = 20000
	// maxRegexStates bounds the states, each of which may take a bit for every byte of a text.
	maxRegexStates = 4096
	// maxEmptyLoops bounds loops within loops that can match nothing.
	maxEmptyLoops = 3
)

// regex is a compiled pattern. It is safe for concurrent use.
type regex struct {
	prog    []reInst
	start   int32
	states  int // remembered ones
	nesting int // of loops whose body can match nothing
	runs    int
	looks   bool
	behind  bool
	first   *[256]bool // bytes that a match begins with; nil if it can be empty

	matchers sync.Pool // of *reMatcher
}

type reCompiler struct {
	re     *regex
	tables map[string]*chars.Table
	err    error
}

func compileNode(n *reNode) (*regex, error) {
	c := reCompiler{re: &regex{}, tables: map[string]*chars.Table{}}
	c.re.start = c.emit(n, c.add(reInst{op: iMatch}), 0, false)
	if c.err == nil && c.re.states<<c.re.nesting > maxRegexStates {
		c.refuse("pattern that large")
	}
	if c.err != nil {
		return nil, c.err
	}
	c.re.first = c.firstBytes()
	return c.re, nil
}

func (c *reCompiler) refuse(what string) {
	if c.err == nil {
		c.err = fmt.Errorf("%s: %w", what, tensor.ErrUnsupported)
	}
}

func (c *reCompiler) add(in reInst) int32 {
	if len(c.re.prog) >= maxRegexProgram {
		c.refuse("pattern that large")
		return 0
	}
	switch in.op {
	case iSplit, iLoop:
		in.memo = int32(c.re.states)
		c.re.states++
	}
	switch in.op {
	case iLoop, iRun:
		in.run = int32(c.re.runs)
		c.re.runs++
	}
	c.re.prog = append(c.re.prog, in)
	return int32(len(c.re.prog) - 1)
}

func (c *reCompiler) table(s chars.Set) *chars.Table {
	key := fmt.Sprint(s)
	t, ok := c.tables[key]
	if !ok {
		t = chars.NewTable(s)
		c.tables[key] = t
	}
	return t
}

// emit adds the instructions of n, which go on to next, and gives the first. depth counts the loops around n that can match
// nothing. With back set the pattern is read from its end to its start, as in a look-behind, of which only the
// existence of a match counts.
func (c *reCompiler) emit(n *reNode, next int32, depth int, back bool) int32 {
	if c.err != nil {
		return 0
	}
	switch n.op {
	case reEmpty:
		return next
	case reSet:
		op := iSet
		if back {
			op = iSetBack
		}
		return c.add(reInst{op: op, set: c.table(n.set), next: next})
	case reConcat:
		for i := range n.subs {
			if !back {
				i = len(n.subs) - 1 - i
			}
			next = c.emit(n.subs[i], next, depth, back)
		}
		return next
	case reAlternate:
		start := c.emit(n.subs[len(n.subs)-1], next, depth, back)
		for i := len(n.subs) - 2; i >= 0; i-- {
			start = c.add(reInst{op: iSplit, next: c.emit(n.subs[i], next, depth, back), alt: start})
		}
		return start
	case reRepeat:
		return c.repeat(n, next, depth, back)
	case reAssert:
		in := reInst{op: iAssert, assert: n.assert, next: next}
		if n.assert == wordBoundary || n.assert == noWordBoundary {
			in.set = c.table(bareWord())
		}
		return c.add(in)
	case reLook:
		c.re.looks = true
		c.re.behind = c.re.behind || n.behind
		body := c.emit(n.subs[0], c.add(reInst{op: iMatch}), depth, n.behind)
		return c.add(reInst{op: iLook, negate: n.negate, alt: body, next: next})
	case reAtomic:
		if back {
			c.refuse("atomic group in a look-behind")
			return 0
		}
		sub := n.subs[0]
		if sub.op == reRepeat && sub.max == unbounded && !sub.lazy && sub.subs[0].op == reSet {
			start := c.add(reInst{op: iRun, set: c.table(sub.subs[0].set), next: next})
			return c.times(sub.subs[0], sub.min, start, depth, back)
		}
		body := c.emit(sub, c.add(reInst{op: iMatch}), depth, false)
		return c.add(reInst{op: iAtomic, alt: body, next: next, cached: sub.endless()})
	}
	panic("internal error: unknown part of a pattern")
}

// times adds n several times.
func (c *reCompiler) times(n *reNode, count int, next int32, depth int, back bool) int32 {
	for range count {
		next = c.emit(n, next, depth, back)
	}
	return next
}

func (c *reCompiler) repeat(n *reNode, next int32, depth int, back bool) int32 {
	sub := n.subs[0]
	order := func(body, out int32) reInst {
		if n.lazy {
			return reInst{op: iSplit, next: out, alt: body}
		}
		return reInst{op: iSplit, next: body, alt: out}
	}
	start := next
	switch {
	case n.max != unbounded:
		for range n.max - n.min {
			start = c.add(order(c.emit(sub, start, depth, back), next))
		}
	case sub.op == reSet && !n.lazy && !back:
		start = c.add(reInst{op: iLoop, set: c.table(sub.set), next: next})
	case !sub.nullable():
		start = c.add(reInst{op: iSplit})
		body := c.emit(sub, start, depth, back)
		split := order(body, next)
		c.re.prog[start].next, c.re.prog[start].alt = split.next, split.alt
	default:
		if depth >= maxEmptyLoops {
			c.refuse("loops of what can be empty nested so deep")
			return 0
		}
		c.re.nesting = max(c.re.nesting, depth+1)
		start = c.add(reInst{op: iSplit})
		end := c.add(reInst{op: iEmptyEnd, loop: uint8(depth), next: start, alt: next})
		body := c.emit(sub, end, depth+1, back)
		split := order(c.add(reInst{op: iEmptyBegin, loop: uint8(depth), next: body}), next)
		c.re.prog[start].next, c.re.prog[start].alt = split.next, split.alt
	}
	return c.times(sub, n.min, start, depth, back)
}

// endless reports whether n can match texts of any length.
func (n *reNode) endless() bool {
	if n.op == reRepeat && n.max == unbounded {
		return true
	}
	for _, s := range n.subs {
		if s.endless() {
			return true
		}
	}
	return false
}

// firstBytes are the bytes that a match can begin with, or nil if a match can be empty.
func (c *reCompiler) firstBytes() *[256]bool {
	out := new([256]bool)
	seen := make([]bool, len(c.re.prog))
	empty := false
	var walk func(pc int32, end func())
	walk = func(pc int32, end func()) {
		if seen[pc] {
			return
		}
		seen[pc] = true
		in := &c.re.prog[pc]
		switch in.op {
		case iMatch:
			end()
		case iSet:
			in.set.Leads(out)
		case iSplit:
			walk(in.next, end)
			walk(in.alt, end)
		case iLoop, iRun:
			in.set.Leads(out)
			walk(in.next, end)
		case iAtomic:
			walk(in.alt, func() { walk(in.next, end) })
		case iEmptyEnd:
			walk(in.next, end)
			walk(in.alt, end)
		default:
			walk(in.next, end)
		}
	}
	walk(c.re.start, func() { empty = true })
	if empty {
		return nil
	}
	return out
}
