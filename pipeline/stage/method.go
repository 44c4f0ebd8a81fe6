package stage

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/invopop/jsonschema"

	"github.com/llmexport/llmexport/internal/jsondoc"
	"github.com/llmexport/llmexport/quant"
)

// Methods is a method or a list of them, applied in order. Each is a name, or a map of one name to the options that
// differ from the method's defaults.
type Methods []quant.Method

// UnmarshalJSON reads a method or a list of them.
func (m *Methods) UnmarshalJSON(b []byte) error {
	parts := []json.RawMessage{b}
	if b := bytes.TrimSpace(b); len(b) > 0 && b[0] == '[' {
		if err := json.Unmarshal(b, &parts); err != nil {
			return err
		}
	}
	var list Methods
	for _, p := range parts {
		x, err := readMethod(p)
		if err != nil {
			return err
		}
		list = append(list, x)
	}
	*m = list
	return nil
}

func readMethod(b []byte) (quant.Method, error) {
	var name string
	if json.Unmarshal(b, &name) == nil {
		return newMethod(name)
	}
	var one map[string]json.RawMessage
	if json.Unmarshal(b, &one) != nil || len(one) != 1 {
		return nil, fmt.Errorf("must be a method, a method with its options as in {gptq: {damping: 0.1}}, or a list of these")
	}
	for name, options := range one {
		x, err := newMethod(name)
		if err != nil {
			return nil, err
		}
		if err := jsondoc.DecodeStrict(options, x); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		return x, nil
	}
	panic("unreachable")
}

// MarshalJSON writes a method without options as a word, others with all of their options.
func (m Methods) MarshalJSON() ([]byte, error) {
	list := make([]any, len(m))
	for i, x := range m {
		list[i] = map[string]any{x.Name(): x}
		if b, err := json.Marshal(x); err == nil && string(b) == "{}" {
			list[i] = x.Name()
		}
	}
	if len(list) == 1 {
		return json.Marshal(list[0])
	}
	return json.Marshal(list)
}

// JSONSchema describes the forms.
func (Methods) JSONSchema() *jsonschema.Schema {
	word := &jsonschema.Schema{Type: "string"}
	one := uint64(1)
	props := jsonschema.NewProperties()
	r := &jsonschema.Reflector{Anonymous: true, DoNotReference: true, ExpandedStruct: true}
	for _, n := range quant.Methods() {
		word.Enum = append(word.Enum, n)
		x, _ := quant.NewMethod(n)
		options := r.Reflect(x)
		options.Version, options.Required = "", nil
		options.Description = quant.MethodDoc(n)
		props.Set(n, options)
	}
	options := &jsonschema.Schema{Type: "object", Properties: props, MinProperties: &one, MaxProperties: &one, AdditionalProperties: jsonschema.FalseSchema}
	return &jsonschema.Schema{OneOf: []*jsonschema.Schema{
		word, options, {Type: "array", Items: &jsonschema.Schema{OneOf: []*jsonschema.Schema{word, options}}, MinItems: &one},
	}}
}
