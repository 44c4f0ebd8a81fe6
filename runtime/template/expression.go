package template

import "strings"

// The grammar of expressions, each rule after those that it uses less tightly:
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

func (p *parser) expression(conditionals bool) (expression, error) {
	if !conditionals {
		return p.or()
	}
	line := p.current().line
	x, err := p.or()
	for err == nil && p.skipName("if") {
		c := &conditional{yes: x, line: line}
		if c.test, err = p.or(); err != nil {
			return nil, err
		}
		if p.skipName("else") {
			if c.no, err = p.expression(true); err != nil {
				return nil, err
			}
		}
		if err = p.grow(); err != nil {
			return nil, err
		}
		x, line = c, p.current().line
	}
	return x, err
}

// chain parses left {operator left}; operator says whether the current token is one, and its name.
func (p *parser) chain(operand func() (expression, error), operator func() (string, bool)) (expression, error) {
	x, err := operand()
	for err == nil {
		op, ok := operator()
		if !ok {
			break
		}
		line := p.next().line
		var y expression
		if y, err = operand(); err != nil {
			return nil, err
		}
		if err = p.grow(); err != nil {
			return nil, err
		}
		x = &binary{op, x, y, line}
	}
	return x, err
}

func (p *parser) word(words ...string) func() (string, bool) {
	return func() (string, bool) {
		for _, w := range words {
			if p.isName(w) {
				return w, true
			}
		}
		return "", false
	}
}

func (p *parser) operator(operators ...string) func() (string, bool) {
	return func() (string, bool) {
		for _, o := range operators {
			if p.is(o) {
				return o, true
			}
		}
		return "", false
	}
}

func (p *parser) or() (expression, error)  { return p.chain(p.and, p.word("or")) }
func (p *parser) and() (expression, error) { return p.chain(p.not, p.word("and")) }

func (p *parser) not() (expression, error) {
	if !p.isName("not") {
		return p.comparison()
	}
	line := p.next().line
	if err := p.grow(); err != nil {
		return nil, err
	}
	x, err := p.not()
	return &unary{"not", x, line}, err
}

func (p *parser) comparison() (expression, error) {
	c := &comparison{line: p.current().line}
	var err error
	if c.first, err = p.sum(); err != nil {
		return nil, err
	}
	compares := p.operator("==", "!=", "<", "<=", ">", ">=")
	for {
		op, ok := compares()
		switch {
		case ok:
			p.next()
		case p.skipName("in"):
			op = "in"
		case p.isName("not") && p.look().kind == tokenName && p.look().text == "in":
			p.next()
			p.next()
			op = "not in"
		default:
			if len(c.rest) == 0 {
				return c.first, nil
			}
			return c, nil
		}
		x, err := p.sum()
		if err != nil {
			return nil, err
		}
		c.rest = append(c.rest, operand{op, x})
	}
}

func (p *parser) sum() (expression, error) { return p.chain(p.joined, p.operator("+", "-")) }

func (p *parser) joined() (expression, error) {
	x, err := p.product()
	if err != nil || !p.is("~") {
		return x, err
	}
	c := &concat{[]expression{x}}
	for p.skip("~") {
		x, err := p.product()
		if err != nil {
			return nil, err
		}
		c.parts = append(c.parts, x)
	}
	return c, nil
}

func (p *parser) product() (expression, error) {
	return p.chain(p.power, p.operator("*", "/", "//", "%"))
}

func (p *parser) power() (expression, error) {
	return p.chain(func() (expression, error) { return p.unary(true) }, p.operator("**"))
}

func (p *parser) unary(filters bool) (expression, error) {
	if err := p.grow(); err != nil {
		return nil, err
	}
	var x expression
	var err error
	if p.is("-") || p.is("+") {
		t := p.next()
		u := &unary{operator: t.text, line: t.line}
		u.x, err = p.unary(false)
		x = u
	} else {
		x, err = p.primary(false)
	}
	if err != nil {
		return nil, err
	}
	if x, err = p.postfix(x); err != nil || !filters {
		return x, err
	}
	return p.filters(x)
}

// primary parses a name, a literal, or an expression in brackets. With namespaces a name may have an attribute,
// which is then a target.
func (p *parser) primary(namespaces bool) (expression, error) {
	if err := p.grow(); err != nil {
		return nil, err
	}
	t := p.current()
	switch {
	case t.kind == tokenName:
		p.next()
		switch t.text {
		case "true", "True":
			return &constant{true}, nil
		case "false", "False":
			return &constant{false}, nil
		case "none", "None":
			return &constant{nil}, nil
		}
		if namespaces && p.skip(".") {
			attr, err := p.name()
			return &namespaceTarget{t.text, attr, t.line}, err
		}
		if t.text == "self" {
			return nil, p.unsupported("self")
		}
		return &name{t.text}, nil
	case t.kind == tokenString:
		var s strings.Builder
		for p.current().kind == tokenString {
			s.WriteString(p.next().text)
			if err := p.grow(); err != nil {
				return nil, err
			}
		}
		return &constant{s.String()}, nil
	case t.kind == tokenInteger || t.kind == tokenFloat:
		p.next()
		return &constant{t.value}, nil
	case p.skip("("):
		x, err := p.tuple(tupleRule{conditionals: true, empty: true})
		if err != nil {
			return nil, err
		}
		return x, p.expect(")")
	case p.skip("["):
		return p.list()
	case p.skip("{"):
		return p.dict()
	}
	return nil, p.corrupt("unexpected %q", t)
}

// tupleRule says how a tuple without brackets of its own is parsed.
type tupleRule struct {
	primaries    bool   // only names and literals
	namespaces   bool   // and attributes of names
	conditionals bool   // x if y else z
	empty        bool   // no expression at all is ()
	end          string // a name that ends it
}

func (p *parser) tuple(rule tupleRule) (expression, error) {
	var items []expression
	isTuple := false
	for {
		if len(items) > 0 {
			if err := p.expect(","); err != nil {
				return nil, err
			}
		}
		k := p.current().kind
		if k == tokenPrintEnd || k == tokenTagEnd || p.is(")") || rule.end != "" && p.isName(rule.end) {
			break
		}
		var x expression
		var err error
		if rule.primaries {
			x, err = p.primary(rule.namespaces)
		} else {
			x, err = p.expression(rule.conditionals)
		}
		if err != nil {
			return nil, err
		}
		items = append(items, x)
		if !p.is(",") {
			break
		}
		isTuple = true
	}
	if !isTuple {
		if len(items) > 0 {
			return items[0], nil
		}
		if !rule.empty {
			return nil, p.corrupt("expected an expression, got %q", p.current())
		}
	}
	return &tupleLiteral{items}, nil
}

// sequence parses what stands between an opening bracket, already taken, and its closing one.
func (p *parser) sequence(end string, element func() error) error {
	for n := 0; !p.is(end); n++ {
		if n > 0 {
			if err := p.expect(","); err != nil {
				return err
			}
			if p.is(end) {
				break
			}
		}
		if err := element(); err != nil {
			return err
		}
	}
	return p.expect(end)
}

func (p *parser) list() (expression, error) {
	l := &listLiteral{}
	return l, p.sequence("]", func() error {
		x, err := p.expression(true)
		l.items = append(l.items, x)
		return err
	})
}

func (p *parser) dict() (expression, error) {
	d := &dictLiteral{}
	return d, p.sequence("}", func() error {
		key, err := p.expression(true)
		if err != nil {
			return err
		}
		if err := p.expect(":"); err != nil {
			return err
		}
		value, err := p.expression(true)
		d.keys, d.values = append(d.keys, key), append(d.values, value)
		return err
	})
}

// postfix parses attributes, subscripts and calls.
func (p *parser) postfix(x expression) (expression, error) {
	for {
		if err := p.grow(); err != nil {
			return nil, err
		}
		var err error
		switch {
		case p.is("."):
			x, err = p.dot(x)
		case p.is("["):
			x, err = p.subscript(x)
		case p.is("("):
			x, err = p.call(x)
		default:
			return x, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

func (p *parser) dot(x expression) (expression, error) {
	line := p.next().line
	t := p.next()
	switch t.kind {
	case tokenName:
		return &attribute{x, t.text, line}, nil
	case tokenInteger:
		return &item{x, &constant{t.value}, line}, nil
	}
	return nil, p.corrupt("expected name or number, got %q", t)
}

func (p *parser) subscript(x expression) (expression, error) {
	line := p.next().line
	var keys []expression
	sliced := false
	for !p.is("]") {
		if len(keys) > 0 {
			if err := p.expect(","); err != nil {
				return nil, err
			}
		}
		key, isSlice, err := p.subscripted(x, line)
		if err != nil {
			return nil, err
		}
		keys, sliced = append(keys, key), sliced || isSlice
	}
	if err := p.expect("]"); err != nil {
		return nil, err
	}
	switch {
	case len(keys) == 1 && sliced:
		return keys[0], nil
	case sliced:
		return nil, p.unsupported("several slices in one subscript")
	case len(keys) != 1:
		return &item{x, &tupleLiteral{keys}, line}, nil
	}
	return &item{x, keys[0], line}, nil
}

// subscripted parses one subscript of x: a slice of it, or a key, which may be a slice of something else.
func (p *parser) subscripted(x expression, line int) (_ expression, isSlice bool, err error) {
	s := &slice{x: x, line: line}
	part := func() (expression, error) {
		if p.is(":") || p.is("]") || p.is(",") {
			return nil, nil
		}
		return p.expression(true)
	}
	if !p.is(":") {
		if s.start, err = p.expression(true); err != nil || !p.is(":") {
			return s.start, false, err
		}
	}
	p.next()
	if s.stop, err = part(); err != nil {
		return nil, false, err
	}
	if p.skip(":") {
		if s.step, err = part(); err != nil {
			return nil, false, err
		}
	}
	return s, true, nil
}

func (p *parser) call(x expression) (expression, error) {
	line := p.current().line
	args, err := p.arguments()
	return &call{x, args, line}, err
}

// arguments parses the arguments of a call with their brackets.
func (p *parser) arguments() (arguments, error) {
	var a arguments
	if err := p.expect("("); err != nil {
		return a, err
	}
	return a, p.sequence(")", func() (err error) {
		allowed := a.starStar == nil
		switch {
		case p.skip("*"):
			allowed = allowed && a.star == nil
			a.star, err = p.expression(true)
		case p.skip("**"):
			a.starStar, err = p.expression(true)
		case p.current().kind == tokenName && p.look().text == "=" && p.look().kind == tokenOperator:
			k := keywordArgument{name: p.next().text}
			p.next()
			for _, other := range a.keyword {
				allowed = allowed && other.name != k.name
			}
			k.x, err = p.expression(true)
			a.keyword = append(a.keyword, k)
		default:
			var x expression
			allowed = allowed && a.star == nil && len(a.keyword) == 0
			x, err = p.expression(true)
			a.positional = append(a.positional, x)
		}
		if err == nil && !allowed {
			return p.corrupt("invalid syntax for function call expression")
		}
		return err
	})
}

// filters parses what may follow a value and its postfixes: filters, tests, and calls of their results.
func (p *parser) filters(x expression) (expression, error) {
	for {
		if err := p.grow(); err != nil {
			return nil, err
		}
		var err error
		switch {
		case p.is("|"):
			p.next()
			x, err = p.filter(x)
		case p.isName("is"):
			x, err = p.test(x)
		case p.is("("):
			x, err = p.call(x)
		default:
			return x, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// dotted parses the name of a filter or test.
func (p *parser) dotted() (string, error) {
	s, err := p.name()
	for err == nil && p.skip(".") {
		var part string
		part, err = p.name()
		s += "." + part
	}
	return s, err
}

// filter parses one filter behind its bar.
func (p *parser) filter(x expression) (expression, error) {
	f := &filter{x: x, line: p.current().line}
	err := p.grow()
	if err != nil {
		return nil, err
	}
	if f.name, err = p.dotted(); err != nil {
		return nil, err
	}
	if p.is("(") {
		f.arguments, err = p.arguments()
	}
	return f, err
}

// test parses a test. Its only argument needs no brackets.
func (p *parser) test(x expression) (expression, error) {
	t := &test{x: x, line: p.next().line}
	negated := p.skipName("not")
	var err error
	if t.name, err = p.dotted(); err != nil {
		return nil, err
	}
	c := p.current()
	switch {
	case p.is("("):
		if t.arguments, err = p.arguments(); err != nil {
			return nil, err
		}
	case p.isName("else") || p.isName("or") || p.isName("and"):
	case p.isName("is"):
		return nil, p.corrupt("tests do not chain")
	case c.kind >= tokenName && c.kind <= tokenFloat || p.is("[") || p.is("{"):
		arg, err := p.primary(false)
		if err != nil {
			return nil, err
		}
		if arg, err = p.postfix(arg); err != nil {
			return nil, err
		}
		t.arguments.positional = []expression{arg}
	}
	if negated {
		return &unary{"not", t, t.line}, nil
	}
	return t, nil
}
