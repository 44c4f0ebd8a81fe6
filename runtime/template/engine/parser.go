package engine

import (
	"fmt"
	"slices"

	"github.com/llmexport/llmexport/runtime/template"
)

// maxNesting bounds nested brackets, blocks and branches. The engine continues until its stack overflows.
const maxNesting = 400

// parser makes the tree of a template. Like the engine's it has no errors: it leaves unexpected tokens to its caller,
// which skips them.
type parser struct {
	tokens  []token
	at      int
	nesting int
}

func (p *parser) peek() token { return p.tokens[p.at] }

func (p *parser) atEnd() bool { return p.peek().kind == endToken }

// is reports whether the next token is of a kind and, if texts are given, has one of them.
func (p *parser) is(kind tokenKind, texts ...string) bool {
	t := p.peek()
	return t.kind == kind && kind != endToken && (len(texts) == 0 || slices.Contains(texts, t.text))
}

// next takes a token; at the end it returns the last one again.
func (p *parser) next() token {
	if !p.atEnd() {
		p.at++
	}
	return p.tokens[max(p.at-1, 0)]
}

// take takes the next token if is reports true for it.
func (p *parser) take(kind tokenKind, texts ...string) bool {
	ok := p.is(kind, texts...)
	if ok {
		p.at++
	}
	return ok
}

// nest counts a level; the caller defers unnest.
func (p *parser) nest() {
	if p.nesting++; p.nesting > maxNesting {
		panic(failure{fmt.Errorf("line %d: nested more than %d deep: %w", p.peek().line, maxNesting, template.ErrLimit)})
	}
}

func (p *parser) unnest() { p.nesting-- }

// body appends statements up to a block with one of these names. It takes the block up to its name, which it returns;
// the name is empty at the end of the template. The end of a macro may be another token than a name.
func (p *parser) body(body *[]statement, ends ...string) string {
	p.nest()
	defer p.unnest()
	for !p.atEnd() {
		if p.is(blockStart) {
			tag := p.tokens[p.at+1]
			if (tag.kind == nameToken || tag.text == "endmacro") && slices.Contains(ends, tag.text) {
				p.at += 2
				return tag.text
			}
		}
		switch {
		case p.is(textToken):
			*body = append(*body, &textStatement{p.next().text})
		case p.take(printStart):
			*body = append(*body, &printStatement{p.expression(true)})
			p.take(printEnd)
		case p.take(blockStart):
			if s := p.block(); s != nil {
				*body = append(*body, s)
			}
		default:
			p.next()
		}
	}
	return ""
}

// block reads a block after its opening; nil for an unknown one, which the engine skips.
func (p *parser) block() statement {
	if tag := p.next(); tag.kind == nameToken {
		switch tag.text {
		case "for":
			return p.forBlock()
		case "if":
			return p.ifBlock()
		case "set":
			return p.setBlock()
		case "macro":
			return p.macroBlock()
		}
	}
	for !p.is(blockEnd) && !p.atEnd() {
		p.next()
	}
	p.next()
	return nil
}

func (p *parser) setBlock() statement {
	target := p.expression(true)
	p.take(operatorToken, "=")
	v := p.expression(true)
	p.take(blockEnd)
	return &setStatement{target, v}
}

// ifBlock reads from the condition on. An elif is a block within the else.
func (p *parser) ifBlock() statement {
	p.nest()
	defer p.unnest()
	x := p.expression(true)
	p.take(blockEnd)
	s := &ifStatement{test: x}
	body := &s.yes
	for {
		tag := p.body(body, "endif", "else", "elif")
		if tag == "elif" {
			s.no = append(s.no, p.ifBlock())
			return s
		}
		p.take(blockEnd)
		if tag != "else" {
			return s
		}
		body = &s.no
	}
}

func (p *parser) forBlock() statement {
	s := &forStatement{}
	for p.is(nameToken) {
		s.names = append(s.names, p.next().text)
		if !p.take(punctuationToken, ",") {
			break
		}
	}
	p.take(nameToken, "in")
	s.iterable = p.expression(false)
	if p.take(nameToken, "if") {
		s.test = p.expression(true)
	}
	p.take(blockEnd)
	p.body(&s.body, "endfor")
	p.take(blockEnd)
	return s
}

// macroBlock reads a macro. Values for missing arguments are read and dropped.
func (p *parser) macroBlock() statement {
	s := &macroStatement{name: p.next().text}
	if p.take(punctuationToken, "(") {
		for !p.is(punctuationToken, ")") {
			if p.is(nameToken) {
				s.parameters = append(s.parameters, p.next().text)
				if p.take(operatorToken, "=") {
					p.expression(true)
				}
			}
			if !p.take(punctuationToken, ",") {
				break
			}
		}
		p.take(punctuationToken, ")")
	}
	p.take(blockEnd)
	p.body(&s.body, "endmacro")
	p.take(blockEnd)
	return s
}
