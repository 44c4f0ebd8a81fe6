package tokenizer

import (
	"math"
	"strings"
	"unicode/utf8"
)

// Tokenizer is a tokenizer.json in memory. It does not change and is safe for concurrent use.
type Tokenizer struct {
	tokens []string // by id; see known
	known  []bool   // whether the id exists
	ids    map[string]int32
	text   []string // what an id decodes to, bytes
	// special ids are left out by Decode on request.
	special []bool

	// vocab is the number of ids of the model itself, added tokens not counted.
	vocab   int
	ordered []pair // the merges of the file, duplicates included, by rank
	model   bpe
	nfc     bool
	stages  []stage
	added   []AddedToken
	// Added tokens are looked for twice: before and after the normalizer.
	raw, normalized *matcher
	prefix, suffix  []int32
	ignoreMerges    bool
}

// Encode returns the ids of text. With addSpecial the ids of the post-processor stand around them
// (PrefixIDs, SuffixIDs). Added tokens in the text, special ones too, become their ids either way. A byte of
// text that is not UTF-8 counts as U+FFFD.
//
// A file's own regular expression, other than the common ones, is given five seconds on a piece of text; a
// piece that takes longer is not split.
func (t *Tokenizer) Encode(text string, addSpecial bool) []int32 {
	if !utf8.ValidString(text) {
		text = string([]rune(text))
	}
	ids := make([]int32, 0, len(text)/3+len(t.prefix)+len(t.suffix))
	if addSpecial {
		ids = append(ids, t.prefix...)
	}
	token := func(id int32) { ids = append(ids, id) }
	word := func(w string) { ids = t.model.encode(ids, w) }
	t.raw.cut(text, func(s string) {
		if t.nfc {
			s = nfc(s)
		}
		t.normalized.cut(s, func(s string) { runStages(t.stages, s, word) }, token)
	}, token)
	if addSpecial {
		ids = append(ids, t.suffix...)
	}
	return ids
}

// Decode returns the text of ids, without special tokens if skipSpecial is set. Ids that do not exist give
// nothing; bytes that do not form UTF-8 give U+FFFD.
func (t *Tokenizer) Decode(ids []int32, skipSpecial bool) string {
	var b strings.Builder
	for _, id := range ids {
		if id < 0 || int(id) >= len(t.text) || skipSpecial && t.special[id] {
			continue
		}
		b.WriteString(t.text[id])
	}
	return lossy(b.String())
}

// VocabSize is the largest id plus one. Not every id below it need exist.
func (t *Tokenizer) VocabSize() int { return len(t.tokens) }

// ID returns the id of a token, spelled as in the file: a space is "Ġ" in a token of the model.
func (t *Tokenizer) ID(token string) (int32, bool) {
	id, ok := t.ids[token]
	return id, ok
}

// Token returns the spelling of an id in the file.
func (t *Tokenizer) Token(id int32) (string, bool) {
	if id < 0 || int(id) >= len(t.tokens) || !t.known[id] {
		return "", false
	}
	return t.tokens[id], true
}

// AddedTokens lists the added tokens in the order of the file.
func (t *Tokenizer) AddedTokens() []AddedToken { return append([]AddedToken(nil), t.added...) }

// PrefixIDs are the ids that the post-processor puts before a text, such as that of bos.
func (t *Tokenizer) PrefixIDs() []int32 { return append([]int32(nil), t.prefix...) }

// SuffixIDs are the ids that the post-processor puts behind a text.
func (t *Tokenizer) SuffixIDs() []int32 { return append([]int32(nil), t.suffix...) }

// maxMerges keeps ranks within an int32; the engine of MNN compares them with a billion.
const maxMerges = math.MaxInt32 / 4
