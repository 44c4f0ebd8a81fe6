package tokenizer

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/llmexport/llmexport/runtime/tensor"
	"github.com/llmexport/llmexport/runtime/tokenizer/internal/bytelevel"
	"github.com/llmexport/llmexport/runtime/tokenizer/internal/merge"
	"github.com/llmexport/llmexport/runtime/tokenizer/internal/wordcache"
)

// bpe is the model BPE. Its words are texts, whose characters are looked up in the vocabulary and merged, or raw bytes.
type bpe struct {
	merge.Merger
	// raw is set if words are the bytes passed to the pre-tokenizer ByteLevel, the last step then, and not their stand-ins:
	// spelling and looking up stand-ins would take more time than merging. See fit.
	raw bool
	// byteID is the token of each byte, or -1: by its stand-in if raw is set, or else by the name "<0x41>".
	byteID [256]int32
	// complete is set if byteID has every byte.
	complete bool

	// The rest is for words that are texts.

	// prefix and suffix are added to characters that do not begin a word, and to those that end it, for the look-up.
	prefix, suffix string
	// chars are the tokens of characters by their place in the word, a combination of inner and final.
	chars [4]map[rune]int32
	// byteFallback spells an unknown character as tokens of its bytes, if all of them have one.
	byteFallback bool
	// unk is the token of other unknown characters, or -1 if they vanish. With fuseUnk a run of them is one token.
	unk     int32
	fuseUnk bool

	// words is set if a word that is a whole token is not merged (ignore_merges).
	words map[string]int32
	cache wordcache.Cache

	file *bpeFile // until fit
}

// Places of a character.
const (
	inner = 1 << iota // not the first of its word
	final             // the last
)

// encode appends the ids of one word, which must not be empty.
func (m *bpe) encode(dst []int32, word string) []int32 {
	if id, ok := m.words[word]; ok {
		return append(dst, id)
	}
	if ids, ok := m.cache.Get(word); ok {
		return append(dst, ids...)
	}
	from := len(dst)
	dst = m.merge(dst, word)
	m.cache.Put(word, dst[from:])
	return dst
}

// merge is encode without the cache and without whole words.
func (m *bpe) merge(dst []int32, word string) []int32 {
	w := merge.NewWord()
	defer w.Free()
	if m.raw {
		for i := range len(word) {
			if id := m.byteID[word[i]]; id >= 0 {
				w.Push(id)
			}
		}
	} else {
		m.symbols(w, word)
	}
	return m.Apply(w, dst)
}

// symbols pushes the tokens of the characters of a word.
func (m *bpe) symbols(w *merge.Word, word string) {
	unknown := false // one of them waits to be pushed
	for i := 0; i < len(word); {
		r, n := utf8.DecodeRuneInString(word[i:])
		place := 0
		if i > 0 {
			place |= inner
		}
		char := word[i : i+n]
		if i += n; i == len(word) {
			place |= final
		}
		if id, ok := m.chars[place][r]; ok {
			if unknown {
				w.Push(m.unk)
				unknown = false
			}
			w.Push(id)
			continue
		}
		if m.pushBytes(w, char, place) {
			continue // an unknown character still waits: the library puts it after these bytes
		}
		if m.unk >= 0 {
			if unknown && !m.fuseUnk {
				w.Push(m.unk)
			}
			unknown = true
		}
	}
	if unknown {
		w.Push(m.unk)
	}
}

// pushBytes pushes the tokens of the bytes of a character and of what is added to it in its place.
func (m *bpe) pushBytes(w *merge.Word, char string, place int) bool {
	if !m.byteFallback {
		return false
	}
	if place&inner != 0 {
		char = m.prefix + char
	}
	if place&final != 0 {
		char += m.suffix
	}
	if !m.complete {
		for i := range len(char) {
			if m.byteID[char[i]] < 0 {
				return false
			}
		}
	}
	for i := range len(char) {
		w.Push(m.byteID[char[i]])
	}
	return true
}

// bpeFile is the JSON of a BPE model.
type bpeFile struct {
	Type             string   `json:"type"`
	Dropout          *float64 `json:"dropout"`
	UnkToken         *string  `json:"unk_token"`
	ContinuingPrefix *string  `json:"continuing_subword_prefix"`
	EndSuffix        *string  `json:"end_of_word_suffix"`
	FuseUnk          bool     `json:"fuse_unk"`
	ByteFallback     bool     `json:"byte_fallback"`
	IgnoreMerges     bool     `json:"ignore_merges"`

	// Read apart from the others.
	Vocab  vocabFile `json:"-"`
	Merges mergeList `json:"-"`
}

// read reads the model of a file, the small members strictly.
func (m *bpeFile) read(raw []byte) error {
	return readBulk("BPE", raw, m, map[string]json.Unmarshaler{"vocab": &m.Vocab, "merges": &m.Merges})
}

// readBPE fills the vocabulary and the merges. What depends on the pre-tokenizer is left to fit.
func readBPE(raw json.RawMessage, v *vocabulary) (model, error) {
	f := &bpeFile{}
	if err := f.read(raw); err != nil {
		return nil, err
	}
	if f.Dropout != nil && *f.Dropout != 0 {
		return nil, unsupported(`model "BPE"`, "with dropout")
	}
	if f.Vocab == nil {
		return nil, fmt.Errorf(`model "BPE" has no vocab: %w`, tensor.ErrCorrupt)
	}
	if err := v.defineModel(f.Vocab); err != nil {
		return nil, err
	}
	m := &bpe{file: f, fuseUnk: f.FuseUnk, byteFallback: f.ByteFallback}
	if f.ContinuingPrefix != nil {
		m.prefix = *f.ContinuingPrefix
	}
	if f.EndSuffix != nil {
		m.suffix = *f.EndSuffix
	}
	if err := m.readMerges(f.Merges, v); err != nil {
		return nil, err
	}
	f.Merges = nil
	return m, nil
}

// readMerges takes both spellings: "a b" and ["a", "b"]. Of two merges of the same tokens the last counts.
func (m *bpe) readMerges(pairs mergeList, v *vocabulary) error {
	if pairs == nil {
		return fmt.Errorf(`model "BPE" has no merges: %w`, tensor.ErrCorrupt)
	}
	for _, p := range pairs {
		if p.line != pairs[0].line {
			return fmt.Errorf("merges: some are texts and some are lists: %w", tensor.ErrCorrupt)
		}
	}
	pairs = slices.DeleteFunc(pairs, func(p mergeFile) bool { return p.line && strings.HasPrefix(p.left, "#version") })
	if len(pairs) > merge.MaxMerges {
		return unsupported("model", fmt.Sprintf("with %d merges", len(pairs)))
	}
	m.SameID = true
	m.Merges = make(map[merge.Pair]merge.Rule, len(pairs))
	var both []byte
	for rank, p := range pairs {
		if p.parts != 2 {
			return fmt.Errorf("merge %d has %d parts: %w", rank, p.parts, tensor.ErrCorrupt)
		}
		left, ok1 := v.ids[p.left]
		right, ok2 := v.ids[p.right]
		ok := ok1 && ok2 && len(p.right) >= len(m.prefix)
		var id int32
		if ok {
			// Only the length of the prefix counts, not the prefix itself.
			both = append(append(both[:0], p.left...), p.right[len(m.prefix):]...)
			id, ok = v.ids[string(both)]
		}
		if !ok {
			return fmt.Errorf("merge %d, %.80q with %.80q: not all of them are tokens: %w", rank, p.left, p.right, tensor.ErrCorrupt)
		}
		m.Merges[merge.PairOf(left, right)] = merge.Rule{Rank: int32(rank), ID: id}
	}
	return nil
}

// fit decides whether the words of a BPE model are raw bytes. That needs a pre-tokenizer that ends with ByteLevel, and
// bytes that are tokens or vanish. If not, every ByteLevel spells stand-ins, which are ordinary characters.
func (t *Tokenizer) fit() error {
	var last *byteLevelStage
	steps, _ := t.preTokenizer.(preTokenizerSequence)
	for i, s := range steps {
		if s, ok := s.(*byteLevelStage); ok {
			s.spell = true
			if i == len(steps)-1 {
				last = s
			}
		}
	}
	m, ok := t.model.(*bpe)
	if !ok {
		return nil
	}
	f := m.file
	m.file = nil
	if last != nil && m.prefix == "" && m.suffix == "" {
		m.nameBytes(f.Vocab, func(b byte) string { return bytelevel.StandIn(b) })
		m.raw = m.complete || f.UnkToken == nil && !f.ByteFallback
	}
	if m.raw {
		last.spell = false
	} else if err := m.fitText(f); err != nil {
		return err
	}
	if f.IgnoreMerges {
		m.words = make(map[string]int32, len(f.Vocab))
		for token, id := range f.Vocab {
			word, ok := token, true
			if m.raw {
				word, ok = bytelevel.Decode(token)
			}
			if ok {
				m.words[word] = int32(id)
			}
		}
	}
	return nil
}

// fitText prepares for words that are texts.
func (m *bpe) fitText(f *bpeFile) error {
	m.nameBytes(f.Vocab, byteName)
	m.unk = -1
	if f.UnkToken != nil && !(m.byteFallback && m.complete) {
		var err error
		if m.unk, err = unkToken("BPE", *f.UnkToken, f.Vocab); err != nil {
			return err
		}
	}
	for place := range m.chars {
		prefix, suffix := "", ""
		if place&inner != 0 {
			prefix = m.prefix
		}
		if place&final != 0 {
			suffix = m.suffix
		}
		if place > 0 && prefix == "" && suffix == "" {
			m.chars[place] = m.chars[0]
			continue
		}
		m.chars[place] = map[rune]int32{}
		for token, id := range f.Vocab {
			if len(token) > len(prefix)+utf8.UTFMax+len(suffix) || len(token) <= len(prefix)+len(suffix) ||
				!strings.HasPrefix(token, prefix) || !strings.HasSuffix(token, suffix) {
				continue
			}
			char := token[len(prefix) : len(token)-len(suffix)]
			if r, n := utf8.DecodeRuneInString(char); n == len(char) && (r != utf8.RuneError || n > 1) {
				m.chars[place][r] = int32(id)
			}
		}
	}
	return nil
}

// nameBytes looks up the tokens of bytes.
func (m *bpe) nameBytes(vocab vocabFile, name func(byte) string) {
	m.complete = true
	for b := range m.byteID {
		m.byteID[b] = -1
		if id, ok := vocab[name(byte(b))]; ok {
			m.byteID[b] = int32(id)
		} else {
			m.complete = false
		}
	}
}

// byteName is the token of a byte in vocabularies with byte_fallback.
func byteName(b byte) string { return fmt.Sprintf("<0x%02X>", b) }
