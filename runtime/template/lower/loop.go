package lower

import "github.com/llmexport/llmexport/runtime/template/syntax"

// loop lowers a loop: its else, break, continue, previtem and nextitem.
func (l *lowerer) loop(s *syntax.For) []syntax.Statement {
	if s.Recursive {
		l.cannot(s.Line, "a recursive loop")
	}
	if t, ok := s.Target.(*syntax.Tuple); ok {
		for _, x := range t.Items {
			if _, ok := x.(*syntax.Name); !ok {
				l.cannot(s.Line, "a loop over nested tuples")
				return nil
			}
		}
	}
	iterable := l.value(s.Iterable)
	if keyed(s) {
		iterable = l.collect(&syntax.Filter{X: iterable, Name: "items"}, func(x *syntax.Name) (value, test syntax.Expression) {
			return &syntax.Item{X: x, Key: constant(int64(0))}, nil
		})
	}
	var held *syntax.Name
	if neighbours(s.Body) {
		if s.Test != nil {
			l.cannot(s.Line, "loop.previtem or loop.nextitem of a loop with a condition")
		}
		n, ok := l.hold(iterable).(*syntax.Name)
		if !ok {
			n = l.fresh()
			l.before = append(l.before, assign(n, iterable))
		}
		held, iterable = n, n
	}
	out := &syntax.For{Target: s.Target, Iterable: iterable, Line: s.Line}
	if s.Test != nil {
		n := len(l.before)
		out.Test = l.condition(s.Test)
		if len(l.before) > n {
			l.cannot(s.Line, "this condition of a loop")
		}
	}
	l.iterables = append(l.iterables, held)
	var flags *syntax.Name
	if within(s.Body, leaves) {
		flags = l.fresh()
		l.before = append(l.before, assign(flags, namespaceOf("skip", constant(false))))
	}
	l.stops = append(l.stops, flags)
	body := l.body(s.Body)
	l.stops, l.iterables = l.stops[:len(l.stops)-1], l.iterables[:len(l.iterables)-1]
	var ran *syntax.Name
	if len(s.Otherwise) > 0 {
		ran = l.fresh()
		l.before = append(l.before, assign(ran, namespaceOf("any", constant(false))))
		var note syntax.Statement = assign(&syntax.NamespaceTarget{ID: ran.ID, Attribute: "any"}, constant(true))
		if flags != nil { // jinja2 notes at the end of a round that there was one
			note = when(not(attribute(flags, "skip")), note)
		}
		body = append(body, note)
	}
	if flags != nil {
		if within(s.Body, breaks) {
			body = []syntax.Statement{when(not(attribute(flags, "stop")), body...)}
		}
		body = append([]syntax.Statement{assign(&syntax.NamespaceTarget{ID: flags.ID, Attribute: "skip"}, constant(false))}, body...)
	}
	made := []syntax.Statement{out}
	if ran != nil {
		made = append(made, when(not(attribute(ran, "any")), l.body(s.Otherwise)...))
	}
	out.Body = body
	return made
}

// leave ends the round of a loop; body skips the statements after it.
func (l *lowerer) leave(flag string, line int) []syntax.Statement {
	if len(l.stops) == 0 {
		l.cannot(line, "break or continue within a captured text")
		return nil
	}
	flags := l.stops[len(l.stops)-1]
	set := func(attribute string) syntax.Statement {
		return assign(&syntax.NamespaceTarget{ID: flags.ID, Attribute: attribute}, constant(true))
	}
	out := []syntax.Statement{set("skip")}
	if flag != "" {
		out = append(out, set(flag))
	}
	return out
}

func namespaceOf(id string, value syntax.Expression) syntax.Expression {
	return &syntax.Call{Function: named("namespace"), Arguments: syntax.Arguments{Keyword: []syntax.Keyword{{Name: id, X: value}}}}
}

func within(body []syntax.Statement, holds func(any) bool) bool {
	for _, s := range body {
		if holds(s) {
			return true
		}
	}
	return false
}

// breaks reports whether a statement may break the loop that it is in.
func breaks(node any) bool {
	_, isBreak := node.(*syntax.Break)
	return isBreak || inLoop(node, breaks)
}

// neighbours reports whether the body of a loop reads the items before or after its own.
func neighbours(body []syntax.Statement) bool {
	found := false
	walk(body, func(node any) {
		if a, ok := node.(*syntax.Attribute); ok && (a.Name == "previtem" || a.Name == "nextitem") {
			found = true
		}
	})
	return found
}

// loopAttribute lowers loop.x; it reports false for other attributes.
func (l *lowerer) loopAttribute(x *syntax.Attribute) (syntax.Expression, bool) {
	n, ok := x.X.(*syntax.Name)
	if !ok || n.ID != "loop" || len(l.iterables) == 0 {
		return nil, false
	}
	of := func(id string) syntax.Expression { return attribute(named("loop"), id) }
	number := func(i int64) syntax.Expression { return constant(i) }
	neighbour := func(edge, operator string) (syntax.Expression, bool) {
		held := l.iterables[len(l.iterables)-1]
		if held == nil {
			l.cannot(x.Line, "loop.%s", x.Name)
			return constant(""), true
		}
		at := &syntax.Item{X: held, Key: &syntax.Binary{Operator: operator, X: of("index0"), Y: number(1)}}
		return &syntax.Conditional{Test: of(edge), Yes: l.nothing(), No: at}, true
	}
	switch x.Name {
	case "revindex":
		return &syntax.Binary{Operator: "-", X: of("length"), Y: of("index0")}, true
	case "revindex0":
		return &syntax.Binary{Operator: "-", X: of("length"), Y: of("index")}, true
	case "previtem":
		return neighbour("first", "-")
	case "nextitem":
		return neighbour("last", "+")
	case "cycle", "changed", "depth", "depth0":
		l.cannot(x.Line, "loop.%s", x.Name)
	}
	return nil, false
}

// nothing is a name that is never defined.
func (l *lowerer) nothing() syntax.Expression { return named(l.prefix + "0") }

// collect gathers a list in a loop: add returns, for the name of an item, the value to append and its condition, if any.
func (l *lowerer) collect(list syntax.Expression, add func(x *syntax.Name) (value, test syntax.Expression)) syntax.Expression {
	ns, x := l.fresh(), l.fresh()
	before := l.before
	l.before = nil
	value, test := add(x)
	longer := &syntax.Binary{Operator: "+", X: attribute(ns, "l"), Y: listed(value)}
	body := append(l.before, assign(&syntax.NamespaceTarget{ID: ns.ID, Attribute: "l"}, longer))
	if test != nil {
		n := len(body) - 1
		body = append(body[:n:n], when(test, body[n:]...))
	}
	l.before = append(before,
		assign(ns, namespaceOf("l", &syntax.List{})),
		&syntax.For{Target: x, Iterable: list, Body: body},
	)
	return attribute(ns, "l")
}

// remainder counts modulo a positive constant, for which the engine has no operator.
func (l *lowerer) remainder(x syntax.Expression, by int64) syntax.Expression {
	ns := l.fresh()
	count := attribute(ns, "r")
	set := func(v syntax.Expression) syntax.Statement {
		return assign(&syntax.NamespaceTarget{ID: ns.ID, Attribute: "r"}, v)
	}
	l.before = append(l.before,
		assign(ns, namespaceOf("r", constant(int64(0)))),
		&syntax.For{
			Target:   l.fresh(),
			Iterable: called(named("range"), x),
			Body: []syntax.Statement{
				set(&syntax.Binary{Operator: "+", X: count, Y: constant(int64(1))}),
				when(compare(count, "==", constant(by)), set(constant(int64(0)))),
			},
		})
	return count
}

// joined makes one text of a list, or of an attribute of its items, which has a path.
func (l *lowerer) joined(list, between syntax.Expression, attributeName string) syntax.Expression {
	ns, x := l.fresh(), l.fresh()
	var one syntax.Expression = x
	if attributeName != "" {
		one, _ = path(x, attributeName)
	}
	one = &syntax.Conditional{Test: defined(one), Yes: one, No: constant("")}
	text := attribute(ns, "s")
	parts := []syntax.Expression{text, one}
	if c, ok := between.(*syntax.Constant); !ok || c.Value != "" {
		between = l.hold(between)
		between = &syntax.Conditional{Test: attribute(named("loop"), "first"), Yes: constant(""), No: between}
		parts = []syntax.Expression{text, between, one}
	}
	l.before = append(l.before,
		assign(ns, namespaceOf("s", constant(""))),
		&syntax.For{Target: x, Iterable: list, Body: []syntax.Statement{
			assign(&syntax.NamespaceTarget{ID: ns.ID, Attribute: "s"}, &syntax.Concat{Parts: parts}),
		}})
	return text
}

// repeated makes a text of as many copies of another as a list has items.
func (l *lowerer) repeated(list, text syntax.Expression) syntax.Expression {
	ns := l.fresh()
	all := attribute(ns, "s")
	l.before = append(l.before,
		assign(ns, namespaceOf("s", constant(""))),
		&syntax.For{Target: l.fresh(), Iterable: list, Body: []syntax.Statement{
			assign(&syntax.NamespaceTarget{ID: ns.ID, Attribute: "s"}, &syntax.Concat{Parts: []syntax.Expression{all, text}}),
		}})
	return all
}

// keyed reports whether the body of a loop indexes the loop's iterable with the loop's variable: the iterable is an
// object then, whose keys the engine would sort.
func keyed(s *syntax.For) bool {
	n, ok := s.Target.(*syntax.Name)
	if !ok {
		return false
	}
	of, ok := s.Iterable.(*syntax.Name)
	if !ok {
		return false
	}
	found := false
	walk(s.Body, func(node any) {
		if i, ok := node.(*syntax.Item); ok {
			x, isName := i.X.(*syntax.Name)
			key, isKey := i.Key.(*syntax.Name)
			found = found || isName && isKey && x.ID == of.ID && key.ID == n.ID
		}
	})
	return found
}
