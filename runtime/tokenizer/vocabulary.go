package tokenizer

import (
	"fmt"
	"maps"
	"slices"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// vocabulary is the tokens of a tokenizer by id, those of the model and the added ones.
type vocabulary struct {
	tokens []string // as spelled in the file
	known  []bool   // whether the id exists
	ids    map[string]int32
	// special ids are left out by Decode on request.
	special []bool
	// size is the number of tokens of the model itself.
	size  int
	added []AddedToken
	// found are the added tokens that the normalizer changes, as they are looked for and decoded.
	found map[int32]string
}

// VocabSize is the largest id plus one. Not every id below it need exist.
func (v *vocabulary) VocabSize() int { return len(v.tokens) }

// ID returns the id of a token, spelled as in the file: a space is "Ġ" in a token of a byte-level model.
func (v *vocabulary) ID(token string) (int32, bool) {
	id, ok := v.ids[token]
	return id, ok
}

// Token returns the spelling of an id in the file.
func (v *vocabulary) Token(id int32) (string, bool) {
	if id < 0 || int(id) >= len(v.tokens) || !v.known[id] {
		return "", false
	}
	return v.tokens[id], true
}

// AddedTokens lists the added tokens in the order of the file.
func (v *vocabulary) AddedTokens() []AddedToken { return append([]AddedToken(nil), v.added...) }

// defineAll adds the tokens of a vocabulary. An error is that of the first in the order of their texts.
func (v *vocabulary) defineAll(vocab map[string]uint32) error {
	ok := true
	for token, id := range vocab {
		if ok = v.define(token, id) == nil; !ok {
			break
		}
	}
	if ok {
		return nil
	}
	clear(v.known)
	for _, token := range slices.Sorted(maps.Keys(vocab)) {
		if err := v.define(token, vocab[token]); err != nil {
			return err
		}
	}
	return nil
}

// define adds a token under a free id.
func (v *vocabulary) define(token string, id uint32) error {
	// Holes are rare and small. The bound keeps what a short file can claim in proportion to its length.
	const slack = 1 << 16
	if uint64(id) > uint64(2*v.size+2*len(v.added)+slack) {
		return unsupported(fmt.Sprintf("token %q", token), fmt.Sprintf("with id %d among %d tokens", id, v.size))
	}
	for int(id) >= len(v.tokens) {
		v.tokens = append(v.tokens, "")
		v.known = append(v.known, false)
		v.special = append(v.special, false)
	}
	if v.known[id] {
		return fmt.Errorf("id %d is both %q and %q: %w", id, v.tokens[id], token, tensor.ErrCorrupt)
	}
	v.tokens[id], v.known[id] = token, true
	v.ids[token] = int32(id)
	return nil
}

type addedFile struct {
	ID         uint32 `json:"id"`
	Content    string `json:"content"`
	SingleWord bool   `json:"single_word"`
	LStrip     bool   `json:"lstrip"`
	RStrip     bool   `json:"rstrip"`
	Normalized bool   `json:"normalized"`
	Special    bool   `json:"special"`
}

// readAdded takes the added tokens. Their ids in the file are a claim: the library `tokenizers` numbers
// those that are not in the vocabulary itself, and a file that disagrees would have two meanings.
func (t *Tokenizer) readAdded(list []addedFile) error {
	next := t.size
	for i, a := range list {
		if a.Content == "" {
			return fmt.Errorf("added token %d is empty: %w", i, tensor.ErrCorrupt)
		}
		if id, ok := t.ids[a.Content]; ok {
			if uint32(id) != a.ID {
				return fmt.Errorf("added token %q: id %d, but %d in the vocabulary: %w", a.Content, a.ID, id, tensor.ErrCorrupt)
			}
			for _, other := range t.added {
				if other.Content == a.Content {
					return fmt.Errorf("added token %q appears twice: %w", a.Content, tensor.ErrCorrupt)
				}
			}
		} else {
			if uint32(next) != a.ID {
				return unsupported(fmt.Sprintf("added token %q", a.Content), fmt.Sprintf("with id %d where %d is next", a.ID, next))
			}
			if err := t.define(a.Content, a.ID); err != nil {
				return err
			}
		}
		next = max(next, int(a.ID)+1)
		t.special[a.ID] = a.Special
		t.added = append(t.added, AddedToken{
			ID: int32(a.ID), Content: a.Content, Special: a.Special, LStrip: a.LStrip, RStrip: a.RStrip,
			SingleWord: a.SingleWord, Normalized: a.Normalized,
		})
	}
	var raw, later []AddedToken
	var rawText, laterText []string
	for _, a := range t.added {
		if !a.Normalized {
			raw, rawText = append(raw, a), append(rawText, a.Content)
			continue
		}
		text := a.Content
		if t.normalizer != nil {
			text = t.normalizer.normalize(text)
		}
		if text != a.Content {
			if t.found == nil {
				t.found = map[int32]string{}
			}
			t.found[a.ID] = text
		}
		later, laterText = append(later, a), append(laterText, text)
	}
	t.raw, t.normalized = newMatcher(raw, rawText), newMatcher(later, laterText)
	return nil
}
