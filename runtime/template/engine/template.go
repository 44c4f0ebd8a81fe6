package engine

import (
	"context"
	"fmt"
	"strings"

	"github.com/llmexport/llmexport/runtime/template"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// Template is a parsed template. Rendering does not change it, so several goroutines may render one.
type Template struct {
	body  []statement
	empty bool
}

// maxSource bounds the length of a template in bytes.
const maxSource = 4 << 20

// Parse reads a template. With an empty one the engine joins the contents of the messages. The engine rejects no
// template: the error is an [ErrCrash] if it never ends.
func Parse(source string) (*Template, error) {
	if len(source) > maxSource {
		return nil, fmt.Errorf("template of %d bytes: %w", len(source), tensor.ErrUnsupported)
	}
	t := &Template{empty: source == ""}
	if err := t.parse(source); err != nil {
		return nil, err
	}
	return t, nil
}

func (t *Template) parse(source string) (err error) {
	defer recovered(&err)
	p := &parser{tokens: lex(source)}
	p.body(&t.body)
	return nil
}

// Message is a message as the engine's interface takes it. A message of the role "json" whose content is a JSON object
// is that object, which is the only way to tool calls and lists of parts.
type Message struct{ Role, Content string }

// Input is a conversation as the engine takes it.
type Input struct {
	Messages            []Message
	AddGenerationPrompt bool   // false leaves the variable undefined
	Context             string // a JSON object with further variables such as tools, as the engine writes it; other text counts as none
	BOS, EOS            string // of the tokenizer file; an empty BOS leaves bos_token undefined
}

// probe is the text with which the engine tests whether a template prints the content of a user's message.
const probe = "<__jinja_content_probe__>"

// Render renders a conversation. Before that, the engine renders a single message twice, to test whether the template
// prints texts or only lists of parts: in the latter case it converts all texts that are not empty to lists. Changes that
// those renderings make to bos_token, eos_token and functions persist.
func (t *Template) Render(ctx context.Context, in Input, limits template.Limits) (prompt string, err error) {
	defer recovered(&err)
	if t.empty {
		var out strings.Builder
		for _, m := range in.Messages {
			out.WriteString(m.Content)
		}
		return out.String(), nil
	}
	r := &renderer{ctx: ctx, limits: limits.WithDefaults(), undefined: newUndefined(), globals: globals(in)}
	message, err := decodeMessages(in.Messages)
	if err != nil {
		return "", err
	}
	if t.wantsParts(r) {
		for _, m := range message.elements {
			if c := m.member("content"); c != nil && c.kind == text && c.text != "" {
				*c = *textPart(c.text)
			}
		}
	}
	variables, err := decodeObject(in.Context)
	if err != nil {
		return "", fmt.Errorf("context: %w", err)
	}
	if variables == nil {
		variables = newObject()
	}
	*variables.place("messages") = *message
	if in.AddGenerationPrompt {
		*variables.place("add_generation_prompt") = *newBool(true)
	}
	return r.render(t.body, variables), nil
}

// globals are the variables below those of the conversation.
func globals(in Input) *value {
	g := newObject(member{"eos_token", newText(in.EOS)})
	if in.BOS != "" {
		*g.place("bos_token") = *newText(in.BOS)
	}
	for _, name := range []string{"range", "namespace", "strftime_now"} {
		*g.place(name) = *newText("<function " + name + ">")
	}
	return g
}

func decodeMessages(messages []Message) (*value, error) {
	list := &value{kind: array}
	for i, m := range messages {
		v := newObject(member{"role", newText(m.Role)}, member{"content", newText(m.Content)})
		if m.Role == "json" {
			o, err := decodeObject(m.Content)
			if err != nil {
				return nil, fmt.Errorf("message %d: %w", i, err)
			}
			if o != nil {
				v = o
			}
		}
		list.elements = append(list.elements, v)
	}
	return list, nil
}

// textPart is a text as a list of one part.
func textPart(s string) *value {
	return &value{kind: array, elements: []*value{newObject(member{"type", newText("text")}, member{"text", newText(s)})}}
}

// wantsParts reports whether the template prints a content only if it is a list of parts.
func (t *Template) wantsParts(r *renderer) bool {
	var printed [2]bool
	for i, content := range []*value{newText(probe), textPart(probe)} {
		m := newObject(member{"role", newText("user")}, member{"content", content})
		list := &value{kind: array, elements: []*value{m}}
		printed[i] = strings.Contains(r.render(t.body, newObject(member{"messages", list})), probe)
	}
	return !printed[0] && printed[1]
}
