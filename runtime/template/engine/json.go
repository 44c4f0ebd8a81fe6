package engine

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// dump writes a value as compact JSON, as it is printed. At a number that JSON lacks the engine's writer stops.
func (r *renderer) dump(v *value) string {
	var out strings.Builder
	r.compact(&out, v)
	return out.String()
}

// compact reports whether it wrote the whole of v.
func (r *renderer) compact(out *strings.Builder, v *value) bool {
	switch v.kind {
	case null:
		r.write(out, "null")
	case no, yes:
		r.write(out, strconv.FormatBool(v.kind == yes))
	case number:
		s, ok := v.decimal()
		if !ok {
			return false
		}
		r.write(out, s)
	case text:
		r.quoted(out, v.text)
	case array:
		for i, e := range v.elements {
			r.write(out, separator(i, "[", ","))
			if !r.compact(out, e) {
				return false
			}
		}
		r.write(out, closing(len(v.elements), "[]"))
	case object:
		for i, m := range v.members {
			r.write(out, separator(i, "{", ","))
			r.quoted(out, m.key)
			r.write(out, ":")
			if !r.compact(out, m.value) {
				return false
			}
		}
		r.write(out, closing(len(v.members), "{}"))
	}
	return true
}

// separator is the text before element i.
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

func (r *renderer) quoted(out *strings.Builder, s string) {
	r.write(out, string(appendText(nil, s)))
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

// firstKeys come first in the objects that tojson and string write; others follow sorted by their bytes.
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

// json writes a value as tojson does: with spaces after commas and colons, or in lines if indent is not negative. Keys
// are not escaped.
func (r *renderer) json(out *strings.Builder, v *value, indent, level int) {
	if v.size() == 0 {
		r.write(out, r.dump(v))
		return
	}
	inner, outer := "", ""
	comma := ", "
	if indent >= 0 {
		r.size((level + 1) * indent)
		inner = "\n" + strings.Repeat(" ", (level+1)*indent)
		outer = "\n" + strings.Repeat(" ", level*indent)
		comma = "," + inner
	}
	key := func(key string) string { return `"` + key + `": ` }
	r.sequence(out, v, v.brackets(inner, comma, outer), key, func(e *value) { r.json(out, e, indent, level+1) })
}

// frame is the text before the first element, between elements and after the last.
type frame struct{ open, comma, end string }

func (v *value) brackets(inner, comma, outer string) frame {
	if v.kind == array {
		return frame{"[" + inner, comma, outer + "]"}
	}
	return frame{"{" + inner, comma, outer + "}"}
}

// sequence writes a list, or an object with sorted keys. For a repeated key it writes the first value each time.
func (r *renderer) sequence(out *strings.Builder, v *value, f frame, key func(string) string, element func(*value)) {
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
		r.write(out, separator(i, f.open, f.comma))
		if keys != nil {
			r.write(out, key(keys[i]))
		}
		element(e)
	}
	if len(elements) == 0 {
		r.write(out, f.open)
	}
	r.write(out, f.end)
}

// python writes a value as the filter string and the operator ~ do: True, None, and texts within lists and objects in
// single quotes.
func (r *renderer) python(out *strings.Builder, v *value, quoted bool) {
	switch v.kind {
	case null:
		r.write(out, "None")
	case no:
		r.write(out, "False")
	case yes:
		r.write(out, "True")
	case number:
		r.write(out, r.dump(v))
	case text:
		if quoted {
			r.write(out, "'"+valueEscapes.Replace(v.text)+"'")
		} else {
			r.write(out, v.text)
		}
	default:
		key := func(key string) string { return "'" + keyEscapes.Replace(key) + "': " }
		r.sequence(out, v, v.brackets("", ", ", ""), key, func(e *value) { r.python(out, e, true) })
	}
}

var (
	keyEscapes   = strings.NewReplacer(`'`, `\'`, `\`, `\\`)
	valueEscapes = strings.NewReplacer(`'`, `\'`, `\`, `\\`, "\n", `\n`, "\r", `\r`)
)
