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
	// addedAt are the indices into added, by content.
	addedAt map[string]int
	// specials are the contents of all added tokens that were special at least once.
	specials map[string]bool
	// found are the normalized texts of added tokens that the normalizer changes; these are found and decoded.
	found map[int32]string
}

// VocabSize is the largest id plus one. Ids below it may be missing.
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

// SpecialIDs are the ids of the special added tokens, sorted.
func (v *vocabulary) SpecialIDs() []int32 {
	var out []int32
	for _, a := range v.added {
		if a.Special {
			out = append(out, a.ID)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// AddedTokens lists the added tokens in the order of the file.
func (v *vocabulary) AddedTokens() []AddedToken { return append([]AddedToken(nil), v.added...) }

// defineModel takes the tokens of a model.
func (v *vocabulary) defineModel(vocab map[string]uint32) error {
	v.size = len(vocab)
	v.ids = make(map[string]int32, v.size)
	v.tokens, v.known, v.special = slices.Grow(v.tokens, v.size), slices.Grow(v.known, v.size), slices.Grow(v.special, v.size)
	return v.defineAll(vocab)
}

// defineList takes the tokens of a model that numbers them. Of equal ones the last has the text's id.
func (v *vocabulary) defineList(list []string) error {
	v.size = len(list)
	v.ids = make(map[string]int32, v.size)
	for id, token := range list {
		if err := v.define(token, uint32(id)); err != nil {
			return err
		}
	}
	return nil
}

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
	// Holes are rare and small. The bound keeps memory proportional to the length of the file.
	const slack = 1 << 16
	if uint64(id) > uint64(2*v.size+2*len(v.added)+slack) {
		return unsupported(fmt.Sprintf("token %.80q", token), fmt.Sprintf("with id %d among %d tokens", id, v.size))
	}
	for int(id) >= len(v.tokens) {
		v.tokens = append(v.tokens, "")
		v.known = append(v.known, false)
		v.special = append(v.special, false)
	}
	if v.known[id] {
		return fmt.Errorf("id %d is both %.80q and %.80q: %w", id, v.tokens[id], token, tensor.ErrCorrupt)
	}
	v.tokens[id], v.known[id] = token, true
	v.ids[token] = int32(id)
	return nil
}
