package template

import (
	"fmt"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// Bounds of what is parsed, far above what templates use; they keep the interpreter's own recursion small.
const (
	maxSource     = 1 << 20 // bytes of a template
	maxExpression = 10_000  // parts of an expression
	maxNesting    = 200     // statements within each other
)

// parser turns tokens into statements.
type parser struct {
	tokens   []token
	position int
	parts    int // of the expression at hand
	nesting  int
}

func (p *parser) current() token { return p.tokens[p.position] }

// next returns the current token and goes on; the end of the template stays.
func (p *parser) next() token {
	t := p.tokens[p.position]
	if t.kind != tokenEOF {
		p.position++
	}
	return t
}

// look is the token behind the current one.
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

func (p *parser) expect(operator string) error {
	if !p.skip(operator) {
		return p.corrupt("expected %q, got %q", operator, p.current())
	}
	return nil
}

func (p *parser) expectName(s string) error {
	if !p.skipName(s) {
		return p.corrupt("expected %q, got %q", s, p.current())
	}
	return nil
}

func (p *parser) name() (string, error) {
	if t := p.current(); t.kind != tokenName {
		return "", p.corrupt("expected a name, got %q", t)
	}
	return p.next().text, nil
}

func (p *parser) corrupt(format string, args ...any) error {
	return &Error{Line: p.current().line, Kind: "TemplateSyntaxError", Message: fmt.Sprintf(format, args...), err: tensor.ErrCorrupt}
}

func (p *parser) unsupported(what string) error {
	return &Error{Line: p.current().line, Kind: "TemplateSyntaxError", Message: what + " is not supported", err: tensor.ErrUnsupported}
}

// grow counts a part of the expression at hand.
func (p *parser) grow() error {
	if p.parts++; p.parts > maxExpression {
		return p.unsupported(fmt.Sprintf("an expression of more than %d parts", maxExpression))
	}
	return nil
}

// parse parses a whole template.
func (p *parser) parse() ([]statement, error) {
	body, _, err := p.statements()
	return body, err
}

// statements parses until one of the end tags; the current token is then behind that tag's name. Without end tags
// it parses all that there is.
func (p *parser) statements(ends ...string) ([]statement, string, error) {
	var body []statement
	for {
		p.parts = 0
		t := p.next()
		switch t.kind {
		case tokenText:
			body = append(body, &textStatement{t.text})
		case tokenPrint:
			x, err := p.tuple(tupleRule{conditionals: true})
			if err != nil {
				return nil, "", err
			}
			if p.current().kind != tokenPrintEnd {
				return nil, "", p.corrupt(`expected "}}", got %q`, p.current())
			}
			p.next()
			body = append(body, &printStatement{x, t.line})
		case tokenTag:
			for _, e := range ends {
				if p.skipName(e) {
					return body, e, nil
				}
			}
			s, err := p.statement()
			if err != nil {
				return nil, "", err
			}
			if err := p.tagEnd(); err != nil {
				return nil, "", err
			}
			body = append(body, s...)
		case tokenEOF:
			if len(ends) > 0 {
				return nil, "", p.corrupt("unexpected end of template, expected %q", ends)
			}
			return body, "", nil
		default:
			return nil, "", p.corrupt("unexpected %q", t)
		}
	}
}

func (p *parser) tagEnd() error {
	if p.current().kind != tokenTagEnd {
		return p.corrupt(`expected "%%}", got %q`, p.current())
	}
	p.next()
	return nil
}

// block parses the end of a tag, behind an optional colon, and what follows up to one of the end tags.
func (p *parser) block(ends ...string) ([]statement, string, error) {
	p.skip(":")
	if err := p.tagEnd(); err != nil {
		return nil, "", err
	}
	if p.nesting++; p.nesting > maxNesting {
		return nil, "", p.unsupported(fmt.Sprintf("a template of more than %d nested blocks", maxNesting))
	}
	defer func() { p.nesting-- }()
	return p.statements(ends...)
}

// body is a block with one end tag.
func (p *parser) body(end string) ([]statement, error) {
	body, _, err := p.block(end)
	return body, err
}

// statement parses a tag from its name to before its end. Only {% print %} gives several statements.
func (p *parser) statement() ([]statement, error) {
	t := p.current()
	tag, err := p.name()
	if err != nil {
		return nil, err
	}
	var s statement
	switch tag {
	case "if":
		s, err = p.ifTag()
	case "for":
		s, err = p.forTag(t.line)
	case "set":
		s, err = p.setTag(t.line)
	case "macro":
		s, err = p.macroTag(t.line)
	case "call":
		s, err = p.callTag(t.line)
	case "generation":
		m := &macroDefinition{}
		m.body, err = p.body("endgeneration")
		s = &callBlock{caller: m, line: t.line}
	case "filter":
		s, err = p.filterTag(t.line)
	case "with":
		s, err = p.withTag(t.line)
	case "break":
		s = &breakStatement{t.line}
	case "continue":
		s = &continueStatement{t.line}
	case "print":
		return p.printTag()
	case "include", "import", "from", "extends", "block", "autoescape":
		return nil, p.unsupported("{% " + tag + " %}")
	default:
		return nil, p.corrupt("unknown tag %q", tag)
	}
	if err != nil {
		return nil, err
	}
	return []statement{s}, nil
}

func (p *parser) ifTag() (statement, error) {
	s := &ifStatement{}
	for {
		b := branch{line: p.current().line}
		var err error
		if b.test, err = p.tuple(tupleRule{}); err != nil {
			return nil, err
		}
		var end string
		if b.body, end, err = p.block("elif", "else", "endif"); err != nil {
			return nil, err
		}
		s.branches = append(s.branches, b)
		switch end {
		case "else":
			s.otherwise, err = p.body("endif")
			return s, err
		case "endif":
			return s, nil
		}
		p.parts = 0
	}
}

func (p *parser) forTag(line int) (statement, error) {
	s := &forStatement{line: line}
	var err error
	if s.target, err = p.target(tupleRule{primaries: true, end: "in"}); err != nil {
		return nil, err
	}
	if err := p.expectName("in"); err != nil {
		return nil, err
	}
	if s.iterable, err = p.tuple(tupleRule{end: "recursive"}); err != nil {
		return nil, err
	}
	if p.skipName("if") {
		if s.test, err = p.expression(true); err != nil {
			return nil, err
		}
	}
	s.recursive = p.skipName("recursive")
	var end string
	if s.body, end, err = p.block("endfor", "else"); err != nil {
		return nil, err
	}
	if end == "else" {
		s.otherwise, err = p.body("endfor")
	}
	return s, err
}

// target parses what may be assigned to.
func (p *parser) target(rule tupleRule) (expression, error) {
	x, err := p.tuple(rule)
	if err != nil {
		return nil, err
	}
	if !assignable(x) {
		return nil, p.corrupt("can't assign to this")
	}
	return x, nil
}

func assignable(x expression) bool {
	switch x := x.(type) {
	case *name, *namespaceTarget:
		return true
	case *tupleLiteral:
		for _, i := range x.items {
			if !assignable(i) {
				return false
			}
		}
		return true
	}
	return false
}

func (p *parser) setTag(line int) (statement, error) {
	target, err := p.target(tupleRule{primaries: true, namespaces: true})
	if err != nil {
		return nil, err
	}
	if p.skip("=") {
		value, err := p.tuple(tupleRule{conditionals: true})
		return &setStatement{target, value, line}, err
	}
	s := &setBlock{target: target, line: line}
	for p.skip("|") {
		if s.filter, err = p.filter(s.filter); err != nil {
			return nil, err
		}
	}
	s.body, err = p.body("endset")
	return s, err
}

// signature parses the parameters of a macro with their brackets.
func (p *parser) signature(m *macroDefinition) error {
	if err := p.expect("("); err != nil {
		return err
	}
	for !p.is(")") {
		if len(m.parameters) > 0 {
			if err := p.expect(","); err != nil {
				return err
			}
		}
		parameter, err := p.name()
		if err != nil {
			return err
		}
		for _, other := range m.parameters {
			if other == parameter {
				return p.corrupt("duplicate parameter %q", parameter)
			}
		}
		m.parameters = append(m.parameters, parameter)
		if p.skip("=") {
			x, err := p.expression(true)
			if err != nil {
				return err
			}
			m.defaults = append(m.defaults, x)
		} else if len(m.defaults) > 0 {
			return p.corrupt("non-default argument follows default argument")
		}
	}
	return p.expect(")")
}

func (p *parser) macroTag(line int) (statement, error) {
	m := &macroDefinition{}
	var err error
	if m.name, err = p.name(); err != nil {
		return nil, err
	}
	switch m.name {
	case "true", "false", "none", "True", "False", "None":
		return nil, p.corrupt("can't assign to %q", m.name)
	}
	if err := p.signature(m); err != nil {
		return nil, err
	}
	m.body, err = p.body("endmacro")
	return &macroStatement{m, line}, err
}

func (p *parser) callTag(line int) (statement, error) {
	m := &macroDefinition{}
	if p.is("(") {
		if err := p.signature(m); err != nil {
			return nil, err
		}
	}
	x, err := p.expression(true)
	if err != nil {
		return nil, err
	}
	c, ok := x.(*call)
	if !ok {
		return nil, p.corrupt("expected call")
	}
	m.body, err = p.body("endcall")
	return &callBlock{m, c, line}, err
}

func (p *parser) filterTag(line int) (statement, error) {
	s := &filterBlock{line: line}
	var err error
	if s.filter, err = p.filter(nil); err != nil {
		return nil, err
	}
	for p.skip("|") {
		if s.filter, err = p.filter(s.filter); err != nil {
			return nil, err
		}
	}
	s.body, err = p.body("endfilter")
	return s, err
}

func (p *parser) withTag(line int) (statement, error) {
	s := &withStatement{line: line}
	for p.current().kind != tokenTagEnd && p.current().kind != tokenEOF {
		if len(s.targets) > 0 {
			if err := p.expect(","); err != nil {
				return nil, err
			}
		}
		target, err := p.target(tupleRule{primaries: true})
		if err != nil {
			return nil, err
		}
		if err := p.expect("="); err != nil {
			return nil, err
		}
		value, err := p.expression(true)
		if err != nil {
			return nil, err
		}
		s.targets, s.values = append(s.targets, target), append(s.values, value)
	}
	var err error
	s.body, err = p.body("endwith")
	return s, err
}

func (p *parser) printTag() ([]statement, error) {
	var out []statement
	for p.current().kind != tokenTagEnd {
		if len(out) > 0 {
			if err := p.expect(","); err != nil {
				return nil, err
			}
		}
		line := p.current().line
		x, err := p.expression(true)
		if err != nil {
			return nil, err
		}
		out = append(out, &printStatement{x, line})
	}
	return out, nil
}
