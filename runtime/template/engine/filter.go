package engine

import "strings"

// filter applies a filter. An unknown filter returns its input and evaluates no arguments; so do filters of texts for
// other values.
func (r *renderer) filter(x *filter) *value {
	v := r.eval(x.x)
	switch x.name {
	case "tojson":
		return r.tojson(x, v)
	case "string":
		var out strings.Builder
		r.python(&out, v, false)
		return newText(out.String())
	case "length":
		return newInt(int64(v.size() + len(v.text)))
	case "items":
		return r.items(v)
	case "map":
		return r.mapAttribute(x, v)
	}
	if v.kind != text {
		return v
	}
	r.step(1 + len(v.text)/64)
	switch x.name {
	case "trim":
		return newText(strings.Trim(v.text, blanks))
	case "lower":
		return newText(lower(v.text))
	case "upper":
		return newText(upper(v.text))
	case "capitalize":
		if v.text != "" {
			return newText(upper(v.text[:1]) + lower(v.text[1:]))
		}
	}
	return v
}

// tojson reads the keyword indent only.
func (r *renderer) tojson(x *filter, v *value) *value {
	indent := -1
	for _, a := range x.arguments {
		if a.name != "indent" {
			continue
		}
		if w := r.eval(a.x); w.isInteger() {
			indent = int(int32(w.integer()))
		}
	}
	var out strings.Builder
	r.json(&out, v, indent, 0)
	return newText(out.String())
}

// items returns the pairs of an object, in the order of its members.
func (r *renderer) items(v *value) *value {
	l := &value{kind: array}
	for _, m := range v.members {
		l.elements = append(l.elements, &value{kind: array, elements: []*value{newText(m.key), r.clone(m.value)}})
	}
	return l
}

// mapAttribute takes an attribute of every element, null if missing. The first positional argument, the name of a
// filter, is taken for that of an attribute.
func (r *renderer) mapAttribute(x *filter, v *value) *value {
	if v.kind != array {
		return v
	}
	name := ""
	for _, a := range x.arguments {
		if a.name != "attribute" && (a.name != "" || name != "") {
			continue
		}
		if w := r.eval(a.x); w.kind == text {
			name = w.text
		}
	}
	if name == "" {
		return v
	}
	l := &value{kind: array}
	for _, e := range v.elements {
		m := e.member(name)
		if m == nil {
			m = &value{}
		}
		r.push(l, m)
	}
	return l
}

// upper and lower know the letters of ASCII.
func upper(s string) string { return shift(s, 'a', 'z', 'A') }

func lower(s string) string { return shift(s, 'A', 'Z', 'a') }

func shift(s string, first, last, to byte) string {
	b := []byte(s)
	for i, c := range b {
		if c >= first && c <= last {
			b[i] = c - first + to
		}
	}
	return string(b)
}
