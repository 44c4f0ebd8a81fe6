package recipes

import (
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
)

// decodeInto decodes a value into v, a pointer. It converts types as encoding/json does but is stricter about keys, null and
// numbers; it exists because encoding/json does not report the position of an Unmarshaler's error.
func decodeInto(n *node, v any, path string) error {
	p := reflect.ValueOf(v)
	if p.Kind() != reflect.Pointer || p.IsNil() {
		panic(fmt.Sprintf("internal error: decoding %s into %T, which is not a pointer", path, v))
	}
	return n.decode(p.Elem(), path)
}

func (n *node) decode(v reflect.Value, path string) error {
	if v.Kind() == reflect.Pointer {
		if n.kind == null {
			v.SetZero()
			return nil
		}
		if v.IsNil() {
			v.Set(reflect.New(v.Type().Elem()))
		}
		return n.decode(v.Elem(), path)
	}
	switch u := v.Addr().Interface().(type) {
	case json.Unmarshaler:
		return n.wrap(u.UnmarshalJSON(n.json()), path)
	case encoding.TextUnmarshaler:
		if n.kind != text {
			return n.mismatch(path, "a string")
		}
		return n.wrap(u.UnmarshalText([]byte(n.scalar)), path)
	}
	switch v.Kind() {
	case reflect.Struct:
		return n.decodeStruct(v, path)
	case reflect.Map:
		if v.Type().Key().Kind() == reflect.String {
			return n.decodeMap(v, path)
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() != reflect.Uint8 { // bytes are a base64 string
			return n.decodeSlice(v, path)
		}
	case reflect.String:
		if n.kind != text {
			return n.mismatch(path, words(v.Type()))
		}
		v.SetString(n.scalar)
		return nil
	case reflect.Bool:
		if n.kind != boolean {
			return n.mismatch(path, words(v.Type()))
		}
		v.SetBool(n.scalar == "true")
		return nil
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		i, err := strconv.ParseInt(n.scalar, 10, v.Type().Bits())
		if n.kind != number || err != nil {
			return n.mismatch(path, words(v.Type()))
		}
		v.SetInt(i)
		return nil
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		i, err := strconv.ParseUint(n.scalar, 10, v.Type().Bits())
		if n.kind != number || err != nil {
			return n.mismatch(path, words(v.Type()))
		}
		v.SetUint(i)
		return nil
	case reflect.Float32, reflect.Float64:
		f, err := strconv.ParseFloat(n.scalar, v.Type().Bits())
		if n.kind != number || err != nil {
			return n.mismatch(path, words(v.Type()))
		}
		v.SetFloat(f)
		return nil
	}
	return n.wrap(json.Unmarshal(n.json(), v.Addr().Interface()), path)
}

func (n *node) decodeStruct(v reflect.Value, path string) error {
	if n.kind == null {
		return nil // a key whose content is commented out leaves the defaults
	}
	if n.kind != mapping {
		return n.mismatch(path, "a mapping")
	}
	fields := fieldsOf(v.Type())
	var m mistakes
	for _, e := range n.entries {
		f, ok := fields.find(e.key)
		if !ok {
			m.add(e.unknown(path, fields.names()))
			continue
		}
		m.add(e.value.decode(v.FieldByIndex(f.index), joinKey(path, e.key)))
	}
	return m.err()
}

func (n *node) decodeMap(v reflect.Value, path string) error {
	if n.kind == null {
		v.SetZero()
		return nil
	}
	if n.kind != mapping {
		return n.mismatch(path, "a mapping")
	}
	if v.IsNil() {
		v.Set(reflect.MakeMapWithSize(v.Type(), len(n.entries)))
	}
	var m mistakes
	for _, e := range n.entries {
		key := reflect.ValueOf(e.key).Convert(v.Type().Key())
		value := reflect.New(v.Type().Elem()).Elem()
		if old := v.MapIndex(key); old.IsValid() {
			value.Set(old)
		}
		err := e.value.decode(value, joinKey(path, e.key))
		if m.add(err); err == nil {
			v.SetMapIndex(key, value)
		}
	}
	return m.err()
}

func (n *node) decodeSlice(v reflect.Value, path string) error {
	if n.kind == null {
		v.SetZero()
		return nil
	}
	if n.kind != sequence {
		return n.mismatch(path, "a list")
	}
	list := reflect.MakeSlice(v.Type(), len(n.items), len(n.items))
	var m mistakes
	for i, item := range n.items {
		m.add(item.decode(list.Index(i), joinIndex(path, i)))
	}
	if err := m.err(); err != nil {
		return err
	}
	v.Set(list)
	return nil
}

func (n *node) mismatch(path, want string) error {
	hint := ""
	if want == "a string" && (n.kind == number || n.kind == boolean) {
		hint = fmt.Sprintf("; put it in quotes: %q", n.scalar)
	}
	return n.errorf(path, "must be %s, not %s%s", want, n, hint)
}

// wrap converts the error of an Unmarshaler to an *Error. Errors of encoding/json that name a key within the value are
// positioned at that key.
func (n *node) wrap(err error, path string) error {
	if err == nil {
		return nil
	}
	if key, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok {
		if key, err := strconv.Unquote(key); err == nil {
			if e, at, ok := n.search(key, path); ok {
				return e.at.errorf(joinKey(at, key), "unknown key")
			}
		}
	}
	if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		steps, _ := parsePath(e.Field)
		at, found := n.follow(steps)
		inside := e.Field
		if path != "" && inside != "" {
			inside = "." + inside
		}
		if found < len(steps) || !strings.HasPrefix(e.Value, at.kind.json()) {
			// The value is in a list, and e does not say at which index.
			return at.errorf(path+inside, "must hold %s, not a %s", words(e.Type), e.Value)
		}
		return at.mismatch(path+inside, words(e.Type))
	}
	return n.errorf(path, "%s", strings.TrimPrefix(err.Error(), "json: "))
}

// words describes the values of a Go type.
func words(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Pointer:
		return words(t.Elem())
	case reflect.Struct, reflect.Map:
		return "a mapping"
	case reflect.Slice, reflect.Array:
		return "a list"
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Float32, reflect.Float64:
		return "a number"
	case reflect.Int8, reflect.Int16, reflect.Int32:
		return fmt.Sprintf("a whole number from %d to %d", -1<<(t.Bits()-1), 1<<(t.Bits()-1)-1)
	case reflect.Uint8, reflect.Uint16, reflect.Uint32:
		return fmt.Sprintf("a whole number from 0 to %d", 1<<t.Bits()-1)
	case reflect.Uint, reflect.Uint64:
		return "a whole number, 0 or more"
	}
	return "a whole number"
}

// search finds the first entry with a key at any depth, and the path of the mapping it is in.
func (n *node) search(key, path string) (entry, string, bool) {
	for _, e := range n.entries {
		if e.key == key {
			return e, path, true
		}
		if f, at, ok := e.value.search(key, joinKey(path, e.key)); ok {
			return f, at, true
		}
	}
	for i, item := range n.items {
		if f, at, ok := item.search(key, joinIndex(path, i)); ok {
			return f, at, true
		}
	}
	return entry{}, "", false
}

// A field is one key of a struct.
type field struct {
	name  string
	index []int
}

type fields []field

// fieldsOf lists the keys of a struct in the order declared, those of embedded structs in their place.
func fieldsOf(t reflect.Type) fields {
	var all fields
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Tag.Get("json") == "-":
		case f.Anonymous && name == "" && f.Type.Kind() == reflect.Struct:
			for _, inner := range fieldsOf(f.Type) {
				all = append(all, field{inner.name, append([]int{i}, inner.index...)})
			}
		case !f.IsExported():
		case name == "":
			all = append(all, field{f.Name, f.Index})
		default:
			all = append(all, field{name, f.Index})
		}
	}
	return all
}

func (fs fields) find(name string) (field, bool) {
	for _, f := range fs {
		if f.name == name {
			return f, true
		}
	}
	return field{}, false
}

func (fs fields) names() []string {
	names := make([]string, len(fs))
	for i, f := range fs {
		names[i] = f.name
	}
	return names
}
