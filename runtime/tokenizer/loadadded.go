package tokenizer

import (
	"fmt"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// readAdded takes the added tokens. Their ids in the file are a claim: the library `tokenizers` numbers
// those that are not in the vocabulary itself, and a file that disagrees would have two meanings.
func (t *Tokenizer) readAdded(list []addedFile) error {
	next := t.vocab
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
		switch {
		case !a.Normalized:
			raw, rawText = append(raw, a), append(rawText, a.Content)
		case t.nfc:
			later, laterText = append(later, a), append(laterText, nfc(a.Content))
		default:
			later, laterText = append(later, a), append(laterText, a.Content)
		}
	}
	t.raw, t.normalized = newMatcher(raw, rawText), newMatcher(later, laterText)
	return nil
}
