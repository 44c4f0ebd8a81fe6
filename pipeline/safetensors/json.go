package safetensors

import (
	"bytes"
	"encoding/json"
	"io"
	"slices"
	"strconv"
)

// decoder reads JSON token by token, because encoding/json keeps the last of two equal keys and says
// nothing.
type decoder struct{ *json.Decoder }

func newDecoder(text []byte) decoder {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	return decoder{d}
}

func (d decoder) next(what string) (json.Token, error) {
	t, err := d.Token()
	if err != nil {
		return nil, corrupt("%s: not valid JSON at byte %d (%v)", what, d.InputOffset(), err)
	}
	return t, nil
}

func (d decoder) delim(what string, want json.Delim) error {
	t, err := d.next(what)
	if err == nil && t != want {
		err = corrupt("%s: no %v at byte %d", what, want, d.InputOffset())
	}
	return err
}

// object reads one object; visit reads the value of each key. A key that comes twice is an error.
func (d decoder) object(what string, visit func(key string) error) error {
	if err := d.delim(what, '{'); err != nil {
		return err
	}
	var few []string // most objects have three keys
	var seen map[string]bool
	for d.More() {
		key, err := d.text(what)
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
		if err := visit(key); err != nil {
			return err
		}
	}
	return d.delim(what, '}')
}

// array reads one array; visit reads each element.
func (d decoder) array(what string, visit func() error) error {
	if err := d.delim(what, '['); err != nil {
		return err
	}
	for d.More() {
		if err := visit(); err != nil {
			return err
		}
	}
	return d.delim(what, ']')
}

func (d decoder) text(what string) (string, error) {
	t, err := d.next(what)
	if err != nil {
		return "", err
	}
	s, ok := t.(string)
	if !ok {
		return "", corrupt("%s: no string at byte %d", what, d.InputOffset())
	}
	return s, nil
}

// natural reads an integer from 0 to the largest int64, written in digits only.
func (d decoder) natural(what string) (int64, error) {
	t, err := d.next(what)
	if err != nil {
		return 0, err
	}
	n, ok := t.(json.Number)
	if !ok {
		return 0, corrupt("%s: no number at byte %d", what, d.InputOffset())
	}
	v, err := strconv.ParseUint(string(n), 10, 63)
	if err != nil {
		return 0, corrupt("%s: %.40s is not a size", what, n)
	}
	return int64(v), nil
}

// skip reads one value of any kind.
func (d decoder) skip(what string) error {
	var v json.RawMessage
	if err := d.Decode(&v); err != nil {
		return corrupt("%s: not valid JSON at byte %d (%v)", what, d.InputOffset(), err)
	}
	return nil
}

// end says that nothing but white space follows.
func (d decoder) end(what string) error {
	if _, err := d.Token(); err != io.EOF {
		return corrupt("%s: more than one JSON object", what)
	}
	return nil
}
