package safetensors

import (
	"encoding/json"
	"strconv"
	"strings"
)

// decoder reads JSON, which is valid UTF-8, value by value. Headers of mixtures of experts have tens of megabytes, of which
// encoding/json makes a token, and some garbage, for every number; and it keeps the last of two equal keys and says nothing.
type decoder struct {
	text string
	at   int
}

// space skips white space and gives the byte after it, or 0 at the end.
func (d *decoder) space() byte {
	for ; d.at < len(d.text); d.at++ {
		switch c := d.text[d.at]; c {
		case ' ', '\t', '\n', '\r':
		default:
			return c
		}
	}
	return 0
}

// invalid is the error of a text that is not JSON.
func (d *decoder) invalid(what, found string) error {
	return corrupt("%s: not valid JSON at byte %d (%s)", what, d.at, found)
}

// no is the error of a value of another kind than the one that is wanted, or of a text that is not JSON there.
func (d *decoder) no(what, want string) error {
	at := d.at
	if err := d.skip(what); err != nil {
		return err
	}
	return corrupt("%s: no %s at byte %d", what, want, at)
}

// object reads one object of few keys; visit reads the value of each key. A key that comes twice is an error.
func (d *decoder) object(what string, visit func(key string) error) error {
	var few [8]string // most objects have three keys
	n := 0
	var seen map[string]bool
	return d.members(what, func(key string) error {
		for _, k := range few[:n] {
			if k == key {
				return twice(what, key)
			}
		}
		switch {
		case seen[key]:
			return twice(what, key)
		case seen != nil:
			seen[key] = true
		case n < len(few):
			few[n] = key
			n++
		default:
			seen = map[string]bool{key: true}
		}
		return visit(key)
	})
}

func twice(what, key string) error { return corrupt("%s: %s comes twice", what, quote(key)) }

// members is object for visitors that reject repeated keys themselves. A key is a part of the whole text
// unless it has escapes.
func (d *decoder) members(what string, visit func(key string) error) error {
	return d.list(what, '{', '}', func() error {
		key, err := d.string(what)
		if err != nil {
			return err
		}
		if d.space() != ':' {
			return d.invalid(what, "no colon after a key")
		}
		d.at++
		return visit(key)
	})
}

// array reads one array; visit reads each element.
func (d *decoder) array(what string, visit func() error) error {
	return d.list(what, '[', ']', visit)
}

// list reads what stands between two brackets, with commas between.
func (d *decoder) list(what string, open, end byte, visit func() error) error {
	if d.space() != open {
		return d.no(what, string(rune(open)))
	}
	d.at++
	if d.space() == end {
		d.at++
		return nil
	}
	for {
		if err := visit(); err != nil {
			return err
		}
		switch c := d.space(); c {
		case ',':
			d.at++
		case end:
			d.at++
			return nil
		default:
			return d.invalid(what, "neither a comma nor "+string(rune(end)))
		}
	}
}

// string reads a string. Without escapes it is a part of the text, which lives as long as it does.
func (d *decoder) string(what string) (string, error) {
	if d.space() != '"' {
		return "", d.no(what, "string")
	}
	start := d.at + 1
	for i := start; i < len(d.text); i++ {
		switch c := d.text[i]; {
		case c == '"':
			d.at = i + 1
			return d.text[start:i], nil
		case c == '\\' || c < ' ':
			return d.escaped(what)
		}
	}
	return "", d.invalid(what, "a string without an end")
}

// escaped is string for those with escapes.
func (d *decoder) escaped(what string) (string, error) {
	start := d.at
	if err := d.skip(what); err != nil {
		return "", err
	}
	var s string
	if err := json.Unmarshal([]byte(d.text[start:d.at]), &s); err != nil {
		return "", d.invalid(what, err.Error())
	}
	return s, nil
}

// number reads a number as it is written.
func (d *decoder) number(what string) (string, error) {
	if c := d.space(); c != '-' && (c < '0' || c > '9') {
		return "", d.no(what, "number")
	}
	start := d.at
	if err := d.skip(what); err != nil {
		return "", err
	}
	return d.text[start:d.at], nil
}

// natural reads an integer from 0 to the largest int64, written in digits only.
func (d *decoder) natural(what string) (int64, error) {
	d.space()
	n, i := int64(0), d.at
	for ; i < len(d.text) && i-d.at < 18 && d.text[i]-'0' <= 9; i++ { // 18 digits do not overflow
		n = 10*n + int64(d.text[i]-'0')
	}
	if digits := i - d.at; digits > 0 && i < len(d.text) && (digits == 1 || d.text[d.at] != '0') {
		switch d.text[i] {
		case ',', ']', '}', ' ':
			d.at = i
			return n, nil
		}
	}
	s, err := d.number(what)
	if err != nil {
		return 0, err
	}
	v, err := strconv.ParseUint(s, 10, 63)
	if err != nil {
		return 0, corrupt("%s: %.40s is not a size", what, s)
	}
	return int64(v), nil
}

// skip reads one value of any kind.
func (d *decoder) skip(what string) error {
	d.space()
	depth, i := 0, d.at
scan:
	for i < len(d.text) {
		switch c := d.text[i]; c {
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth < 0 {
				break scan
			}
			if depth == 0 {
				i++
				break scan
			}
		case ',', ':', ' ', '\t', '\n', '\r':
			if depth == 0 {
				break scan
			}
		case '"':
			for i++; i < len(d.text) && d.text[i] != '"'; i++ {
				if d.text[i] == '\\' {
					i++
				}
			}
			if depth == 0 {
				i++
				break scan
			}
		}
		i++
	}
	end := min(i, len(d.text))
	if value := d.text[d.at:end]; !json.Valid([]byte(value)) {
		return d.invalid(what, "no value")
	}
	d.at = end
	return nil
}

// end reports whether nothing but white space follows.
func (d *decoder) end(what string) error {
	if d.space(); d.at < len(d.text) {
		return corrupt("%s: more than one JSON object", what)
	}
	return nil
}

// kept reads a string that is kept: a copy of its own, so that the text as a whole is not.
func (d *decoder) kept(what string) (string, error) {
	s, err := d.string(what)
	return strings.Clone(s), err
}
