package template

import (
	"math"
	"strings"
	"unicode/utf8"
)

// printf is Python's s % v. With escaped every text that is filled in is escaped for HTML.
func (r *renderer) printf(s string, v any, escaped bool) (string, error) {
	p := &printer{r: r, escaped: escaped, whole: v}
	if t, ok := asTuple(v); ok {
		p.args = t
	} else {
		p.args = []any{v}
		switch v.(type) {
		case *Object, []any, *sequence, *undefined:
			p.mapping = true
		}
	}
	var b strings.Builder
	for {
		i := strings.IndexByte(s, '%')
		if i < 0 {
			b.WriteString(s)
			break
		}
		b.WriteString(s[:i])
		t, rest, err := p.directive(s[i+1:])
		if err != nil {
			return "", err
		}
		if err := r.write(&b, t); err != nil {
			return "", err
		}
		s = rest
	}
	if len(p.args) > 0 && !p.mapping {
		return "", r.fail("TypeError", "not all arguments converted during string formatting")
	}
	return b.String(), nil
}

// printer holds the arguments that are left.
type printer struct {
	r       *renderer
	args    []any
	whole   any
	mapping bool // the argument need not be used
	escaped bool
}

func (p *printer) argument() (any, error) {
	if len(p.args) == 0 {
		return nil, p.r.fail("TypeError", "not enough arguments for format string")
	}
	v := p.args[0]
	p.args = p.args[1:]
	return v, nil
}

// directive formats one directive, which begins behind its % sign, and returns what is left of the text.
func (p *printer) directive(s string) (text, rest string, err error) {
	var named any = unset
	if strings.HasPrefix(s, "(") {
		if named, s, err = p.named(s); err != nil {
			return "", "", err
		}
	}
	l := layout{fill: " ", align: '>', precision: -1}
	zero := false
	for s != "" && strings.IndexByte("-+ #0", s[0]) >= 0 {
		switch s[0] {
		case '-':
			l.align = '<'
		case '+':
			l.sign = '+'
		case ' ':
			if l.sign == 0 {
				l.sign = ' '
			}
		case '#':
			l.alternate = true
		case '0':
			zero = true
		}
		s = s[1:]
	}
	width, s, err := p.number(s)
	if err != nil {
		return "", "", err
	}
	if width < 0 {
		l.align, width = '<', -width
	}
	l.width = width
	if strings.HasPrefix(s, ".") {
		if l.precision, s, err = p.number(s[1:]); err != nil {
			return "", "", err
		}
		l.precision = max(l.precision, 0)
	}
	s = strings.TrimLeft(s, "hlL")
	if s == "" {
		return "", "", p.r.fail("ValueError", "incomplete format")
	}
	l.kind, s = s[0], s[1:]
	if l.kind == '%' {
		return "%", s, nil
	}
	v := named
	if v == unset {
		if v, err = p.argument(); err != nil {
			return "", "", err
		}
	}
	if zero && l.align == '>' && strings.IndexByte("diuxXoeEfFgG", l.kind) >= 0 {
		l.fill, l.align = "0", '='
	}
	text, err = p.value(v, l)
	return text, s, err
}

// named is the argument that (name) stands for.
func (p *printer) named(s string) (any, string, error) {
	open := 1
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '(':
			open++
		case ')':
			open--
		}
		if open > 0 {
			continue
		}
		o, ok := p.whole.(*Object)
		if !ok {
			return nil, "", p.r.fail("TypeError", "format requires a mapping")
		}
		v, ok := o.get(s[1:i])
		if !ok {
			return nil, "", p.r.fail("KeyError", "%s", quote(s[1:i]))
		}
		p.args = nil
		return v, s[i+1:], nil
	}
	return nil, "", p.r.fail("ValueError", "incomplete format key")
}

// number is a width or precision, 0 when there is none.
func (p *printer) number(s string) (int, string, error) {
	if strings.HasPrefix(s, "*") {
		v, err := p.argument()
		if err != nil {
			return 0, "", err
		}
		if _, ok := integer(v); !ok {
			return 0, "", p.r.fail("TypeError", "* wants int")
		}
		n, err := p.r.intArgument(v, 0)
		return n, s[1:], err
	}
	n := 0
	for s != "" && s[0] >= '0' && s[0] <= '9' {
		if n = n*10 + int(s[0]-'0'); n > p.r.limits.Output {
			return 0, "", p.r.size(n)
		}
		s = s[1:]
	}
	return n, s, nil
}

// value formats one argument.
func (p *printer) value(v any, l layout) (string, error) {
	r := p.r
	switch l.kind {
	case 's', 'r':
		convert := r.text
		if l.kind == 'r' {
			convert = r.repr
		}
		t, err := convert(v)
		if err != nil {
			return "", err
		}
		if _, safe := v.(markup); p.escaped && !safe {
			t = escape(t)
		}
		return r.layText(t, l, '>')
	case 'c':
		if s, ok := str(v); ok {
			if utf8.RuneCountInString(s) != 1 {
				return "", r.fail("TypeError", "%%c requires int or char")
			}
			return r.layText(s, l, '>')
		}
		i, ok := integer(v)
		if !ok {
			return "", r.fail("TypeError", "%%c requires int or char")
		}
		l.align = 0
		return r.layInteger(i, l)
	case 'd', 'i', 'u', 'x', 'X', 'o':
		return p.integer(v, l)
	case 'e', 'E', 'f', 'F', 'g', 'G':
		if u, ok := v.(*undefined); ok {
			return "", r.use(u)
		}
		f, ok := float(v)
		if !ok {
			return "", r.fail("TypeError", "must be real number, not %s", typeName(v))
		}
		return r.layFloat(f, l)
	case 'a':
		return "", r.unsupported("the conversion %%a")
	}
	return "", r.fail("ValueError", "unsupported format character '%c'", l.kind)
}

func (p *printer) integer(v any, l layout) (string, error) {
	r := p.r
	if u, ok := v.(*undefined); ok {
		return "", r.use(u)
	}
	i, ok := integer(v)
	if f, isFloat := v.(float64); isFloat && strings.IndexByte("diu", l.kind) >= 0 {
		if math.IsNaN(f) || math.IsInf(f, 0) {
			return "", r.fail("OverflowError", "cannot convert float %s to integer", formatFloat(f))
		}
		if i, ok = int64(f), true; math.Abs(f) >= 1<<63 {
			return "", r.overflow()
		}
	}
	if !ok {
		return "", r.fail("TypeError", "%%%c format: a real number is required, not %s", l.kind, typeName(v))
	}
	if l.kind == 'i' || l.kind == 'u' {
		l.kind = 'd'
	}
	if l.precision >= 0 {
		return "", r.unsupported("a precision of an integer")
	}
	return r.layInteger(i, l)
}
