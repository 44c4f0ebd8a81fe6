package chars

import (
	"slices"
	"sort"
	"unicode"
	"unicode/utf8"
)

// Range is the first and the last code point of a range.
type Range [2]rune

// Set is a set of code points: ranges in order, none touching another.
type Set []Range

// NewSet makes a set of ranges in any order.
func NewSet(ranges ...Range) Set {
	slices.SortFunc(ranges, func(a, b Range) int { return int(a[0] - b[0]) })
	var out Set
	for _, r := range ranges {
		if n := len(out); n > 0 && r[0] <= out[n-1][1]+1 {
			out[n-1][1] = max(out[n-1][1], r[1])
		} else {
			out = append(out, r)
		}
	}
	return out
}

// SetOf makes a set of range tables.
func SetOf(tables ...*unicode.RangeTable) Set {
	var all []Range
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
	return NewSet(all...)
}

// Each calls visit for every code point of a table.
func Each(t *unicode.RangeTable, visit func(rune)) {
	for _, r := range SetOf(t) {
		for c := r[0]; c <= r[1]; c++ {
			visit(c)
		}
	}
}

func appendRanges(all []Range, lo, hi, stride rune) []Range {
	if stride == 1 {
		return append(all, Range{lo, hi})
	}
	for c := lo; c <= hi; c += stride {
		all = append(all, Range{c, c})
	}
	return all
}

// Union returns the union of two sets.
func (s Set) Union(t Set) Set { return NewSet(slices.Concat(s, t)...) }

// Negate returns all other code points.
func (s Set) Negate() Set {
	var out Set
	next := rune(0)
	for _, r := range s {
		if next < r[0] {
			out = append(out, Range{next, r[0] - 1})
		}
		next = r[1] + 1
	}
	if next <= unicode.MaxRune {
		out = append(out, Range{next, unicode.MaxRune})
	}
	return out
}

// Intersect returns the intersection of two sets.
func (s Set) Intersect(t Set) Set { return s.Negate().Union(t.Negate()).Negate() }

// Has reports whether c is in the set.
func (s Set) Has(c rune) bool {
	i := sort.Search(len(s), func(i int) bool { return s[i][1] >= c })
	return i < len(s) && s[i][0] <= c
}

// Table is a Set with a fast test: a bit for each code point, in blocks of 256 that are shared when equal.
type Table struct {
	ascii  [utf8.RuneSelf]bool
	blocks [(unicode.MaxRune + 1) >> 8]uint16
	bits   [][4]uint64
}

// NewTable makes the table of a set.
func NewTable(s Set) *Table {
	t := &Table{}
	seen := map[[4]uint64]uint16{}
	next := 0 // the first range that may reach into the block
	for b := range t.blocks {
		var block [4]uint64
		lo, hi := rune(b<<8), rune(b<<8+255)
		for next < len(s) && s[next][1] < lo {
			next++
		}
		for i := next; i < len(s) && s[i][0] <= hi; i++ {
			for c := max(lo, s[i][0]); c <= min(hi, s[i][1]); c++ {
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
		t.ascii[c] = s.Has(rune(c))
	}
	return t
}

// Has reports whether c, which is a code point, is in the set.
func (t *Table) Has(c rune) bool {
	return t.bits[t.blocks[c>>8]][c>>6&3]>>(c&63)&1 != 0
}

// At is the length of the character of s at byte i if it is in the set, or else 0.
func (t *Table) At(s string, i int) int {
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
	if t.Has(c) {
		return n
	}
	return 0
}

// Leads adds the first bytes of the members of t.
func (t *Table) Leads(out *[256]bool) {
	for c, in := range t.ascii {
		out[c] = out[c] || in
	}
	for b, id := range t.blocks {
		if t.bits[id] == ([4]uint64{}) {
			continue
		}
		for c := max(rune(b<<8), utf8.RuneSelf); c <= rune(b<<8|255) && c <= unicode.MaxRune; c += 64 {
			var buf [utf8.UTFMax]byte
			utf8.EncodeRune(buf[:], c)
			out[buf[0]] = true
		}
	}
}
