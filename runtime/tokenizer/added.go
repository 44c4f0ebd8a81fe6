package tokenizer

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// AddedToken is a token that is found in the text itself, before anything else happens to it.
type AddedToken struct {
	ID      int32
	Content string
	// Special tokens are left out by Decode on request.
	Special bool
	// LStrip and RStrip swallow the white space before and after the token.
	LStrip, RStrip bool
	// SingleWord tokens are not found beside a letter, a digit or an underscore.
	SingleWord bool
	// Normalized tokens are looked for after the normalizer has run, others before.
	Normalized bool
}

// maxAddedBytes bounds the text of an added token, and with it the time that a search takes. The longest of real
// files have about a hundred bytes.
const maxAddedBytes = 512

// matcher finds added tokens in a text: of those that begin first, the longest. It is a trie.
type matcher struct {
	tokens []AddedToken
	first  [256]bool
	nodes  []trieNode
	// labels are the bytes that lead on, those of a node side by side and sorted, and next the nodes that they lead to.
	labels []byte
	next   []int32
}

type trieNode struct {
	from, to int32 // the node's part of labels
	token    int32 // index into tokens, or -1
}

// newMatcher takes tokens and the texts to look for, which differ from the contents after a normalizer. Of equal texts
// the first counts, and an empty one is never found.
func newMatcher(tokens []AddedToken, texts []string) *matcher {
	order := make([]int32, 0, len(texts))
	for i, text := range texts {
		if text != "" {
			order = append(order, int32(i))
		}
	}
	slices.SortStableFunc(order, func(a, b int32) int { return strings.Compare(texts[a], texts[b]) })
	order = slices.CompactFunc(order, func(a, b int32) bool { return texts[a] == texts[b] })
	m := &matcher{tokens: tokens, nodes: []trieNode{{token: -1}}}
	for _, i := range order {
		m.first[texts[i][0]] = true
	}
	// Each node is built from the tokens that begin with its text.
	type part struct {
		node, depth int
		order       []int32
	}
	for todo := []part{{0, 0, order}}; len(todo) > 0; {
		p := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if len(p.order) > 0 && len(texts[p.order[0]]) == p.depth {
			m.nodes[p.node].token = p.order[0]
			p.order = p.order[1:]
		}
		m.nodes[p.node].from = int32(len(m.labels))
		for len(p.order) > 0 {
			label := texts[p.order[0]][p.depth]
			n := 1
			for n < len(p.order) && texts[p.order[n]][p.depth] == label {
				n++
			}
			m.labels = append(m.labels, label)
			m.next = append(m.next, int32(len(m.nodes)))
			todo = append(todo, part{len(m.nodes), p.depth + 1, p.order[:n]})
			m.nodes = append(m.nodes, trieNode{token: -1})
			p.order = p.order[n:]
		}
		m.nodes[p.node].to = int32(len(m.labels))
	}
	return m
}

// step follows a byte from a node.
func (m *matcher) step(node int32, label byte) (int32, bool) {
	lo, hi := m.nodes[node].from, m.nodes[node].to
	for hi-lo > 4 {
		if mid := (lo + hi) / 2; m.labels[mid] <= label {
			lo = mid
		} else {
			hi = mid
		}
	}
	for ; lo < hi; lo++ {
		if m.labels[lo] == label {
			return m.next[lo], true
		}
	}
	return 0, false
}

// find returns the leftmost, then longest token at or after byte from: its index in tokens and its span.
func (m *matcher) find(s string, from int) (token, start, end int, ok bool) {
	if len(m.nodes) == 1 {
		return 0, 0, 0, false
	}
	for i := from; i < len(s); i++ {
		if !m.first[s[i]] {
			continue
		}
		at, best := int32(0), int32(-1)
		for j := i; j < len(s); j++ {
			next, found := m.step(at, s[j])
			if !found {
				break
			}
			at = next
			if t := m.nodes[at].token; t >= 0 {
				best, end = t, j+1
			}
		}
		if best >= 0 {
			return int(best), i, end, true
		}
	}
	return 0, 0, 0, false
}

// cut calls text for what lies between added tokens and token for each of them, in order. A token that follows white
// space which another swallowed may take some of it again: so does the library `tokenizers`.
func (m *matcher) cut(s string, text func(string), token func(int32)) {
	done, search, spaceEnd := 0, 0, 0
	for {
		i, start, stop, ok := m.find(s, search)
		if !ok {
			break
		}
		search = stop
		t := &m.tokens[i]
		if t.SingleWord && (wordBefore(s[:start]) || wordAfter(s[stop:])) {
			continue
		}
		if t.LStrip && done < start {
			start = done + len(strings.TrimRightFunc(s[done:start], unicode.IsSpace))
		}
		if t.RStrip {
			// White space that was swallowed before is not looked through again.
			if spaceEnd = max(spaceEnd, stop); spaceEnd < len(s) {
				spaceEnd = len(s) - len(strings.TrimLeftFunc(s[spaceEnd:], unicode.IsSpace))
			}
			stop = spaceEnd
		}
		if done < start {
			text(s[done:start])
		}
		token(t.ID)
		done = stop
	}
	if done < len(s) {
		text(s[done:])
	}
}

func wordBefore(s string) bool {
	r, n := utf8.DecodeLastRuneInString(s)
	return n > 0 && isWord(r)
}

func wordAfter(s string) bool {
	r, n := utf8.DecodeRuneInString(s)
	return n > 0 && isWord(r)
}

// isWord is the class \w of the Unicode standard's regular expressions.
func isWord(r rune) bool {
	const zeroWidthNonJoiner, zeroWidthJoiner = 0x200C, 0x200D
	return classes()[r]&(letter|mark) != 0 || unicode.In(r, unicode.Nd, younger["Nd"], unicode.Nl, unicode.Pc, unicode.Other_Alphabetic) ||
		r == zeroWidthNonJoiner || r == zeroWidthJoiner
}
