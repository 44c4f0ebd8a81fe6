package engine

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"

	"github.com/llmexport/llmexport/runtime/template"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// newMessage converts a message to the form in which a program passes it to the engine: role and content if it has only
// these, or else a message of the role "json".
func newMessage(m *template.Object) (Message, error) {
	var plain Message
	var keys []string
	texts := true
	for key, v := range m.All() {
		s, ok := v.(string)
		texts = texts && ok
		switch keys = append(keys, key); key {
		case "role":
			plain.Role = s
		case "content":
			plain.Content = s
		}
	}
	if texts && slices.Equal(keys, []string{"role", "content"}) && plain.Role != "json" {
		return plain, nil
	}
	b, err := appendJSON(nil, m, 0)
	return Message{"json", string(b)}, err
}

// Renderer renders conversations in the form of transformers: tools and other variables go into the engine's context.
func (t *Template) Renderer(ctx context.Context, bos, eos string, limits template.Limits) func(
	messages []*template.Object, tools []any, variables map[string]any, addGenerationPrompt bool) (string, error) {
	return func(messages []*template.Object, tools []any, variables map[string]any, addGenerationPrompt bool) (string, error) {
		in, err := NewInput(messages, tools, variables, addGenerationPrompt)
		if err != nil {
			return "", err
		}
		in.BOS, in.EOS = bos, eos
		return t.Render(ctx, in, limits)
	}
}

// NewInput makes the input of a conversation in the form of transformers, without the texts of the tokenizer.
func NewInput(messages []*template.Object, tools []any, variables map[string]any, addGenerationPrompt bool) (Input, error) {
	in := Input{AddGenerationPrompt: addGenerationPrompt}
	for i, m := range messages {
		message, err := newMessage(m)
		if err != nil {
			return Input{}, fmt.Errorf("message %d: %w", i, err)
		}
		in.Messages = append(in.Messages, message)
	}
	all := map[string]any{}
	if tools != nil {
		all["tools"] = tools
	}
	maps.Copy(all, variables)
	if len(all) > 0 {
		b, err := appendJSON(nil, all, 0)
		if err != nil {
			return Input{}, fmt.Errorf("context: %w", err)
		}
		if in.Context, err = configured(string(b)); err != nil {
			return Input{}, fmt.Errorf("context: %w", err)
		}
	}
	return in, nil
}

// configured is JSON of a config as the engine passes it on: read and written again, which may round numbers.
func configured(s string) (text string, err error) {
	defer recovered(&err)
	v, err := decode(s)
	if err != nil {
		return "", err
	}
	r := &renderer{ctx: context.Background(), limits: template.Limits{}.WithDefaults()}
	return r.dump(v), nil
}

// appendJSON writes a value as template.DecodeJSON returns it. Unlike encoding/json it keeps the order of keys.
func appendJSON(b []byte, v any, depth int) ([]byte, error) {
	if depth > maxJSONDepth {
		return nil, fmt.Errorf("nested more than %d deep: %w", maxJSONDepth, tensor.ErrUnsupported)
	}
	var err error
	switch v := v.(type) {
	case nil:
		return append(b, "null"...), nil
	case bool:
		return strconv.AppendBool(b, v), nil
	case int64:
		return strconv.AppendInt(b, v, 10), nil
	case float64:
		if math.IsInf(v, 0) || math.IsNaN(v) {
			return nil, fmt.Errorf("JSON has no number %v: %w", v, tensor.ErrUnsupported)
		}
		return strconv.AppendFloat(b, v, 'g', -1, 64), nil
	case *template.Object:
		b = append(b, '{')
		for key, e := range v.All() {
			if b, err = appendMember(b, key, e, depth); err != nil {
				return nil, err
			}
		}
		return append(b, '}'), nil
	case map[string]any:
		b = append(b, '{')
		for _, key := range slices.Sorted(maps.Keys(v)) {
			if b, err = appendMember(b, key, v[key], depth); err != nil {
				return nil, err
			}
		}
		return append(b, '}'), nil
	case []any:
		b = append(b, '[')
		for i, e := range v {
			if i > 0 {
				b = append(b, ',')
			}
			if b, err = appendJSON(b, e, depth+1); err != nil {
				return nil, err
			}
		}
		return append(b, ']'), nil
	case string:
		return appendText(b, v), nil
	}
	return nil, fmt.Errorf("a value of type %T: %w", v, tensor.ErrUnsupported)
}

func appendMember(b []byte, key string, v any, depth int) ([]byte, error) {
	if b[len(b)-1] != '{' {
		b = append(b, ',')
	}
	b = append(appendText(b, key), ':')
	return appendJSON(b, v, depth+1)
}
