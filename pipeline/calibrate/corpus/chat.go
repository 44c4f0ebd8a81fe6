package corpus

import (
	"fmt"
)

// Message is one turn of a conversation.
type Message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// keys are the two spellings of a message: that of chat templates, and that of ShareGPT.
var keys = [...]struct{ role, content string }{{"role", "content"}, {"from", "value"}}

// shareGPT maps the names of ShareGPT to roles.
var shareGPT = map[string]string{
	"human": "user", "user": "user",
	"gpt": "assistant", "assistant": "assistant",
	"system": "system",
}

// newMessage returns the message with the values of a pair of keys.
func newMessage(pair int, role, content string) (Message, error) {
	if role == "" {
		return Message{}, fmt.Errorf("the %s of a message is empty", keys[pair].role)
	}
	if keys[pair].role == "from" {
		name, ok := shareGPT[role]
		if !ok {
			return Message{}, fmt.Errorf("a message is from %q; known are human, user, gpt, assistant and system", role)
		}
		role = name
	}
	return Message{role, content}, nil
}

// checkChat rejects a conversation without messages.
func checkChat(column string, messages []Message) error {
	if len(messages) == 0 {
		return fmt.Errorf("%s holds no messages", column)
	}
	return nil
}
