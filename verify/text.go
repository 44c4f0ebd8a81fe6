package verify

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"unicode/utf8"

	"github.com/invopop/jsonschema"

	"github.com/llmexport/llmexport/internal/digest"
	"github.com/llmexport/llmexport/internal/jsondoc"
)

// Text names an evaluation text: the built-in one, or a file.
type Text struct {
	Path   string `json:"path"`
	SHA256 string `json:"sha256"`
}

const builtin = "builtin"

// UnmarshalJSON reads "builtin", a path, or {path, sha256}.
func (t *Text) UnmarshalJSON(b []byte) error {
	var s string
	if json.Unmarshal(b, &s) == nil {
		*t = Text{Path: s}
		if s == builtin {
			*t = Text{}
		}
		return nil
	}
	type plain Text
	return jsondoc.DecodeStrict(b, (*plain)(t))
}

// MarshalJSON writes a form that UnmarshalJSON reads.
func (t Text) MarshalJSON() ([]byte, error) {
	if t.Path == "" {
		return json.Marshal(builtin)
	}
	type plain Text
	if t.SHA256 == "" {
		return json.Marshal(t.Path)
	}
	return json.Marshal(plain(t))
}

// JSONSchema describes the forms.
func (Text) JSONSchema() *jsonschema.Schema {
	props := jsonschema.NewProperties()
	props.Set("path", &jsonschema.Schema{Type: "string"})
	props.Set("sha256", &jsonschema.Schema{Type: "string"})
	return &jsonschema.Schema{OneOf: []*jsonschema.Schema{
		{Type: "string"},
		{Type: "object", Properties: props, Required: []string{"path"}, AdditionalProperties: jsonschema.FalseSchema},
	}}
}

// maxText bounds an evaluation text in bytes.
const maxText = 64 << 20

// Read returns the text and the name under which reports show it. resolve completes the path of a file.
func (t Text) Read(resolve func(path string) string) (text, name string, err error) {
	if t.Path == "" {
		return BuiltIn, "the built-in text", nil
	}
	b, err := os.ReadFile(resolve(t.Path))
	if err != nil {
		return "", "", err
	}
	name = filepath.Base(t.Path)
	if sum := digest.Of(b).Hex(); t.SHA256 != "" && sum != t.SHA256 {
		return "", "", fmt.Errorf("%s has SHA-256 %s, not %s", name, sum, t.SHA256)
	}
	switch {
	case len(b) > maxText:
		return "", "", fmt.Errorf("%s is larger than %d bytes", name, maxText)
	case !utf8.Valid(b):
		return "", "", fmt.Errorf("%s is not UTF-8", name)
	}
	return string(b), name, nil
}
