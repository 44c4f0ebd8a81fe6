package lower

import (
	"strings"

	"github.com/llmexport/llmexport/runtime/template/syntax"
)

// call lowers the call of a function, a macro or a method.
func (l *lowerer) call(x *syntax.Call) syntax.Expression {
	a := x.Arguments
	if a.Star != nil || a.StarStar != nil {
		l.cannot(x.Line, "a call with * or **")
		return constant("")
	}
	switch f := x.Function.(type) {
	case *syntax.Attribute:
		return l.method(x, f)
	case *syntax.Name:
		if m := l.macros[f.ID]; m != nil {
			return l.callMacro(x, f, m)
		}
		switch f.ID {
		case "range", "namespace", "strftime_now":
			out := &syntax.Call{Function: f, Line: x.Line, Arguments: syntax.Arguments{Positional: l.values(a.Positional)}}
			for _, k := range a.Keyword {
				out.Arguments.Keyword = append(out.Arguments.Keyword, syntax.Keyword{Name: k.Name, X: l.value(k.X)})
			}
			if f.ID == "namespace" && len(a.Positional) > 0 {
				l.cannot(x.Line, "a namespace made of a dict")
			}
			return out
		case "dict":
			if len(a.Positional) == 0 {
				d := &syntax.Dict{}
				for _, k := range a.Keyword {
					d.Keys, d.Values = append(d.Keys, constant(k.Name)), append(d.Values, l.value(k.X))
				}
				return d
			}
		case "raise_exception":
			// If not alone in its branch, the text before it is rendered; the original has no text at all.
			return constant("")
		}
		l.cannot(x.Line, "the function %q", f.ID)
		return constant("")
	}
	l.cannot(x.Line, "the call of an expression")
	return constant("")
}

// callMacro passes every argument: the engine drops defaults, and looks up a parameter without a value in the scopes of
// the caller.
func (l *lowerer) callMacro(x *syntax.Call, f *syntax.Name, m *syntax.Definition) syntax.Expression {
	if l.several[f.ID] {
		l.cannot(x.Line, "the call of one of several macros %q", f.ID)
	}
	given := make([]syntax.Expression, len(m.Parameters))
	if len(x.Arguments.Positional) > len(given) {
		l.cannot(x.Line, "a call with more arguments than the macro %q has", f.ID)
		return constant("")
	}
	for i, arg := range x.Arguments.Positional {
		given[i] = l.value(arg)
	}
	for _, k := range x.Arguments.Keyword {
		known := false
		for i, p := range m.Parameters {
			if p == k.Name {
				given[i], known = l.value(k.X), true
			}
		}
		if !known {
			l.cannot(x.Line, "an argument %q that the macro %q lacks", k.Name, f.ID)
		}
	}
	for i := range given {
		if given[i] != nil {
			continue
		}
		if d := i - (len(m.Parameters) - len(m.Defaults)); d >= 0 {
			given[i] = l.value(m.Defaults[d])
		} else {
			given[i] = l.nothing()
		}
	}
	return &syntax.Call{Function: f, Line: x.Line, Arguments: syntax.Arguments{Positional: given}}
}

// method lowers x.name(...).
func (l *lowerer) method(x *syntax.Call, f *syntax.Attribute) syntax.Expression {
	a := x.Arguments.Positional
	if n, ok := f.X.(*syntax.Name); ok && n.ID == "loop" && len(l.iterables) > 0 {
		if f.Name == "cycle" && len(a) > 0 {
			at := l.remainder(attribute(n, "index0"), int64(len(a)))
			return &syntax.Item{X: attribute(namespaceOf("v", listed(l.values(a)...)), "v"), Key: at}
		}
		l.cannot(x.Line, "loop.%s", f.Name)
		return constant("")
	}
	if len(x.Arguments.Keyword) > 0 {
		l.cannot(x.Line, "a named argument of the method %q", f.Name)
		return constant("")
	}
	on := func(of syntax.Expression) syntax.Expression {
		return called(attribute(l.base(of), f.Name), l.values(a)...)
	}
	count := len(a)
	switch f.Name {
	case "strip", "lstrip", "rstrip":
		if count <= 1 {
			return on(f.X)
		}
	case "startswith", "endswith":
		if count == 1 {
			options, ok := a[0].(*syntax.Tuple)
			if !ok {
				return on(f.X)
			}
			var any syntax.Expression = constant(false)
			for i, option := range options.Items {
				a = []syntax.Expression{option}
				if one := on(f.X); i == 0 {
					any = one
				} else {
					any = &syntax.Binary{Operator: "or", X: any, Y: one}
				}
			}
			return any
		}
	case "split":
		if count == 1 {
			return on(f.X)
		}
		if count == 2 {
			if c, ok := a[1].(*syntax.Constant); ok {
				if most, ok := c.Value.(int64); ok && most > 0 {
					a = a[:1]
					return l.splitMost(on(f.X), l.value(a[0]), most)
				}
			}
		}
	case "replace":
		if count == 2 {
			return on(f.X)
		}
	case "upper", "lower", "capitalize":
		return l.filter(&syntax.Filter{X: f.X, Name: f.Name, Line: x.Line})
	case "items":
		return &syntax.Filter{X: l.value(f.X), Name: "items", Line: x.Line}
	case "keys", "values":
		at := int64(0)
		if f.Name == "values" {
			at = 1
		}
		return l.collect(&syntax.Filter{X: l.value(f.X), Name: "items"}, func(x *syntax.Name) (syntax.Expression, syntax.Expression) {
			return &syntax.Item{X: x, Key: constant(at)}, nil
		})
	case "get":
		if count == 1 || count == 2 {
			var otherwise syntax.Expression = constant(nil)
			if count == 2 {
				otherwise = l.value(a[1])
			}
			found := l.shared(l.value(&syntax.Item{X: f.X, Key: a[0], Line: x.Line}))
			if i, ok := found.(*syntax.Item); ok {
				return &syntax.Conditional{Test: compare(i.Key, "in", i.X), Yes: found, No: otherwise}
			}
			return &syntax.Conditional{Test: defined(found), Yes: found, No: otherwise}
		}
	case "join":
		if count == 1 {
			return l.joined(l.value(a[0]), l.value(f.X), "")
		}
	case "format":
		if c, ok := f.X.(*syntax.Constant); ok {
			if s, ok := c.Value.(string); ok {
				if out, ok := l.formatted(s, l.values(a)); ok {
					return out
				}
			}
		}
	}
	l.cannot(x.Line, "the method %q with these arguments", f.Name)
	return constant("")
}

// filter lowers x|name(...).
func (l *lowerer) filter(x *syntax.Filter) syntax.Expression {
	a := x.Arguments.Positional
	argument := func(at int, id string) syntax.Expression {
		if at < len(a) {
			return a[at]
		}
		for _, k := range x.Arguments.Keyword {
			if k.Name == id {
				return k.X
			}
		}
		return nil
	}
	text := func(id string) (string, bool) {
		c, ok := argument(len(a), id).(*syntax.Constant)
		if !ok {
			return "", false
		}
		s, ok := c.Value.(string)
		return s, ok
	}
	plain := func(id string) syntax.Expression { return &syntax.Filter{X: l.value(x.X), Name: id, Line: x.Line} }
	ofText := func(id string) syntax.Expression {
		return &syntax.Filter{X: l.shown(l.value(x.X)), Name: id, Line: x.Line}
	}
	switch x.Name {
	case "tojson":
		out := plain("tojson").(*syntax.Filter)
		for _, k := range x.Arguments.Keyword {
			switch c, ok := k.X.(*syntax.Constant); {
			case k.Name == "indent":
				out.Arguments.Keyword = append(out.Arguments.Keyword, syntax.Keyword{Name: "indent", X: l.value(k.X)})
			case k.Name == "ensure_ascii" && ok && c.Value == false:
			default:
				l.cannot(x.Line, "the argument %q of tojson", k.Name)
			}
		}
		if len(a) > 0 {
			l.cannot(x.Line, "an argument of tojson without a name")
		}
		return out
	case "string":
		return l.shown(l.value(x.X))
	case "lower", "upper", "capitalize":
		return ofText(x.Name)
	case "items":
		return plain("items")
	case "trim":
		if chars := argument(0, "chars"); chars != nil {
			arguments := syntax.Arguments{Positional: []syntax.Expression{chars}}
			return l.method(&syntax.Call{Line: x.Line, Arguments: arguments}, attribute(x.X, "strip"))
		}
		return ofText("trim")
	case "length", "count":
		n := plain("length").(*syntax.Filter)
		if mayLack(n.X) {
			n.X = l.shared(n.X)
			return &syntax.Conditional{Test: defined(n.X), Yes: n, No: constant(int64(0))}
		}
		return n
	case "list", "safe":
		return l.value(x.X)
	case "first":
		return &syntax.Item{X: l.elements(x.X, x.Line), Key: constant(int64(0))}
	case "last":
		return &syntax.Item{X: l.elements(x.X, x.Line), Key: constant(int64(-1))}
	case "reverse":
		return &syntax.Slice{X: l.elements(x.X, x.Line), Step: constant(int64(-1))}
	case "default", "d":
		otherwise := syntax.Expression(constant(""))
		if v := argument(0, "default_value"); v != nil {
			otherwise = l.value(v)
		}
		v := l.shared(l.value(x.X))
		if b := argument(1, "boolean"); b != nil {
			v = l.hold(v)
			return &syntax.Conditional{Test: v, Yes: v, No: otherwise}
		}
		return &syntax.Conditional{Test: l.defined(v, x.Line), Yes: v, No: otherwise}
	case "replace":
		if len(a) == 2 {
			return l.method(&syntax.Call{Line: x.Line, Arguments: syntax.Arguments{Positional: a}}, attribute(x.X, "replace"))
		}
	case "join":
		between := syntax.Expression(constant(""))
		if d := argument(0, "d"); d != nil {
			between = l.value(d)
		}
		id, _ := text("attribute")
		if _, ok := path(nil, id); ok || argument(1, "attribute") == nil {
			return l.joined(l.value(x.X), between, id)
		}
	case "attr":
		if len(a) == 1 {
			return l.value(&syntax.Item{X: x.X, Key: a[0], Line: x.Line})
		}
	case "dictsort":
		if len(a) == 0 && len(x.Arguments.Keyword) == 0 {
			// The engine iterates over the keys of an object in sorted order.
			d := l.hold(l.value(x.X))
			return l.collect(d, func(n *syntax.Name) (value, test syntax.Expression) {
				return &syntax.List{Items: []syntax.Expression{n, &syntax.Item{X: d, Key: n}}}, nil
			})
		}
	case "map":
		return l.mapped(x, text)
	case "select", "reject", "selectattr", "rejectattr":
		return l.selected(x)
	}
	l.cannot(x.Line, "the filter %q with these arguments", x.Name)
	return l.value(x.X)
}

func (l *lowerer) mapped(x *syntax.Filter, text func(string) (string, bool)) syntax.Expression {
	a := x.Arguments.Positional
	list := l.value(x.X)
	if id, ok := text("attribute"); ok {
		if _, ok := path(nil, id); ok {
			return l.collect(list, func(n *syntax.Name) (syntax.Expression, syntax.Expression) {
				of, _ := path(n, id)
				return of, nil
			})
		}
	}
	if len(a) > 0 {
		if c, ok := a[0].(*syntax.Constant); ok {
			if id, ok := c.Value.(string); ok {
				return l.collect(list, func(n *syntax.Name) (syntax.Expression, syntax.Expression) {
					arguments := syntax.Arguments{Positional: a[1:], Keyword: x.Arguments.Keyword}
					return l.filter(&syntax.Filter{X: n, Name: id, Line: x.Line, Arguments: arguments}), nil
				})
			}
		}
	}
	l.cannot(x.Line, "this form of the filter \"map\"")
	return list
}

// path is the attribute that a filter names by a text, with dots for attributes of attributes. Numbers, which are
// indexes, and names that are not identifiers have no equivalent.
func path(x syntax.Expression, id string) (syntax.Expression, bool) {
	for part := range strings.SplitSeq(id, ".") {
		if !isIdentifierName(part) {
			return nil, false
		}
		x = attribute(x, part)
	}
	return x, true
}

// selected lowers the four filters that select elements of a list.
func (l *lowerer) selected(x *syntax.Filter) syntax.Expression {
	a := x.Arguments.Positional
	ofAttribute := x.Name == "selectattr" || x.Name == "rejectattr"
	id := ""
	if ofAttribute && len(a) > 0 {
		if c, ok := a[0].(*syntax.Constant); ok {
			id, _ = c.Value.(string)
		}
		a = a[1:]
	}
	testName := ""
	if len(a) > 0 {
		if c, ok := a[0].(*syntax.Constant); ok {
			testName, _ = c.Value.(string)
		}
	}
	if _, ok := path(nil, id); ofAttribute && !ok || len(a) > 0 && testName == "" {
		l.cannot(x.Line, "this form of the filter %q", x.Name)
		return l.value(x.X)
	}
	return l.collect(l.value(x.X), func(n *syntax.Name) (value, condition syntax.Expression) {
		var of syntax.Expression = n
		if ofAttribute {
			of, _ = path(n, id)
		}
		if testName != "" {
			of = l.test(&syntax.Test{X: of, Name: testName, Line: x.Line, Arguments: syntax.Arguments{Positional: a[1:]}})
		}
		if x.Name == "reject" || x.Name == "rejectattr" {
			of = not(of)
		}
		return n, of
	})
}

// shown is a value as Python's str gives it.
func (l *lowerer) shown(x syntax.Expression) syntax.Expression {
	if isText(x) {
		return x
	}
	if mayLack(x) {
		x = l.shared(x)
	}
	s := &syntax.Filter{X: x, Name: "string"}
	if mayLack(x) {
		return &syntax.Conditional{Test: defined(x), Yes: s, No: constant("")}
	}
	return s
}

// splitMost joins the parts that the engine, which knows no limit, has split too far.
func (l *lowerer) splitMost(parts, separator syntax.Expression, most int64) syntax.Expression {
	parts, separator = l.hold(parts), l.hold(separator)
	n := constant(most)
	rest := l.joined(&syntax.Slice{X: parts, Start: n}, separator, "")
	return &syntax.Conditional{
		Test: compare(&syntax.Filter{X: parts, Name: "length"}, ">", n),
		Yes:  &syntax.Binary{Operator: "+", X: &syntax.Slice{X: parts, Stop: n}, Y: listed(rest)},
		No:   parts,
	}
}

// formatted fills a format in whose fields are all {}.
func (l *lowerer) formatted(format string, values []syntax.Expression) (syntax.Expression, bool) {
	texts := strings.Split(format, "{}")
	if len(texts) != len(values)+1 || strings.ContainsAny(strings.Join(texts, ""), "{}") {
		return nil, false
	}
	parts := []syntax.Expression{constant(texts[0])}
	for i, v := range values {
		parts = append(parts, l.shown(v), constant(texts[i+1]))
	}
	return &syntax.Concat{Parts: parts}, true
}
