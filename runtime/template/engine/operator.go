package engine

import "strings"

// operate applies an operator. For types that it does not take the result is an empty text.
func (r *renderer) operate(operator string, a, b *value) *value {
	switch operator {
	case "+":
		return r.add(a, b)
	case "-":
		switch {
		case a.kind != number || b.kind != number:
			return newText("")
		case a.isFraction() || b.isFraction():
			return newFloat(a.float() - b.float())
		}
		return newInt(a.integer() - b.integer())
	case "and":
		return newBool(a.truth() && b.truth())
	case "or":
		return newBool(a.truth() || b.truth())
	case "in", "not in":
		return newBool(r.contains(b, a) == (operator == "in"))
	case "~":
		var out strings.Builder
		r.python(&out, a, false)
		r.python(&out, b, false)
		return newText(out.String())
	}
	c := r.compare(a, b)
	switch operator {
	case "==":
		return newBool(c == 0)
	case "!=":
		return newBool(c != 0)
	case "<":
		return newBool(c < 0)
	case ">":
		return newBool(c > 0)
	case "<=":
		return newBool(c <= 0)
	}
	return newBool(c >= 0)
}

// add joins texts, sums numbers and joins lists, where one side may be a single element.
func (r *renderer) add(a, b *value) *value {
	switch {
	case a.kind == text && b.kind == text:
		r.size(len(a.text) + len(b.text))
		return newText(a.text + b.text)
	case a.kind == number && b.kind == number:
		if a.isFraction() || b.isFraction() {
			return newFloat(a.float() + b.float())
		}
		return newInt(a.integer() + b.integer())
	case a.kind != array && b.kind != array:
		return newText("")
	}
	l := &value{kind: array}
	for _, side := range []*value{a, b} {
		elements := side.elements
		if side.kind != array {
			elements = []*value{side}
		}
		for _, e := range elements {
			r.push(l, e)
		}
	}
	return l
}

// contains reports whether a list has an equal element, an object a key or a text a part.
func (r *renderer) contains(in, v *value) bool {
	switch {
	case in.kind == array:
		for _, e := range in.elements {
			if r.compare(e, v) == 0 {
				return true
			}
		}
	case in.kind == object && v.kind == text:
		return in.member(v.text) != nil
	case in.kind == text && v.kind == text:
		r.step(1 + len(in.text)/64)
		return strings.Contains(in.text, v.text)
	}
	return false
}
