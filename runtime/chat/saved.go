package chat

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"github.com/llmexport/llmexport/runtime/template/conversations"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// Save returns the dialogue as a file of package conversations, which `llmexport template` renders.
func (d *Dialogue) Save() ([]byte, error) {
	var file struct {
		Messages []Turn         `json:"messages"`
		Context  map[string]any `json:"context,omitempty"`
	}
	if d.System != "" {
		file.Messages = append(file.Messages, Turn{Role: "system", Content: d.System})
	}
	file.Messages, file.Context = append(file.Messages, d.Turns...), d.Variables
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	err := e.Encode(file)
	return b.Bytes(), err
}

// Load replaces the messages of the dialogue by those of a file of package conversations: texts of the user and the assistant in turn,
// after a system message if there is one. Pictures and clips that messages of the user name are read again. After any other file, a
// tensor.ErrUnsupported, the dialogue is as before.
func (d *Dialogue) Load(ctx context.Context, name string, file []byte) error {
	c, err := conversations.Parse(name, file)
	if err != nil {
		return err
	}
	system, turns := "", []Turn{}
	for i, m := range c.Messages {
		role, _ := m.Get("role")
		content, _ := m.Get("content")
		text, ok := content.(string)
		want := "user"
		if len(turns)%2 == 1 {
			want = "assistant"
		}
		switch {
		case ok && i == 0 && role == "system":
			system = text
		case ok && m.Len() == 2 && role == want:
			turns = append(turns, Turn{Role: want, Content: text})
		default:
			return fmt.Errorf("%s: message %d is not a text of the %s: %w", name, i+1, want, tensor.ErrUnsupported)
		}
	}
	if len(turns)%2 == 1 {
		return fmt.Errorf("%s: the last message is not one of the assistant: %w", name, tensor.ErrUnsupported)
	}
	for i := 0; i < len(turns); i += 2 {
		if turns[i].parts, err = d.look(ctx, turns[i].Content); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	d.System, d.Turns = system, turns
	if len(c.Context) > 0 {
		d.Variables = c.Context
	}
	return nil
}

// Undo removes the last message of the user with its answer, and returns the message; false if there is none.
func (d *Dialogue) Undo() (string, bool) {
	if len(d.Turns) < 2 {
		return "", false
	}
	last := len(d.Turns) - 2
	message := d.Turns[last].Content
	d.Turns = d.Turns[:last]
	return message, true
}

// Reset forgets the turns, and keeps the system message.
func (d *Dialogue) Reset() {
	d.Turns = nil
	d.session.Reset()
}

// Used returns how many tokens of the context are computed, and how many there are.
func (d *Dialogue) Used() (used, context int) { return d.session.Len(), d.context }
