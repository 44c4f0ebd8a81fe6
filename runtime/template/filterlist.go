package template

import (
	"math"
	"slices"
	"strconv"
	"strings"
)

// getter reads an attribute of a value by a path like "a.b.0", nil for the value itself. A default, if it is not
// nil, takes the place of what is undefined.
func (r *renderer) getter(path, otherwise any) func(any) (any, error) {
	var parts []any
	switch p := path.(type) {
	case nil:
	case string:
		for _, part := range strings.Split(p, ".") {
			if i, err := strconv.ParseInt(part, 10, 64); err == nil && part[0] != '-' && part[0] != '+' {
				parts = append(parts, i)
			} else {
				parts = append(parts, part)
			}
		}
	default:
		parts = []any{p}
	}
	return func(v any) (any, error) {
		for _, p := range parts {
			var err error
			if v, err = r.item(v, p); err != nil {
				return nil, err
			}
			if _, ok := v.(*undefined); ok && otherwise != nil {
				v = otherwise
			}
		}
		return v, nil
	}
}

// plain is a path as getter takes it.
func plain(v any) any {
	if s, ok := str(v); ok {
		return s
	}
	return given(v, nil)
}

// folded is a getter whose texts are in lower case, unless the case counts.
func folded(get func(any) (any, error), caseCounts any) func(any) (any, error) {
	if truth(given(caseCounts, false)) {
		return get
	}
	return func(v any) (any, error) {
		w, err := get(v)
		if s, ok := str(w); ok {
			w = lower(s)
		}
		return w, err
	}
}

func firstFilter(r *renderer, v any, _ []any) (any, error) {
	next, err := r.iterate(v)
	if err != nil {
		return nil, err
	}
	e, ok, err := next()
	if err == nil && !ok {
		return &undefined{hint: "No first item, sequence was empty."}, nil
	}
	return e, err
}

// reversible is whether Python's reversed takes a value.
func reversible(v any) bool {
	switch v.(type) {
	case []any, tuple, *group, string, markup, *Object, *view, *sequence, *undefined:
		return true
	}
	return false
}

func lastFilter(r *renderer, v any, _ []any) (any, error) {
	if !reversible(v) {
		return nil, r.fail("TypeError", "'%s' object is not reversible", typeName(v))
	}
	l, err := r.list(v)
	if err != nil {
		return nil, err
	}
	if len(l) == 0 {
		return &undefined{hint: "No last item, sequence was empty."}, nil
	}
	last := l[len(l)-1]
	if _, ok := v.(markup); ok { // unlike the first character, it stays a markup
		return markup(last.(string)), nil
	}
	return last, nil
}

func reverseFilter(r *renderer, v any, _ []any) (any, error) {
	if s, ok := str(v); ok {
		runes := []rune(s)
		slices.Reverse(runes)
		return like(v, string(runes)), r.step(len(runes))
	}
	if !iterable(v) {
		return nil, r.fail("FilterArgumentError", "argument must be iterable")
	}
	l, err := r.list(v)
	if err != nil {
		return nil, err
	}
	slices.Reverse(l)
	if !reversible(v) {
		return l, nil
	}
	return &generator{"reversed", each(l)}, nil
}

func itemsFilter(r *renderer, v any, _ []any) (any, error) {
	var next iterator
	return &generator{"do_items", func() (any, bool, error) {
		if next == nil {
			switch o := v.(type) {
			case *Object:
				next, _ = r.iterate(&view{"dict_items", o})
			case *undefined:
				next = each(nil)
			default:
				return nil, false, r.fail("TypeError", "Can only get item pairs from a mapping.")
			}
		}
		return next()
	}}, nil
}

func joinFilter(r *renderer, v any, args []any) (any, error) {
	sep, err := r.text(given(args[0], ""))
	if err != nil {
		return nil, err
	}
	l, err := r.list(v)
	if err != nil {
		return nil, err
	}
	if path := plain(args[1]); path != nil {
		get := r.getter(path, nil)
		for i := range l {
			if l[i], err = get(l[i]); err != nil {
				return nil, err
			}
		}
	}
	return r.join(sep, l)
}

func mapFilter(r *renderer, v any, args []any) (any, error) {
	positional, keywords := args[0].([]any), args[1].([]keyword)
	var apply func(any) (any, error)
	prepare := func() error {
		path, byAttribute := find(keywords, "attribute")
		if len(positional) == 0 && byAttribute {
			for _, k := range keywords {
				if k.name != "attribute" && k.name != "default" {
					return r.fail("FilterArgumentError", "Unexpected keyword argument %s", quote(k.name))
				}
			}
			otherwise, _ := find(keywords, "default")
			apply = r.getter(plain(path), otherwise)
			return nil
		}
		if len(positional) == 0 {
			return r.fail("FilterArgumentError", "map requires a filter argument")
		}
		name, ok := str(positional[0])
		if !ok {
			return r.fail("TemplateRuntimeError", "no filter of that name")
		}
		apply = func(e any) (any, error) { return r.filter(name, e, positional[1:], keywords) }
		return nil
	}
	if !truth(v) {
		v = []any(nil)
	}
	return r.lazy("sync_do_map", v, func(e any) (any, bool, error) {
		if apply == nil {
			if err := prepare(); err != nil {
				return nil, false, err
			}
		}
		w, err := apply(e)
		return w, true, err
	}), nil
}

// selection is select, reject, selectattr or rejectattr.
func selection(want, byAttribute bool) func(*renderer, any, []any) (any, error) {
	return func(r *renderer, v any, args []any) (any, error) {
		positional, keywords := args[0].([]any), args[1].([]keyword)
		get := func(e any) (any, error) { return e, nil }
		if !truth(v) {
			v = []any(nil)
		}
		noPath := byAttribute && len(positional) == 0
		if byAttribute && !noPath {
			get = r.getter(plain(positional[0]), nil)
			positional = positional[1:]
		}
		return r.lazy("select_or_reject", v, func(e any) (any, bool, error) {
			if noPath {
				return nil, false, r.fail("FilterArgumentError", "Missing parameter for attribute name")
			}
			x, err := get(e)
			if err != nil {
				return nil, false, err
			}
			holds := truth(x)
			if len(positional) > 0 {
				name, ok := str(positional[0])
				if !ok {
					return nil, false, r.fail("TemplateRuntimeError", "no test of that name")
				}
				if holds, err = r.test(name, x, positional[1:], keywords); err != nil {
					return nil, false, err
				}
			}
			return e, holds == want, nil
		}), nil
	}
}

func sortFilter(r *renderer, v any, args []any) (any, error) {
	l, err := r.list(v)
	if err != nil {
		return nil, err
	}
	paths := []any{plain(args[2])}
	if s, ok := paths[0].(string); ok {
		paths = nil
		for _, p := range strings.Split(s, ",") {
			paths = append(paths, p)
		}
	}
	var gets []func(any) (any, error)
	for _, p := range paths {
		gets = append(gets, folded(r.getter(p, nil), args[1]))
	}
	return r.sorted(l, func(v any) (any, error) {
		key := make([]any, len(gets))
		for i, get := range gets {
			var err error
			if key[i], err = get(v); err != nil {
				return nil, err
			}
		}
		return key, nil
	}, truth(given(args[0], false)))
}

func dictSort(r *renderer, v any, args []any) (any, error) {
	o, ok := v.(*Object)
	if !ok {
		if u, ok := v.(*undefined); ok {
			return nil, r.use(u)
		}
		return nil, r.fail("AttributeError", "'%s' object has no attribute 'items'", typeName(v))
	}
	by, _ := str(given(args[1], "key"))
	if by != "key" && by != "value" {
		return nil, r.fail("FilterArgumentError", `You can only sort by either "key" or "value"`)
	}
	get := func(e any) (any, error) {
		if by == "key" {
			return e.(tuple)[0], nil
		}
		return e.(tuple)[1], nil
	}
	l, err := r.list(&view{"dict_items", o})
	if err != nil {
		return nil, err
	}
	return r.sorted(l, folded(get, args[0]), truth(given(args[2], false)))
}

func uniqueFilter(r *renderer, v any, args []any) (any, error) {
	get := folded(r.getter(plain(args[1]), nil), args[0])
	seen := NewObject()
	return r.lazy("sync_do_unique", v, func(e any) (any, bool, error) {
		key, err := get(e)
		if err != nil {
			return nil, false, err
		}
		n := seen.Len()
		err = r.put(seen, key, nil)
		return e, seen.Len() > n, err
	}), nil
}

func groupBy(r *renderer, v any, args []any) (any, error) {
	l, err := r.list(v)
	if err != nil {
		return nil, err
	}
	get := r.getter(plain(args[0]), given(args[1], nil))
	key := folded(get, args[2])
	if l, err = r.sorted(l, key, false); err != nil {
		return nil, err
	}
	out := []any{}
	var last any
	for _, e := range l {
		k, err := key(e)
		if err != nil {
			return nil, err
		}
		if len(out) > 0 {
			same, err := r.equal(last, k)
			if err != nil {
				return nil, err
			}
			if same {
				g := out[len(out)-1].(*group)
				g.list = append(g.list, e)
				continue
			}
		}
		last = k
		name, err := get(e)
		if err != nil {
			return nil, err
		}
		out = append(out, &group{name, []any{e}})
	}
	return out, nil
}

// extreme is min or max: the first element that no other one is less, or greater, than.
func extreme(operator, name string) func(*renderer, any, []any) (any, error) {
	return func(r *renderer, v any, args []any) (any, error) {
		l, err := r.list(v)
		if err != nil {
			return nil, err
		}
		if len(l) == 0 {
			return &undefined{hint: "No aggregated item, sequence was empty."}, nil
		}
		get := folded(r.getter(plain(args[1]), nil), args[0])
		best := l[0]
		key, err := get(best)
		if err != nil {
			return nil, err
		}
		for _, e := range l[1:] {
			k, err := get(e)
			if err != nil {
				return nil, err
			}
			better, err := r.order(operator, k, key)
			if err != nil {
				return nil, err
			}
			if better {
				best, key = e, k
			}
		}
		return best, nil
	}
}

func sumFilter(r *renderer, v any, args []any) (any, error) {
	l, err := r.list(v)
	if err != nil {
		return nil, err
	}
	sum := given(args[1], int64(0))
	if _, ok := str(sum); ok {
		return nil, r.fail("TypeError", "sum() can't sum strings [use ''.join(seq) instead]")
	}
	get := r.getter(plain(args[0]), nil)
	for _, e := range l {
		if e, err = get(e); err != nil {
			return nil, err
		}
		if sum, err = r.arithmetic("+", sum, e); err != nil {
			return nil, err
		}
	}
	return sum, nil
}

// later is a generator over a list that is made when the first element is asked for, with the errors of that.
func later(name string, list func() ([]any, error)) *generator {
	var next iterator
	return &generator{name, func() (any, bool, error) {
		if next == nil {
			l, err := list()
			if err != nil {
				return nil, false, err
			}
			next = each(l)
		}
		return next()
	}}
}

func batchFilter(r *renderer, v any, args []any) (any, error) {
	return later("do_batch", func() ([]any, error) { return r.batch(v, args) }), nil
}

func sliceFilter(r *renderer, v any, args []any) (any, error) {
	return later("sync_do_slice", func() ([]any, error) { return r.slices(v, args) }), nil
}

// batch cuts a list into rows of a number of elements, the last one filled up. The reference compares the number of elements
// with whatever it is given, which is an error only where a row has to be filled.
func (r *renderer) batch(v any, args []any) ([]any, error) {
	count, notInteger := r.intArgument(args[0], 0)
	fraction, isFloat := args[0].(float64)
	if notInteger != nil {
		count = -1
		if isFloat && fraction == math.Trunc(fraction) && math.Abs(fraction) < 1<<40 {
			count = int(fraction)
		}
	}
	l, err := r.list(v)
	if err != nil {
		return nil, err
	}
	out := []any{}
	var row []any
	for _, e := range l {
		if len(row) == count && len(row) > 0 {
			out = append(out, row)
			row = nil
		} else if count == 0 && len(out) == 0 {
			out = append(out, []any{}) // as in the reference, whose first row is full at once
		}
		row = append(row, e)
	}
	if len(row) > 0 {
		fill := given(args[1], nil)
		if fill != nil && notInteger != nil && (!isFloat || float64(len(row)) < fraction) {
			return nil, notInteger
		}
		if fill != nil && len(row) < count {
			if count > r.limits.Output>>4 {
				return nil, r.size(r.limits.Output + 1)
			}
			if err := r.step(count); err != nil {
				return nil, err
			}
			row = append(row, slices.Repeat([]any{fill}, count-len(row))...)
		}
		out = append(out, row)
	}
	return out, nil
}

// slices cuts a list into a number of parts, those filled up that are shorter.
func (r *renderer) slices(v any, args []any) ([]any, error) {
	count, err := r.intArgument(args[0], 0)
	if err != nil {
		return nil, err
	}
	l, err := r.list(v)
	if err != nil {
		return nil, err
	}
	if count == 0 {
		return nil, r.fail("ZeroDivisionError", "integer division or modulo by zero")
	}
	if count > r.limits.Output>>4 {
		return nil, r.size(r.limits.Output + 1)
	}
	if err := r.step(max(count, 0)); err != nil {
		return nil, err
	}
	out := []any{}
	for i := range count {
		n := len(l) / count
		from := i*n + min(i, len(l)%count)
		extra := i < len(l)%count
		if extra {
			n++
		}
		part := slices.Clone(l[from : from+n])
		if fill := given(args[1], nil); fill != nil && !extra {
			part = append(part, fill)
		}
		out = append(out, part)
	}
	return out, nil
}
