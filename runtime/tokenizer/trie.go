package tokenizer

import (
	"slices"
	"strings"
)

// trie finds the tokens that a text begins with, one byte at a time. Node 0 is the root; nodes are numbered breadth first, so the
// children of a node are neighbours, sorted by their bytes.
type trie struct {
	top   [256]int32 // children of the root, -1 where there is none
	first []int32    // of its children; they end where those of the next node begin
	label []byte     // the byte that leads to a node
	token []int32    // the token that ends in a node, or -1
}

type trieToken struct {
	text string
	id   int32
}

// newTrie sorts the tokens, whose texts differ. One without text is not found.
func newTrie(tokens []trieToken) *trie {
	slices.SortFunc(tokens, func(a, b trieToken) int { return strings.Compare(a.text, b.text) })
	t := &trie{label: []byte{0}, token: []int32{-1}}
	type part struct{ lo, hi, depth int32 } // the tokens below a node
	parts := []part{{0, int32(len(tokens)), 0}}
	for node := 0; node < len(parts); node++ {
		p := parts[node]
		t.first = append(t.first, int32(len(parts)))
		if p.lo < p.hi && len(tokens[p.lo].text) == int(p.depth) { // the shortest comes first
			if node > 0 {
				t.token[node] = tokens[p.lo].id
			}
			p.lo++
		}
		for p.lo < p.hi {
			c := tokens[p.lo].text[p.depth]
			end := p.lo + 1
			for end < p.hi && tokens[end].text[p.depth] == c {
				end++
			}
			parts = append(parts, part{p.lo, end, p.depth + 1})
			t.label, t.token = append(t.label, c), append(t.token, -1)
			p.lo = end
		}
	}
	t.first = append(t.first, int32(len(parts)))
	for c := range t.top {
		t.top[c] = t.search(0, byte(c))
	}
	return t
}

// child is the node that c leads to, or -1.
func (t *trie) child(node int32, c byte) int32 {
	if node == 0 {
		return t.top[c]
	}
	return t.search(node, c)
}

func (t *trie) search(node int32, c byte) int32 {
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

// walk is the node that s leads to, or -1.
func (t *trie) walk(s string) int32 {
	node := int32(0)
	for i := 0; i < len(s) && node >= 0; i++ {
		node = t.child(node, s[i])
	}
	return node
}
