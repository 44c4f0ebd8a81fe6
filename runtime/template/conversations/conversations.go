// Package conversations holds conversations for testing chat templates: with and without system prompts, with tools,
// calls and results, reasoning, texts that are hard for templates, and orders of messages that some templates reject.
// [All] returns them, [Parse] reads a user's file.
//
// A file is a JSON object, or the list of its messages alone:
//
//	{
//	 "about": "what this tries",
//	 "messages": [{"role": "user", "content": "..."}, ...],
//	 "tools": [...],
//	 "context": {"enable_thinking": false},
//	 "add_generation_prompt": true,
//	 "continue_final_message": false
//	}
//
// Messages are those of transformers: content is a text, or a list of parts with a type; tool_calls hold functions with
// arguments. add_generation_prompt is true by default.
package conversations

import (
	"context"
	"embed"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/llmexport/llmexport/runtime/template"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// Conversation is the input of a template.
type Conversation struct {
	// Name is that of the file without its extension; About describes the purpose.
	Name, About string
	Messages    []*template.Object
	// Tools are nil when none are offered.
	Tools []any
	// Context holds further variables of the template, such as enable_thinking.
	Context map[string]any
	// Continue is set if the last message is an unfinished answer; AddGenerationPrompt is false then.
	AddGenerationPrompt, Continue bool
}

//go:embed data/*.json
var files embed.FS

var all = sync.OnceValue(func() []Conversation {
	entries, err := files.ReadDir("data")
	if err != nil {
		panic("internal error: " + err.Error())
	}
	list := make([]Conversation, len(entries))
	for i, e := range entries {
		b, err := files.ReadFile(path.Join("data", e.Name()))
		if err != nil {
			panic("internal error: " + err.Error())
		}
		if list[i], err = Parse(strings.TrimSuffix(e.Name(), ".json"), b); err != nil {
			panic("internal error: " + err.Error())
		}
	}
	return list
})

// All returns the built-in conversations, sorted by name. They are shared: do not change them.
func All() []Conversation { return slices.Clone(all()) }

// Parse reads a conversation. Invalid JSON, unknown keys and values of the wrong type are a tensor.ErrCorrupt.
func Parse(name string, data []byte) (Conversation, error) {
	c := Conversation{Name: name, AddGenerationPrompt: true}
	wrong := func(format string, args ...any) (Conversation, error) {
		return Conversation{}, fmt.Errorf("conversation %s: %s: %w", name, fmt.Sprintf(format, args...), tensor.ErrCorrupt)
	}
	v, err := template.DecodeJSON(data)
	if err != nil {
		return Conversation{}, fmt.Errorf("conversation %s: %w", name, err)
	}
	o, ok := v.(*template.Object)
	if !ok {
		o = template.NewObject()
		o.Set("messages", v)
	}
	for key, value := range o.All() {
		ok := true
		switch key {
		case "about":
			c.About, ok = value.(string)
		case "messages":
			var list []any
			list, ok = value.([]any)
			for i, m := range list {
				message, isObject := m.(*template.Object)
				if !isObject {
					return wrong("message %d is not an object", i)
				}
				c.Messages = append(c.Messages, message)
			}
		case "tools":
			c.Tools, ok = value.([]any)
		case "context":
			var context *template.Object
			if context, ok = value.(*template.Object); ok {
				c.Context = maps.Collect(context.All())
			}
		case "add_generation_prompt":
			c.AddGenerationPrompt, ok = value.(bool)
		case "continue_final_message":
			c.Continue, ok = value.(bool)
		default:
			return wrong("unknown key %q", key)
		}
		if !ok {
			return wrong("the value of %q is of the wrong type", key)
		}
	}
	if len(c.Messages) == 0 {
		return wrong("no messages")
	}
	if c.Continue {
		if _, said := o.Get("add_generation_prompt"); said && c.AddGenerationPrompt {
			return wrong("add_generation_prompt and continue_final_message exclude each other")
		}
		c.AddGenerationPrompt = false
	}
	return c, nil
}

// Renderer renders prepared messages, tools, which may be nil, and further variables.
type Renderer func(messages []*template.Object, tools []any, context map[string]any, addGenerationPrompt bool) (string, error)

// Render calls a renderer as apply_chat_template of transformers calls its template.
func (c *Conversation) Render(render Renderer) (string, error) {
	messages, err := template.Messages(c.Messages)
	if err != nil {
		return "", err
	}
	once := func(messages []*template.Object) (string, error) {
		return render(messages, c.Tools, c.Context, c.AddGenerationPrompt)
	}
	if c.Continue {
		return template.Continue(messages, once)
	}
	return once(messages)
}

// With returns a renderer for a template, whose model has the texts bos and eos; empty ones are undefined.
func With(ctx context.Context, t *template.Template, bos, eos string, limits template.Limits) Renderer {
	return func(messages []*template.Object, tools []any, variables map[string]any, addGenerationPrompt bool) (string, error) {
		values := map[string]any{}
		for name, text := range map[string]string{"bos_token": bos, "eos_token": eos} {
			if text != "" {
				values[name] = text
			}
		}
		if tools != nil {
			values["tools"] = tools
		}
		maps.Copy(values, variables)
		return template.Chat(ctx, t, messages, addGenerationPrompt, values, limits)
	}
}
