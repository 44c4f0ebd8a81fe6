package engine

import "strings"

// filter applies a filter. One that the engine does not know gives its input, without a look at the arguments, and so
// do those of texts for other values.
func (r *renderer) filter(x *filter) (*value, error) {
	v, err := r.eval(x.x)
	if err != nil {
		return nil, err
	}
	switch x.name {
	case "tojson":
		return r.tojson(x, v)
	case "string":
		var out strings.Builder
		err := r.python(&out, v, false)
		return newText(out.String()), err
	case "length":
		return newInt(int64(v.size() + len(v.text))), nil
	case "items":
		return r.items(v)
	case "map":
		return r.mapAttribute(x, v)
	}
	if v.kind != text {
		return v, nil
	}
	if err := r.step(1 + len(v.text)/64); err != nil {
		return nil, err
	}
	switch x.name {
	case "trim":
		return newText(strings.Trim(v.text, blanks)), nil
	case "lower":
		return newText(lower(v.text)), nil
	case "upper":
		return newText(upper(v.text)), nil
	case "capitalize":
		if v.text != "" {
			return newText(upper(v.text[:1]) + lower(v.text[1:])), nil
		}
	}
	return v, nil
}

// tojson reads the keyword indent only.
func (r *renderer) tojson(x *filter, v *value) (*value, error) {
	indent := -1
	for _, a := range x.arguments {
		if a.name != "indent" {
			continue
		}
		w, err := r.eval(a.x)
		if err != nil {
			return nil, err
		}
		if w.isInteger() {
			indent = int(int32(w.integer()))
		}
	}
	var out strings.Builder
	err := r.json(&out, v, indent, 0)
	return newText(out.String()), err
}

// items makes pairs of an object, in the order of its members.
func (r *renderer) items(v *value) (*value, error) {
	l := &value{kind: array}
	for _, m := range v.members {
		c, err := r.clone(m.value)
		if err != nil {
			return nil, err
		}
		l.elements = append(l.elements, &value{kind: array, elements: []*value{newText(m.key), c}})
	}
	return l, nil
}

// mapAttribute takes an attribute of every element, null where it is missing. The name of a filter, as the first
// positional argument, is taken for that of an attribute.
func (r *renderer) mapAttribute(x *filter, v *value) (*value, error) {
	if v.kind != array {
		return v, nil
	}
	name := ""
	for _, a := range x.arguments {
		if a.name != "attribute" && (a.name != "" || name != "") {
			continue
		}
		w, err := r.eval(a.x)
		if err != nil {
			return nil, err
		}
		if w.kind == text {
			name = w.text
		}
	}
	if name == "" {
		return v, nil
	}
	l := &value{kind: array}
	for _, e := range v.elements {
		m := e.member(name)
		if m == nil {
			m = &value{}
		}
		if err := r.push(l, m); err != nil {
			return nil, err
		}
	}
	return l, nil
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
