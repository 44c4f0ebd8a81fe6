package template

import (
	"cmp"
	"slices"
	"strings"
)

// compare is one of == != < <= > >= in, not in.
func (r *renderer) compare(operator string, v, w any) bool {
	switch operator {
	case "==":
		return r.equal(v, w)
	case "!=":
		return !r.equal(v, w)
	case "in":
		return r.contains(w, v)
	case "not in":
		return !r.contains(w, v)
	}
	return r.order(operator, v, w)
}

// same reports whether two values are one object.
func same(v, w any) bool {
	switch v := v.(type) {
	case []any:
		w, ok := w.([]any)
		return ok && len(v) == len(w) && (len(v) == 0 || &v[0] == &w[0])
	case tuple:
		w, ok := w.(tuple)
		return ok && len(v) == len(w) && (len(v) == 0 || &v[0] == &w[0])
	}
	switch w.(type) {
	case []any, tuple:
		return false
	}
	return v == w
}

// equal is Python's ==.
func (r *renderer) equal(v, w any) bool {
	r.step(1)
	if r.depth++; r.depth > maxDepth {
		panic(r.limit("values nested more than %d deep", maxDepth))
	}
	defer func() { r.depth-- }()
	if i, ok := integer(v); ok {
		if j, ok := integer(w); ok {
			return i == j
		}
	}
	if f, ok := float(v); ok {
		g, ok := float(w)
		return ok && f == g
	}
	if s, ok := str(v); ok {
		t, ok := str(w)
		return ok && s == t
	}
	if t, ok := asTuple(v); ok {
		u, ok := asTuple(w)
		if !ok {
			return false
		}
		return r.equalLists(t, u)
	}
	switch v := v.(type) {
	case []any:
		l, ok := w.([]any)
		if !ok {
			return false
		}
		return r.equalLists(v, l)
	case *Object:
		o, ok := w.(*Object)
		if !ok || v.Len() != o.Len() {
			return false
		}
		for i, hashed := range v.hashed {
			x, ok := o.get(hashed)
			if !ok {
				return false
			}
			if !r.equal(v.values[i], x) {
				return false
			}
		}
		return true
	case *undefined:
		_, ok := w.(*undefined)
		return ok
	case *sequence:
		x, ok := w.(*sequence)
		return ok && v.length == x.length &&
			(v.length == 0 || v.start == x.start && (v.length == 1 || v.step == x.step))
	}
	return same(v, w)
}

func (r *renderer) equalLists(v, w []any) bool {
	if len(v) != len(w) {
		return false
	}
	for i := range v {
		if !r.equal(v[i], w[i]) {
			return false
		}
	}
	return true
}

// order is one of < <= > >=.
func (r *renderer) order(operator string, v, w any) bool {
	r.step(1)
	for _, x := range []any{v, w} {
		if u, ok := x.(*undefined); ok {
			panic(r.use(u))
		}
	}
	if i, ok := integer(v); ok {
		if j, ok := integer(w); ok {
			return ordered(operator, i, j)
		}
	}
	if f, ok := float(v); ok {
		if g, ok := float(w); ok {
			return ordered(operator, f, g)
		}
	}
	if s, ok := str(v); ok {
		if t, ok := str(w); ok {
			return ordered(operator, s, t)
		}
	}
	if l, ok := v.([]any); ok {
		if m, ok := w.([]any); ok {
			return r.orderLists(operator, l, m)
		}
	}
	if l, ok := asTuple(v); ok {
		if m, ok := asTuple(w); ok {
			return r.orderLists(operator, l, m)
		}
	}
	panic(r.fail("TypeError", "'%s' not supported between instances of '%s' and '%s'", operator, typeName(v), typeName(w)))
}

func ordered[T cmp.Ordered](operator string, v, w T) bool {
	switch operator {
	case "<":
		return v < w
	case "<=":
		return v <= w
	case ">":
		return v > w
	}
	return v >= w
}

func (r *renderer) orderLists(operator string, l, m []any) bool {
	for i := range min(len(l), len(m)) {
		if !r.equal(l[i], m[i]) {
			if r.depth++; r.depth > maxDepth {
				panic(r.limit("values nested more than %d deep", maxDepth))
			}
			defer func() { r.depth-- }()
			return r.order(operator, l[i], m[i])
		}
	}
	return ordered(operator, len(l), len(m))
}

// contains is Python's v in container.
func (r *renderer) contains(container, v any) bool {
	if s, ok := str(container); ok {
		t, ok := str(v)
		if !ok {
			panic(r.fail("TypeError", "'in <string>' requires string as left operand, not %s", typeName(v)))
		}
		r.step(len(s) >> 4)
		return strings.Contains(s, t)
	}
	o, ok := container.(*Object)
	if !ok {
		if keys, isView := container.(*view); isView && keys.kind == "dict_keys" {
			o, ok = keys.of, true
		}
	}
	if ok {
		_, found := o.get(r.key(v))
		return found
	}
	next := r.iterate(container)
	for {
		e, ok := next()
		if !ok || r.equal(e, v) {
			return ok
		}
	}
}

// sorted is Python's sorted: stable, by keys, which are compared with <.
func (r *renderer) sorted(l []any, key func(any) any, reverse bool) []any {
	type pair struct{ key, value any }
	pairs := make([]pair, len(l))
	for i, v := range l {
		pairs[i] = pair{key(v), v}
	}
	slices.SortStableFunc(pairs, func(a, b pair) int {
		if reverse {
			a, b = b, a
		}
		switch {
		case r.order("<", a.key, b.key):
			return -1
		case r.order("<", b.key, a.key):
			return 1
		}
		return 0
	})
	out := make([]any, len(l))
	for i, p := range pairs {
		out[i] = p.value
	}
	return out
}
