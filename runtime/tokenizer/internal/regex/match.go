package regex

import (
	"math/bits"
	"unicode/utf8"
)

const (
	// pageBytes is how many bytes of text a page of remembered states stands for.
	pageBytes = 1 << pageShift
	pageShift = 12
	pageWords = pageBytes / 64
)

// reMatcher matches one text.
type reMatcher struct {
	re    *regex
	s     string
	stack []reFrame
	trail []reTrail
	// pages have a bit for each state and byte: set if the state was tried there. With looks in the pattern as many
	// bits follow that are set if it was found to succeed.
	pages [][]uint64
	spare [][]uint64
	gone  int // the number of pages that the search has passed
	// ends is where an atomic group ends, by state and byte.
	ends map[uint64]int
	runs []reRun
	// steps counts instructions, so that tests can bound them.
	steps int
}

// reFrame is an alternative to try: pc at pos, or, for a loop, pc after one character less than pos.
type reFrame struct {
	pc      int32
	mask    uint8
	loop    bool
	trail   int
	pos, lo int
}

// reTrail is a state that is being tried at all characters from lo to hi, and may yet succeed.
type reTrail struct{ state, lo, hi int }

// reRun is the last run that was found: from lo to hi there are only characters of the set, and none at hi.
type reRun struct{ lo, hi int }

// reTask is the purpose of a run of a program.
type reTask uint8

const (
	wholeMatch reTask = iota
	lookBody
	atomicBody
	cachedAtomicBody
)

func (re *regex) matcher(s string) *reMatcher {
	m, ok := re.matchers.Get().(*reMatcher)
	if !ok {
		m = &reMatcher{re: re, runs: make([]reRun, re.runs)}
	}
	m.s = s
	m.gone, m.steps = 0, 0
	if n := len(s)>>pageShift + 1; n <= cap(m.pages) {
		m.pages = m.pages[:n]
	} else {
		m.pages = make([][]uint64, n)
	}
	for i := range m.runs {
		m.runs[i] = reRun{-1, -1}
	}
	return m
}

// release returns m to the pool, unless a long text made it large.
func (re *regex) release(m *reMatcher) {
	for i, page := range m.pages {
		m.recycle(page)
		m.pages[i] = nil
	}
	m.s = ""
	clear(m.ends)
	if len(m.pages) <= 4 && cap(m.stack) <= 4096 && cap(m.trail) <= 4096 {
		re.matchers.Put(m)
	}
}

func (m *reMatcher) recycle(page []uint64) {
	if page != nil && len(m.spare) < 2 {
		m.spare = append(m.spare, page)
	}
}

// page is the page of byte pos.
func (m *reMatcher) page(pos int) []uint64 {
	if p := m.pages[pos>>pageShift]; p != nil {
		return p
	}
	var p []uint64
	if n := len(m.spare); n > 0 {
		p, m.spare = m.spare[n-1], m.spare[:n-1]
		clear(p)
	} else {
		n := m.re.states << m.re.nesting
		if m.re.looks {
			n *= 2
		}
		p = make([]uint64, n*pageWords)
	}
	m.pages[pos>>pageShift] = p
	return p
}

func (m *reMatcher) has(state, pos int) bool {
	return m.page(pos)[state*pageWords+pos&(pageBytes-1)>>6]>>(pos&63)&1 != 0
}

// set sets, or clears, the bits of a state for all bytes from lo to hi.
func (m *reMatcher) set(state, lo, hi int, on bool) {
	for lo <= hi {
		end := min(hi, lo|63)
		mask := ^uint64(0) >> (63 - (end - lo)) << (lo & 63)
		w := &m.page(lo)[state*pageWords+lo&(pageBytes-1)>>6]
		if on {
			*w |= mask
		} else {
			*w &^= mask
		}
		lo = end + 1
	}
}

// untried is the last character after byte lo, up to hi, such that the state was tried neither at it nor before it.
func (m *reMatcher) untried(state, lo, hi int) int {
	for at := lo + 1; at <= hi; {
		end := min(hi, at|63)
		tried := m.page(at)[state*pageWords+at&(pageBytes-1)>>6] >> (at & 63)
		if n := bits.TrailingZeros64(tried); at+n <= end {
			hi = at + n - 1
			for !utf8.RuneStart(m.s[hi]) {
				hi--
			}
			return hi
		}
		at = end + 1
	}
	return hi
}

// search is the leftmost match that begins at byte from or later; start is -1 if there is none.
func (m *reMatcher) search(from int) (start, end int) {
	// A look-behind may return to earlier pages.
	for ; !m.re.behind && m.gone < from>>pageShift; m.gone++ {
		m.recycle(m.pages[m.gone])
		m.pages[m.gone] = nil
	}
	for i := from; i <= len(m.s); {
		if first := m.re.first; first != nil {
			for i < len(m.s) && !first[m.s[i]] {
				i++
			}
			if i == len(m.s) {
				return -1, -1
			}
		}
		if end, ok := m.run(m.re.start, i, wholeMatch); ok {
			return i, end
		}
		if i == len(m.s) {
			break
		}
		_, n := utf8.DecodeRuneInString(m.s[i:])
		i += n
	}
	return -1, -1
}

// run tries the program from pc on at byte pos and gives the end of its first match.
func (m *reMatcher) run(pc int32, pos int, task reTask) (end int, ok bool) {
	re, s := m.re, m.s
	all := uint8(1)<<re.nesting - 1
	// mask has a bit for each loop around that can match nothing: set if its turn has matched something.
	mask := all
	base, trail := len(m.stack), len(m.trail)
	for {
		in := &re.prog[pc]
		fail := false
		m.steps++
		switch in.op {
		case iMatch:
			m.settle(base, trail, pos, task)
			return pos, true
		case iSet:
			n := in.set.At(s, pos)
			fail = n == 0
			pos, mask, pc = pos+n, all, in.next
		case iSetBack:
			c, n := utf8.DecodeLastRuneInString(s[:pos])
			fail = n == 0 || !in.set.Has(c)
			pos, mask, pc = pos-n, all, in.next
		case iSplit, iLoop:
			state := int(in.memo)<<re.nesting | int(mask)
			if task == lookBody && m.has(re.states<<re.nesting+state, pos) {
				m.settle(base, trail, pos, task)
				return pos, true
			}
			if task == cachedAtomicBody {
				if end, ok := m.ends[uint64(state)<<40|uint64(pos)]; ok {
					m.settle(base, trail, end, task)
					return end, true
				}
			}
			if fail = m.has(state, pos); fail {
				break
			}
			if in.op == iSplit {
				m.set(state, pos, pos, true)
				m.trail = append(m.trail, reTrail{state, pos, pos})
				m.stack = append(m.stack, reFrame{pc: in.alt, mask: mask, trail: len(m.trail), pos: pos})
				pc = in.next
				break
			}
			if mask != all {
				// With one character in hand the loop is as it is everywhere else.
				m.set(state, pos, pos, true)
				m.trail = append(m.trail, reTrail{state, pos, pos})
				n := in.set.At(s, pos)
				if n == 0 {
					pc = in.next
					break
				}
				m.stack = append(m.stack, reFrame{pc: in.next, mask: mask, trail: len(m.trail), pos: pos})
				pos, mask = pos+n, all
				break
			}
			// From where the loop was tried before, it is not tried again.
			hi := m.untried(state, pos, m.runEnd(in, pos))
			m.trail = append(m.trail, reTrail{state, pos, hi})
			m.set(state, pos, hi, true)
			if hi > pos {
				m.stack = append(m.stack, reFrame{pc: in.next, mask: mask, loop: true, trail: len(m.trail), pos: hi, lo: pos})
				pos = hi
			}
			pc = in.next
		case iRun:
			if hi := m.runEnd(in, pos); hi > pos {
				pos, mask = hi, all
			}
			pc = in.next
		case iAssert:
			fail = !holds(in, s, pos)
			pc = in.next
		case iLook:
			_, found := m.run(in.alt, pos, lookBody)
			fail = found == in.negate
			pc = in.next
		case iAtomic:
			body := atomicBody
			if in.cached {
				body = cachedAtomicBody
			}
			end, found := m.run(in.alt, pos, body)
			if fail = !found; found && end > pos {
				pos, mask = end, all
			}
			pc = in.next
		case iEmptyBegin:
			mask &^= 1 << in.loop
			pc = in.next
		case iEmptyEnd:
			pc = in.next
			if mask>>in.loop&1 == 0 {
				pc = in.alt
				mask |= 1 << in.loop
			}
		}
		if !fail {
			continue
		}
		if len(m.stack) == base {
			m.trail = m.trail[:trail]
			return 0, false
		}
		f := &m.stack[len(m.stack)-1]
		m.trail = m.trail[:f.trail]
		pc, pos, mask = f.pc, f.pos, f.mask
		if f.loop {
			_, n := utf8.DecodeLastRuneInString(s[f.lo:pos])
			pos -= n
			f.pos = pos
			m.trail[f.trail-1].hi = pos
			if pos > f.lo {
				continue
			}
		}
		m.stack = m.stack[:len(m.stack)-1]
	}
}

// settle ends a run that succeeded: the rest of its trail has not failed.
func (m *reMatcher) settle(base, trail, end int, task reTask) {
	for _, t := range m.trail[trail:] {
		m.set(t.state, t.lo, t.hi, false)
		switch task {
		case lookBody:
			m.set(m.re.states<<m.re.nesting+t.state, t.lo, t.hi, true)
		case cachedAtomicBody:
			if m.ends == nil {
				m.ends = map[uint64]int{}
			}
			for pos := t.lo; pos <= t.hi; pos++ {
				m.ends[uint64(t.state)<<40|uint64(pos)] = end
			}
		}
	}
	m.stack, m.trail = m.stack[:base], m.trail[:trail]
}

// runEnd is the end of the characters of a set from byte pos on.
func (m *reMatcher) runEnd(in *reInst, pos int) int {
	r := &m.runs[in.run]
	if pos >= r.lo && pos <= r.hi {
		return r.hi
	}
	hi := pos
	for {
		if hi == r.lo {
			hi = r.hi
			break
		}
		m.steps++
		n := in.set.At(m.s, hi)
		if n == 0 {
			break
		}
		hi += n
	}
	*r = reRun{pos, hi}
	return hi
}

// holds reports whether an assertion is true at byte pos.
func holds(in *reInst, s string, pos int) bool {
	switch in.assert {
	case lineStart:
		// After a line end at the end of the text there is no line.
		return pos == 0 || s[pos-1] == '\n' && pos < len(s)
	case lineEnd:
		return pos == len(s) || s[pos] == '\n'
	case textStart:
		return pos == 0
	case textEnd:
		return pos == len(s)
	case lastLineEnd:
		return pos == len(s) || pos == len(s)-1 && s[pos] == '\n'
	}
	c, n := utf8.DecodeLastRuneInString(s[:pos])
	before := n > 0 && in.set.Has(c)
	after := in.set.At(s, pos) > 0
	return (before != after) == (in.assert == wordBoundary)
}
