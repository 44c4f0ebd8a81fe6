package shared

import (
	"context"
	"encoding/json"

	"github.com/llmexport/llmexport/internal/jsondoc"
	"github.com/llmexport/llmexport/internal/sealed"
)

// notePrefix begins the names of notes.
const notePrefix = "note-"

// maxNote bounds a note in bytes.
const maxNote = 4 << 20

// note is the text of a note.
type note struct {
	// Entries are kept as long as the note.
	Entries []string        `json:"entries"`
	Content json.RawMessage `json:"content"`
}

// ReadNote decodes the note of a name into a value, and reports whether there is one. A damaged note counts as absent.
func ReadNote[T any](ctx context.Context, s *Store, name string, to *T) (found bool, err error) {
	n, err := s.note(ctx, notePrefix+name)
	if err == nil {
		err = jsondoc.Decode(n.Content, to)
	}
	if err != nil && damaged(err) {
		return false, nil
	}
	return err == nil, err
}

// note reads the note of a text.
func (s *Store) note(ctx context.Context, name string) (n note, err error) {
	text, err := s.blobs.Text(ctx, name, maxNote)
	if err == nil {
		err = sealed.Unmarshal(name, text, &n)
	}
	return n, err
}

// WriteNote replaces the note of a name. [Store.Collect] keeps the entries as long as the note.
func WriteNote[T any](ctx context.Context, s *Store, name string, v T, entries ...string) error {
	content, err := json.Marshal(v)
	if err != nil {
		return err
	}
	name = notePrefix + name
	text, err := sealed.Marshal(name, note{entries, content})
	if err != nil {
		return err
	}
	return s.blobs.SetText(ctx, name, text, nil)
}
