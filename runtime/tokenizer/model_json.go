package tokenizer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// readBulk reads the settings of a model strictly into v, and the members that are large into their own readers.
func readBulk(name string, raw []byte, v any, large map[string]json.Unmarshaler) error {
	bulk := make(map[string][]byte, len(large))
	for member := range large {
		bulk[member] = nil
	}
	if err := setup("model", name, cutMembers(raw, bulk), v); err != nil {
		return err
	}
	for member, to := range large {
		if b := bulk[member]; b != nil {
			if err := to.UnmarshalJSON(b); err != nil {
				return fmt.Errorf("model %q: %s: %v: %w", name, member, err, tensor.ErrCorrupt)
			}
		}
	}
	return nil
}

// cutMembers moves members with the names of bulk out of a valid object, and returns the rest; of two with one name the
// last counts.
func cutMembers(raw []byte, bulk map[string][]byte) []byte {
	if raw[0] != '{' {
		return raw
	}
	isBulk := func(name string) bool { _, ok := bulk[name]; return ok }
	left := []byte{'{'}
	for rest := trimSpace(raw[1:]); rest[0] != '}'; {
		key, after := value(rest)
		v, next := value(trimSpace(after[1:])) // after the colon
		if name := string(key[1 : len(key)-1]); isBulk(name) {
			bulk[name] = v
		} else {
			if len(left) > 1 {
				left = append(left, ',')
			}
			left = append(append(append(left, key...), ':'), v...)
		}
		if rest = next; rest[0] == ',' {
			rest = trimSpace(rest[1:])
		}
	}
	return append(left, '}')
}

// vocabFile are the ids of tokens. It and mergeList read the bulk of a file themselves: the values of encoding/json for
// hundreds of thousands of entries are several times as large.
type vocabFile map[string]uint32

// UnmarshalJSON implements json.Unmarshaler.
func (v *vocabFile) UnmarshalJSON(b []byte) error {
	if b[0] != '{' {
		*v = nil
		return json.Unmarshal(b, (*map[string]uint32)(v))
	}
	m := make(map[string]uint32, bytes.Count(b, []byte{':'})) // some tokens have colons
	rest := trimSpace(b[1:])
	for rest[0] != '}' {
		key, id := value(rest)
		id = trimSpace(id[1:]) // after the colon
		id, rest = value(id)
		token, err := unquote(key)
		if err != nil {
			return err
		}
		n, err := strconv.ParseUint(string(id), 10, 32)
		if err != nil {
			return fmt.Errorf("id %.40s of token %.40q", id, token)
		}
		m[token] = uint32(n)
		if rest[0] == ',' {
			rest = trimSpace(rest[1:])
		}
	}
	*v = m
	return nil
}

// mergeList are merges as they are written; nil if there are none.
type mergeList []mergeFile

// mergeFile is a merge as it is written.
type mergeFile struct {
	left, right string
	parts       int
	line        bool // "a b", not ["a", "b"]
}

// UnmarshalJSON implements json.Unmarshaler.
func (l *mergeList) UnmarshalJSON(b []byte) error {
	if b[0] != '[' {
		*l = nil
		return json.Unmarshal(b, new([]string)) // null, or an error
	}
	list := make(mergeList, 0, bytes.Count(b, []byte{'"'})/4+1)
	for rest := trimSpace(b[1:]); rest[0] != ']'; {
		var v []byte
		v, rest = value(rest)
		m, err := readMerge(v)
		if err != nil {
			return err
		}
		list = append(list, m)
		if rest[0] == ',' {
			rest = trimSpace(rest[1:])
		}
	}
	*l = list
	return nil
}

func readMerge(b []byte) (m mergeFile, err error) {
	var parts []string
	switch b[0] {
	case '"':
		var s string
		if s, err = unquote(b); err != nil {
			return m, err
		}
		m.line, parts = true, strings.Split(s, " ")
	case '[':
		if m, ok := plainPair(b); ok {
			return m, nil
		}
		fallthrough
	default:
		if err := json.Unmarshal(b, &parts); err != nil {
			return m, err
		}
	}
	if m.parts = len(parts); m.parts > 0 {
		m.left = parts[0]
	}
	if m.parts > 1 {
		m.right = parts[1]
	}
	return m, nil
}

// plainPair reads ["a", "b"] without escapes.
func plainPair(b []byte) (m mergeFile, ok bool) {
	rest := trimSpace(b[1:])
	for _, to := range []*string{&m.left, &m.right} {
		if rest[0] != '"' {
			return m, false
		}
		var s []byte
		if s, rest = value(rest); bytes.IndexByte(s, '\\') >= 0 {
			return m, false
		}
		*to = string(s[1 : len(s)-1])
		if rest[0] == ',' {
			rest = trimSpace(rest[1:])
		}
	}
	m.parts = 2
	return m, rest[0] == ']'
}

// value cuts the first value off valid JSON that does not end with it.
func value(b []byte) (v, rest []byte) {
	depth, i := 0, 0
	for ; ; i++ {
		switch b[i] {
		case '"':
			for i++; b[i] != '"'; i++ {
				if b[i] == '\\' {
					i++
				}
			}
		case '[', '{':
			depth++
			continue
		case ']', '}':
			depth--
		default:
			if next := b[i+1]; depth == 0 && (next == ',' || next == ':' || next == ']' || next == '}' || next <= ' ') {
				return b[:i+1], trimSpace(b[i+1:])
			}
			continue
		}
		if depth == 0 {
			return b[:i+1], trimSpace(b[i+1:])
		}
	}
}

// unquote reads a string.
func unquote(b []byte) (s string, err error) {
	if bytes.IndexByte(b, '\\') < 0 {
		return string(b[1 : len(b)-1]), nil
	}
	return s, json.Unmarshal(b, &s)
}

func trimSpace(b []byte) []byte { return bytes.TrimLeft(b, " \t\r\n") }
