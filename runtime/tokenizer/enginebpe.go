package tokenizer

import (
	"fmt"
	"math"
	"unicode/utf8"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// engineModel turns pieces of text into ids as a model of the engine does.
type engineModel interface {
	// encode appends the ids of a piece, which is not empty. An error says what the engine does instead of
	// answering; the ids are what its rules give all the same.
	encode(ids []int32, piece string) ([]int32, error)
	// token is the text of an id, any number.
	token(id int32) string
}

// enginePairs is how many pairs of symbols of one piece the engine may have to look up. It searches all pairs
// again after every merge; a billion look-ups take about a minute.
const enginePairs = 1 << 30

// engineBPE is the model BPE. It knows nothing of ignore_merges, the unknown token and dropout.
type engineBPE struct {
	byID  []string
	merge merger
	// bytes are the ids of each byte: of a stand-in if standIns is set, otherwise of a byte that is no text.
	bytes [256][]int32
	// standIns says that the text is mapped to stand-ins before or by the model.
	standIns bool
	ascii    [utf8.RuneSelf]int32 // -1 if the character has no token
	chars    map[rune]int32
	cache    wordCache
}

// newEngineBPE makes a model; mapped says that pieces are not mapped to stand-ins yet although the node before
// the model ought to have done it.
func newEngineBPE(n *modelNode, byID []string, mapped bool) (*engineBPE, error) {
	m := &engineBPE{byID: byID, standIns: n.ByteLevel || mapped, chars: map[rune]int32{}}
	ids := make(map[string]int32, len(n.Vocab))
	for _, v := range n.Vocab {
		if _, ok := ids[v.Token]; !ok {
			ids[v.Token] = v.ID
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
			text := standIn[b]
			if !mapped {
				text = string([]byte{byte(b)})
			}
			for _, c := range []byte(text) {
				if id, ok := ids[standIn[c]]; ok {
					m.bytes[b] = append(m.bytes[b], id)
				}
			}
		default:
			if id, ok := ids[standIn[b]]; ok {
				m.bytes[b] = []int32{id}
				continue
			}
			for _, c := range []byte(standIn[b]) {
				m.bytes[b] = append(m.bytes[b], spelt(c)...)
			}
		}
	}
	m.merge.merges = make(map[pair]merge, len(n.Merges))
	var both []byte
	for _, g := range n.Merges {
		both = append(append(both[:0], byID[g.Left]...), byID[g.Right]...)
		id, ok := ids[string(both)]
		if !ok || len(both) > math.MaxUint16 {
			return nil, fmt.Errorf("%.60q and %.60q merge to no token: %w", byID[g.Left], byID[g.Right], tensor.ErrCorrupt)
		}
		m.merge.merges[pairOf(g.Left, g.Right)] = merge{g.Rank, id}
	}
	return m, nil
}

func (m *engineBPE) encode(ids []int32, piece string) ([]int32, error) {
	if known, ok := m.cache.get(piece); ok {
		return append(ids, known...), nil
	}
	w := workspaces.Get().(*workspace)
	defer workspaces.Put(w)
	w.reset()
	if m.standIns {
		for i := range len(piece) {
			for _, id := range m.bytes[piece[i]] {
				w.push(id)
			}
		}
	} else {
		m.symbols(w, piece)
	}
	from, n := len(ids), len(w.symbols)
	ids = m.merge.apply(w, ids)
	m.cache.put(piece, ids[from:])
	// So many merges were made, each after a look at all pairs that were left.
	merged := n - (len(ids) - from)
	if pairs := int64(merged) * int64(n-merged/2); pairs > enginePairs {
		return ids, fmt.Errorf("a piece of %d symbols, %.40q...: the engine looks up %d pairs: %w", n, piece, pairs, tensor.ErrUnsupported)
	}
	return ids, nil
}

func (m *engineBPE) symbols(w *workspace, piece string) {
	for i := 0; i < len(piece); {
		if c := piece[i]; c < utf8.RuneSelf {
			if id := m.ascii[c]; id >= 0 {
				w.push(id)
			} else {
				for _, id := range m.bytes[c] {
					w.push(id)
				}
			}
			i++
			continue
		}
		r, n := utf8.DecodeRuneInString(piece[i:])
		if id, ok := m.chars[r]; ok && n > 1 {
			w.push(id)
		} else {
			for _, c := range []byte(piece[i : i+n]) {
				for _, id := range m.bytes[c] {
					w.push(id)
				}
			}
		}
		i += n
	}
}

func (m *engineBPE) token(id int32) string {
	if id < 0 || int(id) >= len(m.byID) {
		return ""
	}
	return m.byID[id]
}
