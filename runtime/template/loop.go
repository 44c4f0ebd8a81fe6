package template

// loop is the variable of that name within a for loop, and its iteration.
type loop struct {
	iterable any
	next     iterator
	ahead    any // read before its time, or unset
	current  any
	previous any
	index0   int
	depth0   int
	length   int // -1 before it is known
	changed  tuple
	body     func(iterable any, depth int) (string, error) // nil unless recursive
}

func (r *renderer) newLoop(iterable any, depth int) (*loop, error) {
	next, err := r.iterate(iterable)
	return &loop{iterable: iterable, next: next, ahead: unset, current: unset, previous: unset, index0: -1, depth0: depth, length: -1}, err
}

// advance goes to the next element.
func (l *loop) advance() (any, bool, error) {
	v, ok, err := l.peek()
	if err != nil || !ok {
		return nil, false, err
	}
	l.ahead = unset
	l.index0++
	l.previous, l.current = l.current, v
	return v, true, nil
}

// peek is the next element without going there.
func (l *loop) peek() (any, bool, error) {
	if l.ahead != unset {
		return l.ahead, true, nil
	}
	v, ok, err := l.next()
	if ok && err == nil {
		l.ahead = v
	}
	return v, ok && err == nil, err
}

// count is the number of elements. What has no length is read to its end for it.
func (l *loop) count(r *renderer) (int, error) {
	if l.length >= 0 {
		return l.length, nil
	}
	if n, ok := length(l.iterable); ok {
		l.length = n
		return n, nil
	}
	rest, err := r.collect(l.next)
	if err != nil {
		return 0, err
	}
	l.next = each(rest)
	l.length = len(rest) + l.index0 + 1
	if l.ahead != unset {
		l.length++
	}
	return l.length, nil
}

// attribute is loop.name.
func (l *loop) attribute(r *renderer, id string) (any, bool, error) {
	switch id {
	case "index":
		return int64(l.index0 + 1), true, nil
	case "index0":
		return int64(l.index0), true, nil
	case "depth":
		return int64(l.depth0 + 1), true, nil
	case "depth0":
		return int64(l.depth0), true, nil
	case "first":
		return l.index0 == 0, true, nil
	case "last":
		_, more, err := l.peek()
		return !more, true, err
	case "length":
		n, err := l.count(r)
		return int64(n), true, err
	case "revindex":
		n, err := l.count(r)
		return int64(n - l.index0), true, err
	case "revindex0":
		n, err := l.count(r)
		return int64(n - l.index0 - 1), true, err
	case "previtem":
		if l.index0 == 0 {
			return &undefined{hint: "there is no previous item"}, true, nil
		}
		return l.previous, true, nil
	case "nextitem":
		v, more, err := l.peek()
		if err == nil && !more {
			v = &undefined{hint: "there is no next item"}
		}
		return v, true, err
	case "cycle":
		return &function{"cycle", func(r *renderer, args []any, keywords []keyword) (any, error) {
			if len(args) == 0 || len(keywords) > 0 {
				return nil, r.fail("TypeError", "no items for cycling given")
			}
			return args[l.index0%len(args)], nil
		}}, true, nil
	case "changed":
		return &function{"changed", func(r *renderer, args []any, keywords []keyword) (any, error) {
			if len(keywords) > 0 {
				return nil, r.fail("TypeError", "changed() takes no keyword arguments")
			}
			if l.changed != nil {
				same, err := r.equal(l.changed, tuple(args))
				if err != nil || same {
					return false, err
				}
			}
			l.changed = append(tuple{}, args...)
			return true, nil
		}}, true, nil
	}
	return nil, false, nil
}

func (r *renderer) forStatement(n *forStatement, s *scope, out *output) (signal, error) {
	r.line = n.line
	iterable, err := r.evaluate(n.iterable, s)
	if err != nil {
		return normal, err
	}
	if !n.recursive {
		return r.loop(n, iterable, 0, nil, s, out)
	}
	var body func(iterable any, depth int) (string, error)
	body = func(iterable any, depth int) (string, error) {
		if err := r.enter(); err != nil {
			return "", err
		}
		defer r.leave()
		var b output
		_, err := r.loop(n, iterable, depth, body, s, &b)
		return b.String(), err
	}
	text, err := body(iterable, 0)
	if err != nil {
		return normal, err
	}
	return normal, r.write(out, text)
}

// loop runs a for loop over iterable.
func (r *renderer) loop(n *forStatement, iterable any, depth int, body func(any, int) (string, error), s *scope, out *output) (signal, error) {
	if n.test != nil {
		filtered, err := r.filtered(n, iterable, s)
		if err != nil {
			return normal, err
		}
		iterable = filtered
	}
	l, err := r.newLoop(iterable, depth)
	if err != nil {
		return normal, err
	}
	l.body = body
	// The reference notes that the loop ran at the end of its body, which continue and break do not reach.
	completed := false
	for {
		if err := r.step(4); err != nil { // a round makes a scope
			return normal, err
		}
		v, ok, err := l.advance()
		if err != nil {
			return normal, err
		}
		if !ok {
			break
		}
		inner := newScope(s, n.hidden)
		inner.set("loop", l)
		if err := r.assign(n.target, v, inner); err != nil {
			return normal, err
		}
		sig, err := r.execute(n.body, inner, out)
		if err != nil {
			return normal, err
		}
		if sig == broken {
			break
		}
		completed = completed || sig == normal
	}
	if !completed {
		return r.execute(n.otherwise, newScope(s, n.otherwiseHidden), out)
	}
	return normal, nil
}

// filtered are the elements of iterable that the test of a loop selects, each tested when the loop comes to it.
func (r *renderer) filtered(n *forStatement, iterable any, s *scope) (*generator, error) {
	next, err := r.iterate(iterable)
	if err != nil {
		return nil, err
	}
	return &generator{"loop", func() (any, bool, error) {
		for {
			v, ok, err := next()
			if err != nil || !ok {
				return nil, false, err
			}
			inner := &scope{parent: s}
			if err := r.assign(n.target, v, inner); err != nil {
				return nil, false, err
			}
			selected, err := r.evaluate(n.test, inner)
			if err != nil {
				return nil, false, err
			}
			if truth(selected) {
				return v, true, nil
			}
			if err := r.step(1); err != nil {
				return nil, false, err
			}
		}
	}}, nil
}

// enter counts a macro or recursive loop within another.
func (r *renderer) enter() error {
	if r.calls++; r.calls > r.limits.Depth {
		return r.limit("more than %d calls within each other", r.limits.Depth)
	}
	return nil
}

func (r *renderer) leave() { r.calls-- }
