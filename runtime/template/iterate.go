package template

import "unicode/utf8"

// iterator returns the next element, or false at the end.
type iterator func() (any, bool)

// each iterates over a list.
func each(l []any) iterator {
	i := 0
	return func() (any, bool) {
		if i >= len(l) {
			return nil, false
		}
		i++
		return l[i-1], true
	}
}

// iterate begins to read the elements of a value: characters of a text, keys of a dict. Undefined has none.
func (r *renderer) iterate(v any) iterator {
	switch v := v.(type) {
	case []any:
		return each(v)
	case *Object:
		return each(v.keys)
	case *undefined:
		return each(nil)
	case *generator:
		return v.next
	case *view:
		i := 0
		return func() (any, bool) {
			if i >= v.of.Len() {
				return nil, false
			}
			i++
			return v.at(i - 1), true
		}
	case *sequence:
		i := int64(0)
		return func() (any, bool) {
			if i >= v.length {
				return nil, false
			}
			i++
			return v.start + (i-1)*v.step, true
		}
	case *loop:
		return func() (any, bool) {
			e, ok := v.advance()
			return tuple{e, v}, ok
		}
	}
	if t, ok := asTuple(v); ok {
		return each(t)
	}
	if s, ok := str(v); ok {
		return func() (any, bool) {
			if s == "" {
				return nil, false
			}
			_, n := utf8.DecodeRuneInString(s)
			c := s[:n]
			s = s[n:]
			return c, true
		}
	}
	panic(r.fail("TypeError", "'%s' object is not iterable", typeName(v)))
}

func (v *view) at(i int) any {
	switch v.kind {
	case "dict_keys":
		return v.of.keys[i]
	case "dict_values":
		return v.of.values[i]
	}
	return tuple{v.of.keys[i], v.of.values[i]}
}

// collect reads an iterator to its end.
func (r *renderer) collect(next iterator) []any {
	l := []any{}
	for {
		v, ok := next()
		if !ok {
			return l
		}
		r.step(1)
		l = append(l, v)
	}
}

// list reads all elements of a value.
func (r *renderer) list(v any) []any {
	return r.collect(r.iterate(v))
}

// lazy is a generator over the elements of v; make returns an element, or false to leave it out. As in Python nothing
// happens, and nothing fails, before the first element is read.
func (r *renderer) lazy(name string, v any, make func(e any) (any, bool)) *generator {
	var next iterator
	return &generator{name, func() (any, bool) {
		if next == nil {
			next = r.iterate(v)
		}
		for {
			r.step(1)
			e, ok := next()
			if !ok {
				return nil, false
			}
			if e, ok = make(e); ok {
				return e, ok
			}
		}
	}}
}

// newRange is Python's range with the sandbox's limit.
func (r *renderer) newRange(start, stop, step int64) *sequence {
	if step == 0 {
		panic(r.fail("ValueError", "range() arg 3 must not be zero"))
	}
	s := &sequence{start, stop, step, 0}
	const maxRange = 100_000
	var n uint64
	if step > 0 && stop > start {
		n = (uint64(stop)-uint64(start)-1)/uint64(step) + 1
	} else if step < 0 && stop < start {
		n = (uint64(start)-uint64(stop)-1)/-uint64(step) + 1
	}
	if n > maxRange {
		panic(r.fail("OverflowError", "range too big: the sandbox blocks ranges larger than %d", maxRange))
	}
	s.length = int64(n)
	return s
}
