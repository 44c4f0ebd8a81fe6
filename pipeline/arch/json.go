package arch

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// Bounds of config.json. The largest on the hub are a few hundred kilobytes (quantization settings,
// label names) and five levels deep.
const (
	maxConfigBytes = 4 << 20
	maxConfigDepth = 32
)

// object is a JSON object with its keys in the order of the file. Its values are nil, bool, string, json.Number, []any,
// *object or nonFinite.
type object struct {
	keys   []string
	values map[string]any
}

// nonFinite is a number without a JSON form, in the notation of transformers: {"__float__": "Infinity"}.
type nonFinite string

// parseObject parses one JSON object strictly: valid UTF-8, no duplicate keys, nothing after the end.
func parseObject(b []byte) (*object, error) {
	if len(b) > maxConfigBytes {
		return nil, corruptConfig("%d bytes, more than %d", len(b), maxConfigBytes)
	}
	if !utf8.Valid(b) {
		return nil, corruptConfig("not UTF-8")
	}
	b = PlainJSON(b)
	// Unmarshal checks the whole syntax first; the token reader alone would not find trailing bytes.
	var raw json.RawMessage
	if err := json.Unmarshal(b, &raw); err != nil {
		if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
			return nil, corruptConfig("byte %d: %v", syntax.Offset, err)
		}
		return nil, corruptConfig("%v", err)
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber()
	v, err := readValue(dec, nil)
	if err != nil {
		return nil, err
	}
	o, ok := v.(*object)
	if !ok {
		return nil, corruptConfig("%s instead of an object", show(v))
	}
	return o, nil
}

// readValue reads the next value; path has the keys and brackets that lead to it.
func readValue(dec *json.Decoder, path []string) (any, error) {
	t, err := dec.Token()
	if err != nil {
		return nil, corruptConfig("%v", err)
	}
	delim, ok := t.(json.Delim)
	if !ok {
		return t, nil
	}
	if len(path) == maxConfigDepth {
		return nil, corruptConfig("%s: nested deeper than %d levels", printable(path[0]), maxConfigDepth)
	}
	if delim == '[' {
		list := []any{}
		for dec.More() {
			v, err := readValue(dec, append(path, "[]"))
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		if _, err := dec.Token(); err != nil {
			return nil, corruptConfig("%v", err)
		}
		return list, nil
	}
	o := &object{values: map[string]any{}}
	for dec.More() {
		t, err := dec.Token()
		if err != nil {
			return nil, corruptConfig("%v", err)
		}
		key, _ := t.(string)
		place := append(path, key)
		if _, twice := o.values[key]; twice {
			return nil, corruptConfig("%s: given twice", printable(strings.Join(place, ".")))
		}
		v, err := readValue(dec, place)
		if err != nil {
			return nil, err
		}
		o.keys = append(o.keys, key)
		o.values[key] = v
	}
	if _, err := dec.Token(); err != nil {
		return nil, corruptConfig("%v", err)
	}
	if s, ok := o.values["__float__"].(string); ok && len(o.keys) == 1 {
		if s == "NaN" || s == "Infinity" || s == "-Infinity" {
			return nonFinite(s), nil
		}
	}
	return o, nil
}

// PlainJSON converts JSON as written by Python: it drops a byte-order mark, and rewrites the bare words NaN, Infinity
// and -Infinity outside strings in the notation of transformers, {"__float__": "NaN"}. Other text is returned
// unchanged.
func PlainJSON(b []byte) []byte {
	var out []byte
	b = bytes.TrimPrefix(b, []byte("\ufeff"))
	done, inString := 0, false
	for i := 0; i < len(b); i++ {
		switch c := b[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case !inString && (c == 'N' || c == 'I' || c == '-'):
			for _, word := range []nonFinite{"NaN", "Infinity", "-Infinity"} {
				if bytes.HasPrefix(b[i:], []byte(word)) {
					out = append(append(out, b[done:i]...), `{"__float__": "`+word+`"}`...)
					done = i + len(word)
					i = done - 1
					break
				}
			}
		}
	}
	if done == 0 {
		return b
	}
	return append(out, b[done:]...)
}

// show formats a value for an error message, shortened.
func show(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case bool:
		return strconv.FormatBool(v)
	case json.Number:
		return clip(string(v))
	case nonFinite:
		return string(v)
	case string:
		return strconv.Quote(clip(v))
	case []any:
		if len(v) == 0 {
			return "[]"
		}
		return "a list"
	case *object:
		if len(v.keys) == 0 {
			return "{}"
		}
		return "an object"
	}
	panic(fmt.Sprintf("internal error: config value of type %T", v))
}

// printable shortens a name from a file and makes it safe for a terminal.
func printable(name string) string {
	q := strconv.Quote(clip(name))
	if q == `"`+name+`"` && name != "" {
		return name
	}
	return q
}

func clip(s string) string {
	const limit = 120
	if len(s) <= limit {
		return s
	}
	cut := limit
	for !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + "..."
}

func corruptConfig(format string, args ...any) error {
	return problems{scope: configName, list: []problem{{tensor.ErrCorrupt, fmt.Sprintf(format, args...)}}}
}
