package syntax

import "strings"

// The grammar of expressions, from the loosest to the tightest operator:
//
//	expression  or [if or [else expression]]
//	or          and {or and}
//	and         not {and not}
//	not         not not | comparison
//	comparison  sum {(== != < <= > >= in, not in) sum}
//	sum         joined {(+ -) joined}
//	joined      product {~ product}
//	product     power {(* / // %) power}
//	power       unary {** unary}
//	unary       [+ -] primary {. [] ()} {| is ()}
//
// So ~ binds tighter than + and -, a sign tighter than **, which groups to the left, and a filter tighter than both.

func (p *parser) expression(conditionals bool) Expression {
	line := p.current().line
	x := p.or()
	for conditionals && p.skipName("if") {
		c := &Conditional{Yes: x, Line: line}
		c.Test = p.or()
		if p.skipName("else") {
			c.No = p.expression(true)
		}
		p.grow()
		x, line = c, p.current().line
	}
	return x
}

// chain parses operands with binary operators between them.
func (p *parser) chain(operand func() Expression, is func(string) bool, operators ...string) Expression {
	x := operand()
next:
	for {
		for _, op := range operators {
			if is(op) {
				line := p.next().line
				y := operand()
				p.grow()
				x = &Binary{op, x, y, line}
				continue next
			}
		}
		return x
	}
}

func (p *parser) or() Expression  { return p.chain(p.and, p.isName, "or") }
func (p *parser) and() Expression { return p.chain(p.not, p.isName, "and") }

func (p *parser) not() Expression {
	if !p.isName("not") {
		return p.comparison()
	}
	line := p.next().line
	p.grow()
	return &Unary{"not", p.not(), line}
}

func (p *parser) comparison() Expression {
	c := &Comparison{Line: p.current().line, First: p.sum()}
	for {
		op := p.comparer()
		if op == "" {
			break
		}
		c.Rest = append(c.Rest, Operand{op, p.sum()})
	}
	if len(c.Rest) == 0 {
		return c.First
	}
	return c
}

// comparer takes a comparison operator, if one follows.
func (p *parser) comparer() string {
	for _, op := range []string{"==", "!=", "<", "<=", ">", ">="} {
		if p.skip(op) {
			return op
		}
	}
	if p.skipName("in") {
		return "in"
	}
	if p.isName("not") && p.look().kind == tokenName && p.look().text == "in" {
		p.position += 2
		return "not in"
	}
	return ""
}

func (p *parser) sum() Expression { return p.chain(p.joined, p.is, "+", "-") }

func (p *parser) joined() Expression {
	x := p.product()
	if !p.is("~") {
		return x
	}
	c := &Concat{[]Expression{x}}
	for p.skip("~") {
		c.Parts = append(c.Parts, p.product())
	}
	return c
}

func (p *parser) product() Expression { return p.chain(p.power, p.is, "*", "/", "//", "%") }

func (p *parser) power() Expression {
	return p.chain(func() Expression { return p.unary(true) }, p.is, "**")
}

func (p *parser) unary(filters bool) Expression {
	p.grow()
	var x Expression
	if p.is("-") || p.is("+") {
		t := p.next()
		x = &Unary{Operator: t.text, Line: t.line, X: p.unary(false)}
	} else {
		x = p.primary(false)
	}
	if x = p.postfix(x); filters {
		x = p.filters(x)
	}
	return x
}

// primary parses a name, a literal, or an expression in brackets. With namespaces set, a name may have an attribute and
// is a target then.
func (p *parser) primary(namespaces bool) Expression {
	p.grow()
	t := p.current()
	switch {
	case t.kind == tokenName:
		p.next()
		switch t.text {
		case "true", "True":
			return &Constant{true}
		case "false", "False":
			return &Constant{false}
		case "none", "None":
			return &Constant{nil}
		}
		if namespaces && p.skip(".") {
			return &NamespaceTarget{t.text, p.name(), t.line}
		}
		if t.text == "self" {
			panic(p.unsupported("self"))
		}
		return &Name{t.text}
	case t.kind == tokenString:
		var s strings.Builder
		for p.current().kind == tokenString {
			s.WriteString(p.next().text)
			p.grow()
		}
		return &Constant{s.String()}
	case t.kind == tokenInteger || t.kind == tokenFloat:
		p.next()
		return &Constant{t.value}
	case p.skip("("):
		x := p.tuple(tupleRule{conditionals: true, empty: true})
		p.expect(")")
		return x
	case p.skip("["):
		l := &List{}
		p.sequence("]", func() { l.Items = append(l.Items, p.expression(true)) })
		return l
	case p.skip("{"):
		d := &Dict{}
		p.sequence("}", func() {
			d.Keys = append(d.Keys, p.expression(true))
			p.expect(":")
			d.Values = append(d.Values, p.expression(true))
		})
		return d
	}
	panic(p.corrupt("unexpected %q", t))
}

// tupleRule says how a tuple without brackets of its own is parsed.
type tupleRule struct {
	primaries    bool   // only names and literals
	namespaces   bool   // and attributes of names
	conditionals bool   // x if y else z
	empty        bool   // no expression at all is ()
	end          string // a name that ends it
}

func (p *parser) tuple(rule tupleRule) Expression {
	var items []Expression
	isTuple := false
	for {
		if len(items) > 0 {
			p.expect(",")
		}
		k := p.current().kind
		if k == tokenPrintEnd || k == tokenTagEnd || p.is(")") || rule.end != "" && p.isName(rule.end) {
			break
		}
		if rule.primaries {
			items = append(items, p.primary(rule.namespaces))
		} else {
			items = append(items, p.expression(rule.conditionals))
		}
		if !p.is(",") {
			break
		}
		isTuple = true
	}
	switch {
	case isTuple:
	case len(items) > 0:
		return items[0]
	case !rule.empty:
		panic(p.corrupt("expected an expression, got %q", p.current()))
	}
	return &Tuple{items}
}

// sequence parses elements with commas between them up to a closing bracket; the opening one has been read.
func (p *parser) sequence(end string, element func()) {
	for n := 0; !p.is(end); n++ {
		if n > 0 {
			p.expect(",")
			if p.is(end) {
				break
			}
		}
		element()
	}
	p.expect(end)
}

// postfix parses attributes, subscripts and calls.
func (p *parser) postfix(x Expression) Expression {
	for {
		p.grow()
		switch {
		case p.is("."):
			x = p.dot(x)
		case p.is("["):
			x = p.subscript(x)
		case p.is("("):
			x = p.call(x)
		default:
			return x
		}
	}
}

func (p *parser) dot(x Expression) Expression {
	line := p.next().line
	t := p.next()
	switch t.kind {
	case tokenName:
		return &Attribute{x, t.text, line}
	case tokenInteger:
		return &Item{x, &Constant{t.value}, line}
	}
	panic(p.corrupt("expected name or number, got %q", t))
}

func (p *parser) subscript(x Expression) Expression {
	line := p.next().line
	var keys []Expression
	sliced := false
	for !p.is("]") {
		if len(keys) > 0 {
			p.expect(",")
		}
		key, isSlice := p.subscripted(x, line)
		keys, sliced = append(keys, key), sliced || isSlice
	}
	p.expect("]")
	switch {
	case len(keys) == 1 && sliced:
		return keys[0]
	case sliced:
		panic(p.unsupported("several slices in one subscript"))
	case len(keys) != 1:
		return &Item{x, &Tuple{keys}, line}
	}
	return &Item{x, keys[0], line}
}

// subscripted parses one subscript of x: a slice of it, or a key, which may be a slice of something else.
func (p *parser) subscripted(x Expression, line int) (key Expression, isSlice bool) {
	s := &Slice{X: x, Line: line}
	if !p.is(":") {
		if s.Start = p.expression(true); !p.is(":") {
			return s.Start, false
		}
	}
	p.next()
	part := func() Expression {
		if p.is(":") || p.is("]") || p.is(",") {
			return nil
		}
		return p.expression(true)
	}
	if s.Stop = part(); p.skip(":") {
		s.Step = part()
	}
	return s, true
}

func (p *parser) call(x Expression) Expression {
	line := p.current().line
	return &Call{x, p.arguments(), line}
}

// arguments parses the arguments of a call with their brackets.
func (p *parser) arguments() Arguments {
	var a Arguments
	p.expect("(")
	p.sequence(")", func() {
		allowed := a.StarStar == nil
		switch {
		case p.skip("*"):
			allowed = allowed && a.Star == nil
			a.Star = p.expression(true)
		case p.skip("**"):
			a.StarStar = p.expression(true)
		case p.current().kind == tokenName && p.look().text == "=" && p.look().kind == tokenOperator:
			k := Keyword{Name: p.next().text}
			p.next()
			for _, other := range a.Keyword {
				allowed = allowed && other.Name != k.Name
			}
			k.X = p.expression(true)
			a.Keyword = append(a.Keyword, k)
		default:
			allowed = allowed && a.Star == nil && len(a.Keyword) == 0
			a.Positional = append(a.Positional, p.expression(true))
		}
		if !allowed {
			panic(p.corrupt("invalid syntax for function call expression"))
		}
	})
	return a
}

// filters parses what may follow a value and its postfixes: filters, tests, and calls of their results.
func (p *parser) filters(x Expression) Expression {
	for {
		p.grow()
		switch {
		case p.skip("|"):
			x = p.filter(x)
		case p.isName("is"):
			x = p.test(x)
		case p.is("("):
			x = p.call(x)
		default:
			return x
		}
	}
}

// dotted parses the name of a filter or test.
func (p *parser) dotted() string {
	s := p.name()
	for p.skip(".") {
		s += "." + p.name()
	}
	return s
}

// filter parses one filter after its bar.
func (p *parser) filter(x Expression) Expression {
	f := &Filter{X: x, Line: p.current().line}
	p.grow()
	f.Name = p.dotted()
	if p.is("(") {
		f.Arguments = p.arguments()
	}
	return f
}

// test parses a test. A single argument needs no brackets.
func (p *parser) test(x Expression) Expression {
	s := &Test{X: x, Line: p.next().line}
	negated := p.skipName("not")
	s.Name = p.dotted()
	c := p.current()
	switch {
	case p.is("("):
		s.Arguments = p.arguments()
	case p.isName("else") || p.isName("or") || p.isName("and"):
	case p.isName("is"):
		panic(p.corrupt("tests do not chain"))
	case c.kind >= tokenName && c.kind <= tokenFloat || p.is("[") || p.is("{"):
		s.Arguments.Positional = []Expression{p.postfix(p.primary(false))}
	}
	if negated {
		return &Unary{"not", s, s.Line}
	}
	return s
}
