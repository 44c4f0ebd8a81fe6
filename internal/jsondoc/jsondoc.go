// Package jsondoc decodes untrusted JSON documents: files of a package, responses of hubs and registries, state on a
// disk. encoding/json allows values nested 10,000 deep, and allocates some hundred bytes for every three that it reads;
// this package bounds both. The caller bounds the size of the document.
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
	// MaxDepth bounds the nesting of arrays and objects. A manifest with its recipe has 9 levels.
	MaxDepth = 32
	// MaxValues bounds the number of values in a document. The manifest of 60,000 tensors has half a million.
	MaxValues = 1 << 21
)

// Decode reads one JSON value into v, as json.Unmarshal does, within the bounds.
func Decode(b []byte, v any) error {
	if err := Check(b); err != nil {
		return err
	}
	return json.Unmarshal(b, v)
}

// DecodeStrict is [Decode], and rejects object members that v has no field for.
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

// End returns an error if anything follows the value that d has decoded. Decoder.More does not detect a stray bracket.
func End(d *json.Decoder) error {
	if _, err := d.Token(); err != io.EOF {
		return errors.New("data after the end")
	}
	return nil
}

// Check checks a document against the bounds. It looks only at brackets, commas and strings.
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
