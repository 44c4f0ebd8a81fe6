package tokenizer

import (
	"fmt"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// addedFile is an added token as tokenizer.json spells it. No setting may be missing.
type addedFile struct {
	ID         *uint32 `json:"id"`
	Content    *string `json:"content"`
	SingleWord *bool   `json:"single_word"`
	LStrip     *bool   `json:"lstrip"`
	RStrip     *bool   `json:"rstrip"`
	Normalized *bool   `json:"normalized"`
	Special    *bool   `json:"special"`
}

// readAdded takes the added tokens of the file.
func (t *Tokenizer) readAdded(list []addedFile) error {
	tokens := make([]AddedToken, len(list))
	for i, a := range list {
		if a.ID == nil || a.Content == nil || a.SingleWord == nil || a.LStrip == nil || a.RStrip == nil || a.Normalized == nil || a.Special == nil {
			return fmt.Errorf("added token %d lacks a setting: %w", i, tensor.ErrCorrupt)
		}
		if int64(*a.ID) > 1<<31-1 {
			return unsupported(fmt.Sprintf("added token %q", *a.Content), fmt.Sprintf("with id %d", *a.ID))
		}
		tokens[i] = AddedToken{
			ID: int32(*a.ID), Content: *a.Content, Special: *a.Special, LStrip: *a.LStrip, RStrip: *a.RStrip,
			SingleWord: *a.SingleWord, Normalized: *a.Normalized,
		}
	}
	return t.addTokens(tokens)
}

// addTokens adds tokens as one call of the library's add_tokens does, which numbers them itself: a token of the
// vocabulary keeps its id, and the others follow the vocabulary's number of tokens, or the largest id that was added
// before if that is larger. AddedToken.ID is only a claim, -1 for none; a file that claims another id is ambiguous and
// rejected. The last of several entries with one content counts; an empty content is ignored.
func (t *Tokenizer) addTokens(list []AddedToken) error {
	if t.addedAt == nil {
		t.addedAt, t.specials, t.found = map[string]int{}, map[string]bool{}, map[int32]string{}
	}
	next := t.size
	for _, a := range t.added {
		next = max(next, int(a.ID)+1)
	}
	for _, a := range list {
		if a.Content == "" {
			continue
		}
		at, again := t.addedAt[a.Content]
		id, exists := t.ids[a.Content]
		if !exists {
			id = int32(next)
		}
		switch {
		case a.ID < 0 || a.ID == id:
		case exists && !again:
			return fmt.Errorf("added token %q: id %d, but %d in the vocabulary: %w", a.Content, a.ID, id, tensor.ErrCorrupt)
		case exists:
			return fmt.Errorf("added token %q: ids %d and %d: %w", a.Content, a.ID, id, tensor.ErrCorrupt)
		default:
			return unsupported(fmt.Sprintf("added token %q", a.Content), fmt.Sprintf("with id %d where %d is next", a.ID, id))
		}
		a.ID = id
		if !exists {
			if err := t.define(a.Content, uint32(id)); err != nil {
				return err
			}
			next++
		}
		if a.Special {
			t.specials[a.Content] = true
		}
		if again {
			t.added[at] = a
		} else {
			t.addedAt[a.Content] = len(t.added)
			t.added = append(t.added, a)
		}
	}
	return nil
}

// indexAdded prepares the search for the added tokens. It is called once, when all are there.
func (t *Tokenizer) indexAdded() error {
	var groups [2]struct {
		tokens []AddedToken
		texts  []string
	}
	owners := map[string]string{}
	for _, a := range t.added {
		text, g := a.Content, &groups[0]
		if a.Normalized {
			g = &groups[1]
			if t.normalizer != nil {
				text = t.normalizer.normalize(align(text)).text
			}
			if text == "" {
				// The library finds such a token between any two characters and drops it.
				return unsupported(fmt.Sprintf("added token %q", a.Content), "that is empty when normalized")
			}
			if other, ok := owners[text]; ok {
				// The library takes one of them, another one each time.
				return unsupported(fmt.Sprintf("added tokens %q and %q", other, a.Content), fmt.Sprintf("that are both %q when normalized", text))
			}
			owners[text] = a.Content
		}
		if len(text) > maxAddedBytes {
			return unsupported(fmt.Sprintf("added token %.20q", a.Content), fmt.Sprintf("of %d bytes", len(text)))
		}
		if text != a.Content {
			t.found[a.ID] = text
		}
		// Tokens to leave out when decoding are known by their texts, not by their ids.
		t.special[a.ID] = t.specials[text]
		g.tokens, g.texts = append(g.tokens, a), append(g.texts, text)
	}
	t.raw, t.normalized = newMatcher(groups[0].tokens, groups[0].texts), newMatcher(groups[1].tokens, groups[1].texts)
	return nil
}
