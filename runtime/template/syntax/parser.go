package syntax

// Limits of a template, far above those of published ones. They bound the recursion of everything that walks a tree.
const (
	maxSource     = 1 << 20 // bytes of a template
	maxExpression = 10_000  // parts of an expression
	maxNesting    = 200     // nested statements
)

// parser turns tokens into statements.
type parser struct {
	tokens   []token
	position int
	parts    int // of the current expression
	nesting  int
}

func (p *parser) current() token { return p.tokens[p.position] }

// next returns the current token and moves past it; the end of the template stays current.
func (p *parser) next() token {
	t := p.tokens[p.position]
	if t.kind != tokenEOF {
		p.position++
	}
	return t
}

// look returns the token after the current one.
func (p *parser) look() token { return p.tokens[min(p.position+1, len(p.tokens)-1)] }

func (p *parser) is(operator string) bool {
	t := p.current()
	return t.kind == tokenOperator && t.text == operator
}

func (p *parser) isName(s string) bool {
	t := p.current()
	return t.kind == tokenName && t.text == s
}

func (p *parser) skip(operator string) bool {
	ok := p.is(operator)
	if ok {
		p.position++
	}
	return ok
}

func (p *parser) skipName(s string) bool {
	ok := p.isName(s)
	if ok {
		p.position++
	}
	return ok
}

func (p *parser) expect(operator string) {
	if !p.skip(operator) {
		panic(p.corrupt("expected %q, got %q", operator, p.current()))
	}
}

func (p *parser) name() string {
	if t := p.current(); t.kind != tokenName {
		panic(p.corrupt("expected a name, got %q", t))
	}
	return p.next().text
}

func (p *parser) corrupt(format string, args ...any) *Error {
	return corrupt(p.current().line, format, args...)
}

func (p *parser) unsupported(format string, args ...any) *Error {
	return unsupported(p.current().line, format+" is not supported", args...)
}

// grow counts a part of the current expression.
func (p *parser) grow() {
	if p.parts++; p.parts > maxExpression {
		panic(p.unsupported("an expression of more than %d parts", maxExpression))
	}
}

// statements parses up to one of the end tags, and returns which; the tag's name has been read then. Without end tags
// it parses to the end of the template.
func (p *parser) statements(ends ...string) (body []Statement, end string) {
	for {
		p.parts = 0
		t := p.next()
		switch t.kind {
		case tokenText:
			body = append(body, &Text{t.text})
		case tokenPrint:
			x := p.tuple(tupleRule{conditionals: true})
			if p.current().kind != tokenPrintEnd {
				panic(p.corrupt(`expected "}}", got %q`, p.current()))
			}
			p.next()
			body = append(body, &Print{x, t.line})
		case tokenTag:
			for _, e := range ends {
				if p.skipName(e) {
					return body, e
				}
			}
			body = append(body, p.statement()...)
			p.tagEnd()
		case tokenEOF:
			if len(ends) > 0 {
				panic(p.corrupt("unexpected end of template, expected %q", ends))
			}
			return body, ""
		default:
			panic(p.corrupt("unexpected %q", t))
		}
	}
}

func (p *parser) tagEnd() {
	if p.current().kind != tokenTagEnd {
		panic(p.corrupt(`expected "%%}", got %q`, p.current()))
	}
	p.next()
}

// block parses the end of a tag, an optional colon before it, and what follows up to one of the end tags.
func (p *parser) block(ends ...string) ([]Statement, string) {
	p.skip(":")
	p.tagEnd()
	if p.nesting++; p.nesting > maxNesting {
		panic(p.unsupported("a template of more than %d nested blocks", maxNesting))
	}
	defer func() { p.nesting-- }()
	return p.statements(ends...)
}

// body is a block with one end tag.
func (p *parser) body(end string) []Statement {
	body, _ := p.block(end)
	return body
}

// statement parses a tag from its name to before its end. Only {% print %} gives several statements.
func (p *parser) statement() []Statement {
	t := p.current()
	switch tag := p.name(); tag {
	case "if":
		return []Statement{p.ifTag()}
	case "for":
		return []Statement{p.forTag(t.line)}
	case "set":
		return []Statement{p.setTag(t.line)}
	case "macro":
		return []Statement{p.macroTag(t.line)}
	case "call":
		return []Statement{p.callTag(t.line)}
	case "generation":
		return []Statement{&CallBlock{Caller: &Definition{Body: p.body("endgeneration")}, Line: t.line}}
	case "filter":
		return []Statement{p.filterTag(t.line)}
	case "with":
		return []Statement{p.withTag(t.line)}
	case "break":
		return []Statement{&Break{t.line}}
	case "continue":
		return []Statement{&Continue{t.line}}
	case "print":
		return p.printTag()
	case "include", "import", "from", "extends", "block", "autoescape":
		panic(p.unsupported("{%% %s %%}", tag))
	default:
		panic(p.corrupt("unknown tag %q", tag))
	}
}

func (p *parser) ifTag() Statement {
	s := &If{}
	for {
		b := Branch{Line: p.current().line}
		b.Test = p.tuple(tupleRule{})
		var end string
		b.Body, end = p.block("elif", "else", "endif")
		s.Branches = append(s.Branches, b)
		switch end {
		case "else":
			s.Otherwise = p.body("endif")
			return s
		case "endif":
			return s
		}
		p.parts = 0
	}
}

func (p *parser) forTag(line int) Statement {
	s := &For{Line: line}
	s.Target = p.target(tupleRule{primaries: true, end: "in"})
	if !p.skipName("in") {
		panic(p.corrupt(`expected "in", got %q`, p.current()))
	}
	s.Iterable = p.tuple(tupleRule{end: "recursive"})
	if p.skipName("if") {
		s.Test = p.expression(true)
	}
	s.Recursive = p.skipName("recursive")
	var end string
	if s.Body, end = p.block("endfor", "else"); end == "else" {
		s.Otherwise = p.body("endfor")
	}
	return s
}

// target parses a target of assignment.
func (p *parser) target(rule tupleRule) Expression {
	x := p.tuple(rule)
	if !assignable(x) {
		panic(p.corrupt("can't assign to this"))
	}
	return x
}

func assignable(x Expression) bool {
	switch x := x.(type) {
	case *Name, *NamespaceTarget:
		return true
	case *Tuple:
		for _, i := range x.Items {
			if !assignable(i) {
				return false
			}
		}
		return true
	}
	return false
}

func (p *parser) setTag(line int) Statement {
	target := p.target(tupleRule{primaries: true, namespaces: true})
	if p.skip("=") {
		return &Set{target, p.tuple(tupleRule{conditionals: true}), line}
	}
	s := &SetBlock{Target: target, Line: line}
	for p.skip("|") {
		s.Filter = p.filter(s.Filter)
	}
	s.Body = p.body("endset")
	return s
}

// signature parses the parameters of a macro with their brackets.
func (p *parser) signature(m *Definition) {
	p.expect("(")
	for !p.is(")") {
		if len(m.Parameters) > 0 {
			p.expect(",")
		}
		parameter := p.name()
		for _, other := range m.Parameters {
			if other == parameter {
				panic(p.corrupt("duplicate parameter %q", parameter))
			}
		}
		m.Parameters = append(m.Parameters, parameter)
		if p.skip("=") {
			m.Defaults = append(m.Defaults, p.expression(true))
		} else if len(m.Defaults) > 0 {
			panic(p.corrupt("non-default argument follows default argument"))
		}
	}
	p.expect(")")
}

func (p *parser) macroTag(line int) Statement {
	m := &Definition{Name: p.name()}
	switch m.Name {
	case "true", "false", "none", "True", "False", "None":
		panic(p.corrupt("can't assign to %q", m.Name))
	}
	p.signature(m)
	m.Body = p.body("endmacro")
	return &Macro{m, line}
}

func (p *parser) callTag(line int) Statement {
	m := &Definition{}
	if p.is("(") {
		p.signature(m)
	}
	c, ok := p.expression(true).(*Call)
	if !ok {
		panic(p.corrupt("expected call"))
	}
	m.Body = p.body("endcall")
	return &CallBlock{m, c, line}
}

func (p *parser) filterTag(line int) Statement {
	s := &FilterBlock{Line: line, Filter: p.filter(nil)}
	for p.skip("|") {
		s.Filter = p.filter(s.Filter)
	}
	s.Body = p.body("endfilter")
	return s
}

func (p *parser) withTag(line int) Statement {
	s := &With{Line: line}
	for p.current().kind != tokenTagEnd && p.current().kind != tokenEOF {
		if len(s.Targets) > 0 {
			p.expect(",")
		}
		s.Targets = append(s.Targets, p.target(tupleRule{primaries: true}))
		p.expect("=")
		s.Values = append(s.Values, p.expression(true))
	}
	s.Body = p.body("endwith")
	return s
}

func (p *parser) printTag() []Statement {
	var out []Statement
	for p.current().kind != tokenTagEnd {
		if len(out) > 0 {
			p.expect(",")
		}
		line := p.current().line
		out = append(out, &Print{p.expression(true), line})
	}
	return out
}
