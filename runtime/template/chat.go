package template

import (
	"context"
	"fmt"
	"maps"
	"strings"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// Message is one message of a conversation that is text only. One with parts or tool calls is an *[Object].
type Message struct{ Role, Content string }

func (m Message) object() *Object {
	o := NewObject()
	o.Set("role", m.Role)
	o.Set("content", m.Content)
	return o
}

// Chat renders a chat template as transformers' apply_chat_template does. Messages are what [Messages] takes. As
// there, tools and documents are None unless extra holds them. Extra holds further variables, such as bos_token,
// eos_token and enable_thinking.
func Chat(
	ctx context.Context, t *Template, messages any, addGenerationPrompt bool, extra map[string]any, limits Limits,
) (string, error) {
	chat, err := Messages(messages)
	if err != nil {
		return "", err
	}
	values := map[string]any{"tools": nil, "documents": nil}
	for k, v := range extra {
		values[k] = v
	}
	if t.wantsParts(ctx, values, limits) {
		for i, m := range chat {
			chat[i] = inParts(m)
		}
	}
	values["messages"] = chat
	values["add_generation_prompt"] = addGenerationPrompt
	return t.Render(ctx, values, limits)
}

// wantsParts reports whether a template prints the content of a message only if it is a list of parts, as templates of models that read
// pictures do: programs pass such lists then, and so does the engine.
func (t *Template) wantsParts(ctx context.Context, values map[string]any, limits Limits) bool {
	const probe = "probe of a content"
	prints := func(change func(m *Object) *Object) bool {
		m := NewObject()
		m.Set("role", "user")
		m.Set("content", probe)
		in := maps.Clone(values)
		in["messages"], in["add_generation_prompt"] = []*Object{change(m)}, false
		text, err := t.Render(ctx, in, limits)
		return err == nil && strings.Contains(text, probe)
	}
	return !prints(func(m *Object) *Object { return m }) && prints(inParts)
}

// inParts returns a message whose content, if it is a text, is a list of one part.
func inParts(m *Object) *Object {
	content, _ := m.Get("content")
	text, ok := content.(string)
	if !ok || text == "" {
		return m
	}
	part := NewObject()
	part.Set("type", "text")
	part.Set("text", text)
	o := NewObject()
	for i, key := range m.keys {
		o.put(key, m.hashed[i], m.values[i])
	}
	o.Set("content", []any{part})
	return o
}

// Messages returns a conversation in the form in which transformers passes it to a template: fields without a value are
// dropped, and reasoning has all of its names. It takes a []Message, or a list of objects as [DecodeJSON] returns it.
// transformers: tokenization_utils_base.py, apply_chat_template.
func Messages(messages any) ([]*Object, error) {
	v, err := newRenderer(context.Background(), Limits{}).value(messages)
	if err != nil {
		return nil, fmt.Errorf("messages: %w", err)
	}
	list, ok := v.([]any)
	if !ok {
		return nil, fmt.Errorf("messages are a %s, not a list: %w", typeName(v), tensor.ErrUnsupported)
	}
	chat := make([]*Object, len(list))
	for i, m := range list {
		o, ok := m.(*Object)
		if !ok {
			return nil, fmt.Errorf("message %d is a %s, not an object: %w", i, typeName(m), tensor.ErrUnsupported)
		}
		chat[i] = withReasoning(withoutNone(o))
	}
	return chat, nil
}

func withoutNone(m *Object) *Object {
	o := NewObject()
	for i, key := range m.keys {
		if m.values[i] != nil {
			o.put(key, m.hashed[i], m.values[i])
		}
	}
	return o
}

// withReasoning copies reasoning that a message holds under one of three names to the names that templates read.
// transformers: utils/chat_template_utils.py, _alias_reasoning_fields.
func withReasoning(m *Object) *Object {
	for _, id := range []string{"reasoning_content", "thinking", "reasoning"} {
		reasoning, ok := m.Get(id)
		if !ok || reasoning == nil {
			continue
		}
		o := NewObject()
		o.Set("thinking", reasoning)
		for i, key := range m.keys {
			o.put(key, m.hashed[i], m.values[i])
		}
		o.Set("reasoning_content", reasoning)
		return o
	}
	return m
}
