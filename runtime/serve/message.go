package serve

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"

	"github.com/llmexport/llmexport/runtime"
	"github.com/llmexport/llmexport/runtime/chat"
	"github.com/llmexport/llmexport/runtime/template"
	"github.com/llmexport/llmexport/runtime/template/conversations"
	"github.com/llmexport/llmexport/runtime/template/engine"
)

// maxMessages bounds a conversation.
const maxMessages = 4096

// templateLimits bound the work of a template, which is foreign code, for a request.
var templateLimits = template.Limits{Steps: 2_000_000, Output: 4 << 20}

// readChat reads a request of /v1/chat/completions, as one for the completion of its prompt.
func (s *Server) readChat(ctx context.Context, body []byte) (*completion, error) {
	f, err := readFields(body)
	if err != nil {
		return nil, err
	}
	if s.o.Template == nil {
		return nil, badf("", "the package has no chat template; /v1/completions continues a text without one")
	}
	o, err := s.readOrder(f)
	if err != nil {
		return nil, err
	}
	for _, name := range []string{"max_tokens", "max_completion_tokens"} {
		if f[name] != nil {
			if o.most, err = f.integer(name, 0, 1, 1<<30); err != nil {
				return nil, err
			}
		}
	}
	logprobs, err := f.boolean("logprobs")
	if err != nil {
		return nil, err
	}
	top, err := f.integer("top_logprobs", 0, 0, maxTopLogprobs)
	if err != nil {
		return nil, err
	}
	if logprobs {
		o.top = top
	} else if top > 0 {
		return nil, badf("top_logprobs", "top_logprobs needs logprobs")
	}
	c := conversations.Conversation{AddGenerationPrompt: true}
	shown := &attachments{marks: chat.NewMarks()}
	if c.Messages, err = s.readMessages(f, shown); err != nil {
		return nil, err
	}
	if c.Tools, err = s.readTools(f); err != nil {
		return nil, err
	}
	if c.Context, err = readVariables(f); err != nil {
		return nil, err
	}
	if err := f.done(); err != nil {
		return nil, err
	}
	return s.render(ctx, o, c, shown)
}

// render returns the completion of a conversation with pictures and clips.
func (s *Server) render(ctx context.Context, o *order, c conversations.Conversation, shown *attachments) (*completion, error) {
	text, err := s.o.Template.Render(ctx, c, templateLimits)
	if errors.Is(err, template.ErrLimit) || errors.Is(err, engine.ErrCrash) {
		return nil, badf("messages", "the chat template cannot render this: %v", err)
	} else if err != nil {
		return nil, err
	}
	out := &completion{order: o}
	var read []*runtime.Prompt
	if len(shown.list) > 0 {
		if out.done, err = s.senses.sit(ctx); err == nil {
			read, err = s.senses.read(ctx, shown.list)
		}
		if err != nil {
			return out, err
		}
	}
	p, err := shown.marks.Encode(s.pkg, text, read)
	if err != nil {
		return out, badf("messages", "%v", err)
	}
	out.prompts = []prompt{{Prompt: p}}
	return out, s.checkPrompt("messages", p.Tokens, o.most)
}

// readObjects reads a member that is a list of objects.
func readObjects(f fields, name string) ([]*template.Object, bool, error) {
	raw, ok := f[name]
	delete(f, name)
	if !ok {
		return nil, false, nil
	}
	v, err := template.DecodeJSON(raw)
	if err != nil {
		return nil, false, badf(name, "%s: %v", name, err)
	}
	elements, ok := v.([]any)
	if !ok {
		return nil, false, badf(name, "%s must be a list of objects", name)
	}
	objects := make([]*template.Object, len(elements))
	for i, e := range elements {
		if objects[i], ok = e.(*template.Object); !ok {
			return nil, false, badf(name, "%s[%d] must be an object", name, i)
		}
	}
	return objects, true, nil
}

// readMessages reads the conversation.
func (s *Server) readMessages(f fields, shown *attachments) ([]*template.Object, error) {
	objects, ok, err := readObjects(f, "messages")
	switch {
	case err != nil:
		return nil, err
	case !ok || len(objects) == 0:
		return nil, badf("messages", "messages are missing")
	case len(objects) > maxMessages:
		return nil, badf("messages", "%d messages; %d are allowed", len(objects), maxMessages)
	}
	for i, m := range objects {
		if objects[i], err = s.readMessage(m, shown); err != nil {
			return nil, badf("messages", "messages[%d]: %v", i, err)
		}
	}
	return objects, nil
}

// readMessage brings a message into the form in which templates expect it: contents are one text, and the arguments of calls
// objects.
func (s *Server) readMessage(m *template.Object, shown *attachments) (*template.Object, error) {
	out := template.NewObject()
	role, _ := m.Get("role")
	switch role {
	case "developer": // a name of the system message
		role = "system"
	case "system", "user", "assistant":
	case "tool":
		if !s.tools {
			return nil, errors.New("the chat template knows no tools")
		}
	default:
		return nil, errors.New("role must be system, developer, user, assistant or tool")
	}
	out.Set("role", role)
	for name, v := range m.All() {
		switch name {
		case "role", "refusal", "annotations", "audio":
			if name == "audio" && v != nil {
				return nil, errors.New("this server keeps no sound of answers")
			}
		case "content":
			if v == nil {
				continue
			}
			text, err := s.readContent(v, role == "user", shown)
			if err != nil {
				return nil, err
			}
			out.Set(name, text)
		case "name", "tool_call_id", "reasoning_content", "reasoning":
			if _, ok := v.(string); !ok && v != nil {
				return nil, errors.New(name + " must be a text")
			}
			out.Set(name, v)
		case "tool_calls":
			calls, err := s.readCalls(v)
			if err != nil {
				return nil, err
			}
			if calls != nil {
				out.Set(name, calls)
			}
		default:
			return nil, errors.New("this server does not support " + name)
		}
	}
	if _, ok := out.Get("content"); !ok {
		if _, called := out.Get("tool_calls"); !called {
			return nil, errors.New("content is missing")
		}
		out.Set("content", "")
	}
	return out, nil
}

// readContent reads a text, or a list of parts that are texts, and pictures and clips if they are of the user.
func (s *Server) readContent(v any, user bool, shown *attachments) (string, error) {
	if text, ok := v.(string); ok {
		return text, nil
	}
	parts, ok := v.([]any)
	if !ok {
		return "", errors.New("content must be a text, or a list of parts")
	}
	var all strings.Builder
	for i, p := range parts {
		o, ok := p.(*template.Object)
		if !ok {
			return "", errors.New("a part of content must be an object")
		}
		text, err := s.readPart(o, user, shown)
		if err != nil {
			return "", fmt.Errorf("content[%d]: %w", i, err)
		}
		all.WriteString(text)
	}
	return all.String(), nil
}

// readPart returns the text of a part, or the mark of a picture or clip.
func (s *Server) readPart(o *template.Object, user bool, shown *attachments) (string, error) {
	switch kind, _ := o.Get("type"); {
	case kind == "text":
		text, _ := o.Get("text")
		if text, ok := text.(string); ok {
			return text, nil
		}
		return "", errors.New("a part of the type text needs a text")
	case kind != "image_url" && kind != "input_audio":
		return "", errors.New("the type must be " + s.partTypes())
	case kind == "image_url" && !s.senses.sees():
		return "", errors.New("this package reads no pictures")
	case kind == "input_audio" && !s.senses.hears():
		return "", errors.New("this package reads no sound")
	case !user:
		return "", errors.New("only messages of the user may have pictures and clips")
	default:
		read := readImage
		if kind == "input_audio" {
			read = readAudio
		}
		a, err := read(o)
		if err != nil {
			return "", err
		}
		return shown.add(a)
	}
}

// partTypes lists the types that parts of content may have.
func (s *Server) partTypes() string {
	switch sees, hears := s.senses.sees(), s.senses.hears(); {
	case sees && hears:
		return "text, image_url or input_audio"
	case sees:
		return "text or image_url"
	case hears:
		return "text or input_audio"
	}
	return "text: this package reads texts only"
}

// readCalls reads calls of tools in an old answer; OpenAI has their arguments as a text with JSON.
func (s *Server) readCalls(v any) ([]any, error) {
	calls, ok := v.([]any)
	if v == nil || ok && len(calls) == 0 {
		return nil, nil
	}
	if !ok {
		return nil, errors.New("tool_calls must be a list")
	}
	if !s.tools {
		return nil, errors.New("the chat template knows no tools")
	}
	for _, c := range calls {
		call, ok := c.(*template.Object)
		if !ok {
			return nil, errors.New("tool_calls must be objects")
		}
		member, _ := call.Get("function")
		function, ok := member.(*template.Object)
		if !ok {
			return nil, errors.New("a call needs a function")
		}
		arguments, _ := function.Get("arguments")
		if text, ok := arguments.(string); ok {
			if parsed, err := template.DecodeJSON([]byte(text)); err == nil {
				if o, ok := parsed.(*template.Object); ok {
					function.Set("arguments", o)
				}
			}
		}
	}
	return calls, nil
}

// readTools reads the tools that the model may call.
func (s *Server) readTools(f fields) ([]any, error) {
	objects, _, err := readObjects(f, "tools")
	if err != nil {
		return nil, err
	}
	choice := "auto"
	if raw, ok := f["tool_choice"]; ok {
		delete(f, "tool_choice")
		if json.Unmarshal(raw, &choice) != nil || choice != "none" && choice != "auto" {
			return nil, badf("tool_choice", "tool_choice must be none or auto: nothing here makes a model call a tool")
		}
	}
	if len(objects) == 0 || choice == "none" {
		return nil, nil
	}
	if !s.tools {
		return nil, badf("tools", "the chat template of this package knows no tools")
	}
	tools := make([]any, len(objects))
	for i, o := range objects {
		if kind, _ := o.Get("type"); kind != "function" {
			return nil, badf("tools", "tools[%d]: type must be function", i)
		}
		tools[i] = o
	}
	return tools, nil
}

// readVariables reads variables of the template, such as enable_thinking, from the member that other servers have for them.
func readVariables(f fields) (map[string]any, error) {
	raw, ok := f["chat_template_kwargs"]
	delete(f, "chat_template_kwargs")
	if !ok {
		return nil, nil
	}
	v, err := template.DecodeJSON(raw)
	o, ok := v.(*template.Object)
	if err != nil || !ok {
		return nil, badf("chat_template_kwargs", "chat_template_kwargs must be an object")
	}
	variables := maps.Collect(o.All())
	for _, name := range []string{"messages", "tools", "add_generation_prompt"} {
		if _, ok := variables[name]; ok {
			return nil, badf("chat_template_kwargs", "%s is a member of the request", name)
		}
	}
	return variables, nil
}
