package tokenizer

// Tokenizer is a tokenizer.json in memory. It does not change and is safe for concurrent use.
type Tokenizer struct {
	vocabulary
	normalizer   normalizer   // or nil
	preTokenizer preTokenizer // or nil
	model        model
	decoder      decoder // or nil

	// Added tokens are searched twice: before and after the normalizer.
	raw, normalized *matcher
	prefix, suffix  []int32
	notes           []string
}

// Encode returns the ids of text. With addSpecial the ids of the post-processor stand around them
// (see PrefixIDs). Added tokens in the text, special ones too, become their ids either way. Invalid UTF-8 counts as
// U+FFFD, one for each maximal part of a sequence that could have been continued.
func (t *Tokenizer) Encode(text string, addSpecial bool) []int32 {
	text = lossy(text)
	ids := make([]int32, 0, len(text)/3+len(t.prefix)+len(t.suffix))
	if addSpecial {
		ids = append(ids, t.prefix...)
	}
	token := func(id int32) { ids = append(ids, id) }
	word := func(p piece) { ids = t.model.encode(ids, p.text) }
	t.raw.cut(text, func(from, to int) {
		a := align(text[from:to])
		if t.normalizer != nil {
			a = t.normalizer.normalize(a)
		}
		all := piece{text: a.text}
		if from == 0 {
			all.head = a.head
		}
		t.normalized.cut(a.text, func(from, to int) {
			p := all.part(from, to)
			if t.preTokenizer == nil {
				word(p)
			} else {
				t.preTokenizer.split(p, word)
			}
		}, token)
	}, token)
	if addSpecial {
		ids = append(ids, t.suffix...)
	}
	return ids
}

// Decode returns the text of ids, without special tokens if skipSpecial is set. Ids that do not exist give
// nothing; bytes that do not form UTF-8 give U+FFFD. It is the text of the library `tokenizers`: clean_up_tokenization_spaces
// of a tokenizer_config.json is not applied.
func (t *Tokenizer) Decode(ids []int32, skipSpecial bool) string {
	s := t.Stream(skipSpecial)
	for _, id := range ids {
		s.push(id)
	}
	return s.Close()
}

// decodable is the token that a decoder gets for an id, if there is one.
func (t *Tokenizer) decodable(id int32, skipSpecial bool) (string, bool) {
	token, ok := t.Token(id)
	if !ok {
		return "", false
	}
	if found, ok := t.found[id]; ok {
		token = found
	}
	if skipSpecial {
		// The library recognizes special tokens by their texts, and by their normalized texts.
		if id, ok := t.ids[token]; ok && t.special[id] {
			return "", false
		}
	}
	return token, true
}

// PrefixIDs are the ids that the post-processor puts before a text, such as that of bos.
func (t *Tokenizer) PrefixIDs() []int32 { return append([]int32(nil), t.prefix...) }

// SuffixIDs are the ids that the post-processor puts after a text, such as that of a separator.
func (t *Tokenizer) SuffixIDs() []int32 { return append([]int32(nil), t.suffix...) }

// Notes explain to the user where ids differ from those of transformers 5.23.
func (t *Tokenizer) Notes() []string { return append([]string(nil), t.notes...) }
