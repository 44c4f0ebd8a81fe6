package template

import "github.com/llmexport/llmexport/runtime/template/syntax"

// loop is the variable of that name within a for loop, and its iteration.
type loop struct {
	iterable any
	next     iterator
	ahead    any // read early, or unset
	current  any
	previous any
	index0   int
	depth0   int
	length   int // -1 before it is known
	changed  tuple
	body     func(iterable any, depth int) string // nil unless recursive
}

func (r *renderer) newLoop(iterable any, depth int) *loop {
	return &loop{
		iterable: iterable, next: r.iterate(iterable), ahead: unset, current: unset, previous: unset,
		index0: -1, depth0: depth, length: -1,
	}
}

// advance moves to the next element.
func (l *loop) advance() (any, bool) {
	v, ok := l.peek()
	if !ok {
		return nil, false
	}
	l.ahead = unset
	l.index0++
	l.previous, l.current = l.current, v
	return v, true
}

// peek returns the next element without moving to it.
func (l *loop) peek() (any, bool) {
	if l.ahead != unset {
		return l.ahead, true
	}
	v, ok := l.next()
	if ok {
		l.ahead = v
	}
	return v, ok
}

// count is the number of elements. A generator is read to its end for it.
func (l *loop) count(r *renderer) int {
	if l.length >= 0 {
		return l.length
	}
	if n, ok := length(l.iterable); ok {
		l.length = n
		return n
	}
	rest := r.collect(l.next)
	l.next = each(rest)
	l.length = len(rest) + l.index0 + 1
	if l.ahead != unset {
		l.length++
	}
	return l.length
}

// attribute is loop.name.
func (l *loop) attribute(r *renderer, id string) (any, bool) {
	switch id {
	case "index":
		return int64(l.index0 + 1), true
	case "index0":
		return int64(l.index0), true
	case "depth":
		return int64(l.depth0 + 1), true
	case "depth0":
		return int64(l.depth0), true
	case "first":
		return l.index0 == 0, true
	case "last":
		_, more := l.peek()
		return !more, true
	case "length":
		return int64(l.count(r)), true
	case "revindex":
		return int64(l.count(r) - l.index0), true
	case "revindex0":
		return int64(l.count(r) - l.index0 - 1), true
	case "previtem":
		if l.index0 == 0 {
			return &undefined{hint: "there is no previous item"}, true
		}
		return l.previous, true
	case "nextitem":
		v, more := l.peek()
		if !more {
			v = &undefined{hint: "there is no next item"}
		}
		return v, true
	case "cycle":
		return &function{"cycle", func(r *renderer, args []any, keywords []keyword) any {
			if len(args) == 0 || len(keywords) > 0 {
				panic(r.fail("TypeError", "no items for cycling given"))
			}
			return args[l.index0%len(args)]
		}}, true
	case "changed":
		return &function{"changed", func(r *renderer, args []any, keywords []keyword) any {
			if len(keywords) > 0 {
				panic(r.fail("TypeError", "changed() takes no keyword arguments"))
			}
			if l.changed != nil && r.equal(l.changed, tuple(args)) {
				return false
			}
			l.changed = append(tuple{}, args...)
			return true
		}}, true
	}
	return nil, false
}

func (r *renderer) forStatement(n *syntax.For, s *scope, out *output) signal {
	r.line = n.Line
	iterable := r.evaluate(n.Iterable, s)
	if !n.Recursive {
		return r.loop(n, iterable, 0, nil, s, out)
	}
	var body func(iterable any, depth int) string
	body = func(iterable any, depth int) string {
		r.enter()
		defer r.leave()
		var b output
		r.loop(n, iterable, depth, body, s, &b)
		return b.String()
	}
	r.write(out, body(iterable, 0))
	return normal
}

// loop runs a for loop over iterable.
func (r *renderer) loop(n *syntax.For, iterable any, depth int, body func(any, int) string, s *scope, out *output) signal {
	if n.Test != nil {
		iterable = r.filtered(n, iterable, s)
	}
	l := r.newLoop(iterable, depth)
	l.body = body
	// jinja2 notes at the end of the body that the loop ran, which continue and break do not reach.
	completed := false
	for {
		r.step(4) // a round makes a scope
		v, ok := l.advance()
		if !ok {
			break
		}
		inner := newScope(s, n.Hidden)
		inner.set("loop", l)
		r.assign(n.Target, v, inner)
		sig := r.execute(n.Body, inner, out)
		if sig == broken {
			break
		}
		completed = completed || sig == normal
	}
	if !completed {
		return r.execute(n.Otherwise, newScope(s, n.OtherwiseHidden), out)
	}
	return normal
}

// filtered are the elements that the test of a loop selects; each is tested when the loop reaches it.
func (r *renderer) filtered(n *syntax.For, iterable any, s *scope) *generator {
	next := r.iterate(iterable)
	return &generator{"loop", func() (any, bool) {
		for {
			v, ok := next()
			if !ok {
				return nil, false
			}
			inner := &scope{parent: s}
			r.assign(n.Target, v, inner)
			if truth(r.evaluate(n.Test, inner)) {
				return v, true
			}
			r.step(1)
		}
	}}
}

// enter counts a macro or recursive loop within another.
func (r *renderer) enter() {
	if r.calls++; r.calls > r.limits.Depth {
		panic(r.limit("more than %d calls within each other", r.limits.Depth))
	}
}

func (r *renderer) leave() { r.calls-- }
