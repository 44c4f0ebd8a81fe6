// Package trie finds the longest of many texts in a longer one.
package trie

import (
	"slices"
	"strings"
)

// Trie finds texts in a longer one, a byte at a time. Node 0 is the root; nodes are numbered breadth first, so that the
// children of a node are neighbours, sorted by their bytes, and a node takes nine bytes.
type Trie struct {
	top   [256]int32 // children of the root, -1 where there is none
	first []int32    // of its children; they end where those of the next node begin
	label []byte     // the byte that leads to a node
	value []int32    // of the text that ends in a node, or -1
}

// Entry is a text with its value, which is not negative.
type Entry struct {
	Text  string
	Value int32
}

// New makes a trie; it sorts the texts, in place. Empty ones are left out; of equal ones the first counts.
func New(texts []Entry) *Trie {
	slices.SortStableFunc(texts, func(a, b Entry) int { return strings.Compare(a.Text, b.Text) })
	t := &Trie{label: []byte{0}, value: []int32{-1}}
	type part struct{ lo, hi, depth int32 } // the texts below a node
	parts := []part{{0, int32(len(texts)), 0}}
	for node := 0; node < len(parts); node++ {
		p := parts[node]
		t.first = append(t.first, int32(len(parts)))
		for p.lo < p.hi && len(texts[p.lo].Text) == int(p.depth) { // the shortest come first
			if node > 0 && t.value[node] < 0 {
				t.value[node] = texts[p.lo].Value
			}
			p.lo++
		}
		for p.lo < p.hi {
			c := texts[p.lo].Text[p.depth]
			end := p.lo + 1
			for end < p.hi && texts[end].Text[p.depth] == c {
				end++
			}
			parts = append(parts, part{p.lo, end, p.depth + 1})
			t.label, t.value = append(t.label, c), append(t.value, -1)
			p.lo = end
		}
	}
	t.first = append(t.first, int32(len(parts)))
	for c := range t.top {
		t.top[c] = t.search(0, byte(c))
	}
	return t
}

// Value is that of the text that ends in a node, or -1.
func (t *Trie) Value(node int32) int32 { return t.value[node] }

// Child is the node that c leads to, or -1.
func (t *Trie) Child(node int32, c byte) int32 {
	if node == 0 {
		return t.top[c]
	}
	return t.search(node, c)
}

func (t *Trie) search(node int32, c byte) int32 {
	lo, hi := t.first[node], t.first[node+1]
	for hi-lo > 8 {
		if mid := int32(uint32(lo+hi) / 2); t.label[mid] <= c {
			lo = mid
		} else {
			hi = mid
		}
	}
	for ; lo < hi; lo++ {
		if t.label[lo] == c {
			return lo
		}
	}
	return -1
}

// Walk is the node that s leads to, or -1.
func (t *Trie) Walk(s string) int32 {
	node := int32(0)
	for i := 0; i < len(s) && node >= 0; i++ {
		node = t.Child(node, s[i])
	}
	return node
}

// Find returns the leftmost text in s at or after byte from, the longest one there, or the value -1.
func (t *Trie) Find(s string, from int) (start, stop int, value int32) {
	if len(t.label) == 1 {
		return 0, 0, -1
	}
	value = -1
	for i := from; i < len(s); i++ {
		node := t.top[s[i]]
		for k := i + 1; node >= 0; k++ {
			if v := t.value[node]; v >= 0 {
				stop, value = k, v
			}
			if k == len(s) {
				break
			}
			node = t.search(node, s[k])
		}
		if value >= 0 {
			return i, stop, value
		}
	}
	return 0, 0, -1
}
