package template

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"maps"
	"math"
	"slices"
	"strconv"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// Object is a JSON object, or a Python dict, that keeps the order in which its keys were set.
type Object struct {
	keys   []any
	hashed []any // the keys in hashable form
	values []any
	index  map[any]int // by hashable form of the key
}

// NewObject returns an empty object.
func NewObject() *Object { return &Object{index: map[any]int{}} }

// Set sets the value of a key, of a type that [Template.Render] takes. A known key keeps its place.
func (o *Object) Set(key string, value any) { o.put(key, key, value) }

// Get returns the value of a key.
func (o *Object) Get(key string) (any, bool) { return o.get(key) }

// Len is the number of keys.
func (o *Object) Len() int { return len(o.keys) }

// All iterates over keys and values in order, without keys that are not texts, which JSON does not have.
func (o *Object) All() iter.Seq2[string, any] {
	return func(yield func(string, any) bool) {
		for i, k := range o.keys {
			if s, ok := k.(string); ok && !yield(s, o.values[i]) {
				return
			}
		}
	}
}

// MarshalJSON writes the object in its order; a number with a fraction keeps one, as 1.0.
func (o *Object) MarshalJSON() ([]byte, error) {
	return appendJSON(nil, o)
}

func appendJSON(b []byte, v any) ([]byte, error) {
	var err error
	switch v := v.(type) {
	case *Object:
		b = append(b, '{')
		first := true
		for k, w := range v.All() {
			if !first {
				b = append(b, ',')
			}
			first = false
			if b, err = appendJSON(b, k); err != nil {
				return nil, err
			}
			if b, err = appendJSON(append(b, ':'), w); err != nil {
				return nil, err
			}
		}
		return append(b, '}'), nil
	case []any:
		b = append(b, '[')
		for i, w := range v {
			if i > 0 {
				b = append(b, ',')
			}
			if b, err = appendJSON(b, w); err != nil {
				return nil, err
			}
		}
		return append(b, ']'), nil
	case float64:
		text := formatFloat(v)
		if !json.Valid([]byte(text)) {
			return nil, fmt.Errorf("JSON has no %s: %w", text, tensor.ErrUnsupported)
		}
		return append(b, text...), nil
	}
	text, err := json.Marshal(v)
	return append(b, text...), err
}

// put sets a key of any type by its hashable form.
func (o *Object) put(key, hashed, value any) {
	if i, ok := o.index[hashed]; ok {
		o.values[i] = value
		return
	}
	o.index[hashed] = len(o.keys)
	o.keys = append(o.keys, key)
	o.hashed = append(o.hashed, hashed)
	o.values = append(o.values, value)
}

func (o *Object) get(hashed any) (any, bool) {
	if i, ok := o.index[hashed]; ok {
		return o.values[i], true
	}
	return nil, false
}

func (o *Object) clone() *Object {
	return &Object{slices.Clone(o.keys), slices.Clone(o.hashed), slices.Clone(o.values), maps.Clone(o.index)}
}

// tupleKey is the hashable form of a tuple.
type tupleKey string

// hash returns a form of a value that is the same for equal values and fits a Go map; false if Python cannot hash it.
func (r *renderer) hash(v any) (any, bool) {
	switch v := v.(type) {
	case nil, int64, string, *namespace, *function, *macro, *loop, *generator:
		return v, true
	case bool:
		i, _ := integer(v)
		return i, true
	case float64:
		if i := int64(v); float64(i) == v && v >= -1<<62 && v <= 1<<62 {
			return i, true
		}
		return v, true
	case markup:
		return string(v), true
	case *undefined:
		return undefined{}, true
	case *sequence:
		return *v, true
	}
	t, ok := asTuple(v)
	if !ok {
		return nil, false
	}
	var b bytes.Buffer
	for _, e := range t {
		r.step(1)
		h, ok := r.hash(e)
		if !ok {
			return nil, false
		}
		r.size(b.Len())
		switch h.(type) {
		case *namespace, *function, *macro, *loop, *generator:
			fmt.Fprintf(&b, "%p,", h)
		default:
			fmt.Fprintf(&b, "%T:%#v,", h, h)
		}
	}
	return tupleKey(b.String()), true
}

// DecodeJSON reads one JSON value: objects as *[Object] with their keys in order, arrays as []any, numbers without
// fraction and exponent as int64 and others as float64. Invalid JSON is a tensor.ErrCorrupt, an integer that does not
// fit 64 bits a tensor.ErrUnsupported.
func DecodeJSON(data []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	v, err := decode(d, 0)
	if err != nil {
		return nil, err
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, fmt.Errorf("text after a JSON value: %w", tensor.ErrCorrupt)
	}
	return v, nil
}

func decode(d *json.Decoder, depth int) (any, error) {
	if depth > maxValueDepth {
		return nil, fmt.Errorf("JSON nested more than %d deep: %w", maxValueDepth, tensor.ErrUnsupported)
	}
	t, err := d.Token()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", err, tensor.ErrCorrupt)
	}
	switch t := t.(type) {
	case json.Number:
		return number(t)
	case json.Delim:
		if t == '{' {
			o := NewObject()
			for d.More() {
				key, err := d.Token()
				if err != nil {
					return nil, fmt.Errorf("%w: %w", err, tensor.ErrCorrupt)
				}
				v, err := decode(d, depth+1)
				if err != nil {
					return nil, err
				}
				o.Set(key.(string), v)
			}
			return o, end(d)
		}
		l := []any{}
		for d.More() {
			v, err := decode(d, depth+1)
			if err != nil {
				return nil, err
			}
			l = append(l, v)
		}
		return l, end(d)
	}
	return t, nil
}

// end takes the closing bracket of an array or object.
func end(d *json.Decoder) error {
	if _, err := d.Token(); err != nil {
		return fmt.Errorf("%w: %w", err, tensor.ErrCorrupt)
	}
	return nil
}

// number is a number of JSON: an int64 if it is written as an integer.
func number(n json.Number) (any, error) {
	s := string(n)
	for i := range len(s) {
		if c := s[i]; c == '.' || c == 'e' || c == 'E' {
			f, err := strconv.ParseFloat(s, 64)
			if err != nil && !math.IsInf(f, 0) {
				return nil, fmt.Errorf("number %q: %w", s, tensor.ErrCorrupt)
			}
			return f, nil
		}
	}
	i, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return nil, fmt.Errorf("number %q does not fit 64 bits: %w", s, tensor.ErrUnsupported)
	}
	return i, nil
}
