package safetensors

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
)

// decoder reads the JSON that its methods expect, and nothing else. encoding/json keeps the last of two equal keys and
// says nothing, and takes a second for the headers of a model of a hundred thousand tensors.
type decoder struct {
	text []byte
	pos  int
}

func newDecoder(text []byte) *decoder { return &decoder{text: text} }

// peek skips white space and returns the next byte; 0 at the end.
func (d *decoder) peek() byte {
	for ; d.pos < len(d.text); d.pos++ {
		switch c := d.text[d.pos]; c {
		case ' ', '\t', '\r', '\n':
		default:
			return c
		}
	}
	return 0
}

func (d *decoder) invalid(what string) error {
	return corrupt("%s: not valid JSON at byte %d", what, d.pos)
}

// delim reads one of { } [ ] : and the comma.
func (d *decoder) delim(what string, want byte) error {
	switch d.peek() {
	case want:
		d.pos++
		return nil
	case 0:
		return d.invalid(what)
	}
	return corrupt("%s: no %c at byte %d", what, want, d.pos)
}

// list reads what stands between open and end; visit reads each element, behind the comma.
func (d *decoder) list(what string, open, end byte, visit func() error) error {
	if err := d.delim(what, open); err != nil {
		return err
	}
	for first := true; ; first = false {
		switch c := d.peek(); {
		case c == end:
			d.pos++
			return nil
		case !first && c != ',':
			return d.invalid(what)
		case !first:
			d.pos++
			if d.peek() == end {
				return d.invalid(what)
			}
		}
		if err := visit(); err != nil {
			return err
		}
	}
}

// object reads one object; visit reads the value of each key. A key that comes twice is an error.
func (d *decoder) object(what string, visit func(key string) error) error {
	var few []string // most objects have three keys
	var seen map[string]bool
	return d.list(what, '{', '}', func() error {
		if d.peek() != '"' {
			return d.invalid(what)
		}
		key, err := d.string(what)
		if err != nil {
			return err
		}
		if seen[key] || slices.Contains(few, key) {
			return corrupt("%s: %s comes twice", what, quote(key))
		}
		switch {
		case seen != nil:
			seen[key] = true
		case len(few) < 8:
			few = append(few, key)
		default:
			seen = map[string]bool{key: true}
		}
		if d.peek() != ':' {
			return d.invalid(what)
		}
		d.pos++
		return visit(key)
	})
}

// array reads one array; visit reads each element.
func (d *decoder) array(what string, visit func() error) error {
	return d.list(what, '[', ']', visit)
}

// string reads a string.
func (d *decoder) string(what string) (string, error) {
	switch d.peek() {
	case '"':
	case 0:
		return "", d.invalid(what)
	default:
		return "", corrupt("%s: no string at byte %d", what, d.pos)
	}
	escaped := false
	for at := d.pos + 1; at < len(d.text); at++ {
		switch c := d.text[at]; {
		case c == '\\':
			escaped = true
			at++
		case c < ' ':
			d.pos = at
			return "", d.invalid(what)
		case c == '"':
			raw := d.text[d.pos : at+1]
			if !escaped {
				d.pos = at + 1
				return string(raw[1 : len(raw)-1]), nil
			}
			var s string
			if json.Unmarshal(raw, &s) != nil {
				return "", d.invalid(what)
			}
			d.pos = at + 1
			return s, nil
		}
	}
	d.pos = len(d.text)
	return "", d.invalid(what)
}

// number reads a number as it is written.
func (d *decoder) number(what string) (string, error) {
	if c := d.peek(); c == 0 {
		return "", d.invalid(what)
	} else if c != '-' && (c < '0' || c > '9') {
		return "", corrupt("%s: no number at byte %d", what, d.pos)
	}
	n := bytes.IndexFunc(d.text[d.pos:], func(r rune) bool {
		return (r < '0' || r > '9') && r != '-' && r != '+' && r != '.' && r != 'e' && r != 'E'
	})
	if n < 0 {
		n = len(d.text) - d.pos
	}
	raw := d.text[d.pos : d.pos+n]
	if !json.Valid(raw) {
		return "", d.invalid(what)
	}
	d.pos += n
	return string(raw), nil
}

// natural reads an integer from 0 to the largest int64, written in digits only.
func (d *decoder) natural(what string) (int64, error) {
	n, err := d.number(what)
	if err != nil {
		return 0, err
	}
	v, err := strconv.ParseUint(n, 10, 63)
	if err != nil {
		return 0, corrupt("%s: %.40s is not a size", what, n)
	}
	return int64(v), nil
}

// skip reads one value of any kind.
func (d *decoder) skip(what string) error {
	var v json.RawMessage
	j := json.NewDecoder(bytes.NewReader(d.text[d.pos:]))
	err := j.Decode(&v)
	d.pos += int(j.InputOffset())
	if err != nil {
		return d.invalid(what)
	}
	return nil
}

// end says that nothing but white space follows.
func (d *decoder) end(what string) error {
	if d.peek() != 0 || d.pos < len(d.text) {
		return corrupt("%s: more than one JSON object", what)
	}
	return nil
}
