package tokenizer

import (
	"strings"
	"unicode/utf8"
)

// Tokenizer is a tokenizer.json in memory. It does not change and is safe for concurrent use.
type Tokenizer struct {
	vocabulary
	normalizer   normalizer   // or nil
	preTokenizer preTokenizer // or nil
	model        model
	decoder      decoder // or nil

	// Added tokens are looked for twice: before and after the normalizer.
	raw, normalized *matcher
	prefix, suffix  []int32
	notes           []string
}

// Encode returns the ids of text. With addSpecial the ids of the post-processor stand around them
// (PrefixIDs, SuffixIDs). Added tokens in the text, special ones too, become their ids either way. What is not UTF-8
// counts as U+FFFD, one for each maximal part of a sequence that could have been continued.
func (t *Tokenizer) Encode(text string, addSpecial bool) []int32 {
	text = lossy(text)
	ids := make([]int32, 0, len(text)/3+len(t.prefix)+len(t.suffix))
	if addSpecial {
		ids = append(ids, t.prefix...)
	}
	token := func(id int32) { ids = append(ids, id) }
	word := func(p piece) { ids = t.model.encode(ids, p.text) }
	first := true
	t.raw.cut(text, func(s string) {
		p := piece{s, first}
		if t.normalizer != nil {
			p = t.normalizer.normalize(p)
		}
		first = false
		t.normalized.cut(p.text, func(s string) {
			part := piece{s, p.first}
			p.first = false
			if t.preTokenizer == nil {
				word(part)
			} else {
				t.preTokenizer.split(part, word)
			}
		}, func(id int32) { token(id); p.first = false })
	}, func(id int32) { token(id); first = false })
	if addSpecial {
		ids = append(ids, t.suffix...)
	}
	return ids
}

// Decode returns the text of ids, without special tokens if skipSpecial is set. Ids that do not exist give
// nothing; bytes that do not form UTF-8 give U+FFFD.
func (t *Tokenizer) Decode(ids []int32, skipSpecial bool) string {
	tokens := make([]string, 0, len(ids))
	for _, id := range ids {
		if token, ok := t.Token(id); ok && !(skipSpecial && t.special[id]) {
			if found, ok := t.found[id]; ok {
				token = found
			}
			tokens = append(tokens, token)
		}
	}
	if t.decoder == nil {
		return strings.Join(tokens, " ")
	}
	text := strings.Join(t.decoder.decode(tokens), "")
	if !utf8.ValidString(text) {
		panic("internal error: a decoder gave text that is not UTF-8")
	}
	return text
}

// PrefixIDs are the ids that the post-processor puts before a text, such as that of bos.
func (t *Tokenizer) PrefixIDs() []int32 { return append([]int32(nil), t.prefix...) }

// SuffixIDs are the ids that the post-processor puts behind a text.
func (t *Tokenizer) SuffixIDs() []int32 { return append([]int32(nil), t.suffix...) }
