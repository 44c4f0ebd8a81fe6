package engine

import "strings"

// operate is what an operator makes of two values. Where it makes nothing of their types the result is an empty text.
func (r *renderer) operate(operator string, a, b *value) (*value, error) {
	switch operator {
	case "+":
		return r.add(a, b)
	case "-":
		switch {
		case a.kind != number || b.kind != number:
			return newText(""), nil
		case a.isFraction() || b.isFraction():
			return newFloat(a.float() - b.float()), nil
		}
		return newInt(a.integer() - b.integer()), nil
	case "and":
		return newBool(a.truth() && b.truth()), nil
	case "or":
		return newBool(a.truth() || b.truth()), nil
	case "in", "not in":
		found, err := r.contains(b, a)
		return newBool(found == (operator == "in")), err
	case "~":
		var out strings.Builder
		if err := r.python(&out, a, false); err != nil {
			return nil, err
		}
		err := r.python(&out, b, false)
		return newText(out.String()), err
	}
	c, err := r.compare(a, b)
	if err != nil {
		return nil, err
	}
	switch operator {
	case "==":
		return newBool(c == 0), nil
	case "!=":
		return newBool(c != 0), nil
	case "<":
		return newBool(c < 0), nil
	case ">":
		return newBool(c > 0), nil
	case "<=":
		return newBool(c <= 0), nil
	}
	return newBool(c >= 0), nil
}

// add joins texts, sums numbers and joins lists, where one side may be a single element.
func (r *renderer) add(a, b *value) (*value, error) {
	switch {
	case a.kind == text && b.kind == text:
		return newText(a.text + b.text), r.size(len(a.text) + len(b.text))
	case a.kind == number && b.kind == number:
		if a.isFraction() || b.isFraction() {
			return newFloat(a.float() + b.float()), nil
		}
		return newInt(a.integer() + b.integer()), nil
	case a.kind != array && b.kind != array:
		return newText(""), nil
	}
	l := &value{kind: array}
	for _, side := range []*value{a, b} {
		elements := side.elements
		if side.kind != array {
			elements = []*value{side}
		}
		for _, e := range elements {
			if err := r.push(l, e); err != nil {
				return nil, err
			}
		}
	}
	return l, nil
}

// contains is true when a list has an equal element, an object a key or a text a part.
func (r *renderer) contains(in, v *value) (bool, error) {
	switch {
	case in.kind == array:
		for _, e := range in.elements {
			if c, err := r.compare(e, v); c == 0 || err != nil {
				return err == nil, err
			}
		}
	case in.kind == object && v.kind == text:
		return in.member(v.text) != nil, nil
	case in.kind == text && v.kind == text:
		return strings.Contains(in.text, v.text), r.step(1 + len(in.text)/64)
	}
	return false, nil
}
