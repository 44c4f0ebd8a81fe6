package tokenizer

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"sync"
	"unicode/utf8"

	"github.com/llmexport/llmexport/runtime/tensor"
	"github.com/llmexport/llmexport/runtime/tokenizer/internal/trie"
	"github.com/llmexport/llmexport/runtime/tokenizer/internal/wordcache"
)

// unigram is the model Unigram: it cuts a word such that the sum of the scores of its tokens is largest.
type unigram struct {
	pieces *trie.Trie
	scores []float64
	ids    map[string]int32 // added tokens too, which have larger ids
	unk    int32
	// unkScore is the score of one unknown character.
	unkScore float64
	// byteID are the tokens of bytes, -1 for a missing one; nil if unknown texts are not spelled as bytes.
	byteID *[256]int32
	cache  wordcache.Cache
}

// maxPieceBytes bounds the time for a text in which many long tokens begin: it is their length for every byte.
const maxPieceBytes = 1 << 10

// bestPath is the best way to cut a word up to a byte.
type bestPath struct {
	score float64
	start int32 // of its last token, or -1
	id    int32
}

var bestPaths = sync.Pool{New: func() any { return new([]bestPath) }}

func (m *unigram) encode(dst []int32, word string) []int32 {
	if ids, ok := m.cache.Get(word); ok {
		return append(dst, ids...)
	}
	from := len(dst)
	dst = m.viterbi(dst, word)
	m.cache.Put(word, dst[from:])
	return dst
}

// viterbi compares sums in the library's order: of equal ones the token that begins first wins.
func (m *unigram) viterbi(dst []int32, word string) []int32 {
	pool := bestPaths.Get().(*[]bestPath)
	defer bestPaths.Put(pool)
	best := slices.Grow((*pool)[:0], len(word)+1)[:len(word)+1]
	*pool = best
	for i := range best {
		best[i] = bestPath{start: -1}
	}
	offer := func(start, end int, id int32, score float64) {
		if b := &best[end]; b.start < 0 || score > b.score {
			*b = bestPath{score, int32(start), id}
		}
	}
	for start := 0; start < len(word); {
		here := best[start].score
		_, n := utf8.DecodeRuneInString(word[start:])
		known := false
		for node, end := int32(0), start; end < len(word); {
			if node = m.pieces.Child(node, word[end]); node < 0 {
				break
			}
			end++
			if id := m.pieces.Value(node); id >= 0 {
				offer(start, end, id, m.scores[id]+here)
				known = known || end == start+n
			}
		}
		if !known {
			offer(start, start+n, m.unk, m.unkScore+here)
		}
		start += n
	}
	from := len(dst)
	for end := len(word); end > 0; {
		b := best[end]
		start := int(b.start)
		if b.id != m.unk {
			dst = append(dst, b.id)
			end = start
			continue
		}
		for start > 0 && best[start].id == m.unk {
			start = int(best[start].start)
		}
		dst = m.unknown(dst, word[start:end])
		end = start
	}
	slices.Reverse(dst[from:])
	return dst
}

// unknown appends the ids of a run of unknown characters, the last one first.
func (m *unigram) unknown(dst []int32, run string) []int32 {
	if id, ok := m.ids[run]; ok && int(id) < len(m.scores) { // with odd scores a run can be a token after all
		return append(dst, id)
	}
	if m.byteID != nil {
		from := len(dst)
		for i := len(run) - 1; i >= 0; i-- {
			id := m.byteID[run[i]]
			if id < 0 {
				return append(dst[:from], m.unk)
			}
			dst = append(dst, id)
		}
		return dst
	}
	return append(dst, m.unk)
}

func readUnigram(raw json.RawMessage, v *vocabulary) (model, error) {
	const name = "Unigram"
	var f struct {
		Type         string  `json:"type"`
		UnkID        *uint32 `json:"unk_id"`
		ByteFallback bool    `json:"byte_fallback"`
	}
	var list pieceList
	if err := readBulk(name, raw, &f, map[string]json.Unmarshaler{"vocab": &list}); err != nil {
		return nil, err
	}
	switch {
	case list.tokens == nil:
		return nil, fmt.Errorf(`model "Unigram" has no vocab: %w`, tensor.ErrCorrupt)
	case f.UnkID == nil:
		return nil, unsupported(`model "Unigram"`, "without unk_id") // the library fails when it meets an unknown character
	case int64(*f.UnkID) >= int64(len(list.tokens)):
		return nil, fmt.Errorf(`model "Unigram": unk_id %d of %d tokens: %w`, *f.UnkID, len(list.tokens), tensor.ErrCorrupt)
	}
	if err := v.defineList(list.tokens); err != nil {
		return nil, err
	}
	m := &unigram{scores: list.scores, unk: int32(*f.UnkID), ids: v.ids, unkScore: slices.Min(list.scores) - 10}
	pieces := make([]trie.Entry, 0, len(v.ids))
	for text, id := range v.ids {
		if len(text) > maxPieceBytes {
			return nil, unsupported(`model "Unigram"`, fmt.Sprintf("with a token of %d bytes", len(text)))
		}
		pieces = append(pieces, trie.Entry{Text: text, Value: id})
	}
	m.pieces = trie.New(pieces)
	if f.ByteFallback {
		m.byteID = new([256]int32)
		for b := range m.byteID {
			m.byteID[b] = -1
			if id, ok := m.ids[byteName(byte(b))]; ok {
				m.byteID[b] = id
			}
		}
	}
	return m, nil
}

// pieceList are the tokens of a Unigram model and their scores; nil if there are none.
type pieceList struct {
	tokens []string
	scores []float64
}

// UnmarshalJSON implements json.Unmarshaler.
func (l *pieceList) UnmarshalJSON(b []byte) error {
	if b[0] != '[' {
		*l = pieceList{}
		return json.Unmarshal(b, new([]string)) // null, or an error
	}
	l.tokens, l.scores = []string{}, nil
	for rest := trimSpace(b[1:]); rest[0] != ']'; {
		var pair []byte
		pair, rest = value(rest)
		token, score, err := readPiece(pair)
		if err != nil {
			return err
		}
		l.tokens, l.scores = append(l.tokens, token), append(l.scores, score)
		if rest[0] == ',' {
			rest = trimSpace(rest[1:])
		}
	}
	return nil
}

// readPiece reads ["token", score].
func readPiece(b []byte) (token string, score float64, err error) {
	if b[0] == '[' {
		if text, rest := value2(b[1:]); len(text) > 0 && text[0] == '"' && rest[0] == ',' {
			if number, rest := value2(rest[1:]); len(number) > 0 && rest[0] == ']' {
				if token, err = unquote(text); err != nil {
					return "", 0, err
				}
				if score, err = serdeFloat(number); err != nil {
					return "", 0, fmt.Errorf("score of token %.40q: %w", token, err)
				}
				return token, score, nil
			}
		}
	}
	return "", 0, fmt.Errorf("%.40s is not a token with a score", b)
}

// value2 is value for a list that may end here.
func value2(b []byte) (v, rest []byte) {
	if b = trimSpace(b); b[0] == ']' {
		return nil, b
	}
	return value(b)
}

// pow10 are the powers of ten, each the closest float64.
var pow10 = sync.OnceValue(func() (p [309]float64) {
	for i := range p {
		if _, err := fmt.Sscanf(fmt.Sprintf("1e%d", i), "%g", &p[i]); err != nil {
			panic("internal error: " + err.Error())
		}
	}
	return p
})

// serdeFloat reads a JSON number as the parser of the library does, the crate serde_json without its feature float_roundtrip:
// digits beyond 64 bits are dropped, and the result is rounded twice. A last bit decides between cuts of equal cost.
func serdeFloat(b []byte) (float64, error) {
	rest := b
	negative := rest[0] == '-'
	if negative {
		rest = rest[1:]
	}
	if len(rest) == 0 || rest[0] < '0' || rest[0] > '9' {
		return 0, fmt.Errorf("%.20s is not a number", b)
	}
	significand, exponent, full := uint64(0), 0, false
	digits := func(dropped, taken int) {
		for ; len(rest) > 0 && rest[0] >= '0' && rest[0] <= '9'; rest = rest[1:] {
			d := uint64(rest[0] - '0')
			if full || significand > math.MaxUint64/10 || significand == math.MaxUint64/10 && d > math.MaxUint64%10 {
				full = true
				exponent += dropped
				continue
			}
			significand = significand*10 + d
			exponent += taken
		}
	}
	digits(1, 0)
	if len(rest) > 0 && rest[0] == '.' {
		rest, full = rest[1:], false
		digits(0, -1)
	}
	if len(rest) > 0 { // e or E: the number is known to be valid
		rest = rest[1:]
		sign := 1
		if rest[0] == '-' {
			sign = -1
		}
		if rest[0] == '-' || rest[0] == '+' {
			rest = rest[1:]
		}
		const far = 1 << 30 // beyond every number
		e := 0
		for _, c := range rest {
			e = min(e*10+int(c-'0'), far)
		}
		exponent += sign * e
	}
	f := float64(significand)
	for f != 0 && exponent < -308 {
		f /= 1e308
		exponent += 308
	}
	switch {
	case f == 0:
	case exponent > 308:
		f = math.Inf(1)
	case exponent < 0:
		f /= pow10()[-exponent]
	default:
		f *= pow10()[exponent]
	}
	if math.IsInf(f, 0) {
		return 0, fmt.Errorf("%.20s is too large", b)
	}
	if negative {
		f = -f
	}
	return f, nil
}
