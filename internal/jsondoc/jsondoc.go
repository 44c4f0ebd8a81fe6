// Package jsondoc reads JSON documents that others wrote: the files of a package, the answers of hubs and registries, state
// on a disk. encoding/json takes a value nested 10,000 deep, and fills some hundred bytes for every three that it reads; here
// both have a bound. How many bytes a document has is bounded by who reads them.
package jsondoc

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// Bounds on a document.
const (
	// MaxDepth is how deep arrays and objects may lie in each other. A manifest with its recipe has 9 levels.
	MaxDepth = 32
	// MaxValues is how many values a document may hold. The manifest of 60,000 tensors has half a million.
	MaxValues = 1 << 21
)

// Decode reads one JSON value into v, as json.Unmarshal does, within the bounds.
func Decode(b []byte, v any) error {
	if err := Check(b); err != nil {
		return err
	}
	return json.Unmarshal(b, v)
}

// DecodeStrict is [Decode] that also refuses members of objects that v has no place for.
func DecodeStrict(b []byte, v any) error {
	if err := Check(b); err != nil {
		return err
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return err
	}
	return End(d)
}

// End demands that nothing follows the value that d has read. Decoder.More does not: it takes a stray bracket for the end.
func End(d *json.Decoder) error {
	if _, err := d.Token(); err != io.EOF {
		return errors.New("more follows behind the end")
	}
	return nil
}

// Check holds a document to the bounds. Of the syntax it knows brackets, commas and strings.
func Check(b []byte) error {
	depth, values := 0, 1
	for i := 0; i < len(b); i++ {
		switch b[i] {
		case '"':
			for i++; i < len(b) && b[i] != '"'; i++ {
				if b[i] == '\\' {
					i++
				}
			}
			continue
		case '[', '{':
			if depth++; depth > MaxDepth {
				return fmt.Errorf("byte %d: nested deeper than %d levels", i, MaxDepth)
			}
			values++
		case ']', '}':
			depth--
			continue
		case ',':
			values++
		default:
			continue
		}
		if values > MaxValues {
			return fmt.Errorf("byte %d: more than %d values", i, MaxValues)
		}
	}
	return nil
}
