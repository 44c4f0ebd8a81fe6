package tokenizer

import (
	"bytes"
	"slices"
	"strings"
)

// byteTrie finds texts in a longer one. A node has a number; those of the children of one node follow one
// another, so that a trie takes nine bytes a node.
type byteTrie struct {
	label []byte
	// child is the first child of a node; its last one comes before the first child of the next node.
	child []int32
	value []int32 // of the text that ends here, or -1
	root  [256]int32
}

type trieText struct {
	text  string
	value int32
}

// newByteTrie sorts texts, in place. Empty texts are left out; of equal texts the first one counts.
func newByteTrie(texts []trieText) *byteTrie {
	slices.SortStableFunc(texts, func(a, b trieText) int { return strings.Compare(a.text, b.text) })
	type job struct{ lo, hi, depth int }
	t := &byteTrie{label: []byte{0}, value: []int32{-1}}
	jobs := []job{{0, len(texts), 0}}
	for n := 0; n < len(jobs); n++ {
		j := jobs[n]
		jobs[n] = job{} // only its number is needed from here on
		t.child = append(t.child, int32(len(t.label)))
		for j.lo < j.hi && len(texts[j.lo].text) == j.depth {
			if n > 0 && t.value[n] < 0 {
				t.value[n] = texts[j.lo].value
			}
			j.lo++
		}
		for j.lo < j.hi {
			c := texts[j.lo].text[j.depth]
			end := j.lo + 1
			for end < j.hi && texts[end].text[j.depth] == c {
				end++
			}
			t.label = append(t.label, c)
			t.value = append(t.value, -1)
			jobs = append(jobs, job{j.lo, end, j.depth + 1})
			j.lo = end
		}
	}
	t.child = append(t.child, int32(len(t.label)))
	for i := t.child[0]; i < t.child[1]; i++ {
		t.root[t.label[i]] = i
	}
	return t
}

// next is the child of node n for byte c, or 0. The root is node 0.
func (t *byteTrie) next(n int32, c byte) int32 {
	if n == 0 {
		return t.root[c]
	}
	from := t.child[n]
	if i := bytes.IndexByte(t.label[from:t.child[n+1]], c); i >= 0 {
		return from + int32(i)
	}
	return 0
}
