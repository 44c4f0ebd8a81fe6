package tokenizer

import (
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

// matcher finds added tokens in a text: at each position the longest.
type matcher struct {
	tokens []AddedToken
	first  [256]bool
	nodes  []trieNode
}

type trieNode struct {
	next  map[byte]int32
	token int32 // index into tokens, or -1
}

// newMatcher takes tokens and the texts to look for, which differ from the contents after a normalizer.
func newMatcher(tokens []AddedToken, texts []string) *matcher {
	m := &matcher{tokens: tokens, nodes: []trieNode{{token: -1}}}
	for i, text := range texts {
		at := int32(0)
		for j := range len(text) {
			next, ok := m.nodes[at].next[text[j]]
			if !ok {
				next = int32(len(m.nodes))
				if m.nodes[at].next == nil {
					m.nodes[at].next = map[byte]int32{}
				}
				m.nodes[at].next[text[j]] = next
				m.nodes = append(m.nodes, trieNode{token: -1})
			}
			at = next
		}
		if at != 0 && m.nodes[at].token < 0 {
			m.nodes[at].token = int32(i)
			m.first[text[0]] = true
		}
	}
	return m
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
			next, found := m.nodes[at].next[s[j]]
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

// cut calls text for what lies between added tokens and token for each of them, in order.
func (m *matcher) cut(s string, text func(string), token func(int32)) {
	done, search := 0, 0
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
		if t.LStrip {
			start = max(len(strings.TrimRightFunc(s[:start], unicode.IsSpace)), done)
		}
		if t.RStrip {
			stop = len(s) - len(strings.TrimLeftFunc(s[stop:], unicode.IsSpace))
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
	return classes()[r]&(letter|mark) != 0 || unicode.In(r, unicode.Nd, unicode.Nl, unicode.Pc, unicode.Other_Alphabetic) ||
		r == zeroWidthNonJoiner || r == zeroWidthJoiner
}
