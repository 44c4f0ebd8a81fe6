package engine

import (
	"fmt"
	"slices"
	"sync"

	"github.com/llmexport/llmexport/runtime/tensor"
	"github.com/llmexport/llmexport/runtime/tokenizer/internal/mtok"
	"github.com/llmexport/llmexport/runtime/tokenizer/internal/trie"
	"github.com/llmexport/llmexport/runtime/tokenizer/internal/wordcache"
)

// unigram is the model Unigram: the path of the highest score through a piece, byte by byte. The unknown token
// is taken only where no path arrives, and costs its own score.
type unigram struct {
	byID      []string
	scores    []float64 // by id
	unknownID int32
	trie      *trie.Trie
	// bytes are the tokens for bytes that have none in the vocabulary, nil without byte_fallback.
	bytes []int32
	cache wordcache.Cache
}

func newUnigram(n *mtok.Model, byID []string) (*unigram, error) {
	m := &unigram{byID: byID, scores: make([]float64, len(byID)), unknownID: n.UnknownID, trie: vocabTrie(n.Vocab)}
	ids := make(map[string]int32, 256)
	longest := 0
	for _, v := range n.Vocab {
		m.scores[v.ID] = v.Score
		longest = max(longest, len(v.Text))
		if _, ok := ids[v.Text]; !ok && len(v.Text) == len("<0x00>") {
			ids[v.Text] = v.ID
		}
	}
	if !n.ByteFallback || longest == 0 {
		return m, nil
	}
	m.bytes = make([]int32, 256)
	for b := range m.bytes {
		id, ok := ids[fmt.Sprintf("<0x%02X>", b)]
		if node := m.trie.Child(0, byte(b)); !ok && (node < 0 || m.trie.Value(node) < 0 || m.trie.Value(node) == m.unknownID) {
			return nil, fmt.Errorf("byte_fallback without the token <0x%02X>, which makes the engine read outside its table: %w", b, tensor.ErrUnsupported)
		}
		m.bytes[b] = id
	}
	return m, nil
}

// lattice holds what one piece needs, by position.
type lattice struct {
	score []float64
	id    []int32
	prev  []int32
}

var lattices = sync.Pool{New: func() any { return new(lattice) }}

func (m *unigram) encode(ids []int32, piece string) ([]int32, error) {
	if known, ok := m.cache.Get(piece); ok {
		return append(ids, known...), nil
	}
	n := len(piece)
	l := lattices.Get().(*lattice)
	defer lattices.Put(l)
	l.score = slices.Grow(l.score[:0], n+1)[:n+1]
	l.id = slices.Grow(l.id[:0], n+1)[:n+1]
	l.prev = slices.Grow(l.prev[:0], n+1)[:n+1]
	const nowhere = -1
	for i := range l.prev {
		l.prev[i] = nowhere
	}
	l.score[0] = 0
	for at := 0; at < n; at++ {
		if at > 0 && l.prev[at] == nowhere {
			m.skip(l, piece, at)
		}
		// Of equal scores the last token of the shortest text wins, which is the one found last.
		offer := func(end int, id int32) {
			if s := l.score[at] + m.scores[id]; l.prev[end] == nowhere || s >= l.score[end] {
				l.score[end], l.id[end], l.prev[end] = s, id, int32(at)
			}
		}
		node := int32(0)
		for i := at; i < n; i++ {
			if node = m.trie.Child(node, piece[i]); node >= 0 && m.trie.Value(node) >= 0 && m.trie.Value(node) != m.unknownID {
				offer(i+1, m.trie.Value(node))
			} else if i == at && m.bytes != nil {
				offer(i+1, m.bytes[piece[i]])
			}
			if node < 0 {
				break
			}
		}
	}
	if l.prev[n] == nowhere {
		m.skip(l, piece, n)
	}
	from := len(ids)
	for at := n; at > 0; at = int(l.prev[at]) {
		if id := l.id[at]; id != m.unknownID || len(ids) == from || ids[len(ids)-1] != id {
			ids = append(ids, id)
		}
	}
	slices.Reverse(ids[from:])
	m.cache.Put(piece, ids[from:])
	return ids, nil
}

// skip reaches a position that no token ends at with the unknown token: over a character if one ends there, over
// or else a byte.
func (m *unigram) skip(l *lattice, piece string, end int) {
	size := 1
	for k := 1; k <= 4 && k <= end; k++ {
		c := piece[end-k]
		if c&0xC0 == 0x80 {
			continue
		}
		expected := 1
		switch {
		case c >= 0xF0:
			expected = 4
		case c >= 0xE0:
			expected = 3
		case c >= 0xC0:
			expected = 2
		}
		if expected == k {
			size = k
		}
		break
	}
	l.score[end] = l.score[end-size] + m.scores[m.unknownID]
	l.id[end], l.prev[end] = m.unknownID, int32(end-size)
}

func (m *unigram) token(id int32) string {
	if id < 0 || int(id) >= len(m.byID) {
		return m.byID[m.unknownID]
	}
	return m.byID[id]
}
