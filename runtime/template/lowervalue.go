package template

import "math"

// value lowers an expression whose value is used.
func (l *lowerer) value(x expression) expression {
	switch x := x.(type) {
	case *constant:
		if _, ok := x.value.(float64); ok {
			l.cannot(1, "a number with a fraction")
			return &constant{""} // the engine hangs on some
		}
		if i, ok := x.value.(int64); ok && i > math.MaxInt32 {
			l.cannot(1, "a number of more than 32 bits")
		}
		return x
	case *name:
		if !isIdentifierName(x.id) {
			l.cannot(1, "the name %q", x.id)
			return &constant{""}
		}
		return x
	case *namespaceTarget:
		return x
	case *tupleLiteral:
		return &listLiteral{l.values(x.items)}
	case *listLiteral:
		return &listLiteral{l.values(x.items)}
	case *dictLiteral:
		return &dictLiteral{l.values(x.keys), l.values(x.values)}
	case *unary:
		if x.operator == "not" {
			return &unary{operator: "not", x: l.condition(x.x), line: x.line}
		}
		return &unary{operator: x.operator, x: l.value(x.x), line: x.line}
	case *binary:
		return l.binary(x)
	case *concat:
		parts := make([]expression, len(x.parts))
		for i, part := range x.parts {
			if parts[i] = l.value(part); mayLack(parts[i]) {
				parts[i] = l.shared(parts[i])
			}
			if mayLack(parts[i]) {
				parts[i] = &conditional{test: &test{x: parts[i], name: "defined"}, yes: parts[i], no: &constant{""}}
			}
		}
		return &concat{parts}
	case *comparison:
		return l.comparison(x)
	case *conditional:
		var no expression = &constant{""}
		yes := l.value(x.yes)
		if x.no != nil {
			no = l.value(x.no)
		}
		return &conditional{test: l.condition(x.test), yes: yes, no: no, line: x.line}
	case *attribute:
		if a, ok := l.loopAttribute(x); ok {
			return a
		}
		if !isIdentifierName(x.name) {
			return &item{x: l.base(x.x), key: &constant{x.name}, line: x.line}
		}
		return &attribute{x: l.base(x.x), name: x.name, line: x.line}
	case *item:
		if key, ok := x.key.(*constant); ok {
			// A key that is missing gives an empty text where an attribute gives nothing.
			if s, ok := key.value.(string); ok && isIdentifierName(s) {
				return &attribute{x: l.base(x.x), name: s, line: x.line}
			}
		}
		return &item{x: l.elements(x.x, x.line), key: l.value(x.key), line: x.line}
	case *slice:
		if n, ok := x.x.(*name); ok && l.json[n.id] && x.start == nil && x.step == nil && isNumber(x.stop, -1) {
			return l.unclosed(n)
		}
		s := &slice{x: l.elements(x.x, x.line), line: x.line}
		for _, p := range []struct {
			to   *expression
			from expression
		}{{&s.start, x.start}, {&s.stop, x.stop}, {&s.step, x.step}} {
			if p.from != nil {
				*p.to = l.value(p.from)
			}
		}
		return s
	case *call:
		return l.call(x)
	case *filter:
		return l.filter(x)
	case *test:
		return l.test(x)
	}
	panic("internal error: an expression of an unknown type")
}

func (l *lowerer) values(list []expression) []expression {
	out := make([]expression, len(list))
	for i, x := range list {
		out[i] = l.value(x)
	}
	return out
}

// condition lowers an expression of which only the truth counts; "and" and "or" give that in the engine, which
// evaluates both sides, but none of its evaluations fails.
func (l *lowerer) condition(x expression) expression {
	if b, ok := x.(*binary); ok && (b.operator == "and" || b.operator == "or") {
		return &binary{operator: b.operator, x: l.condition(b.x), y: l.condition(b.y), line: b.line}
	}
	return l.value(x)
}

// base lowers what something is read of: only names and what follows them can have a dot or a bracket behind them.
func (l *lowerer) base(x expression) expression {
	switch x := l.value(x).(type) {
	case *name, *attribute, *item, *slice, *call:
		return x
	default:
		return &attribute{x: namespaceOf("v", x), name: "v"}
	}
}

// elements lowers what is indexed: the engine finds nothing in a text.
func (l *lowerer) elements(x expression, line int) expression {
	v := l.base(x)
	of := v
	if a, ok := v.(*attribute); ok {
		if c, ok := a.x.(*call); ok && len(c.arguments.keyword) == 1 && a.name == "v" {
			of = c.arguments.keyword[0].x
		}
	}
	if isText(of) {
		l.cannot(line, "a part of a text")
	}
	return v
}

func (l *lowerer) binary(x *binary) expression {
	switch x.operator {
	case "and", "or":
		left := l.value(x.x)
		right := l.value(x.y)
		if isTruth(left) && isTruth(right) {
			return &binary{operator: x.operator, x: left, y: right, line: x.line}
		}
		left = l.hold(left)
		if x.operator == "or" {
			return &conditional{test: left, yes: left, no: right}
		}
		return &conditional{test: left, yes: right, no: left}
	case "%":
		if c, ok := x.y.(*constant); ok {
			if n, ok := c.value.(int64); ok && n > 0 {
				return l.remainder(l.value(x.x), n)
			}
		}
	case "*":
		for _, o := range [][2]expression{{x.x, x.y}, {x.y, x.x}} {
			if c, ok := o[0].(*constant); ok {
				if _, ok := c.value.(string); ok {
					times := &call{function: &name{"range"}, arguments: arguments{positional: []expression{l.value(o[1])}}}
					return l.repeated(times, c)
				}
			}
		}
	case "+", "-":
		return &binary{operator: x.operator, x: l.value(x.x), y: l.value(x.y), line: x.line}
	}
	l.cannot(x.line, "the operator %s", x.operator)
	return &constant{""}
}

func (l *lowerer) comparison(x *comparison) expression {
	left := l.value(x.first)
	if len(x.rest) == 1 {
		right := l.value(x.rest[0].x)
		if op := x.rest[0].operator; (op == "==" || op == "!=") && !isScalar(left) && !isScalar(right) {
			// The engine takes any two objects for equal.
			left, right = &filter{x: left, name: "tojson"}, &filter{x: right, name: "tojson"}
		}
		return &comparison{first: left, rest: []operand{{x.rest[0].operator, right}}, line: x.line}
	}
	var all expression
	for _, o := range x.rest {
		right := l.hold(l.value(o.x))
		var one expression = &comparison{first: left, rest: []operand{{o.operator, right}}, line: x.line}
		if all != nil {
			one = &binary{operator: "and", x: all, y: one}
		}
		all, left = one, right
	}
	return all
}

// test lowers x is name.
func (l *lowerer) test(x *test) expression {
	a := x.arguments.positional
	switch x.name {
	case "defined":
		return l.defined(l.value(x.x), x.line)
	case "undefined":
		return &unary{operator: "not", x: l.defined(l.value(x.x), x.line)}
	case "none", "boolean", "string", "true", "false":
		return &test{x: l.value(x.x), name: x.name, line: x.line}
	case "number": // True and False are numbers
		v := l.shared(l.value(x.x))
		return &binary{operator: "or", x: &test{x: v, name: "number", line: x.line}, y: &test{x: v, name: "boolean"}}
	case "integer":
		return &test{x: l.value(x.x), name: "number", line: x.line}
	case "mapping":
		// What is undefined is an object to the engine.
		v := l.shared(l.value(x.x))
		mapping := &test{x: v, name: "mapping", line: x.line}
		if !mayLack(v) {
			return mapping
		}
		return &binary{operator: "and", x: &test{x: v, name: "defined"}, y: mapping}
	case "sequence", "iterable":
		v := l.shared(l.value(x.x))
		return &binary{operator: "or", x: &test{x: v, name: x.name, line: x.line}, y: &test{x: v, name: "mapping"}}
	case "odd", "even":
		want := int64(0)
		if x.name == "odd" {
			want = 1
		}
		return l.comparison(&comparison{first: &binary{operator: "%", x: x.x, y: &constant{int64(2)}, line: x.line}, rest: []operand{{"==", &constant{want}}}, line: x.line})
	case "divisibleby":
		if len(a) == 1 {
			return l.comparison(&comparison{first: &binary{operator: "%", x: x.x, y: a[0], line: x.line}, rest: []operand{{"==", &constant{int64(0)}}}, line: x.line})
		}
	}
	operators := map[string]string{
		"eq": "==", "equalto": "==", "==": "==", "sameas": "==", "ne": "!=", "!=": "!=", "lt": "<", "lessthan": "<", "<": "<", "le": "<=", "<=": "<=",
		"gt": ">", "greaterthan": ">", ">": ">", "ge": ">=", ">=": ">=", "in": "in",
	}
	if op, ok := operators[x.name]; ok && len(a) == 1 {
		return &comparison{first: l.value(x.x), rest: []operand{{op, l.value(a[0])}}, line: x.line}
	}
	l.cannot(x.line, "the test %q", x.name)
	return &constant{false}
}

// defined lowers the question whether there is something; an item that is not there is an empty text to the engine.
func (l *lowerer) defined(v expression, line int) expression {
	var there expression = &test{x: v, name: "defined", line: line}
	if c, ok := v.(*conditional); ok {
		if n, ok := c.yes.(*name); ok && n.id == l.nothing().(*name).id { // loop.previtem
			there = &unary{operator: "not", x: c.test}
		}
	}
	if i, ok := v.(*item); ok {
		isText := false
		switch key := i.key.(type) {
		case *constant:
			_, isText = key.value.(string)
		case *unary:
			l.cannot(line, "whether an item counted from the end is defined")
		}
		if _, isName := i.key.(*name); isText || isName {
			there = &comparison{first: i.key, rest: []operand{{"in", i.x}}}
		} else {
			there = &comparison{first: &filter{x: i.x, name: "length"}, rest: []operand{{">", i.key}}}
		}
	}
	return there
}

// isTruth reports whether an expression can only be true or false.
func isTruth(x expression) bool {
	switch x := x.(type) {
	case *comparison, *test:
		return true
	case *unary:
		return x.operator == "not"
	case *constant:
		_, ok := x.value.(bool)
		return ok
	case *binary:
		return x.operator == "and" || x.operator == "or"
	case *call:
		a, ok := x.function.(*attribute)
		return ok && (a.name == "startswith" || a.name == "endswith")
	}
	return false
}

// isScalar reports whether an expression can be no list and no object.
func isScalar(x expression) bool {
	_, isConstant := x.(*constant)
	return isConstant || isText(x) || isCount(x) || isTruth(x)
}

// isText reports whether an expression can only be a text.
func isText(x expression) bool {
	switch x := x.(type) {
	case *constant:
		_, ok := x.value.(string)
		return ok
	case *concat:
		return true
	case *binary:
		return x.operator == "+" && (isText(x.x) || isText(x.y))
	case *conditional:
		return isText(x.yes) && isText(x.no)
	case *filter:
		switch x.name {
		case "string", "trim", "upper", "lower", "capitalize", "tojson":
			return true
		}
	case *name:
		return x.id == "bos_token" || x.id == "eos_token"
	case *call:
		switch f := x.function.(type) {
		case *attribute:
			switch f.name {
			case "strip", "lstrip", "rstrip", "replace":
				return true
			}
		case *name:
			return f.id != "range" && f.id != "namespace"
		}
	}
	return false
}

// isCount reports whether an expression can only be a whole number.
func isCount(x expression) bool {
	switch x := x.(type) {
	case *constant:
		_, ok := x.value.(int64)
		return ok
	case *filter:
		return x.name == "length"
	case *attribute:
		n, ok := x.x.(*name)
		return ok && n.id == "loop" && (x.name == "index" || x.name == "index0" || x.name == "length")
	case *binary:
		return (x.operator == "+" || x.operator == "-") && isCount(x.x) && isCount(x.y)
	}
	return false
}

// mayLack reports whether an expression may be undefined.
func mayLack(x expression) bool {
	switch x := x.(type) {
	case *name:
		return true
	case *attribute:
		return !isCount(x)
	case *conditional:
		return mayLack(x.yes) || mayLack(x.no)
	}
	return false
}

func isNumber(x expression, n int64) bool {
	if u, ok := x.(*unary); ok && u.operator == "-" {
		return isNumber(u.x, -n)
	}
	c, ok := x.(*constant)
	return ok && c.value == n
}

// unclosed is what tojson made of a list, an object or a text, without its last byte: the engine has no slices of texts.
func (l *lowerer) unclosed(n *name) expression {
	const mark = "\x01" // no JSON has it
	var x expression = &attribute{x: namespaceOf("v", &concat{[]expression{n, &constant{mark}}}), name: "v"}
	for _, end := range []string{"}", "]", `"`} {
		x = &call{function: &attribute{x: x, name: "replace"}, arguments: arguments{positional: []expression{&constant{end + mark}, &constant{""}}}}
	}
	return x
}
