package corpus

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// maxLine bounds one line of a jsonl file in bytes.
const maxLine = 64 << 20

// readLines reads one JSON object a line. Lines of white space are passed over.
func readLines(ctx context.Context, f *file, visit func(passage) error) error {
	in := bufio.NewReaderSize(newUTF8(f), 1<<20)
	var line []byte
	for at := 1; ; at++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		line = line[:0]
		var err error
		for {
			var part []byte
			part, err = in.ReadSlice('\n')
			line = append(line, part...)
			if !errors.Is(err, bufio.ErrBufferFull) {
				break
			}
			if len(line) > maxLine {
				return corrupt("line %d has more than %d bytes", at, maxLine)
			}
		}
		if err != nil && err != io.EOF {
			return err
		}
		if len(bytes.TrimSpace(line)) > 0 {
			if err := visitRow(f, line, visit); err != nil {
				return fmt.Errorf("line %d: %w", at, err)
			}
		}
		if err == io.EOF {
			return nil
		}
	}
}

// readJSON reads an array of JSON objects.
func readJSON(ctx context.Context, f *file, visit func(passage) error) error {
	d := json.NewDecoder(newUTF8(f))
	broken := func(err error) error {
		if errors.Is(err, tensor.ErrCorrupt) {
			return err
		}
		return corrupt("not valid JSON at byte %d (%v)", d.InputOffset(), err)
	}
	t, err := d.Token()
	if err != nil {
		return broken(err)
	}
	if t != json.Delim('[') {
		return corrupt("not an array of objects; a file with one object a line has the format jsonl")
	}
	for at := 1; d.More(); at++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		var row json.RawMessage
		if err := d.Decode(&row); err != nil {
			return broken(err)
		}
		if err := visitRow(f, row, visit); err != nil {
			return fmt.Errorf("element %d: %w", at, err)
		}
	}
	if _, err := d.Token(); err != nil {
		return broken(err)
	}
	if _, err := d.Token(); err != io.EOF {
		return corrupt("text after the array")
	}
	return nil
}

// visitRow reads one object and visits the value of its column.
func visitRow(f *file, row []byte, visit func(passage) error) error {
	m, err := object(row)
	if err != nil {
		return err
	}
	has := func(name string) bool { _, ok := m[name]; return ok }
	column := first(f.columns(), has)
	if column == "" {
		return fmt.Errorf("no key %s; there are %s", strings.Join(f.columns(), " or "), listed(slices.Sorted(maps.Keys(m))))
	}
	p := passage{start: true}
	if f.Chat {
		if p.messages, err = chat(column, m[column]); err != nil {
			return err
		}
		return visit(p)
	}
	if p.text, err = text(column, m[column]); err != nil || strings.TrimSpace(p.text) == "" {
		return err
	}
	return visit(p)
}

func object(raw []byte) (map[string]json.RawMessage, error) {
	var m map[string]json.RawMessage
	err := json.Unmarshal(raw, &m)
	if _, ok := errors.AsType[*json.UnmarshalTypeError](err); ok || err == nil && m == nil {
		return nil, corrupt("%s, not an object", kind(raw))
	}
	if err != nil {
		return nil, corrupt("not valid JSON (%v)", err)
	}
	return m, nil
}

func text(key string, raw json.RawMessage) (string, error) {
	if k := kind(raw); k != "a string" {
		return "", fmt.Errorf("%s is %s, not a string", key, k)
	}
	var s string
	if err := json.Unmarshal(raw, &s); err != nil {
		return "", corrupt("%s: %v", key, err)
	}
	return s, nil
}

func chat(column string, raw json.RawMessage) ([]Message, error) {
	if k := kind(raw); k != "an array" {
		return nil, fmt.Errorf("%s is %s, not an array of messages", column, k)
	}
	var list []json.RawMessage
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, corrupt("%s: %v", column, err)
	}
	messages := make([]Message, len(list))
	for i, e := range list {
		m, err := object(e)
		if err == nil {
			messages[i], err = message(m)
		}
		if err != nil {
			return nil, fmt.Errorf("%s, message %d: %w", column, i+1, err)
		}
	}
	return messages, checkChat(column, messages)
}

func message(m map[string]json.RawMessage) (Message, error) {
	for i, k := range keys {
		role, hasRole := m[k.role]
		content, hasContent := m[k.content]
		if !hasRole || !hasContent {
			continue
		}
		r, err := text(k.role, role)
		if err != nil {
			return Message{}, err
		}
		c, err := text(k.content, content)
		if err != nil {
			return Message{}, err
		}
		return newMessage(i, r, c)
	}
	return Message{}, fmt.Errorf("no role and content, and no from and value; there are %s", listed(slices.Sorted(maps.Keys(m))))
}

// kind names the type of a JSON value by its first byte.
func kind(raw []byte) string {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 {
		return ""
	}
	switch raw[0] {
	case '{':
		return "an object"
	case '[':
		return "an array"
	case '"':
		return "a string"
	case 't', 'f':
		return "a boolean"
	case 'n':
		return "null"
	}
	return "a number"
}

// maxListed bounds how many names an error lists.
const maxListed = 20

func listed(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	if n := len(names) - maxListed; n > 0 {
		return fmt.Sprintf("%q and %d more", names[:maxListed], n)
	}
	return fmt.Sprintf("%q", names)
}
