// Package chat turns conversations into prompts of a package, with the chat template that the package carries, and keeps a
// dialogue within the positions of its model.
//
// Call [Open] for the template, then [New] for a dialogue with a session. Prompts are rendered as the engine renders them
// on a device.
package chat

import (
	"context"
	"fmt"

	"github.com/llmexport/llmexport/runtime"
	"github.com/llmexport/llmexport/runtime/template"
	"github.com/llmexport/llmexport/runtime/template/conversations"
	"github.com/llmexport/llmexport/runtime/template/engine"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// Template is the chat template of a package. It is safe for concurrent use.
type Template struct {
	Source string
	// EOS is eos_token. The engine has no bos_token: it puts Prefix before every prompt.
	EOS, Prefix string

	parsed *engine.Template
}

// Open reads and parses the template of a package. The error is that of Read, or an engine.ErrCrash.
func Open(p *runtime.Package) (*Template, error) {
	t, err := Read(p)
	if err == nil {
		t.parsed, err = engine.Parse(t.Source)
	}
	if err != nil {
		return nil, err
	}
	return t, nil
}

// Read reads the template of a package without parsing it, so that it cannot be rendered. A package without one is a
// tensor.ErrUnsupported.
func Read(p *runtime.Package) (*Template, error) {
	t := &Template{Source: p.Config.Jinja.ChatTemplate, EOS: p.Config.Jinja.EOS, Prefix: p.Tokenizer.Decode(p.Tokenizer.Prefix())}
	if t.Source == "" {
		t.Source = p.Tokenizer.ChatTemplate()
	}
	if t.EOS == "" {
		t.EOS = p.Tokenizer.EOS()
	}
	if t.Source == "" {
		return nil, fmt.Errorf("the package has no chat template: %w", tensor.ErrUnsupported)
	}
	return t, nil
}

// Render returns the prompt of a conversation, without Prefix. Limits bound the work of the template, which is foreign code.
func (t *Template) Render(ctx context.Context, c conversations.Conversation, limits template.Limits) (string, error) {
	return c.Render(t.parsed.Renderer(ctx, "", t.EOS, limits))
}

// Thinking returns the variables with which templates switch thinking on or off: they use one of these two names.
func Thinking(on bool) map[string]any { return map[string]any{"enable_thinking": on, "thinking": on} }

// probe is a conversation that every template renders.
func probe() conversations.Conversation {
	return conversations.Conversation{Messages: []*template.Object{Message("user", "x")}, AddGenerationPrompt: true}
}

// KnowsThinking reports whether the template writes another prompt when thinking is switched off.
func (t *Template) KnowsThinking(ctx context.Context) bool {
	return t.differs(ctx, func(c *conversations.Conversation, on bool) { c.Context = Thinking(on) })
}

// KnowsTools reports whether the template writes the tools that are offered.
func (t *Template) KnowsTools(ctx context.Context) bool {
	return t.differs(ctx, func(c *conversations.Conversation, on bool) {
		if on {
			c.Tools = []any{probeTool()}
		}
	})
}

// differs reports whether a change shows in the prompt.
func (t *Template) differs(ctx context.Context, set func(c *conversations.Conversation, on bool)) bool {
	var texts [2]string
	for i := range texts {
		c := probe()
		set(&c, i == 1)
		text, err := t.Render(ctx, c, template.Limits{})
		if err != nil {
			return false
		}
		texts[i] = text
	}
	return texts[0] != texts[1]
}

// probeTool is a tool as programs describe one.
func probeTool() *template.Object {
	parameters := template.NewObject()
	parameters.Set("type", "object")
	parameters.Set("properties", template.NewObject())
	function := template.NewObject()
	function.Set("name", "probe")
	function.Set("description", "a probe")
	function.Set("parameters", parameters)
	tool := template.NewObject()
	tool.Set("type", "function")
	tool.Set("function", function)
	return tool
}

// Message is a message of text.
func Message(role, content string) *template.Object {
	o := template.NewObject()
	o.Set("role", role)
	o.Set("content", content)
	return o
}
