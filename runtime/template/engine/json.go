package engine

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// errStop ends what is written where it is: the engine's writer does so at a number that JSON has not.
var errStop = errors.New("number that JSON has not")

// dump is a value as compact JSON, as it is printed.
func (r *renderer) dump(v *value) (string, error) {
	var out strings.Builder
	err := r.compact(&out, v)
	if errors.Is(err, errStop) {
		err = nil
	}
	return out.String(), err
}

func (r *renderer) compact(out *strings.Builder, v *value) error {
	switch v.kind {
	case null:
		return r.write(out, "null")
	case no, yes:
		return r.write(out, strconv.FormatBool(v.kind == yes))
	case number:
		s, ok := v.decimal()
		if !ok {
			return errStop
		}
		return r.write(out, s)
	case text:
		return r.quoted(out, v.text)
	case array:
		for i, e := range v.elements {
			if err := r.write(out, separator(i, "[", ",")); err != nil {
				return err
			}
			if err := r.compact(out, e); err != nil {
				return err
			}
		}
		return r.write(out, closing(len(v.elements), "[]"))
	}
	for i, m := range v.members {
		if err := r.write(out, separator(i, "{", ",")); err != nil {
			return err
		}
		if err := r.quoted(out, m.key); err != nil {
			return err
		}
		if err := r.write(out, ":"); err != nil {
			return err
		}
		if err := r.compact(out, m.value); err != nil {
			return err
		}
	}
	return r.write(out, closing(len(v.members), "{}"))
}

// separator is what stands before element i.
func separator(i int, open, comma string) string {
	if i == 0 {
		return open
	}
	return comma
}

// closing is the end of a list or object of n elements, or all of an empty one.
func closing(n int, brackets string) string {
	if n == 0 {
		return brackets
	}
	return brackets[1:]
}

// decimal is a number as text; false for infinities and NaN.
func (v *value) decimal() (string, bool) {
	switch v.form {
	case fraction:
		f := v.float()
		return formatFloat(f), !math.IsInf(f, 0) && !math.IsNaN(f)
	case unsigned:
		return strconv.FormatUint(v.bits, 10), true
	}
	return strconv.FormatInt(int64(v.bits), 10), true
}

func (r *renderer) quoted(out *strings.Builder, s string) error {
	return r.write(out, string(appendText(nil, s)))
}

// appendText writes a JSON string. All bytes but quotes, backslashes and control characters stay as they are.
func appendText(b []byte, s string) []byte {
	b = append(b, '"')
	for i := range len(s) {
		c := s[i]
		switch at := strings.IndexByte("\"\\\b\f\n\r\t", c); {
		case at >= 0:
			b = append(b, '\\', `"\bfnrt`[at])
		case c < 0x20:
			b = fmt.Appendf(b, `\u%04X`, c)
		default:
			b = append(b, c)
		}
	}
	return append(b, '"')
}

// firstKeys stand first in the objects that tojson and string write; the others follow in the order of their bytes.
var firstKeys = []string{"type", "function", "name", "description", "parameters", "properties", "required", "enum"}

func compareKeys(a, b string) int {
	rank := func(key string) int {
		if i := slices.Index(firstKeys, key); i >= 0 {
			return i
		}
		return len(firstKeys)
	}
	return cmp.Or(rank(a)-rank(b), strings.Compare(a, b))
}

func sortedKeys(v *value, compare func(a, b string) int) []string {
	keys := make([]string, len(v.members))
	for i, m := range v.members {
		keys[i] = m.key
	}
	slices.SortFunc(keys, compare)
	return keys
}

// json writes what tojson gives: spaces behind commas and colons, or lines if indent is not negative. Keys are not
// escaped.
func (r *renderer) json(out *strings.Builder, v *value, indent, level int) error {
	if v.size() == 0 {
		json, err := r.dump(v)
		if err != nil {
			return err
		}
		return r.write(out, json)
	}
	inner, outer := "", ""
	comma := ", "
	if indent >= 0 {
		if err := r.size((level + 1) * indent); err != nil {
			return err
		}
		inner = "\n" + strings.Repeat(" ", (level+1)*indent)
		outer = "\n" + strings.Repeat(" ", level*indent)
		comma = "," + inner
	}
	key := func(key string) string { return `"` + key + `": ` }
	return r.sequence(out, v, v.brackets(inner, comma, outer), key, func(e *value) error {
		return r.json(out, e, indent, level+1)
	})
}

// frame is what stands before the first element, between elements and behind the last.
type frame struct{ open, comma, end string }

func (v *value) brackets(inner, comma, outer string) frame {
	if v.kind == array {
		return frame{"[" + inner, comma, outer + "]"}
	}
	return frame{"{" + inner, comma, outer + "}"}
}

// sequence writes a list or an object, the keys of which are sorted. Of a key that is there twice it writes the first
// value twice.
func (r *renderer) sequence(out *strings.Builder, v *value, f frame, key func(string) string, element func(*value) error) error {
	elements := v.elements
	var keys []string
	if v.kind == object {
		keys = sortedKeys(v, compareKeys)
		elements = make([]*value, len(keys))
		for i, k := range keys {
			elements[i] = v.member(k)
		}
	}
	for i, e := range elements {
		if err := r.write(out, separator(i, f.open, f.comma)); err != nil {
			return err
		}
		if keys != nil {
			if err := r.write(out, key(keys[i])); err != nil {
				return err
			}
		}
		if err := element(e); err != nil {
			return err
		}
	}
	if len(elements) == 0 {
		if err := r.write(out, f.open); err != nil {
			return err
		}
	}
	return r.write(out, f.end)
}

// python writes what the filter string and the operator ~ give: True, None, and texts within lists and objects in
// single quotes.
func (r *renderer) python(out *strings.Builder, v *value, quoted bool) error {
	switch v.kind {
	case null:
		return r.write(out, "None")
	case no:
		return r.write(out, "False")
	case yes:
		return r.write(out, "True")
	case number:
		s, err := r.dump(v)
		if err != nil {
			return err
		}
		return r.write(out, s)
	case text:
		if quoted {
			return r.write(out, "'"+valueEscapes.Replace(v.text)+"'")
		}
		return r.write(out, v.text)
	}
	key := func(key string) string { return "'" + keyEscapes.Replace(key) + "': " }
	return r.sequence(out, v, v.brackets("", ", ", ""), key, func(e *value) error {
		return r.python(out, e, true)
	})
}

var (
	keyEscapes   = strings.NewReplacer(`'`, `\'`, `\`, `\\`)
	valueEscapes = strings.NewReplacer(`'`, `\'`, `\`, `\\`, "\n", `\n`, "\r", `\r`)
)
