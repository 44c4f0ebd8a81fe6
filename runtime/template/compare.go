package template

import (
	"cmp"
	"slices"
	"strings"
)

// compare is one of == != < <= > >= in, not in.
func (r *renderer) compare(operator string, v, w any) (bool, error) {
	switch operator {
	case "==":
		return r.equal(v, w)
	case "!=":
		ok, err := r.equal(v, w)
		return !ok, err
	case "in":
		return r.contains(w, v)
	case "not in":
		ok, err := r.contains(w, v)
		return !ok, err
	}
	return r.order(operator, v, w)
}

// same is whether two values are one object.
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
func (r *renderer) equal(v, w any) (bool, error) {
	if err := r.step(1); err != nil {
		return false, err
	}
	if r.depth++; r.depth > maxDepth {
		return false, r.limit("values nested more than %d deep", maxDepth)
	}
	defer func() { r.depth-- }()
	if i, ok := integer(v); ok {
		if j, ok := integer(w); ok {
			return i == j, nil
		}
	}
	if f, ok := float(v); ok {
		g, ok := float(w)
		return ok && f == g, nil
	}
	if s, ok := str(v); ok {
		t, ok := str(w)
		return ok && s == t, nil
	}
	if t, ok := asTuple(v); ok {
		u, ok := asTuple(w)
		if !ok {
			return false, nil
		}
		return r.equalLists(t, u)
	}
	switch v := v.(type) {
	case []any:
		l, ok := w.([]any)
		if !ok {
			return false, nil
		}
		return r.equalLists(v, l)
	case *Object:
		o, ok := w.(*Object)
		if !ok || v.Len() != o.Len() {
			return false, nil
		}
		for i, hashed := range v.hashed {
			x, ok := o.get(hashed)
			if !ok {
				return false, nil
			}
			if ok, err := r.equal(v.values[i], x); err != nil || !ok {
				return false, err
			}
		}
		return true, nil
	case *undefined:
		_, ok := w.(*undefined)
		return ok, nil
	case *sequence:
		x, ok := w.(*sequence)
		return ok && v.length == x.length &&
			(v.length == 0 || v.start == x.start && (v.length == 1 || v.step == x.step)), nil
	}
	return same(v, w), nil
}

func (r *renderer) equalLists(v, w []any) (bool, error) {
	if len(v) != len(w) {
		return false, nil
	}
	for i := range v {
		if ok, err := r.equal(v[i], w[i]); err != nil || !ok {
			return false, err
		}
	}
	return true, nil
}

// order is one of < <= > >=.
func (r *renderer) order(operator string, v, w any) (bool, error) {
	if err := r.step(1); err != nil {
		return false, err
	}
	for _, x := range []any{v, w} {
		if u, ok := x.(*undefined); ok {
			return false, r.use(u)
		}
	}
	if i, ok := integer(v); ok {
		if j, ok := integer(w); ok {
			return ordered(operator, i, j), nil
		}
	}
	if f, ok := float(v); ok {
		if g, ok := float(w); ok {
			return ordered(operator, f, g), nil
		}
	}
	if s, ok := str(v); ok {
		if t, ok := str(w); ok {
			return ordered(operator, s, t), nil
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
	return false, r.fail("TypeError", "'%s' not supported between instances of '%s' and '%s'", operator, typeName(v), typeName(w))
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

func (r *renderer) orderLists(operator string, l, m []any) (bool, error) {
	for i := range min(len(l), len(m)) {
		ok, err := r.equal(l[i], m[i])
		if err != nil {
			return false, err
		}
		if !ok {
			if r.depth++; r.depth > maxDepth {
				return false, r.limit("values nested more than %d deep", maxDepth)
			}
			defer func() { r.depth-- }()
			return r.order(operator, l[i], m[i])
		}
	}
	return ordered(operator, len(l), len(m)), nil
}

// contains is Python's v in container.
func (r *renderer) contains(container, v any) (bool, error) {
	if s, ok := str(container); ok {
		t, ok := str(v)
		if !ok {
			return false, r.fail("TypeError", "'in <string>' requires string as left operand, not %s", typeName(v))
		}
		return strings.Contains(s, t), r.step(len(s) >> 4)
	}
	o, ok := container.(*Object)
	if !ok {
		if keys, isView := container.(*view); isView && keys.kind == "dict_keys" {
			o, ok = keys.of, true
		}
	}
	if ok {
		h, hashable, err := r.hash(v)
		if err != nil {
			return false, err
		}
		if !hashable {
			return false, r.fail("TypeError", "unhashable type: '%s'", typeName(v))
		}
		_, found := o.get(h)
		return found, nil
	}
	next, err := r.iterate(container)
	if err != nil {
		return false, r.fail("TypeError", "argument of type '%s' is not iterable", typeName(container))
	}
	for {
		e, ok, err := next()
		if err != nil || !ok {
			return false, err
		}
		if ok, err := r.equal(e, v); err != nil || ok {
			return ok, err
		}
	}
}

// sorted is Python's sorted: stable, by keys, which are compared with <.
func (r *renderer) sorted(l []any, key func(any) (any, error), reverse bool) ([]any, error) {
	type pair struct{ key, value any }
	pairs := make([]pair, len(l))
	for i, v := range l {
		k, err := key(v)
		if err != nil {
			return nil, err
		}
		pairs[i] = pair{k, v}
	}
	var failed error
	slices.SortStableFunc(pairs, func(a, b pair) int {
		if failed != nil {
			return 0
		}
		if reverse {
			a, b = b, a
		}
		less, err := r.order("<", a.key, b.key)
		if err == nil && !less {
			var more bool
			if more, err = r.order("<", b.key, a.key); err == nil && more {
				return 1
			}
		}
		if err != nil {
			failed = err
			return 0
		}
		if less {
			return -1
		}
		return 0
	})
	out := make([]any, len(l))
	for i, p := range pairs {
		out[i] = p.value
	}
	return out, failed
}
