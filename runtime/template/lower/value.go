package lower

import (
	"math"

	"github.com/llmexport/llmexport/runtime/template/syntax"
)

// value lowers an expression whose value is used.
func (l *lowerer) value(x syntax.Expression) syntax.Expression {
	switch x := x.(type) {
	case *syntax.Constant:
		if _, ok := x.Value.(float64); ok {
			l.cannot(1, "a number with a fraction")
			return constant("") // the engine hangs on some
		}
		if i, ok := x.Value.(int64); ok && i > math.MaxInt32 {
			l.cannot(1, "a number of more than 32 bits")
		}
		return x
	case *syntax.Name:
		if !isIdentifierName(x.ID) {
			l.cannot(1, "the name %q", x.ID)
			return constant("")
		}
		return x
	case *syntax.NamespaceTarget:
		return x
	case *syntax.Tuple:
		return listed(l.values(x.Items)...)
	case *syntax.List:
		return listed(l.values(x.Items)...)
	case *syntax.Dict:
		return &syntax.Dict{Keys: l.values(x.Keys), Values: l.values(x.Values)}
	case *syntax.Unary:
		if x.Operator == "not" {
			return &syntax.Unary{Operator: "not", X: l.condition(x.X), Line: x.Line}
		}
		return &syntax.Unary{Operator: x.Operator, X: l.value(x.X), Line: x.Line}
	case *syntax.Binary:
		return l.binary(x)
	case *syntax.Concat:
		parts := make([]syntax.Expression, len(x.Parts))
		for i, part := range x.Parts {
			if parts[i] = l.value(part); mayLack(parts[i]) {
				parts[i] = l.shared(parts[i])
			}
			if mayLack(parts[i]) {
				parts[i] = &syntax.Conditional{Test: defined(parts[i]), Yes: parts[i], No: constant("")}
			}
		}
		return &syntax.Concat{Parts: parts}
	case *syntax.Comparison:
		return l.comparison(x)
	case *syntax.Conditional:
		var no syntax.Expression = constant("")
		yes := l.value(x.Yes)
		if x.No != nil {
			no = l.value(x.No)
		}
		return &syntax.Conditional{Test: l.condition(x.Test), Yes: yes, No: no, Line: x.Line}
	case *syntax.Attribute:
		if a, ok := l.loopAttribute(x); ok {
			return a
		}
		if !isIdentifierName(x.Name) {
			return &syntax.Item{X: l.base(x.X), Key: constant(x.Name), Line: x.Line}
		}
		return &syntax.Attribute{X: l.base(x.X), Name: x.Name, Line: x.Line}
	case *syntax.Item:
		if key, ok := x.Key.(*syntax.Constant); ok {
			// A missing key gives an empty text, a missing attribute nothing.
			if s, ok := key.Value.(string); ok && isIdentifierName(s) {
				return &syntax.Attribute{X: l.base(x.X), Name: s, Line: x.Line}
			}
		}
		return &syntax.Item{X: l.elements(x.X, x.Line), Key: l.value(x.Key), Line: x.Line}
	case *syntax.Slice:
		if n, ok := x.X.(*syntax.Name); ok && l.json[n.ID] && x.Start == nil && x.Step == nil && isNumber(x.Stop, -1) {
			return l.unclosed(n)
		}
		s := &syntax.Slice{X: l.elements(x.X, x.Line), Line: x.Line}
		for _, p := range []struct {
			to   *syntax.Expression
			from syntax.Expression
		}{{&s.Start, x.Start}, {&s.Stop, x.Stop}, {&s.Step, x.Step}} {
			if p.from != nil {
				*p.to = l.value(p.from)
			}
		}
		return s
	case *syntax.Call:
		return l.call(x)
	case *syntax.Filter:
		return l.filter(x)
	case *syntax.Test:
		return l.test(x)
	}
	panic("internal error: an expression of an unknown type")
}

func (l *lowerer) values(list []syntax.Expression) []syntax.Expression {
	out := make([]syntax.Expression, len(list))
	for i, x := range list {
		out[i] = l.value(x)
	}
	return out
}

// condition lowers an expression of which only the truth counts. "and" and "or" return it in the engine, which evaluates
// both sides; no evaluation fails there.
func (l *lowerer) condition(x syntax.Expression) syntax.Expression {
	if b, ok := x.(*syntax.Binary); ok && (b.Operator == "and" || b.Operator == "or") {
		return &syntax.Binary{Operator: b.Operator, X: l.condition(b.X), Y: l.condition(b.Y), Line: b.Line}
	}
	return l.value(x)
}

// base lowers the owner of an attribute or element: only names, and what follows them, take a dot or a bracket.
func (l *lowerer) base(x syntax.Expression) syntax.Expression {
	switch x := l.value(x).(type) {
	case *syntax.Name, *syntax.Attribute, *syntax.Item, *syntax.Slice, *syntax.Call:
		return x
	default:
		return attribute(namespaceOf("v", x), "v")
	}
}

// elements lowers an indexed expression: the engine finds nothing in a text.
func (l *lowerer) elements(x syntax.Expression, line int) syntax.Expression {
	v := l.base(x)
	of := v
	if a, ok := v.(*syntax.Attribute); ok {
		if c, ok := a.X.(*syntax.Call); ok && len(c.Arguments.Keyword) == 1 && a.Name == "v" {
			of = c.Arguments.Keyword[0].X
		}
	}
	if isText(of) {
		l.cannot(line, "a part of a text")
	}
	return v
}

func (l *lowerer) binary(x *syntax.Binary) syntax.Expression {
	switch x.Operator {
	case "and", "or":
		left := l.value(x.X)
		right := l.value(x.Y)
		if isTruth(left) && isTruth(right) {
			return &syntax.Binary{Operator: x.Operator, X: left, Y: right, Line: x.Line}
		}
		left = l.hold(left)
		if x.Operator == "or" {
			return &syntax.Conditional{Test: left, Yes: left, No: right}
		}
		return &syntax.Conditional{Test: left, Yes: right, No: left}
	case "%":
		if c, ok := x.Y.(*syntax.Constant); ok {
			if n, ok := c.Value.(int64); ok && n > 0 {
				return l.remainder(l.value(x.X), n)
			}
		}
	case "*":
		for _, o := range [][2]syntax.Expression{{x.X, x.Y}, {x.Y, x.X}} {
			if c, ok := o[0].(*syntax.Constant); ok {
				if _, ok := c.Value.(string); ok {
					times := called(named("range"), l.value(o[1]))
					return l.repeated(times, c)
				}
			}
		}
	case "+", "-":
		return &syntax.Binary{Operator: x.Operator, X: l.value(x.X), Y: l.value(x.Y), Line: x.Line}
	}
	l.cannot(x.Line, "the operator %s", x.Operator)
	return constant("")
}

func (l *lowerer) comparison(x *syntax.Comparison) syntax.Expression {
	left := l.value(x.First)
	if len(x.Rest) == 1 {
		right := l.value(x.Rest[0].X)
		if op := x.Rest[0].Operator; (op == "==" || op == "!=") && !isScalar(left) && !isScalar(right) {
			// To the engine any two objects are equal.
			left, right = &syntax.Filter{X: left, Name: "tojson"}, &syntax.Filter{X: right, Name: "tojson"}
		}
		return compare(left, x.Rest[0].Operator, right)
	}
	var all syntax.Expression
	for _, o := range x.Rest {
		right := l.hold(l.value(o.X))
		var one syntax.Expression = compare(left, o.Operator, right)
		if all != nil {
			one = &syntax.Binary{Operator: "and", X: all, Y: one}
		}
		all, left = one, right
	}
	return all
}

// test lowers x is name.
func (l *lowerer) test(x *syntax.Test) syntax.Expression {
	a := x.Arguments.Positional
	switch x.Name {
	case "defined":
		return l.defined(l.value(x.X), x.Line)
	case "undefined":
		return not(l.defined(l.value(x.X), x.Line))
	case "none", "boolean", "string", "true", "false":
		return &syntax.Test{X: l.value(x.X), Name: x.Name, Line: x.Line}
	case "number": // True and False are numbers
		v := l.shared(l.value(x.X))
		return &syntax.Binary{Operator: "or", X: &syntax.Test{X: v, Name: "number", Line: x.Line}, Y: &syntax.Test{X: v, Name: "boolean"}}
	case "integer":
		return &syntax.Test{X: l.value(x.X), Name: "number", Line: x.Line}
	case "mapping":
		// To the engine an undefined value is an object.
		v := l.shared(l.value(x.X))
		mapping := &syntax.Test{X: v, Name: "mapping", Line: x.Line}
		if !mayLack(v) {
			return mapping
		}
		return &syntax.Binary{Operator: "and", X: defined(v), Y: mapping}
	case "sequence", "iterable":
		v := l.shared(l.value(x.X))
		return &syntax.Binary{Operator: "or", X: &syntax.Test{X: v, Name: x.Name, Line: x.Line}, Y: &syntax.Test{X: v, Name: "mapping"}}
	case "odd", "even":
		want := int64(0)
		if x.Name == "odd" {
			want = 1
		}
		return l.divides(x, constant(int64(2)), want)
	case "divisibleby":
		if len(a) == 1 {
			return l.divides(x, a[0], 0)
		}
	}
	operators := map[string]string{
		"eq": "==", "equalto": "==", "==": "==", "sameas": "==", "ne": "!=", "!=": "!=",
		"lt": "<", "lessthan": "<", "<": "<", "le": "<=", "<=": "<=",
		"gt": ">", "greaterthan": ">", ">": ">", "ge": ">=", ">=": ">=", "in": "in",
	}
	if op, ok := operators[x.Name]; ok && len(a) == 1 {
		return compare(l.value(x.X), op, l.value(a[0]))
	}
	l.cannot(x.Line, "the test %q", x.Name)
	return constant(false)
}

// divides lowers the test whether the rest of a division is want.
func (l *lowerer) divides(x *syntax.Test, by syntax.Expression, want int64) syntax.Expression {
	rest := &syntax.Binary{Operator: "%", X: x.X, Y: by, Line: x.Line}
	return l.comparison(compare(rest, "==", constant(want)))
}

// defined lowers "is defined"; to the engine a missing item is an empty text.
func (l *lowerer) defined(v syntax.Expression, line int) syntax.Expression {
	var there syntax.Expression = &syntax.Test{X: v, Name: "defined", Line: line}
	if c, ok := v.(*syntax.Conditional); ok {
		if n, ok := c.Yes.(*syntax.Name); ok && n.ID == l.nothing().(*syntax.Name).ID { // loop.previtem
			there = not(c.Test)
		}
	}
	if i, ok := v.(*syntax.Item); ok {
		isText := false
		switch key := i.Key.(type) {
		case *syntax.Constant:
			_, isText = key.Value.(string)
		case *syntax.Unary:
			l.cannot(line, "whether an item counted from the end is defined")
		}
		if _, isName := i.Key.(*syntax.Name); isText || isName {
			there = compare(i.Key, "in", i.X)
		} else {
			there = compare(&syntax.Filter{X: i.X, Name: "length"}, ">", i.Key)
		}
	}
	return there
}

// isTruth reports whether an expression can only be true or false.
func isTruth(x syntax.Expression) bool {
	switch x := x.(type) {
	case *syntax.Comparison, *syntax.Test:
		return true
	case *syntax.Unary:
		return x.Operator == "not"
	case *syntax.Constant:
		_, ok := x.Value.(bool)
		return ok
	case *syntax.Binary:
		return x.Operator == "and" || x.Operator == "or"
	case *syntax.Call:
		a, ok := x.Function.(*syntax.Attribute)
		return ok && (a.Name == "startswith" || a.Name == "endswith")
	}
	return false
}

// isScalar reports whether an expression can be neither a list nor an object.
func isScalar(x syntax.Expression) bool {
	_, isConstant := x.(*syntax.Constant)
	return isConstant || isText(x) || isCount(x) || isTruth(x)
}

// isText reports whether an expression can only be a text.
func isText(x syntax.Expression) bool {
	switch x := x.(type) {
	case *syntax.Constant:
		_, ok := x.Value.(string)
		return ok
	case *syntax.Concat:
		return true
	case *syntax.Binary:
		return x.Operator == "+" && (isText(x.X) || isText(x.Y))
	case *syntax.Conditional:
		return isText(x.Yes) && isText(x.No)
	case *syntax.Filter:
		switch x.Name {
		case "string", "trim", "upper", "lower", "capitalize", "tojson":
			return true
		}
	case *syntax.Name:
		return x.ID == "bos_token" || x.ID == "eos_token"
	case *syntax.Call:
		switch f := x.Function.(type) {
		case *syntax.Attribute:
			switch f.Name {
			case "strip", "lstrip", "rstrip", "replace":
				return true
			}
		case *syntax.Name:
			return f.ID != "range" && f.ID != "namespace"
		}
	}
	return false
}

// isCount reports whether an expression can only be a whole number.
func isCount(x syntax.Expression) bool {
	switch x := x.(type) {
	case *syntax.Constant:
		_, ok := x.Value.(int64)
		return ok
	case *syntax.Filter:
		return x.Name == "length"
	case *syntax.Attribute:
		n, ok := x.X.(*syntax.Name)
		return ok && n.ID == "loop" && (x.Name == "index" || x.Name == "index0" || x.Name == "length")
	case *syntax.Binary:
		return (x.Operator == "+" || x.Operator == "-") && isCount(x.X) && isCount(x.Y)
	}
	return false
}

// mayLack reports whether an expression may be undefined.
func mayLack(x syntax.Expression) bool {
	switch x := x.(type) {
	case *syntax.Name:
		return true
	case *syntax.Attribute:
		return !isCount(x)
	case *syntax.Conditional:
		return mayLack(x.Yes) || mayLack(x.No)
	}
	return false
}

func isNumber(x syntax.Expression, n int64) bool {
	if u, ok := x.(*syntax.Unary); ok && u.Operator == "-" {
		return isNumber(u.X, -n)
	}
	c, ok := x.(*syntax.Constant)
	return ok && c.Value == n
}

// unclosed removes the last byte of a list, an object or a text that tojson wrote: the engine has no slices of texts.
func (l *lowerer) unclosed(n *syntax.Name) syntax.Expression {
	const mark = "\x01" // no JSON has it
	var x syntax.Expression = attribute(namespaceOf("v", &syntax.Concat{Parts: []syntax.Expression{n, constant(mark)}}), "v")
	for _, end := range []string{"}", "]", `"`} {
		x = called(attribute(x, "replace"), constant(end+mark), constant(""))
	}
	return x
}
