package template

import (
	"unicode/utf8"
)

// iterator gives the next element, or false at the end.
type iterator func() (any, bool, error)

// each iterates over a list.
func each(l []any) iterator {
	i := 0
	return func() (any, bool, error) {
		if i >= len(l) {
			return nil, false, nil
		}
		i++
		return l[i-1], true, nil
	}
}

// iterate begins to read the elements of a value: characters of a text, keys of a dict. Undefined has none.
func (r *renderer) iterate(v any) (iterator, error) {
	switch v := v.(type) {
	case []any:
		return each(v), nil
	case *Object:
		return each(v.keys), nil
	case *undefined:
		return each(nil), nil
	case *generator:
		return v.next, nil
	case *view:
		i := 0
		return func() (any, bool, error) {
			if i >= v.of.Len() {
				return nil, false, nil
			}
			i++
			return v.at(i - 1), true, nil
		}, nil
	case *sequence:
		i := int64(0)
		return func() (any, bool, error) {
			if i >= v.length {
				return nil, false, nil
			}
			i++
			return v.start + (i-1)*v.step, true, nil
		}, nil
	case *loop:
		return func() (any, bool, error) {
			e, ok, err := v.advance()
			return tuple{e, v}, ok, err
		}, nil
	}
	if t, ok := asTuple(v); ok {
		return each(t), nil
	}
	if s, ok := str(v); ok {
		return func() (any, bool, error) {
			if s == "" {
				return nil, false, nil
			}
			_, n := utf8.DecodeRuneInString(s)
			c := s[:n]
			s = s[n:]
			return c, true, nil
		}, nil
	}
	return nil, r.fail("TypeError", "'%s' object is not iterable", typeName(v))
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
func (r *renderer) collect(next iterator) ([]any, error) {
	l := []any{}
	for {
		v, ok, err := next()
		if err != nil {
			return nil, err
		}
		if !ok {
			return l, nil
		}
		if err := r.step(1); err != nil {
			return nil, err
		}
		l = append(l, v)
	}
}

// list reads all elements of a value.
func (r *renderer) list(v any) ([]any, error) {
	next, err := r.iterate(v)
	if err != nil {
		return nil, err
	}
	return r.collect(next)
}

// lazy is a generator over the elements of v; make gives an element, or false to leave it out. As in Python nothing
// happens, and nothing fails, before the first element is asked for.
func (r *renderer) lazy(name string, v any, make func(e any) (any, bool, error)) *generator {
	var next iterator
	return &generator{name, func() (any, bool, error) {
		if next == nil {
			var err error
			if next, err = r.iterate(v); err != nil {
				return nil, false, err
			}
		}
		for {
			if err := r.step(1); err != nil {
				return nil, false, err
			}
			e, ok, err := next()
			if err != nil || !ok {
				return nil, false, err
			}
			if e, ok, err = make(e); err != nil || ok {
				return e, ok, err
			}
		}
	}}
}

// newRange is Python's range with the sandbox's limit.
func (r *renderer) newRange(start, stop, step int64) (*sequence, error) {
	if step == 0 {
		return nil, r.fail("ValueError", "range() arg 3 must not be zero")
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
		return nil, r.fail("OverflowError", "range too big: the sandbox blocks ranges larger than %d", maxRange)
	}
	s.length = int64(n)
	return s, nil
}
