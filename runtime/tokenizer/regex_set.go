package tokenizer

import (
	"slices"
	"sort"
	"unicode"
	"unicode/utf8"
)

// runeRange is a range of code points, both ends included.
type runeRange struct{ lo, hi rune }

// runeSet is a set of code points: ranges in order, none touching another.
type runeSet []runeRange

// newRuneSet makes a set of ranges in any order.
func newRuneSet(ranges ...runeRange) runeSet {
	slices.SortFunc(ranges, func(a, b runeRange) int { return int(a.lo - b.lo) })
	var out runeSet
	for _, r := range ranges {
		if n := len(out); n > 0 && r.lo <= out[n-1].hi+1 {
			out[n-1].hi = max(out[n-1].hi, r.hi)
		} else {
			out = append(out, r)
		}
	}
	return out
}

// tableSet makes a set of range tables.
func tableSet(tables ...*unicode.RangeTable) runeSet {
	var all []runeRange
	for _, t := range tables {
		if t == nil {
			continue
		}
		for _, r := range t.R16 {
			all = appendRanges(all, rune(r.Lo), rune(r.Hi), rune(r.Stride))
		}
		for _, r := range t.R32 {
			all = appendRanges(all, rune(r.Lo), rune(r.Hi), rune(r.Stride))
		}
	}
	return newRuneSet(all...)
}

func appendRanges(all []runeRange, lo, hi, stride rune) []runeRange {
	if stride == 1 {
		return append(all, runeRange{lo, hi})
	}
	for c := lo; c <= hi; c += stride {
		all = append(all, runeRange{c, c})
	}
	return all
}

func (s runeSet) union(t runeSet) runeSet { return newRuneSet(slices.Concat(s, t)...) }

func (s runeSet) negate() runeSet {
	var out runeSet
	next := rune(0)
	for _, r := range s {
		if next < r.lo {
			out = append(out, runeRange{next, r.lo - 1})
		}
		next = r.hi + 1
	}
	if next <= unicode.MaxRune {
		out = append(out, runeRange{next, unicode.MaxRune})
	}
	return out
}

func (s runeSet) intersect(t runeSet) runeSet { return s.negate().union(t.negate()).negate() }

func (s runeSet) has(c rune) bool {
	i := sort.Search(len(s), func(i int) bool { return s[i].hi >= c })
	return i < len(s) && s[i].lo <= c
}

// runeTable answers the same in a few steps: a bit for each code point, in blocks of 256 that are shared when equal.
type runeTable struct {
	ascii  [utf8.RuneSelf]bool
	blocks [(unicode.MaxRune + 1) >> 8]uint16
	bits   [][4]uint64
}

func newRuneTable(s runeSet) *runeTable {
	t := &runeTable{}
	seen := map[[4]uint64]uint16{}
	next := 0 // the first range that may reach into the block
	for b := range t.blocks {
		var block [4]uint64
		lo, hi := rune(b<<8), rune(b<<8+255)
		for next < len(s) && s[next].hi < lo {
			next++
		}
		for i := next; i < len(s) && s[i].lo <= hi; i++ {
			for c := max(lo, s[i].lo); c <= min(hi, s[i].hi); c++ {
				block[c>>6&3] |= 1 << (c & 63)
			}
		}
		id, ok := seen[block]
		if !ok {
			id = uint16(len(t.bits))
			seen[block] = id
			t.bits = append(t.bits, block)
		}
		t.blocks[b] = id
	}
	for c := range t.ascii {
		t.ascii[c] = s.has(rune(c))
	}
	return t
}

func (t *runeTable) has(c rune) bool {
	return t.bits[t.blocks[c>>8]][c>>6&3]>>(c&63)&1 != 0
}

// at is the length of the character of s at byte i if it is in the set, and otherwise 0.
func (t *runeTable) at(s string, i int) int {
	if i >= len(s) {
		return 0
	}
	if c := s[i]; c < utf8.RuneSelf {
		if t.ascii[c] {
			return 1
		}
		return 0
	}
	c, n := utf8.DecodeRuneInString(s[i:])
	if t.has(c) {
		return n
	}
	return 0
}
