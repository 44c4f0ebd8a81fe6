package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/llmexport/llmexport/runtime/template"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// Chat is what a package holds for conversations.
type Chat struct {
	Template string // empty: the contents of messages are joined
	BOS, EOS string
	Context  string // JSON, see [Input]
	System   string // system_prompt: of a prompt that is a text and no conversation
	// ContextAlone is true for a context without a template beside it, which release 3.5.0 ignores.
	ContextAlone bool
}

// Configure gives what the engine uses of what is in the tokenizer file, c, once it has read config.json and
// llm_config.json. The latter wins where both have a key. A jinja.chat_template wins over that of the tokenizer file, and
// then jinja.eos does as well, empty if it is missing; the text for the begin of a sequence is always that of the
// tokenizer file. A file that is no JSON object counts as empty; if that is config.json, so does the other.
func (c Chat) Configure(config, llmConfig []byte) (Chat, error) {
	o, err := decodeObject(string(config))
	if err != nil {
		return Chat{}, fmt.Errorf("config.json: %w", err)
	}
	model, err := decodeObject(string(llmConfig))
	if err != nil {
		return Chat{}, fmt.Errorf("llm_config.json: %w", err)
	}
	if o == nil {
		return c, nil
	}
	if model != nil {
		merge(o, model)
	}
	c.System = o.textOf("system_prompt")
	jinja := o.member("jinja")
	if jinja == nil {
		return c, nil
	}
	if t := jinja.member("chat_template"); t != nil {
		c.Template, c.EOS, c.Context = t.text, jinja.textOf("eos"), ""
	} else {
		c.ContextAlone = jinja.member("context") != nil
	}
	if v := jinja.member("context"); v != nil {
		r := &renderer{ctx: context.Background(), limits: withDefaults(template.Limits{})}
		if c.Context, err = r.dump(v); err != nil {
			return Chat{}, fmt.Errorf("jinja.context: %w", err)
		}
	}
	return c, nil
}

// Input is the input for a conversation.
func (c Chat) Input(messages []Message, addGenerationPrompt bool) Input {
	return Input{Messages: messages, AddGenerationPrompt: addGenerationPrompt, Context: c.Context, BOS: c.BOS, EOS: c.EOS}
}

// Prompt is the conversation that the engine makes of a text: the system prompt, if there is one, and the text of a
// user, to which an answer is asked for.
func (c Chat) Prompt(text string) Input {
	var messages []Message
	if c.System != "" {
		messages = append(messages, Message{"system", c.System})
	}
	return c.Input(append(messages, Message{"user", text}), true)
}

// textOf is a member that is a text.
func (v *value) textOf(key string) string {
	if m := v.member(key); m != nil {
		return m.text
	}
	return ""
}

// merge copies members, and those of objects that both have.
func merge(to, from *value) {
	for _, m := range from.members {
		if old := to.member(m.key); old != nil && old.kind == object && m.value.kind == object {
			merge(old, m.value)
		} else {
			*to.place(m.key) = *m.value
		}
	}
}

// decodeObject reads a JSON object; nil for what is none.
func decodeObject(s string) (*value, error) {
	v, err := decode(s)
	switch {
	case errors.Is(err, tensor.ErrCorrupt):
		return nil, nil
	case err != nil:
		return nil, err
	case v.kind != object:
		return nil, nil
	}
	return v, nil
}
