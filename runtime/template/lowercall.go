package template

import "strings"

// call lowers the call of a function, a macro or a method.
func (l *lowerer) call(x *call) expression {
	a := x.arguments
	if a.star != nil || a.starStar != nil {
		l.cannot(x.line, "a call with * or **")
		return &constant{""}
	}
	switch f := x.function.(type) {
	case *attribute:
		return l.method(x, f)
	case *name:
		if m := l.macros[f.id]; m != nil {
			return l.callMacro(x, f, m)
		}
		switch f.id {
		case "range", "namespace", "strftime_now":
			out := &call{function: f, line: x.line, arguments: arguments{positional: l.values(a.positional)}}
			for _, k := range a.keyword {
				out.arguments.keyword = append(out.arguments.keyword, keywordArgument{k.name, l.value(k.x)})
			}
			if f.id == "namespace" && len(a.positional) > 0 {
				l.cannot(x.line, "a namespace made of a dict")
			}
			return out
		case "dict":
			if len(a.positional) == 0 {
				d := &dictLiteral{}
				for _, k := range a.keyword {
					d.keys, d.values = append(d.keys, &constant{k.name}), append(d.values, l.value(k.x))
				}
				return d
			}
		case "raise_exception":
			// Where it is not alone in its branch the text before it is rendered: the original has no text at all.
			return &constant{""}
		}
		l.cannot(x.line, "the function %q", f.id)
		return &constant{""}
	}
	l.cannot(x.line, "the call of an expression")
	return &constant{""}
}

// callMacro gives every argument: the engine drops defaults, and a parameter without a value is looked up in the
// scopes of the caller.
func (l *lowerer) callMacro(x *call, f *name, m *macroDefinition) expression {
	if l.several[f.id] {
		l.cannot(x.line, "the call of one of several macros %q", f.id)
	}
	given := make([]expression, len(m.parameters))
	if len(x.arguments.positional) > len(given) {
		l.cannot(x.line, "a call with more arguments than the macro %q has", f.id)
		return &constant{""}
	}
	for i, arg := range x.arguments.positional {
		given[i] = l.value(arg)
	}
	for _, k := range x.arguments.keyword {
		known := false
		for i, p := range m.parameters {
			if p == k.name {
				given[i], known = l.value(k.x), true
			}
		}
		if !known {
			l.cannot(x.line, "an argument %q that the macro %q has not", k.name, f.id)
		}
	}
	for i := range given {
		if given[i] != nil {
			continue
		}
		if d := i - (len(m.parameters) - len(m.defaults)); d >= 0 {
			given[i] = l.value(m.defaults[d])
		} else {
			given[i] = l.nothing()
		}
	}
	return &call{function: f, line: x.line, arguments: arguments{positional: given}}
}

// method lowers x.name(...).
func (l *lowerer) method(x *call, f *attribute) expression {
	a := x.arguments.positional
	if n, ok := f.x.(*name); ok && n.id == "loop" && len(l.iterables) > 0 {
		if f.name == "cycle" && len(a) > 0 {
			at := l.remainder(&attribute{x: n, name: "index0"}, int64(len(a)))
			return &item{x: &attribute{x: namespaceOf("v", &listLiteral{l.values(a)}), name: "v"}, key: at}
		}
		l.cannot(x.line, "loop.%s", f.name)
		return &constant{""}
	}
	if len(x.arguments.keyword) > 0 {
		l.cannot(x.line, "a named argument of the method %q", f.name)
		return &constant{""}
	}
	on := func(of expression) expression {
		return &call{function: &attribute{x: l.base(of), name: f.name, line: f.line}, line: x.line, arguments: arguments{positional: l.values(a)}}
	}
	count := len(a)
	switch f.name {
	case "strip", "lstrip", "rstrip":
		if count <= 1 {
			return on(f.x)
		}
	case "startswith", "endswith":
		if count == 1 {
			options, ok := a[0].(*tupleLiteral)
			if !ok {
				return on(f.x)
			}
			var any expression = &constant{false}
			for i, option := range options.items {
				a = []expression{option}
				if one := on(f.x); i == 0 {
					any = one
				} else {
					any = &binary{operator: "or", x: any, y: one}
				}
			}
			return any
		}
	case "split":
		if count == 1 {
			return on(f.x)
		}
		if count == 2 {
			if c, ok := a[1].(*constant); ok {
				if most, ok := c.value.(int64); ok && most > 0 {
					a = a[:1]
					return l.splitMost(on(f.x), l.value(a[0]), most)
				}
			}
		}
	case "replace":
		if count == 2 {
			return on(f.x)
		}
	case "upper", "lower", "capitalize":
		return l.filter(&filter{x: f.x, name: f.name, line: x.line})
	case "items":
		return &filter{x: l.value(f.x), name: "items", line: x.line}
	case "keys", "values":
		at := int64(0)
		if f.name == "values" {
			at = 1
		}
		return l.collect(&filter{x: l.value(f.x), name: "items"}, func(x *name) (expression, expression) {
			return &item{x: x, key: &constant{at}}, nil
		})
	case "get":
		if count == 1 || count == 2 {
			var otherwise expression = &constant{nil}
			if count == 2 {
				otherwise = l.value(a[1])
			}
			found := l.shared(l.value(&item{x: f.x, key: a[0], line: x.line}))
			if i, ok := found.(*item); ok {
				return &conditional{test: &comparison{first: i.key, rest: []operand{{"in", i.x}}}, yes: found, no: otherwise}
			}
			return &conditional{test: &test{x: found, name: "defined"}, yes: found, no: otherwise}
		}
	case "join":
		if count == 1 {
			return l.joined(l.value(a[0]), l.value(f.x), "")
		}
	case "format":
		if c, ok := f.x.(*constant); ok {
			if s, ok := c.value.(string); ok {
				if out, ok := l.formatted(s, l.values(a)); ok {
					return out
				}
			}
		}
	}
	l.cannot(x.line, "the method %q with these arguments", f.name)
	return &constant{""}
}

// filter lowers x|name(...).
func (l *lowerer) filter(x *filter) expression {
	a := x.arguments.positional
	argument := func(at int, id string) expression {
		if at < len(a) {
			return a[at]
		}
		for _, k := range x.arguments.keyword {
			if k.name == id {
				return k.x
			}
		}
		return nil
	}
	text := func(id string) (string, bool) {
		c, ok := argument(len(a), id).(*constant)
		if !ok {
			return "", false
		}
		s, ok := c.value.(string)
		return s, ok
	}
	plain := func(id string) expression { return &filter{x: l.value(x.x), name: id, line: x.line} }
	ofText := func(id string) expression { return &filter{x: l.shown(l.value(x.x)), name: id, line: x.line} }
	switch x.name {
	case "tojson":
		out := plain("tojson").(*filter)
		for _, k := range x.arguments.keyword {
			switch c, ok := k.x.(*constant); {
			case k.name == "indent":
				out.arguments.keyword = append(out.arguments.keyword, keywordArgument{"indent", l.value(k.x)})
			case k.name == "ensure_ascii" && ok && c.value == false:
			default:
				l.cannot(x.line, "the argument %q of tojson", k.name)
			}
		}
		if len(a) > 0 {
			l.cannot(x.line, "an argument of tojson without a name")
		}
		return out
	case "string":
		return l.shown(l.value(x.x))
	case "lower", "upper", "capitalize":
		return ofText(x.name)
	case "items":
		return plain("items")
	case "trim":
		if chars := argument(0, "chars"); chars != nil {
			return l.method(&call{line: x.line, arguments: arguments{positional: []expression{chars}}}, &attribute{x: x.x, name: "strip"})
		}
		return ofText("trim")
	case "length", "count":
		n := plain("length").(*filter)
		if mayLack(n.x) {
			n.x = l.shared(n.x)
			return &conditional{test: &test{x: n.x, name: "defined"}, yes: n, no: &constant{int64(0)}}
		}
		return n
	case "list", "safe":
		return l.value(x.x)
	case "first":
		return &item{x: l.elements(x.x, x.line), key: &constant{int64(0)}}
	case "last":
		return &item{x: l.elements(x.x, x.line), key: &constant{int64(-1)}}
	case "reverse":
		return &slice{x: l.elements(x.x, x.line), step: &constant{int64(-1)}}
	case "default", "d":
		otherwise := expression(&constant{""})
		if v := argument(0, "default_value"); v != nil {
			otherwise = l.value(v)
		}
		v := l.shared(l.value(x.x))
		if b := argument(1, "boolean"); b != nil {
			v = l.hold(v)
			return &conditional{test: v, yes: v, no: otherwise}
		}
		return &conditional{test: l.defined(v, x.line), yes: v, no: otherwise}
	case "replace":
		if len(a) == 2 {
			return l.method(&call{line: x.line, arguments: arguments{positional: a}}, &attribute{x: x.x, name: "replace"})
		}
	case "join":
		between := expression(&constant{""})
		if d := argument(0, "d"); d != nil {
			between = l.value(d)
		}
		id, _ := text("attribute")
		if _, ok := path(nil, id); ok || argument(1, "attribute") == nil {
			return l.joined(l.value(x.x), between, id)
		}
	case "attr":
		if len(a) == 1 {
			return l.value(&item{x: x.x, key: a[0], line: x.line})
		}
	case "dictsort":
		if len(a) == 0 && len(x.arguments.keyword) == 0 {
			// The engine goes through the keys of an object in their order.
			d := l.hold(l.value(x.x))
			return l.collect(d, func(n *name) (value, test expression) {
				return &listLiteral{[]expression{n, &item{x: d, key: n}}}, nil
			})
		}
	case "map":
		return l.mapped(x, text)
	case "select", "reject", "selectattr", "rejectattr":
		return l.selected(x)
	}
	l.cannot(x.line, "the filter %q with these arguments", x.name)
	return l.value(x.x)
}

func (l *lowerer) mapped(x *filter, text func(string) (string, bool)) expression {
	a := x.arguments.positional
	list := l.value(x.x)
	if id, ok := text("attribute"); ok {
		if _, ok := path(nil, id); ok {
			return l.collect(list, func(n *name) (expression, expression) {
				of, _ := path(n, id)
				return of, nil
			})
		}
	}
	if len(a) > 0 {
		if c, ok := a[0].(*constant); ok {
			if id, ok := c.value.(string); ok {
				return l.collect(list, func(n *name) (expression, expression) {
					return l.filter(&filter{x: n, name: id, line: x.line, arguments: arguments{positional: a[1:], keyword: x.arguments.keyword}}), nil
				})
			}
		}
	}
	l.cannot(x.line, "this form of the filter \"map\"")
	return list
}

// path is the attribute that a filter names by a text: one of an attribute, where there are dots. Numbers, which are
// indexes, and names that are no identifiers have no equivalent.
func path(x expression, id string) (expression, bool) {
	for part := range strings.SplitSeq(id, ".") {
		if !isIdentifierName(part) {
			return nil, false
		}
		x = &attribute{x: x, name: part}
	}
	return x, true
}

// selected lowers the four filters that keep some of a list.
func (l *lowerer) selected(x *filter) expression {
	a := x.arguments.positional
	ofAttribute := x.name == "selectattr" || x.name == "rejectattr"
	id := ""
	if ofAttribute && len(a) > 0 {
		if c, ok := a[0].(*constant); ok {
			id, _ = c.value.(string)
		}
		a = a[1:]
	}
	testName := ""
	if len(a) > 0 {
		if c, ok := a[0].(*constant); ok {
			testName, _ = c.value.(string)
		}
	}
	if _, ok := path(nil, id); ofAttribute && !ok || len(a) > 0 && testName == "" {
		l.cannot(x.line, "this form of the filter %q", x.name)
		return l.value(x.x)
	}
	return l.collect(l.value(x.x), func(n *name) (value, condition expression) {
		var of expression = n
		if ofAttribute {
			of, _ = path(n, id)
		}
		if testName != "" {
			of = l.test(&test{x: of, name: testName, line: x.line, arguments: arguments{positional: a[1:]}})
		}
		if x.name == "reject" || x.name == "rejectattr" {
			of = &unary{operator: "not", x: of}
		}
		return n, of
	})
}

// shown is a value as Python's str gives it.
func (l *lowerer) shown(x expression) expression {
	if isText(x) {
		return x
	}
	if mayLack(x) {
		x = l.shared(x)
	}
	s := &filter{x: x, name: "string"}
	if mayLack(x) {
		return &conditional{test: &test{x: x, name: "defined"}, yes: s, no: &constant{""}}
	}
	return s
}

// splitMost joins what the engine, which knows no limit, has split further.
func (l *lowerer) splitMost(parts, separator expression, most int64) expression {
	parts, separator = l.hold(parts), l.hold(separator)
	n := &constant{most}
	rest := l.joined(&slice{x: parts, start: n}, separator, "")
	return &conditional{
		test: &comparison{first: &filter{x: parts, name: "length"}, rest: []operand{{">", n}}},
		yes:  &binary{operator: "+", x: &slice{x: parts, stop: n}, y: &listLiteral{[]expression{rest}}},
		no:   parts,
	}
}

// formatted fills a format in whose fields are all {}.
func (l *lowerer) formatted(format string, values []expression) (expression, bool) {
	texts := strings.Split(format, "{}")
	if len(texts) != len(values)+1 || strings.ContainsAny(strings.Join(texts, ""), "{}") {
		return nil, false
	}
	parts := []expression{&constant{texts[0]}}
	for i, v := range values {
		parts = append(parts, l.shown(v), &constant{texts[i+1]})
	}
	return &concat{parts}, true
}
