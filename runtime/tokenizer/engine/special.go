package engine

import (
	"strings"

	"github.com/llmexport/llmexport/runtime/tokenizer/internal/trie"
)

// specialTexts finds special tokens in a text, before everything else: leftmost, and at one position the first
// of the list, not the longest. The engine knows them by what their ids decode to, not by their spelling.
type specialTexts struct {
	list []specialText
	trie *trie.Trie // of indices into list
	// heads are the first bytes of the texts in odd.
	heads [256]bool
	// odd are indices of texts with a zero byte: the engine compares no further than that.
	odd []int32
}

type specialText struct {
	text string
	id   int32
}

func newSpecialTexts(ids []int32, decode func(int32) string) specialTexts {
	var s specialTexts
	var texts []trie.Entry
	for _, id := range ids {
		text := decode(id)
		if text == "" {
			continue
		}
		index := int32(len(s.list))
		s.list = append(s.list, specialText{text, id})
		if strings.IndexByte(text, 0) >= 0 {
			s.odd = append(s.odd, index)
			s.heads[text[0]] = true
		} else {
			texts = append(texts, trie.Entry{Text: text, Value: index})
		}
	}
	s.trie = trie.New(texts)
	return s
}

// cut calls between for what lies between special tokens, unless it is empty, and token for each of them.
func (s *specialTexts) cut(text string, between func(string), token func(int32)) {
	start := 0
	for i := 0; i < len(text); {
		found := s.at(text[i:])
		if found < 0 {
			i++
			continue
		}
		if start < i {
			between(text[start:i])
		}
		t := &s.list[found]
		token(t.id)
		i += len(t.text)
		start = i
	}
	if start < len(text) {
		between(text[start:])
	}
}

// at returns the index of the special text that s begins with, or -1.
func (s *specialTexts) at(text string) int32 {
	found := int32(-1)
	node := s.trie.Child(0, text[0])
	for i := 1; node >= 0; i++ {
		if v := s.trie.Value(node); v >= 0 && (found < 0 || v < found) {
			found = v
		}
		if i == len(text) {
			break
		}
		node = s.trie.Child(node, text[i])
	}
	if s.heads[text[0]] {
		for _, k := range s.odd {
			if t := s.list[k].text; (found < 0 || k < found) && len(t) <= len(text) && strings.HasPrefix(text, t[:strings.IndexByte(t, 0)+1]) {
				found = k
			}
		}
	}
	return found
}
