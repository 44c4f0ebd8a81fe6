package template

import (
	"strings"
	"unicode/utf8"
)

// missing is what an attribute or element gives that does not exist.
func missing(owner, name any) *undefined {
	return &undefined{name: name, owner: typeName(owner)}
}

// attribute is v.id: an attribute or method, or else the element of a dict.
func (r *renderer) attribute(v any, id string) (any, error) {
	a, ok, err := r.member(v, id)
	if err != nil || ok {
		return a, err
	}
	if o, ok := v.(*Object); ok {
		if e, ok := o.get(id); ok {
			return e, nil
		}
	}
	return missing(v, id), nil
}

// member is an attribute or method of v, without elements.
func (r *renderer) member(v any, id string) (any, bool, error) {
	if n, ok := v.(*namespace); ok {
		a, ok := n.attributes.get(id)
		return a, ok, nil
	}
	if u, ok := v.(*undefined); ok {
		return nil, false, r.use(u)
	}
	if strings.HasPrefix(id, "__") && strings.HasSuffix(id, "__") {
		// The sandbox hides what all objects have; what they have not is undefined as well.
		return unsafe(v, id), true, nil
	}
	switch v := v.(type) {
	case string, markup:
		m := textMethods[id]
		if m == nil {
			break
		}
		s, _ := str(v)
		_, escape := v.(markup)
		return &function{id, func(r *renderer, args []any, keywords []keyword) (any, error) {
			return r.textMethod(id, m, s, escape, args, keywords)
		}}, true, nil
	case *Object:
		if m := dictMethods[id]; m.call != nil {
			return bindMethod(id, m.parameters, v, m.call), true, nil
		}
	case *group:
		switch id {
		case "grouper":
			return v.grouper, true, nil
		case "list":
			return v.list, true, nil
		}
		return listMember(v, id)
	case []any, tuple, *sequence:
		return listMember(v, id)
	case *loop:
		return v.attribute(r, id)
	case *macro:
		a, ok := v.attribute(id)
		return a, ok, nil
	}
	kind := typeName(v)
	if strings.Contains(changing[kind], " "+id+" ") {
		return unsafe(v, id), true, nil
	}
	if strings.Contains(lacking[kind], " "+id+" ") {
		return nil, false, r.unsupported("%s.%s", kind, id)
	}
	return nil, false, nil
}

func listMember(v any, id string) (any, bool, error) {
	_, isList := v.([]any)
	if m := listMethods[id]; m.call != nil && (isList || id != "copy") {
		return bindMethod(id, m.parameters, v, m.call), true, nil
	}
	if s, ok := v.(*sequence); ok {
		switch id {
		case "start":
			return s.start, true, nil
		case "stop":
			return s.stop, true, nil
		case "step":
			return s.step, true, nil
		}
	}
	if isList && strings.Contains(changing["list"], " "+id+" ") {
		return unsafe(v, id), true, nil
	}
	return nil, false, nil
}

// unsafe is what the sandbox gives for an attribute that it forbids.
func unsafe(v any, id string) *undefined {
	return &undefined{
		hint: "access to attribute " + quote(id) + " of " + quote(typeName(v)) + " object is unsafe.",
		kind: "SecurityError",
	}
}

// changing are the methods that the sandbox forbids, as they change an object.
var changing = map[string]string{
	"list": " append clear pop reverse insert sort extend remove ",
	"dict": " clear pop popitem setdefault update ",
}

// lacking are the attributes of Python's types that this package does not have.
var lacking = map[string]string{
	"str":         " encode maketrans translate ",
	"Markup":      " encode maketrans translate striptags unescape escape ",
	"dict":        " fromkeys ",
	"int":         " as_integer_ratio bit_count bit_length conjugate denominator from_bytes imag numerator real to_bytes ",
	"bool":        " as_integer_ratio bit_count bit_length conjugate denominator from_bytes imag numerator real to_bytes ",
	"float":       " as_integer_ratio conjugate fromhex hex imag is_integer real ",
	"dict_items":  " isdisjoint mapping ",
	"dict_keys":   " isdisjoint mapping ",
	"dict_values": " mapping ",
	"generator":   " close send throw gi_running gi_suspended gi_yieldfrom ",
}

// item is v[key]: an element, or else an attribute or method.
func (r *renderer) item(v, key any) (any, error) {
	if u, ok := v.(*undefined); ok {
		return nil, r.use(u)
	}
	e, ok, err := r.element(v, key)
	if err != nil || ok {
		return e, err
	}
	if id, ok := str(key); ok {
		a, ok, err := r.member(v, id)
		if err != nil || ok {
			return a, err
		}
	}
	return missing(v, key), nil
}

// element is an element of a dict by key, or of a list or text by index.
func (r *renderer) element(v, key any) (any, bool, error) {
	if o, ok := v.(*Object); ok {
		h, ok, err := r.hash(key)
		if err != nil || !ok {
			return nil, false, err
		}
		e, ok := o.get(h)
		return e, ok, nil
	}
	i, ok := integer(key)
	if !ok {
		return nil, false, nil
	}
	n, _ := length(v)
	if i < 0 {
		i += int64(n)
	}
	if i < 0 || i >= int64(n) {
		return nil, false, nil
	}
	if t, ok := asTuple(v); ok {
		return t[i], true, nil
	}
	switch v := v.(type) {
	case []any:
		return v[i], true, nil
	case *sequence:
		return v.start + i*v.step, true, nil
	case string:
		return character(v, int(i)), true, r.step(len(v) >> 4)
	case markup:
		return markup(character(string(v), int(i))), true, r.step(len(v) >> 4)
	}
	return nil, false, nil
}

// character is the i-th character of a text.
func character(s string, i int) string {
	for ; i > 0; i-- {
		_, n := utf8.DecodeRuneInString(s)
		s = s[n:]
	}
	_, n := utf8.DecodeRuneInString(s)
	return s[:n]
}

// setAttribute gives a namespace's attribute its value.
func (r *renderer) setAttribute(n *namespace, id string, v any) error {
	if strings.HasPrefix(id, "_") {
		return r.fail("SecurityError", "chat templates cannot store underscore-prefixed attributes on a namespace, but got %s", quote(id))
	}
	n.attributes.Set(id, v)
	return nil
}

// sliceExpression is x[start:stop:step].
func (r *renderer) sliceExpression(n *slice, s *scope) (any, error) {
	v, err := r.evaluate(n.x, s)
	if err != nil {
		return nil, err
	}
	var part [3]any
	for i, x := range []expression{n.start, n.stop, n.step} {
		if x == nil {
			continue
		}
		if part[i], err = r.evaluate(x, s); err != nil {
			return nil, err
		}
	}
	r.line = n.line
	if u, ok := v.(*undefined); ok {
		return nil, r.use(u)
	}
	size, _ := length(v)
	from, to, by, count, err := r.sliceIndices(part, int64(size))
	if err != nil {
		return nil, err
	}
	if err := r.size(16 * int(count)); err != nil {
		return nil, err
	}
	t, isTuple := asTuple(v)
	if isTuple {
		return tuple(pick(t, from, by, count)), nil
	}
	switch v := v.(type) {
	case []any:
		return pick(v, from, by, count), nil
	case *sequence:
		return &sequence{v.start + from*v.step, v.start + to*v.step, v.step * by, count}, nil
	case string:
		return sliceText(v, from, by, count, size), nil
	case markup:
		return markup(sliceText(string(v), from, by, count, size)), nil
	case *Object:
		return nil, r.fail("TypeError", "unhashable type: 'slice'")
	}
	return nil, r.fail("TypeError", "'%s' object is not subscriptable", typeName(v))
}

// sliceIndices are the first index, the one behind the last, the step and the number of elements of a slice of n
// elements.
func (r *renderer) sliceIndices(part [3]any, n int64) (from, to, by, count int64, err error) {
	var value [3]int64
	for i, p := range part {
		j, ok := integer(p)
		if p != nil && !ok {
			return 0, 0, 0, 0, r.fail("TypeError", "slice indices must be integers or None or have an __index__ method")
		}
		value[i] = j
	}
	by = 1
	if part[2] != nil {
		if by = value[2]; by == 0 {
			return 0, 0, 0, 0, r.fail("ValueError", "slice step cannot be zero")
		}
	}
	by = min(max(by, -n-1), n+1) // a larger step takes one element too
	low, high := int64(0), n
	if by < 0 {
		low, high = -1, n-1
	}
	bound := func(i int, missing int64) int64 {
		if part[i] == nil {
			return missing
		}
		v := value[i]
		if v < 0 {
			v += n
		}
		return min(max(v, low), high)
	}
	if by > 0 {
		from, to = bound(0, low), bound(1, high)
		return from, to, by, max(0, (to-from+by-1)/by), nil
	}
	from, to = bound(0, high), bound(1, low)
	return from, to, by, max(0, (from-to-by-1)/-by), nil
}

func pick[T any](l []T, from, by, count int64) []T {
	out := make([]T, count)
	for i := range out {
		out[i] = l[from+int64(i)*by]
	}
	return out
}

func sliceText(s string, from, by, count int64, size int) string {
	if size == len(s) && by == 1 {
		return s[from : from+count]
	}
	return string(pick([]rune(s), from, by, count))
}
