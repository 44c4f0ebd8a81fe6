package engine

import (
	"fmt"
	"math"
	"strconv"
)

// expression reads an expression. A condition without else is read and dropped; so is anything unexpected after it, such
// as * and /, which the engine lacks.
func (p *parser) expression(conditions bool) expression {
	p.nest()
	defer p.unnest()
	x := p.or()
	if !conditions || !p.take(nameToken, "if") {
		return x
	}
	condition := p.or()
	if !p.take(nameToken, "else") {
		return x
	}
	return &conditional{condition, x, p.expression(true)}
}

// operators reads operands with operators between them, from the left.
func (p *parser) operators(operand func() expression, kind tokenKind, texts ...string) expression {
	x := operand()
	for p.is(kind, texts...) {
		operator := p.next().text
		x = &binary{operator, x, operand()}
	}
	return x
}

func (p *parser) or() expression { return p.operators(p.and, nameToken, "or") }

func (p *parser) and() expression { return p.operators(p.not, nameToken, "and") }

func (p *parser) sum() expression {
	return p.operators(p.filtered, operatorToken, "+", "-", "~")
}

func (p *parser) not() expression {
	if !p.take(nameToken, "not") {
		return p.comparison()
	}
	p.nest()
	defer p.unnest()
	return &conditional{p.not(), &literal{newBool(false)}, &literal{newBool(true)}}
}

// comparison reads comparisons and tests; each compares the result of those before it.
func (p *parser) comparison() expression {
	x := p.sum()
	for p.is(operatorToken, "==", "!=", "<", ">", "<=", ">=") || p.is(nameToken, "in", "is", "not") {
		operator := p.next().text
		switch operator {
		case "is":
			negated := p.take(nameToken, "not")
			x = &test{x, p.next().text, negated}
			continue
		case "not":
			if !p.take(nameToken, "in") {
				return x
			}
			operator = "not in"
		}
		x = &binary{operator, x, p.sum()}
	}
	return x
}

func (p *parser) filtered() expression {
	x := p.signed()
	for p.take(operatorToken, "|") {
		if !p.is(nameToken) {
			continue
		}
		f := &filter{x: x, name: p.next().text}
		if p.take(punctuationToken, "(") {
			f.arguments = p.arguments()
		}
		x = f
	}
	return x
}

// signed reads signs, which bind closer than filters: 0 + x or 0 - x.
func (p *parser) signed() expression {
	if !p.is(operatorToken, "+", "-") {
		return p.primary()
	}
	p.nest()
	defer p.unnest()
	operator := p.next().text
	return &binary{operator, &literal{newInt(0)}, p.signed()}
}

// arguments reads the arguments of a call after its opening bracket.
func (p *parser) arguments() []argument {
	var list []argument
	for !p.is(punctuationToken, ")") {
		var a argument
		if p.is(nameToken) && p.tokens[p.at+1].text == "=" {
			a.name = p.next().text
			p.next()
		}
		a.x = p.expression(true)
		list = append(list, a)
		if !p.take(punctuationToken, ",") {
			break
		}
	}
	p.take(punctuationToken, ")")
	return list
}

// primary reads a literal or a name; only after a name come attributes, indexes and calls.
func (p *parser) primary() expression {
	switch {
	case p.take(punctuationToken, "["):
		l := &list{}
		p.until("]", func() { l.items = append(l.items, p.expression(true)) })
		return l
	case p.take(punctuationToken, "{"):
		d := &dict{}
		p.until("}", func() {
			d.keys = append(d.keys, p.expression(true))
			p.take(punctuationToken, ":")
			d.values = append(d.values, p.expression(true))
		})
		return d
	case p.take(punctuationToken, "("):
		x := p.expression(true)
		p.take(punctuationToken, ")")
		return x
	case p.is(stringToken):
		return &literal{newText(p.next().text)}
	case p.is(numberToken):
		// Digits only; those of a large number saturate as a long and are cut to an int.
		n, err := strconv.ParseInt(p.next().text, 10, 64)
		if err != nil {
			n = math.MaxInt64
		}
		return &literal{newInt(int64(int32(n)))}
	case p.is(nameToken):
		return p.named()
	}
	return &literal{newText("")}
}

// until reads elements up to a bracket. Without progress the engine never ends.
func (p *parser) until(bracket string, element func()) {
	for !p.is(punctuationToken, bracket) {
		from := p.at
		element()
		p.take(punctuationToken, ",")
		if p.at == from {
			panic(failure{fmt.Errorf("line %d: a list or dict that is not closed, or that the engine cannot read: it never ends: %w", p.peek().line, ErrCrash)})
		}
	}
	p.next()
}

func (p *parser) named() expression {
	var x expression
	switch id := p.next().text; {
	case id == "true":
		return &literal{newBool(true)}
	case id == "false":
		return &literal{newBool(false)}
	case id == "none":
		return &literal{&value{}}
	case p.take(punctuationToken, "("):
		arguments := p.arguments()
		x = &call{id, arguments}
	default:
		x = &variable{id}
	}
	for {
		switch {
		case p.take(punctuationToken, "["):
			key := p.key()
			x = &item{x, key}
		case p.take(punctuationToken, "."):
			if !p.is(nameToken) {
				continue
			}
			id := p.next().text
			if !p.take(punctuationToken, "(") {
				x = &attribute{x, id}
				continue
			}
			m := &method{x: x, name: id}
			for !p.is(punctuationToken, ")") {
				a := p.expression(true)
				m.arguments = append(m.arguments, a)
				if !p.take(punctuationToken, ",") {
					break
				}
			}
			p.take(punctuationToken, ")")
			x = m
		default:
			return x
		}
	}
}

// key reads an index or slice up to its bracket.
func (p *parser) key() expression {
	var s slice
	parts := []*expression{&s.start, &s.stop, &s.step}
	colons := 0
	for {
		if !p.is(punctuationToken, ":", "]") {
			*parts[colons] = p.expression(true)
		}
		if colons == 2 || !p.take(punctuationToken, ":") {
			break
		}
		colons++
	}
	p.take(punctuationToken, "]")
	switch {
	case colons > 0:
		return &s
	case s.start == nil:
		return &literal{newText("")}
	}
	return s.start
}
