package template

import (
	"strings"
	"unicode/utf8"

	"github.com/llmexport/llmexport/runtime/template/syntax"
)

// missing is the value of a missing attribute or element.
func missing(owner, name any) *undefined {
	return &undefined{name: name, owner: typeName(owner)}
}

// attribute is v.id: an attribute or method, or else the element of a dict.
func (r *renderer) attribute(v any, id string) any {
	a, ok := r.member(v, id)
	if ok {
		return a
	}
	if o, ok := v.(*Object); ok {
		if e, ok := o.get(id); ok {
			return e
		}
	}
	return missing(v, id)
}

// member is an attribute or method of v, without elements.
func (r *renderer) member(v any, id string) (any, bool) {
	if n, ok := v.(*namespace); ok {
		a, ok := n.attributes.get(id)
		return a, ok
	}
	if u, ok := v.(*undefined); ok {
		panic(r.use(u))
	}
	if strings.HasPrefix(id, "__") && strings.HasSuffix(id, "__") {
		// The sandbox hides the attributes that all objects have; others are undefined as well.
		return unsafe(v, id), true
	}
	switch v := v.(type) {
	case string, markup:
		m := textMethods[id]
		if m == nil {
			break
		}
		s, _ := str(v)
		_, escape := v.(markup)
		return &function{id, func(r *renderer, args []any, keywords []keyword) any {
			return r.textMethod(id, m, s, escape, args, keywords)
		}}, true
	case *Object:
		if m := dictMethods[id]; m.call != nil {
			return bindMethod(id, m.parameters, v, m.call), true
		}
	case *group:
		switch id {
		case "grouper":
			return v.grouper, true
		case "list":
			return v.list, true
		}
		return listMember(v, id)
	case []any, tuple, *sequence:
		return listMember(v, id)
	case *loop:
		return v.attribute(r, id)
	case *macro:
		a, ok := v.attribute(id)
		return a, ok
	}
	kind := typeName(v)
	if strings.Contains(changing[kind], " "+id+" ") {
		return unsafe(v, id), true
	}
	if strings.Contains(lacking[kind], " "+id+" ") {
		panic(r.unsupported("%s.%s", kind, id))
	}
	return nil, false
}

func listMember(v any, id string) (any, bool) {
	_, isList := v.([]any)
	if m := listMethods[id]; m.call != nil && (isList || id != "copy") {
		return bindMethod(id, m.parameters, v, m.call), true
	}
	if s, ok := v.(*sequence); ok {
		switch id {
		case "start":
			return s.start, true
		case "stop":
			return s.stop, true
		case "step":
			return s.step, true
		}
	}
	if isList && strings.Contains(changing["list"], " "+id+" ") {
		return unsafe(v, id), true
	}
	return nil, false
}

// unsafe is the value of an attribute that the sandbox forbids.
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

// lacking are the attributes of Python's types that this package lacks.
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
func (r *renderer) item(v, key any) any {
	if u, ok := v.(*undefined); ok {
		panic(r.use(u))
	}
	e, ok := r.element(v, key)
	if ok {
		return e
	}
	if id, ok := str(key); ok {
		a, ok := r.member(v, id)
		if ok {
			return a
		}
	}
	return missing(v, key)
}

// element is an element of a dict by key, or of a list or text by index.
func (r *renderer) element(v, key any) (any, bool) {
	if o, ok := v.(*Object); ok {
		h, ok := r.hash(key)
		if !ok {
			return nil, false
		}
		e, ok := o.get(h)
		return e, ok
	}
	i, ok := integer(key)
	if !ok {
		return nil, false
	}
	n, _ := length(v)
	if i < 0 {
		i += int64(n)
	}
	if i < 0 || i >= int64(n) {
		return nil, false
	}
	if t, ok := asTuple(v); ok {
		return t[i], true
	}
	switch v := v.(type) {
	case []any:
		return v[i], true
	case *sequence:
		return v.start + i*v.step, true
	case string:
		r.step(len(v) >> 4)
		return character(v, int(i)), true
	case markup:
		r.step(len(v) >> 4)
		return markup(character(string(v), int(i))), true
	}
	return nil, false
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

// setAttribute sets an attribute of a namespace.
func (r *renderer) setAttribute(n *namespace, id string, v any) {
	if strings.HasPrefix(id, "_") {
		panic(r.fail("SecurityError", "chat templates cannot store underscore-prefixed attributes on a namespace, but got %s", quote(id)))
	}
	n.attributes.Set(id, v)
}

// sliceExpression is x[start:stop:step].
func (r *renderer) sliceExpression(n *syntax.Slice, s *scope) any {
	v := r.evaluate(n.X, s)
	var part [3]any
	for i, x := range []syntax.Expression{n.Start, n.Stop, n.Step} {
		if x != nil {
			part[i] = r.evaluate(x, s)
		}
	}
	r.line = n.Line
	if u, ok := v.(*undefined); ok {
		panic(r.use(u))
	}
	size, _ := length(v)
	from, to, by, count := r.sliceIndices(part, int64(size))
	r.size(16 * int(count))
	if t, ok := asTuple(v); ok {
		return tuple(pick(t, from, by, count))
	}
	switch v := v.(type) {
	case []any:
		return pick(v, from, by, count)
	case *sequence:
		return &sequence{v.start + from*v.step, v.start + to*v.step, v.step * by, count}
	case string:
		return sliceText(v, from, by, count, size)
	case markup:
		return markup(sliceText(string(v), from, by, count, size))
	case *Object:
		panic(r.fail("TypeError", "unhashable type: 'slice'"))
	}
	panic(r.fail("TypeError", "'%s' object is not subscriptable", typeName(v)))
}

// sliceIndices are the first index, the one after the last, the step and the number of elements of a slice of n
// elements.
func (r *renderer) sliceIndices(part [3]any, n int64) (from, to, by, count int64) {
	var value [3]int64
	for i, p := range part {
		j, ok := integer(p)
		if p != nil && !ok {
			panic(r.fail("TypeError", "slice indices must be integers or None or have an __index__ method"))
		}
		value[i] = j
	}
	by = 1
	if part[2] != nil {
		if by = value[2]; by == 0 {
			panic(r.fail("ValueError", "slice step cannot be zero"))
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
		return from, to, by, max(0, (to-from+by-1)/by)
	}
	from, to = bound(0, high), bound(1, low)
	return from, to, by, max(0, (from-to-by-1)/-by)
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
