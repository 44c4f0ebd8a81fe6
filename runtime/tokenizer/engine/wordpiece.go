package engine

import (
	"fmt"
	"math"

	"github.com/llmexport/llmexport/runtime/tensor"
	"github.com/llmexport/llmexport/runtime/tokenizer/internal/mtok"
	"github.com/llmexport/llmexport/runtime/tokenizer/internal/trie"
	"github.com/llmexport/llmexport/runtime/tokenizer/internal/wordcache"
)

// wordPiece is the model WordPiece. It counts bytes where the library counts characters, and never takes the
// unknown token for a part of a word.
type wordPiece struct {
	byID      []string
	unknown   string
	unknownID int32
	maxBytes  int
	trie      *trie.Trie
	// start is the node of the prefix of pieces that continue a word, -1 if no token has it.
	start int32
	cache wordcache.Cache
}

func newWordPiece(n *mtok.Model, byID []string) (*wordPiece, error) {
	m := &wordPiece{byID: byID, unknown: n.Unknown, unknownID: -1, maxBytes: n.MaxBytes, trie: vocabTrie(n.Vocab)}
	if n.MaxBytes > math.MaxInt32 {
		return nil, fmt.Errorf("words of %d bytes: %w", n.MaxBytes, tensor.ErrCorrupt)
	}
	for _, v := range n.Vocab {
		if v.Text == n.Unknown {
			m.unknownID = v.ID
			break
		}
	}
	if m.unknownID < 0 {
		return nil, fmt.Errorf("%q, the unknown token, is not in the vocabulary: %w", n.Unknown, tensor.ErrCorrupt)
	}
	m.start = m.trie.Walk(n.Prefix)
	return m, nil
}

func vocabTrie(v []mtok.Token) *trie.Trie {
	texts := make([]trie.Entry, len(v))
	for i := range v {
		texts[i] = trie.Entry{Text: v[i].Text, Value: v[i].ID}
	}
	return trie.New(texts)
}

func (m *wordPiece) encode(ids []int32, piece string) ([]int32, error) {
	if len(piece) > m.maxBytes {
		return append(ids, m.unknownID), nil
	}
	if known, ok := m.cache.Get(piece); ok {
		return append(ids, known...), nil
	}
	from := len(ids)
	for at := 0; at < len(piece); {
		id, end := int32(-1), at
		node := int32(0)
		if at > 0 {
			if node = m.start; node < 0 {
				return m.bad(ids[:from], piece), nil
			}
		}
		for i := at; i < len(piece); i++ {
			if node = m.trie.Child(node, piece[i]); node < 0 {
				break
			}
			if v := m.trie.Value(node); v >= 0 && v != m.unknownID {
				id, end = v, i+1
			}
		}
		if id < 0 {
			return m.bad(ids[:from], piece), nil
		}
		ids = append(ids, id)
		at = end
	}
	m.cache.Put(piece, ids[from:])
	return ids, nil
}

func (m *wordPiece) bad(ids []int32, piece string) []int32 {
	m.cache.Put(piece, []int32{m.unknownID})
	return append(ids, m.unknownID)
}

func (m *wordPiece) token(id int32) string {
	if id < 0 || int(id) >= len(m.byID) {
		return m.unknown
	}
	return m.byID[id]
}
