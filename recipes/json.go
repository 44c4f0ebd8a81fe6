package recipes

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"unicode"
)

// json is the name of the kind in an UnmarshalTypeError of encoding/json.
func (k kind) json() string {
	return [...]string{null: "null", boolean: "bool", number: "number", text: "string", sequence: "array", mapping: "object"}[k]
}

// json is the value as JSON, keys in the order written.
func (n *node) json() []byte { return n.appendJSON(nil) }

func (n *node) appendJSON(b []byte) []byte {
	switch n.kind {
	case null:
		return append(b, "null"...)
	case text:
		return append(b, quote(n.scalar)...)
	case sequence:
		b = append(b, '[')
		for i, item := range n.items {
			if i > 0 {
				b = append(b, ',')
			}
			b = item.appendJSON(b)
		}
		return append(b, ']')
	case mapping:
		b = append(b, '{')
		for i, e := range n.entries {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(append(b, quote(e.key)...), ':')
			b = e.value.appendJSON(b)
		}
		return append(b, '}')
	}
	return append(b, n.scalar...)
}

// quote writes a string so that it is the same in JSON and to YAML readers, some of which accept neither
// raw control characters nor surrogates.
func quote(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteString(`\` + string(r))
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case unicode.IsPrint(r) || r > 0xffff:
			b.WriteRune(r)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// nodeOf returns the tree of a Go value's JSON, keys in the order declared.
func nodeOf(v any) (*node, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	return readJSON(d)
}

func readJSON(d *json.Decoder) (*node, error) {
	token, err := d.Token()
	if err != nil {
		return nil, err
	}
	n := &node{}
	switch t := token.(type) {
	case nil:
	case bool:
		n.kind, n.scalar = boolean, fmt.Sprint(t)
	case json.Number:
		n.kind, n.scalar = number, t.String()
	case string:
		n.kind, n.scalar = text, t
	case json.Delim:
		n.kind = sequence
		if t == '{' {
			n.kind = mapping
		}
		for d.More() {
			var key string
			if n.kind == mapping {
				if token, err = d.Token(); err != nil {
					return nil, err
				}
				key, _ = token.(string)
			}
			v, err := readJSON(d)
			if err != nil {
				return nil, err
			}
			if n.kind == mapping {
				n.entries = append(n.entries, entry{key: key, value: v})
			} else {
				n.items = append(n.items, v)
			}
		}
		if _, err := d.Token(); err != nil { // the closing bracket
			return nil, err
		}
	}
	return n, nil
}
