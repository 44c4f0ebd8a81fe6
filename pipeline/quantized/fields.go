package quantized

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// fields is a JSON object of quantization_config that is read key by key. It remembers which keys were read, so that
// finish can reject the rest, and collects errors; after an error an accessor returns a zero value. Null counts as missing.
type fields struct {
	path string
	raw  map[string]json.RawMessage
	used map[string]bool
	errs *[]error
	kids []*fields
}

func newFields(path string, b []byte, errs *[]error) *fields {
	f := &fields{path: path, used: map[string]bool{}, errs: errs}
	if err := json.Unmarshal(b, &f.raw); err != nil || f.raw == nil {
		*errs = append(*errs, fmt.Errorf("%s: not an object: %w", path, tensor.ErrCorrupt))
	}
	return f
}

// keys are those of the object, sorted.
func (f *fields) keys() []string { return slices.Sorted(maps.Keys(f.raw)) }

// take decodes the value of a key; it returns false if the key is missing or the value invalid.
func (f *fields) take(key string, v any, kind string) bool {
	f.used[key] = true
	b, ok := f.raw[key]
	if !ok || string(b) == "null" {
		return false
	}
	if err := json.Unmarshal(b, v); err != nil {
		f.wrong(key, "%s is not %s", clip(b), kind)
		return false
	}
	return true
}

func (f *fields) text(key string) (v string, ok bool) {
	ok = f.take(key, &v, "a string")
	return v, ok
}

func (f *fields) number(key string) (v int, ok bool) {
	ok = f.take(key, &v, "an integer")
	return v, ok
}

func (f *fields) flag(key string) (v, ok bool) {
	ok = f.take(key, &v, "true or false")
	return v, ok
}

func (f *fields) list(key string) (v []string) {
	f.take(key, &v, "a list of strings")
	return v
}

// object returns the object of a key, nil if it is missing. Its keys have to be read too.
func (f *fields) object(key string) *fields {
	var raw json.RawMessage
	if !f.take(key, &raw, "an object") {
		return nil
	}
	kid := newFields(f.path+"."+key, raw, f.errs)
	f.kids = append(f.kids, kid)
	return kid
}

// inert accepts keys that do not affect the meaning of the stored numbers.
func (f *fields) inert(keys ...string) {
	for _, k := range keys {
		f.used[k] = true
	}
}

// absent rejects keys with a value other than null, false, "", [] or {}.
func (f *fields) absent(keys ...string) {
	for _, k := range keys {
		f.used[k] = true
		switch v := string(f.raw[k]); v {
		case "", "null", "false", `""`, "[]", "{}":
		default:
			f.refuse(k, "%s is not supported", clip(f.raw[k]))
		}
	}
}

// wrong records an invalid value.
func (f *fields) wrong(key, format string, args ...any) {
	f.add(tensor.ErrCorrupt, key, format, args...)
}

// refuse records an unsupported value.
func (f *fields) refuse(key, format string, args ...any) {
	f.add(tensor.ErrUnsupported, key, format, args...)
}

func (f *fields) add(kind error, key, format string, args ...any) {
	*f.errs = append(*f.errs, fmt.Errorf("%s.%.100s: %s: %w", f.path, key, fmt.Sprintf(format, args...), kind))
}

// finish rejects keys that were not read and returns all errors.
func (f *fields) finish() error {
	f.rest()
	return errors.Join(*f.errs...)
}

func (f *fields) rest() {
	for _, k := range f.keys() {
		if !f.used[k] {
			f.refuse(k, "unknown key")
		}
	}
	for _, kid := range f.kids {
		kid.rest()
	}
}

// clip shortens a value for a message.
func clip(b []byte) string {
	if len(b) > 80 {
		return fmt.Sprintf("%.77q...", b)
	}
	return string(b)
}
