package engine

import (
	"fmt"
	"math"
	"unicode/utf8"

	"github.com/llmexport/llmexport/runtime/tensor"
	"github.com/llmexport/llmexport/runtime/tokenizer/internal/bytelevel"
	"github.com/llmexport/llmexport/runtime/tokenizer/internal/merge"
	"github.com/llmexport/llmexport/runtime/tokenizer/internal/mtok"
	"github.com/llmexport/llmexport/runtime/tokenizer/internal/wordcache"
)

// model turns pieces of text into ids as a model of the engine does.
type model interface {
	// encode appends the ids of a piece, which is not empty. An error describes why the engine does not finish; the ids are
	// those of its rules nevertheless.
	encode(ids []int32, piece string) ([]int32, error)
	// token is the text of an id, any number.
	token(id int32) string
}

// maxPairs is how many pairs of symbols of one piece the engine may have to look up. It searches all pairs
// again after every merge; a billion look-ups take about a minute.
const maxPairs = 1 << 30

// bpe is the model BPE, without ignore_merges, unknown token and dropout.
type bpe struct {
	byID  []string
	merge merge.Merger
	// bytes are the ids of each byte: of a stand-in if standIns is set, or else of a byte of an unknown character.
	bytes [256][]int32
	// standIns is set if the text is mapped to stand-ins before or by the model.
	standIns bool
	ascii    [utf8.RuneSelf]int32 // -1 if the character has no token
	chars    map[rune]int32
	// joins has the neighbours, last character of one token and first of the next, that some merge joins.
	joins map[[2]rune]struct{}
	cache wordcache.Cache
}

// newBPE makes a model; mapped is set if the model has to map pieces to stand-ins for the node before it.
func newBPE(n *mtok.Model, byID []string, mapped bool) (*bpe, error) {
	m := &bpe{byID: byID, standIns: n.ByteLevel || mapped, chars: map[rune]int32{}, joins: map[[2]rune]struct{}{}}
	ids := make(map[string]int32, len(n.Vocab))
	for _, v := range n.Vocab {
		if _, ok := ids[v.Text]; !ok {
			ids[v.Text] = v.ID
		}
	}
	for i := range m.ascii {
		m.ascii[i] = -1
	}
	for token, id := range ids {
		r, size := utf8.DecodeRuneInString(token)
		switch {
		case size == 0 || size != len(token) || r == utf8.RuneError && size == 1:
		case r < utf8.RuneSelf:
			m.ascii[r] = id
		default:
			m.chars[r] = id
		}
	}
	spelt := func(b byte) []int32 {
		if id, ok := ids[fmt.Sprintf("<0x%02X>", b)]; ok {
			return []int32{id}
		}
		return nil
	}
	for b := range m.bytes {
		switch {
		case !m.standIns:
			m.bytes[b] = spelt(byte(b))
		case n.ByteLevel:
			// The model maps, and maps what the node before it has mapped.
			text := bytelevel.StandIn(byte(b))
			if !mapped {
				text = string([]byte{byte(b)})
			}
			for _, c := range []byte(text) {
				if id, ok := ids[bytelevel.StandIn(c)]; ok {
					m.bytes[b] = append(m.bytes[b], id)
				}
			}
		default:
			if id, ok := ids[bytelevel.StandIn(byte(b))]; ok {
				m.bytes[b] = []int32{id}
				continue
			}
			for _, c := range []byte(bytelevel.StandIn(byte(b))) {
				m.bytes[b] = append(m.bytes[b], spelt(c)...)
			}
		}
	}
	m.merge.Merges = make(map[merge.Pair]merge.Rule, len(n.Merges))
	var both []byte
	for _, g := range n.Merges {
		both = append(append(both[:0], byID[g.Left]...), byID[g.Right]...)
		id, ok := ids[string(both)]
		if !ok || len(both) > math.MaxUint16 {
			return nil, fmt.Errorf("%.60q and %.60q merge to no token: %w", byID[g.Left], byID[g.Right], tensor.ErrCorrupt)
		}
		m.merge.Merges[merge.PairOf(g.Left, g.Right)] = merge.Rule{Rank: g.Rank, ID: id}
		last, _ := utf8.DecodeLastRuneInString(byID[g.Left])
		first, _ := utf8.DecodeRuneInString(byID[g.Right])
		m.joins[[2]rune{last, first}] = struct{}{}
	}
	return m, nil
}

func (m *bpe) encode(ids []int32, piece string) ([]int32, error) {
	from, start, symbols := len(ids), 0, 0
	if len(piece) > wordcache.MaxBytes {
		// Parts that no merge joins are merged separately, with the same ids and more hits in the cache.
		before := rune(-1)
		for i := 0; i < len(piece); {
			r, size, count := m.symbol(piece[i:])
			if before >= 0 && r >= 0 {
				if _, ok := m.joins[[2]rune{before, r}]; !ok {
					ids = m.word(ids, piece[start:i])
					start = i
				}
			}
			before = r
			i += size
			symbols += count
		}
	}
	ids = m.word(ids, piece[start:])
	// The engine makes so many merges, each after a look at all pairs that are left.
	merged := symbols - (len(ids) - from)
	if pairs := int64(merged) * int64(symbols-merged/2); pairs > maxPairs {
		return ids, fmt.Errorf("a piece of %d symbols, %.40q...: the engine looks up %d pairs: %w", symbols, piece, pairs, tensor.ErrUnsupported)
	}
	return ids, nil
}

// symbol returns the character that the first symbol of s is, or -1 if it is none or not one symbol, the bytes that it
// takes, and the number of its symbols.
func (m *bpe) symbol(s string) (r rune, size, count int) {
	if m.standIns {
		ids := m.bytes[s[0]]
		if len(ids) != 1 || m.byID[ids[0]] != bytelevel.StandIn(s[0]) {
			return -1, 1, len(ids)
		}
		r, _ = utf8.DecodeRuneInString(bytelevel.StandIn(s[0]))
		return r, 1, 1
	}
	r, size = utf8.DecodeRuneInString(s)
	if r < utf8.RuneSelf {
		if m.ascii[r] >= 0 {
			return r, size, 1
		}
	} else if _, ok := m.chars[r]; ok && size > 1 {
		return r, size, 1
	}
	for _, c := range []byte(s[:size]) {
		count += len(m.bytes[c])
	}
	return -1, size, count
}

// word merges a piece, or a part of it that stands alone.
func (m *bpe) word(ids []int32, word string) []int32 {
	if known, ok := m.cache.Get(word); ok {
		return append(ids, known...)
	}
	w := merge.NewWord()
	defer w.Free()
	if m.standIns {
		for i := range len(word) {
			for _, id := range m.bytes[word[i]] {
				w.Push(id)
			}
		}
	} else {
		m.symbols(w, word)
	}
	from := len(ids)
	ids = m.merge.Apply(w, ids)
	m.cache.Put(word, ids[from:])
	return ids
}

func (m *bpe) symbols(w *merge.Word, piece string) {
	for i := 0; i < len(piece); {
		if c := piece[i]; c < utf8.RuneSelf {
			if id := m.ascii[c]; id >= 0 {
				w.Push(id)
			} else {
				for _, id := range m.bytes[c] {
					w.Push(id)
				}
			}
			i++
			continue
		}
		r, n := utf8.DecodeRuneInString(piece[i:])
		if id, ok := m.chars[r]; ok && n > 1 {
			w.Push(id)
		} else {
			for _, c := range []byte(piece[i : i+n]) {
				for _, id := range m.bytes[c] {
					w.Push(id)
				}
			}
		}
		i += n
	}
}

func (m *bpe) token(id int32) string {
	if id < 0 || int(id) >= len(m.byID) {
		return ""
	}
	return m.byID[id]
}
