package template

import (
	"math"
	"strings"
	"unicode/utf8"
)

// printf is Python's s % v. With escaped set, every inserted text is escaped for HTML.
func (r *renderer) printf(s string, v any, escaped bool) string {
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
		t, rest := p.directive(s[i+1:])
		r.write(&b, t)
		s = rest
	}
	if len(p.args) > 0 && !p.mapping {
		panic(r.fail("TypeError", "not all arguments converted during string formatting"))
	}
	return b.String()
}

// printer holds the arguments that are left.
type printer struct {
	r       *renderer
	args    []any
	whole   any
	mapping bool // the argument need not be used
	escaped bool
}

func (p *printer) argument() any {
	if len(p.args) == 0 {
		panic(p.r.fail("TypeError", "not enough arguments for format string"))
	}
	v := p.args[0]
	p.args = p.args[1:]
	return v
}

// directive formats one directive, which begins after its % sign, and returns the rest of the text.
func (p *printer) directive(s string) (text, rest string) {
	var named any = unset
	if strings.HasPrefix(s, "(") {
		named, s = p.named(s)
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
	width, s := p.number(s)
	if width < 0 {
		l.align, width = '<', -width
	}
	l.width = width
	if strings.HasPrefix(s, ".") {
		l.precision, s = p.number(s[1:])
		l.precision = max(l.precision, 0)
	}
	s = strings.TrimLeft(s, "hlL")
	if s == "" {
		panic(p.r.fail("ValueError", "incomplete format"))
	}
	l.kind, s = s[0], s[1:]
	if l.kind == '%' {
		return "%", s
	}
	v := named
	if v == unset {
		v = p.argument()
	}
	if zero && l.align == '>' && strings.IndexByte("diuxXoeEfFgG", l.kind) >= 0 {
		l.fill, l.align = "0", '='
	}
	return p.value(v, l), s
}

// named returns the argument for (name).
func (p *printer) named(s string) (any, string) {
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
			panic(p.r.fail("TypeError", "format requires a mapping"))
		}
		v, ok := o.get(s[1:i])
		if !ok {
			panic(p.r.fail("KeyError", "%s", quote(s[1:i])))
		}
		p.args = nil
		return v, s[i+1:]
	}
	panic(p.r.fail("ValueError", "incomplete format key"))
}

// number is a width or precision, 0 if missing.
func (p *printer) number(s string) (int, string) {
	if strings.HasPrefix(s, "*") {
		v := p.argument()
		if _, ok := integer(v); !ok {
			panic(p.r.fail("TypeError", "* wants int"))
		}
		return p.r.intArgument(v, 0), s[1:]
	}
	n := 0
	for s != "" && s[0] >= '0' && s[0] <= '9' {
		if n = n*10 + int(s[0]-'0'); n > p.r.limits.Output {
			p.r.size(n)
		}
		s = s[1:]
	}
	return n, s
}

// value formats one argument.
func (p *printer) value(v any, l layout) string {
	r := p.r
	switch l.kind {
	case 's', 'r':
		convert := r.text
		if l.kind == 'r' {
			convert = r.repr
		}
		t := convert(v)
		if _, safe := v.(markup); p.escaped && !safe {
			t = escape(t)
		}
		return r.layText(t, l, '>')
	case 'c':
		if s, ok := str(v); ok {
			if utf8.RuneCountInString(s) != 1 {
				panic(r.fail("TypeError", "%%c requires int or char"))
			}
			return r.layText(s, l, '>')
		}
		i, ok := integer(v)
		if !ok {
			panic(r.fail("TypeError", "%%c requires int or char"))
		}
		l.align = 0
		return r.layInteger(i, l)
	case 'd', 'i', 'u', 'x', 'X', 'o':
		return p.integer(v, l)
	case 'e', 'E', 'f', 'F', 'g', 'G':
		if u, ok := v.(*undefined); ok {
			panic(r.use(u))
		}
		f, ok := float(v)
		if !ok {
			panic(r.fail("TypeError", "must be real number, not %s", typeName(v)))
		}
		return r.layFloat(f, l)
	case 'a':
		panic(r.unsupported("the conversion %%a"))
	}
	panic(r.fail("ValueError", "unsupported format character '%c'", l.kind))
}

func (p *printer) integer(v any, l layout) string {
	r := p.r
	if u, ok := v.(*undefined); ok {
		panic(r.use(u))
	}
	i, ok := integer(v)
	if f, isFloat := v.(float64); isFloat && strings.IndexByte("diu", l.kind) >= 0 {
		if math.IsNaN(f) || math.IsInf(f, 0) {
			panic(r.fail("OverflowError", "cannot convert float %s to integer", formatFloat(f)))
		}
		if i, ok = int64(f), true; math.Abs(f) >= 1<<63 {
			panic(r.overflow())
		}
	}
	if !ok {
		panic(r.fail("TypeError", "%%%c format: a real number is required, not %s", l.kind, typeName(v)))
	}
	if l.kind == 'i' || l.kind == 'u' {
		l.kind = 'd'
	}
	if l.precision >= 0 {
		panic(r.unsupported("a precision of an integer"))
	}
	return r.layInteger(i, l)
}
