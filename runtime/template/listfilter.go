package template

import (
	"math"
	"slices"
	"strconv"
	"strings"
)

// getter returns a function that reads an attribute of a value by a path like "a.b.0"; a nil path is the value itself.
// A default that is not nil replaces undefined values.
func (r *renderer) getter(path, otherwise any) func(any) any {
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
	return func(v any) any {
		for _, p := range parts {
			v = r.item(v, p)
			if _, ok := v.(*undefined); ok && otherwise != nil {
				v = otherwise
			}
		}
		return v
	}
}

// plain is a path as getter takes it.
func plain(v any) any {
	if s, ok := str(v); ok {
		return s
	}
	return given(v, nil)
}

// folded is a getter that returns texts in lower case, unless caseCounts is true.
func folded(get func(any) any, caseCounts any) func(any) any {
	if truth(given(caseCounts, false)) {
		return get
	}
	return func(v any) any {
		w := get(v)
		if s, ok := str(w); ok {
			w = lower(s)
		}
		return w
	}
}

func firstFilter(r *renderer, v any, _ []any) any {
	e, ok := r.iterate(v)()
	if !ok {
		return &undefined{hint: "No first item, sequence was empty."}
	}
	return e
}

// reversible reports whether Python's reversed takes a value.
func reversible(v any) bool {
	switch v.(type) {
	case []any, tuple, *group, string, markup, *Object, *view, *sequence, *undefined:
		return true
	}
	return false
}

func lastFilter(r *renderer, v any, _ []any) any {
	if !reversible(v) {
		panic(r.fail("TypeError", "'%s' object is not reversible", typeName(v)))
	}
	l := r.list(v)
	if len(l) == 0 {
		return &undefined{hint: "No last item, sequence was empty."}
	}
	last := l[len(l)-1]
	if _, ok := v.(markup); ok { // unlike the first character, it stays a markup
		return markup(last.(string))
	}
	return last
}

func reverseFilter(r *renderer, v any, _ []any) any {
	if s, ok := str(v); ok {
		runes := []rune(s)
		slices.Reverse(runes)
		r.step(len(runes))
		return like(v, string(runes))
	}
	if !iterable(v) {
		panic(r.fail("FilterArgumentError", "argument must be iterable"))
	}
	l := r.list(v)
	slices.Reverse(l)
	if !reversible(v) {
		return l
	}
	return &generator{"reversed", each(l)}
}

func itemsFilter(r *renderer, v any, _ []any) any {
	return later("do_items", func() []any {
		switch o := v.(type) {
		case *Object:
			return r.list(&view{"dict_items", o})
		case *undefined:
			return nil
		}
		panic(r.fail("TypeError", "Can only get item pairs from a mapping."))
	})
}

func joinFilter(r *renderer, v any, args []any) any {
	sep := r.text(given(args[0], ""))
	l := r.list(v)
	if path := plain(args[1]); path != nil {
		get := r.getter(path, nil)
		for i := range l {
			l[i] = get(l[i])
		}
	}
	return r.join(sep, l)
}

func mapFilter(r *renderer, v any, args []any) any {
	positional, keywords := args[0].([]any), args[1].([]keyword)
	var apply func(any) any
	prepare := func() {
		path, byAttribute := find(keywords, "attribute")
		if len(positional) == 0 && byAttribute {
			for _, k := range keywords {
				if k.name != "attribute" && k.name != "default" {
					panic(r.fail("FilterArgumentError", "Unexpected keyword argument %s", quote(k.name)))
				}
			}
			otherwise, _ := find(keywords, "default")
			apply = r.getter(plain(path), otherwise)
			return
		}
		if len(positional) == 0 {
			panic(r.fail("FilterArgumentError", "map requires a filter argument"))
		}
		name, ok := str(positional[0])
		if !ok {
			panic(r.fail("TemplateRuntimeError", "no filter of that name"))
		}
		apply = func(e any) any { return r.filter(name, e, positional[1:], keywords) }
	}
	if !truth(v) {
		v = []any(nil)
	}
	return r.lazy("sync_do_map", v, func(e any) (any, bool) {
		if apply == nil {
			prepare()
		}
		return apply(e), true
	})
}

// selection is select, reject, selectattr or rejectattr.
func selection(want, byAttribute bool) func(*renderer, any, []any) any {
	return func(r *renderer, v any, args []any) any {
		positional, keywords := args[0].([]any), args[1].([]keyword)
		get := func(e any) any { return e }
		if !truth(v) {
			v = []any(nil)
		}
		noPath := byAttribute && len(positional) == 0
		if byAttribute && !noPath {
			get = r.getter(plain(positional[0]), nil)
			positional = positional[1:]
		}
		return r.lazy("select_or_reject", v, func(e any) (any, bool) {
			if noPath {
				panic(r.fail("FilterArgumentError", "Missing parameter for attribute name"))
			}
			x := get(e)
			holds := truth(x)
			if len(positional) > 0 {
				name, ok := str(positional[0])
				if !ok {
					panic(r.fail("TemplateRuntimeError", "no test of that name"))
				}
				holds = r.test(name, x, positional[1:], keywords)
			}
			return e, holds == want
		})
	}
}

func sortFilter(r *renderer, v any, args []any) any {
	l := r.list(v)
	paths := []any{plain(args[2])}
	if s, ok := paths[0].(string); ok {
		paths = nil
		for _, p := range strings.Split(s, ",") {
			paths = append(paths, p)
		}
	}
	var gets []func(any) any
	for _, p := range paths {
		gets = append(gets, folded(r.getter(p, nil), args[1]))
	}
	return r.sorted(l, func(v any) any {
		key := make([]any, len(gets))
		for i, get := range gets {
			key[i] = get(v)
		}
		return key
	}, truth(given(args[0], false)))
}

func dictSort(r *renderer, v any, args []any) any {
	o, ok := v.(*Object)
	if !ok {
		if u, ok := v.(*undefined); ok {
			panic(r.use(u))
		}
		panic(r.fail("AttributeError", "'%s' object has no attribute 'items'", typeName(v)))
	}
	by, _ := str(given(args[1], "key"))
	if by != "key" && by != "value" {
		panic(r.fail("FilterArgumentError", `You can only sort by either "key" or "value"`))
	}
	get := func(e any) any {
		if by == "key" {
			return e.(tuple)[0]
		}
		return e.(tuple)[1]
	}
	l := r.list(&view{"dict_items", o})
	return r.sorted(l, folded(get, args[0]), truth(given(args[2], false)))
}

func uniqueFilter(r *renderer, v any, args []any) any {
	get := folded(r.getter(plain(args[1]), nil), args[0])
	seen := NewObject()
	return r.lazy("sync_do_unique", v, func(e any) (any, bool) {
		key := get(e)
		n := seen.Len()
		r.put(seen, key, nil)
		return e, seen.Len() > n
	})
}

func groupBy(r *renderer, v any, args []any) any {
	l := r.list(v)
	get := r.getter(plain(args[0]), given(args[1], nil))
	key := folded(get, args[2])
	l = r.sorted(l, key, false)
	out := []any{}
	var last any
	for _, e := range l {
		k := key(e)
		if len(out) > 0 {
			if r.equal(last, k) {
				g := out[len(out)-1].(*group)
				g.list = append(g.list, e)
				continue
			}
		}
		last = k
		out = append(out, &group{get(e), []any{e}})
	}
	return out
}

// extreme is min or max: the first of the least, or greatest, elements.
func extreme(operator, name string) func(*renderer, any, []any) any {
	return func(r *renderer, v any, args []any) any {
		l := r.list(v)
		if len(l) == 0 {
			return &undefined{hint: "No aggregated item, sequence was empty."}
		}
		get := folded(r.getter(plain(args[1]), nil), args[0])
		best := l[0]
		key := get(best)
		for _, e := range l[1:] {
			k := get(e)
			if r.order(operator, k, key) {
				best, key = e, k
			}
		}
		return best
	}
}

func sumFilter(r *renderer, v any, args []any) any {
	l := r.list(v)
	sum := given(args[1], int64(0))
	if _, ok := str(sum); ok {
		panic(r.fail("TypeError", "sum() can't sum strings [use ''.join(seq) instead]"))
	}
	get := r.getter(plain(args[0]), nil)
	for _, e := range l {
		sum = r.arithmetic("+", sum, get(e))
	}
	return sum
}

// later is a generator over a list that is made, and may fail, when its first element is read.
func later(name string, list func() []any) *generator {
	var next iterator
	return &generator{name, func() (any, bool) {
		if next == nil {
			next = each(list())
		}
		return next()
	}}
}

func batchFilter(r *renderer, v any, args []any) any {
	return later("do_batch", func() []any { return r.batch(v, args) })
}

func sliceFilter(r *renderer, v any, args []any) any {
	return later("sync_do_slice", func() []any { return r.slices(v, args) })
}

// batch cuts a list into rows of some elements each and fills up the last one. jinja2 compares the number of elements
// with any value, which is an error only if a row has to be filled.
func (r *renderer) batch(v any, args []any) []any {
	count := -1
	_, isInteger := integer(args[0])
	fraction, isFloat := args[0].(float64)
	if isInteger {
		count = r.intArgument(args[0], 0)
	} else if isFloat && fraction == math.Trunc(fraction) && math.Abs(fraction) < 1<<40 {
		count = int(fraction)
	}
	l := r.list(v)
	out := []any{}
	var row []any
	for _, e := range l {
		if len(row) == count && len(row) > 0 {
			out = append(out, row)
			row = nil
		} else if count == 0 && len(out) == 0 {
			out = append(out, []any{}) // as in jinja2, whose first row is full at once
		}
		row = append(row, e)
	}
	if len(row) > 0 {
		fill := given(args[1], nil)
		if fill != nil && !isInteger && (!isFloat || float64(len(row)) < fraction) {
			r.intArgument(args[0], 0) // which fails
		}
		if fill != nil && len(row) < count {
			r.size(16 * count)
			row = append(row, slices.Repeat([]any{fill}, count-len(row))...)
		}
		out = append(out, row)
	}
	return out
}

// slices cuts a list into a number of parts, and fills up shorter ones.
func (r *renderer) slices(v any, args []any) []any {
	count := r.intArgument(args[0], 0)
	l := r.list(v)
	if count == 0 {
		panic(r.fail("ZeroDivisionError", "integer division or modulo by zero"))
	}
	r.size(16 * max(count, 0))
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
	return out
}
