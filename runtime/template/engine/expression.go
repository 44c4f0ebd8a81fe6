package engine

import (
	"fmt"
	"math"
	"strconv"
)

// expression reads one. A condition without else is read and dropped; so is everything that the caller does not expect
// behind it, such as * and /, which the engine lacks.
func (p *parser) expression(conditions bool) (expression, error) {
	if err := p.nest(); err != nil {
		return nil, err
	}
	defer p.unnest()
	x, err := p.or()
	if err != nil || !conditions || !p.take(nameToken, "if") {
		return x, err
	}
	condition, err := p.or()
	if err != nil || !p.take(nameToken, "else") {
		return x, err
	}
	otherwise, err := p.expression(true)
	return &conditional{condition, x, otherwise}, err
}

// operators reads operands with operators between them, from the left.
func (p *parser) operators(operand func() (expression, error), kind tokenKind, texts ...string) (expression, error) {
	x, err := operand()
	for err == nil && p.is(kind, texts...) {
		operator := p.next().text
		var y expression
		y, err = operand()
		x = &binary{operator, x, y}
	}
	return x, err
}

func (p *parser) or() (expression, error) { return p.operators(p.and, nameToken, "or") }

func (p *parser) and() (expression, error) { return p.operators(p.not, nameToken, "and") }

func (p *parser) sum() (expression, error) {
	return p.operators(p.filtered, operatorToken, "+", "-", "~")
}

func (p *parser) not() (expression, error) {
	if !p.take(nameToken, "not") {
		return p.comparison()
	}
	if err := p.nest(); err != nil {
		return nil, err
	}
	defer p.unnest()
	x, err := p.not()
	return &conditional{x, &literal{newBool(false)}, &literal{newBool(true)}}, err
}

// comparison reads comparisons and tests; each compares the result of those before it.
func (p *parser) comparison() (expression, error) {
	x, err := p.sum()
	for err == nil && (p.is(operatorToken, "==", "!=", "<", ">", "<=", ">=") || p.is(nameToken, "in", "is", "not")) {
		operator := p.next().text
		switch operator {
		case "is":
			negated := p.take(nameToken, "not")
			x = &test{x, p.next().text, negated}
			continue
		case "not":
			if !p.take(nameToken, "in") {
				return x, nil
			}
			operator = "not in"
		}
		var y expression
		y, err = p.sum()
		x = &binary{operator, x, y}
	}
	return x, err
}

func (p *parser) filtered() (expression, error) {
	x, err := p.signed()
	for err == nil && p.take(operatorToken, "|") {
		if !p.is(nameToken) {
			continue
		}
		f := &filter{x: x, name: p.next().text}
		if p.take(punctuationToken, "(") {
			f.arguments, err = p.arguments()
		}
		x = f
	}
	return x, err
}

// signed reads signs, which bind closer than filters: 0 + x or 0 - x.
func (p *parser) signed() (expression, error) {
	if !p.is(operatorToken, "+", "-") {
		return p.primary()
	}
	if err := p.nest(); err != nil {
		return nil, err
	}
	defer p.unnest()
	operator := p.next().text
	x, err := p.signed()
	return &binary{operator, &literal{newInt(0)}, x}, err
}

// arguments reads what is between the brackets of a call, after the opening one.
func (p *parser) arguments() ([]argument, error) {
	var list []argument
	for !p.is(punctuationToken, ")") {
		var a argument
		if p.is(nameToken) && p.tokens[p.at+1].text == "=" {
			a.name = p.next().text
			p.next()
		}
		var err error
		if a.x, err = p.expression(true); err != nil {
			return nil, err
		}
		list = append(list, a)
		if !p.take(punctuationToken, ",") {
			break
		}
	}
	p.take(punctuationToken, ")")
	return list, nil
}

// primary reads a literal or a name; only a name can have attributes, indexes and calls behind it.
func (p *parser) primary() (expression, error) {
	switch {
	case p.take(punctuationToken, "["):
		l := &list{}
		return l, p.until("]", func() error {
			x, err := p.expression(true)
			l.items = append(l.items, x)
			return err
		})
	case p.take(punctuationToken, "{"):
		d := &dict{}
		return d, p.until("}", func() error {
			key, err := p.expression(true)
			if err != nil {
				return err
			}
			p.take(punctuationToken, ":")
			v, err := p.expression(true)
			d.keys, d.values = append(d.keys, key), append(d.values, v)
			return err
		})
	case p.take(punctuationToken, "("):
		x, err := p.expression(true)
		p.take(punctuationToken, ")")
		return x, err
	case p.is(stringToken):
		return &literal{newText(p.next().text)}, nil
	case p.is(numberToken):
		// Digits only; those of a large number saturate as a long and are cut to an int.
		n, err := strconv.ParseInt(p.next().text, 10, 64)
		if err != nil {
			n = math.MaxInt64
		}
		return &literal{newInt(int64(int32(n)))}, nil
	case p.is(nameToken):
		return p.named()
	}
	return &literal{newText("")}, nil
}

// until reads elements up to a bracket. The engine reads on for ever where it makes no progress.
func (p *parser) until(bracket string, element func() error) error {
	for !p.is(punctuationToken, bracket) {
		from := p.at
		if err := element(); err != nil {
			return err
		}
		p.take(punctuationToken, ",")
		if p.at == from {
			return fmt.Errorf("line %d: a list or dict that is not closed, or has what the engine cannot read: it never ends: %w", p.peek().line, ErrCrash)
		}
	}
	p.next()
	return nil
}

func (p *parser) named() (expression, error) {
	var x expression
	switch id := p.next().text; {
	case id == "true":
		return &literal{newBool(true)}, nil
	case id == "false":
		return &literal{newBool(false)}, nil
	case id == "none":
		return &literal{&value{}}, nil
	case p.take(punctuationToken, "("):
		arguments, err := p.arguments()
		if err != nil {
			return nil, err
		}
		x = &call{id, arguments}
	default:
		x = &variable{id}
	}
	for {
		switch {
		case p.take(punctuationToken, "["):
			key, err := p.key()
			if err != nil {
				return nil, err
			}
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
				a, err := p.expression(true)
				if err != nil {
					return nil, err
				}
				m.arguments = append(m.arguments, a)
				if !p.take(punctuationToken, ",") {
					break
				}
			}
			p.take(punctuationToken, ")")
			x = m
		default:
			return x, nil
		}
	}
}

// key reads an index or slice up to its bracket.
func (p *parser) key() (key expression, err error) {
	var s slice
	parts := []*expression{&s.start, &s.stop, &s.step}
	colons := 0
	for {
		if !p.is(punctuationToken, ":", "]") {
			if *parts[colons], err = p.expression(true); err != nil {
				return nil, err
			}
		}
		if colons == 2 || !p.take(punctuationToken, ":") {
			break
		}
		colons++
	}
	p.take(punctuationToken, "]")
	switch {
	case colons > 0:
		return &s, nil
	case s.start == nil:
		return &literal{newText("")}, nil
	}
	return s.start, nil
}
