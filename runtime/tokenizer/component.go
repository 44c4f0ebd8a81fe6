package tokenizer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/llmexport/llmexport/internal/jsondoc"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// maxNesting bounds nested Sequences.
const maxNesting = 8

func unsupported(kind, what string) error {
	return fmt.Errorf("%s %s: %w", kind, what, tensor.ErrUnsupported)
}

// components are the kinds of components that a tokenizer.json may hold in one place, by type.
type components[T any] struct {
	kind  string
	types map[string]func(raw json.RawMessage, depth int) (T, error)
}

// read reads a component; it reports false for null and for one that is missing.
func (c *components[T]) read(raw json.RawMessage, depth int) (v T, ok bool, err error) {
	name, err := componentType(c.kind, raw)
	if err != nil || name == "" {
		return v, false, err
	}
	read, ok := c.types[name]
	if !ok {
		return v, false, unsupported(c.kind, fmt.Sprintf("%q", name))
	}
	if depth == 0 {
		return v, false, unsupported(c.kind, "nested so deep")
	}
	if v, err = read(raw, depth); err != nil {
		return v, false, err
	}
	return v, true, nil
}

// sequence reads the components of a Sequence, which stand under key.
func (c *components[T]) sequence(key string, raw json.RawMessage, depth int) ([]T, error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(raw, &members); err != nil {
		return nil, fmt.Errorf("%s \"Sequence\": %v: %w", c.kind, err, tensor.ErrCorrupt)
	}
	for name := range members {
		if name != key && name != "type" {
			return nil, unsupported(c.kind+` "Sequence"`, fmt.Sprintf("with unknown field %q", name))
		}
	}
	var list []json.RawMessage
	if err := json.Unmarshal(members[key], &list); err == nil && list == nil {
		return nil, fmt.Errorf("%s \"Sequence\": %s is not a list: %w", c.kind, key, tensor.ErrCorrupt)
	} else if err != nil {
		return nil, fmt.Errorf("%s \"Sequence\": %s: %v: %w", c.kind, key, err, tensor.ErrCorrupt)
	}
	var out []T
	for _, r := range list {
		v, ok, err := c.read(r, depth-1)
		if err != nil {
			return nil, err
		}
		if !ok {
			return nil, fmt.Errorf("%s \"Sequence\": a member is null: %w", c.kind, tensor.ErrCorrupt)
		}
		out = append(out, v)
	}
	return out, nil
}

// constant reads a component that has only a type.
func constant[T any](kind, name string, v T) func(json.RawMessage, int) (T, error) {
	return func(raw json.RawMessage, _ int) (none T, err error) {
		var c struct {
			Type string `json:"type"`
		}
		if err := setup(kind, name, raw, &c); err != nil {
			return none, err
		}
		return v, nil
	}
}

// componentType reads the type of a component; it is empty for null and for a component that is missing.
func componentType(kind string, raw json.RawMessage) (string, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return "", nil
	}
	var c struct {
		Type *string `json:"type"`
	}
	// The library tries its types one after the other until the settings fit.
	if err := json.Unmarshal(raw, &c); err != nil || c.Type == nil || *c.Type == "" {
		return "", unsupported(kind, "without a type")
	}
	return *c.Type, nil
}

// harmless are keys, by type of component, that published files have and the library `tokenizers` ignores. It ignores
// every unknown key, but such a key may have a meaning in another version, so each is listed here.
var harmless = map[string][]string{
	"TemplateProcessing": {"add_prefix_space", "trim_offsets", "use_regex"}, // left over from a ByteLevel: Command R+
}

// required are settings without which the library rejects a component, as it does if they are null; those with a
// question mark may be missing. Other settings are checked where they are read.
var required = map[string][]string{
	"decoder BPEDecoder":                {"suffix"},
	"decoder ByteLevel":                 {"add_prefix_space", "trim_offsets", "use_regex?"},
	"decoder CTC":                       {"pad_token", "word_delimiter_token", "cleanup"},
	"decoder Metaspace":                 {"prepend_scheme?"},
	"decoder Strip":                     {"start", "stop"},
	"decoder WordPiece":                 {"prefix", "cleanup"},
	"model Unigram":                     {"byte_fallback?"},
	"post-processor ByteLevel":          {"add_prefix_space", "trim_offsets", "use_regex?"},
	"post-processor TemplateProcessing": {"pair", "special_tokens"},
	"pre-tokenizer ByteLevel":           {"add_prefix_space", "trim_offsets", "use_regex?"},
	"pre-tokenizer Digits":              {"individual_digits"},
	"pre-tokenizer FixedLength":         {"length?"},
	"pre-tokenizer Metaspace":           {"prepend_scheme?"},
	"pre-tokenizer Punctuation":         {"behavior?"},
	"pre-tokenizer Split":               {"invert"},
}

// setup decodes the settings of a component into v.
func setup(kind, name string, raw json.RawMessage, v any) error {
	if list := required[kind+" "+name]; len(list) > 0 {
		var members map[string]json.RawMessage
		if err := json.Unmarshal(raw, &members); err != nil {
			return fmt.Errorf("%s %q: %v: %w", kind, name, err, tensor.ErrCorrupt)
		}
		for _, key := range list {
			key, optional := strings.CutSuffix(key, "?")
			if value, ok := members[key]; !ok && !optional || string(value) == "null" {
				return fmt.Errorf("%s %q lacks a setting, %s: %w", kind, name, key, tensor.ErrCorrupt)
			}
		}
	}
	if keys := harmless[name]; len(keys) > 0 {
		var members map[string]json.RawMessage
		if err := json.Unmarshal(raw, &members); err == nil {
			before := len(members)
			for _, key := range keys {
				delete(members, key)
			}
			if len(members) < before {
				if raw, err = json.Marshal(members); err != nil {
					return fmt.Errorf("%s %q: %v: %w", kind, name, err, tensor.ErrCorrupt)
				}
			}
		}
	}
	return strict(fmt.Sprintf("%s %q", kind, name), raw, v)
}

// strict decodes one JSON value. A key that v lacks is not supported: it might change the ids.
func strict(what string, b []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	err := d.Decode(v)
	if err == nil {
		err = jsondoc.End(d)
	}
	switch {
	case err == nil:
		if name := foldedName(b); name != "" {
			return unsupported(what, fmt.Sprintf("with field %.200s", name))
		}
		return nil
	case strings.HasPrefix(err.Error(), "json: unknown field "):
		return unsupported(what, fmt.Sprintf("with %.200s", strings.TrimPrefix(err.Error(), "json: unknown ")))
	}
	return fmt.Errorf("%s: %v: %w", what, err, tensor.ErrCorrupt)
}

// patternFile is the JSON of a pattern: a regular expression or a text.
type patternFile struct{ Regex, String *string }

// UnmarshalJSON implements json.Unmarshaler.
func (p *patternFile) UnmarshalJSON(b []byte) error {
	var members map[string]*string
	if err := json.Unmarshal(b, &members); err != nil {
		return err
	}
	if len(members) > 1 {
		return fmt.Errorf("a pattern of %d members", len(members))
	}
	p.Regex, p.String = members["Regex"], members["String"]
	return nil
}

// foldedName is the first name in a valid object that encoding/json, which ignores case, takes for another one.
func foldedName(b []byte) string {
	b = trimSpace(b)
	if len(b) == 0 || b[0] != '{' {
		return ""
	}
	for rest := trimSpace(b[1:]); rest[0] != '}'; {
		var key []byte
		key, rest = value(rest)
		if bytes.ContainsFunc(key, func(r rune) bool { return r >= 'A' && r <= 'Z' || r >= utf8.RuneSelf || r == '\\' }) {
			return string(key)
		}
		if _, rest = value(trimSpace(rest[1:])); rest[0] == ',' {
			rest = trimSpace(rest[1:])
		}
	}
	return ""
}
