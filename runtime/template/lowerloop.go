package template

// loop lowers a loop: its else, break, continue, previtem and nextitem.
func (l *lowerer) loop(s *forStatement) []statement {
	if s.recursive {
		l.cannot(s.line, "a recursive loop")
	}
	if t, ok := s.target.(*tupleLiteral); ok {
		for _, x := range t.items {
			if _, ok := x.(*name); !ok {
				l.cannot(s.line, "a loop over nested tuples")
				return nil
			}
		}
	}
	iterable := l.value(s.iterable)
	if keyed(s) {
		iterable = l.collect(&filter{x: iterable, name: "items"}, func(x *name) (value, test expression) {
			return &item{x: x, key: &constant{int64(0)}}, nil
		})
	}
	var held *name
	if neighbours(s.body) {
		if s.test != nil {
			l.cannot(s.line, "loop.previtem or loop.nextitem of a loop with a condition")
		}
		n, ok := l.hold(iterable).(*name)
		if !ok {
			n = l.fresh()
			l.before = append(l.before, &setStatement{target: n, value: iterable})
		}
		held, iterable = n, n
	}
	out := &forStatement{target: s.target, iterable: iterable, line: s.line}
	if s.test != nil {
		n := len(l.before)
		out.test = l.condition(s.test)
		if len(l.before) > n {
			l.cannot(s.line, "this condition of a loop")
		}
	}
	l.iterables = append(l.iterables, held)
	var flags *name
	if within(s.body, leaves) {
		flags = l.fresh()
		l.before = append(l.before, &setStatement{target: flags, value: namespaceOf("skip", &constant{false})})
	}
	l.stops = append(l.stops, flags)
	body := l.body(s.body)
	l.stops, l.iterables = l.stops[:len(l.stops)-1], l.iterables[:len(l.iterables)-1]
	var ran *name
	if len(s.otherwise) > 0 {
		ran = l.fresh()
		l.before = append(l.before, &setStatement{target: ran, value: namespaceOf("any", &constant{false})})
		var note statement = &setStatement{target: &namespaceTarget{id: ran.id, attribute: "any"}, value: &constant{true}}
		if flags != nil { // the reference notes at the end of a round that there was one
			note = &ifStatement{branches: []branch{{test: &unary{operator: "not", x: &attribute{x: flags, name: "skip"}}, body: []statement{note}}}}
		}
		body = append(body, note)
	}
	if flags != nil {
		if within(s.body, breaks) {
			body = []statement{&ifStatement{branches: []branch{{test: &unary{operator: "not", x: &attribute{x: flags, name: "stop"}}, body: body}}}}
		}
		body = append([]statement{&setStatement{target: &namespaceTarget{id: flags.id, attribute: "skip"}, value: &constant{false}}}, body...)
	}
	made := []statement{out}
	if ran != nil {
		made = append(made, &ifStatement{branches: []branch{{
			test: &unary{operator: "not", x: &attribute{x: ran, name: "any"}}, body: l.body(s.otherwise),
		}}})
	}
	out.body = body
	return made
}

// leave ends the round of a loop; what follows it is not done, as body sees to.
func (l *lowerer) leave(flag string, line int) []statement {
	if len(l.stops) == 0 {
		l.cannot(line, "break or continue within a captured text")
		return nil
	}
	flags := l.stops[len(l.stops)-1]
	set := func(attribute string) statement {
		return &setStatement{target: &namespaceTarget{id: flags.id, attribute: attribute}, value: &constant{true}}
	}
	out := []statement{set("skip")}
	if flag != "" {
		out = append(out, set(flag))
	}
	return out
}

func namespaceOf(id string, value expression) expression {
	return &call{function: &name{"namespace"}, arguments: arguments{keyword: []keywordArgument{{id, value}}}}
}

func within(body []statement, holds func(any) bool) bool {
	for _, s := range body {
		if holds(s) {
			return true
		}
	}
	return false
}

// breaks reports whether a statement may break the loop that it is in.
func breaks(node any) bool {
	_, isBreak := node.(*breakStatement)
	return isBreak || inLoop(node, breaks)
}

// neighbours reports whether the body of a loop reads the items before or behind its own.
func neighbours(body []statement) bool {
	found := false
	walk(body, func(node any) {
		if a, ok := node.(*attribute); ok && (a.name == "previtem" || a.name == "nextitem") {
			found = true
		}
	})
	return found
}

// loopAttribute lowers loop.x; false for what is no such thing.
func (l *lowerer) loopAttribute(x *attribute) (expression, bool) {
	n, ok := x.x.(*name)
	if !ok || n.id != "loop" || len(l.iterables) == 0 {
		return nil, false
	}
	of := func(id string) expression { return &attribute{x: &name{"loop"}, name: id} }
	number := func(i int64) expression { return &constant{i} }
	neighbour := func(edge, operator string) (expression, bool) {
		held := l.iterables[len(l.iterables)-1]
		if held == nil {
			l.cannot(x.line, "loop.%s", x.name)
			return &constant{""}, true
		}
		at := &item{x: held, key: &binary{operator: operator, x: of("index0"), y: number(1)}}
		return &conditional{test: of(edge), yes: l.nothing(), no: at}, true
	}
	switch x.name {
	case "revindex":
		return &binary{operator: "-", x: of("length"), y: of("index0")}, true
	case "revindex0":
		return &binary{operator: "-", x: of("length"), y: of("index")}, true
	case "previtem":
		return neighbour("first", "-")
	case "nextitem":
		return neighbour("last", "+")
	case "cycle", "changed", "depth", "depth0":
		l.cannot(x.line, "loop.%s", x.name)
	}
	return nil, false
}

// nothing is a name that nothing defines.
func (l *lowerer) nothing() expression { return &name{l.prefix + "0"} }

// collect gathers a list in a loop: add makes of an item's name what is appended, and the condition for it, if any.
func (l *lowerer) collect(list expression, add func(x *name) (value, test expression)) expression {
	ns, x := l.fresh(), l.fresh()
	before := l.before
	l.before = nil
	value, test := add(x)
	body := append(l.before, &setStatement{
		target: &namespaceTarget{id: ns.id, attribute: "l"},
		value:  &binary{operator: "+", x: &attribute{x: ns, name: "l"}, y: &listLiteral{items: []expression{value}}},
	})
	if test != nil {
		n := len(body) - 1
		body = append(body[:n:n], &ifStatement{branches: []branch{{test: test, body: body[n:]}}})
	}
	l.before = append(before,
		&setStatement{target: ns, value: namespaceOf("l", &listLiteral{})},
		&forStatement{target: x, iterable: list, body: body},
	)
	return &attribute{x: ns, name: "l"}
}

// remainder counts modulo a positive constant, for which the engine has no operator.
func (l *lowerer) remainder(x expression, by int64) expression {
	ns := l.fresh()
	count := &attribute{x: ns, name: "r"}
	set := func(v expression) statement {
		return &setStatement{target: &namespaceTarget{id: ns.id, attribute: "r"}, value: v}
	}
	l.before = append(l.before,
		&setStatement{target: ns, value: namespaceOf("r", &constant{int64(0)})},
		&forStatement{
			target:   l.fresh(),
			iterable: &call{function: &name{"range"}, arguments: arguments{positional: []expression{x}}},
			body: []statement{
				set(&binary{operator: "+", x: count, y: &constant{int64(1)}}),
				&ifStatement{branches: []branch{{
					test: &comparison{first: count, rest: []operand{{"==", &constant{by}}}},
					body: []statement{set(&constant{int64(0)})},
				}}},
			},
		})
	return count
}

// joined makes one text of a list, or of an attribute of its items, which has a path.
func (l *lowerer) joined(list, between expression, attributeName string) expression {
	ns, x := l.fresh(), l.fresh()
	var one expression = x
	if attributeName != "" {
		one, _ = path(x, attributeName)
	}
	one = &conditional{test: &test{x: one, name: "defined"}, yes: one, no: &constant{""}}
	text := &attribute{x: ns, name: "s"}
	parts := []expression{text, one}
	if c, ok := between.(*constant); !ok || c.value != "" {
		between = l.hold(between)
		parts = []expression{text, &conditional{test: &attribute{x: &name{"loop"}, name: "first"}, yes: &constant{""}, no: between}, one}
	}
	l.before = append(l.before,
		&setStatement{target: ns, value: namespaceOf("s", &constant{""})},
		&forStatement{target: x, iterable: list, body: []statement{
			&setStatement{target: &namespaceTarget{id: ns.id, attribute: "s"}, value: &concat{parts: parts}},
		}})
	return text
}

// repeated makes a text of as many copies of another as a list has items.
func (l *lowerer) repeated(list, text expression) expression {
	ns := l.fresh()
	all := &attribute{x: ns, name: "s"}
	l.before = append(l.before,
		&setStatement{target: ns, value: namespaceOf("s", &constant{""})},
		&forStatement{target: l.fresh(), iterable: list, body: []statement{
			&setStatement{target: &namespaceTarget{id: ns.id, attribute: "s"}, value: &concat{[]expression{all, text}}},
		}})
	return all
}

// keyed reports whether the body of a loop reads the items of what it goes through by the loop's variable: then that is
// an object, whose keys the engine would sort.
func keyed(s *forStatement) bool {
	n, ok := s.target.(*name)
	if !ok {
		return false
	}
	of, ok := s.iterable.(*name)
	if !ok {
		return false
	}
	found := false
	walk(s.body, func(node any) {
		if i, ok := node.(*item); ok {
			x, isName := i.x.(*name)
			key, isKey := i.key.(*name)
			found = found || isName && isKey && x.id == of.id && key.id == n.id
		}
	})
	return found
}
