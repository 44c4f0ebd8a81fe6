// Package lower writes chat templates for the LLM engine of MNN, whose interpreter knows a part of Jinja: it is the one
// place that lists what the engine lacks. docs/internals/engine-template.md describes the engine; package engine renders as it does.
package lower

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/llmexport/llmexport/runtime/template/syntax"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// Template writes a template in the part of Jinja that the interpreter of the MNN engine renders as jinja2 does: default
// arguments of macros are passed at every call, filters and methods that the engine lacks become loops, an "or" whose
// value is used becomes a condition, and so on. Constructs without an equivalent are left out or copied, and listed in
// left with their lines; the text may still be right, if no conversation reaches them. Branches that only raise an
// exception are dropped, so conversations that the original rejects produce unspecified text.
//
// The caller proves that the two templates agree, by rendering both.
func Template(t *syntax.Template) (text string, left []*syntax.Error) {
	l := &lowerer{
		macros: map[string]*syntax.Definition{}, several: map[string]bool{}, json: map[string]bool{}, prefix: "_v", template: t.Name,
	}
	names := map[string]bool{}
	walk(t.Body, func(node any) {
		switch n := node.(type) {
		case *syntax.Name:
			names[n.ID] = true
		case *syntax.Macro:
			l.define(n.Definition)
		case *syntax.CallBlock:
			if n.Call != nil {
				l.define(callerOf(n))
			}
		case *syntax.Set:
			if target, ok := n.Target.(*syntax.Name); ok {
				f, ok := n.Value.(*syntax.Filter)
				_, known := l.json[target.ID]
				l.json[target.ID] = ok && f.Name == "tojson" && (!known || l.json[target.ID])
			}
		}
	})
	for anyWith(names, l.prefix) {
		l.prefix += "_"
	}
	body := l.body(t.Body)
	// The engine leaves these undefined; transformers sets them.
	var prelude []syntax.Statement
	for _, d := range []struct {
		id    string
		value any
	}{{"tools", nil}, {"documents", nil}, {"add_generation_prompt", false}} {
		if names[d.id] {
			x := named(d.id)
			prelude = append(prelude, when(not(defined(x)), assign(x, constant(d.value))))
		}
	}
	if text = syntax.Source(append(prelude, body...)); text == "" {
		text = "{{ '' }}" // the engine ignores an empty template
	}
	return text, l.left
}

func anyWith(names map[string]bool, prefix string) bool {
	for id := range names {
		if strings.HasPrefix(id, prefix) {
			return true
		}
	}
	return false
}

// walk visits all nodes of a tree.
func walk(body []syntax.Statement, visit func(any)) {
	var each func(any)
	each = func(node any) {
		visit(node)
		syntax.Children(node, each)
	}
	for _, s := range body {
		each(s)
	}
}

// lowerer rewrites a tree. Names of its own begin with prefix.
type lowerer struct {
	macros  map[string]*syntax.Definition
	several map[string]bool // names of macros that differ in their parameters
	json    map[string]bool // names that only results of tojson are assigned to
	prefix  string
	names   int
	// template is the name of the template.
	template string
	before   []syntax.Statement // statements to write before the current one
	left     []*syntax.Error

	iterables []*syntax.Name // of the outer loops, for previtem and nextitem; nil if not needed
	stops     []*syntax.Name // the namespaces with the flags of outer loops that have break or continue
}

func (l *lowerer) define(m *syntax.Definition) {
	if other := l.macros[m.Name]; other != nil {
		same := len(m.Defaults)+len(other.Defaults) == 0 && slices.Equal(m.Parameters, other.Parameters)
		l.several[m.Name] = l.several[m.Name] || !same
	}
	l.macros[m.Name] = m
}

func (l *lowerer) cannot(line int, format string, args ...any) {
	l.left = append(l.left, &syntax.Error{
		Name: l.template, Line: line, Kind: "TemplateSyntaxError", Err: tensor.ErrUnsupported,
		Message: fmt.Sprintf(format, args...) + " has no equivalent in the engine",
	})
}

func (l *lowerer) fresh() *syntax.Name {
	l.names++
	return named(l.prefix + strconv.Itoa(l.names))
}

// hold returns a simple expression with the value of x.
func (l *lowerer) hold(x syntax.Expression) syntax.Expression {
	switch x := x.(type) {
	case *syntax.Name, *syntax.Constant:
		return x
	case *syntax.Attribute:
		if _, ok := x.X.(*syntax.Name); ok {
			return x
		}
	}
	n := l.fresh()
	l.before = append(l.before, assign(n, x))
	return n
}

// shared returns an expression that may be written several times: large ones are held, as nested repetitions would grow
// without bound.
func (l *lowerer) shared(x syntax.Expression) syntax.Expression {
	const most = 16 // parts
	parts := 0
	var count func(any)
	count = func(node any) {
		if parts++; parts <= most {
			syntax.Children(node, count)
		}
	}
	if count(x); parts > most {
		return l.hold(x)
	}
	return x
}

// body lowers statements in their order.
func (l *lowerer) body(body []syntax.Statement) []syntax.Statement {
	var out []syntax.Statement
	for i, s := range body {
		outer := l.before
		l.before = nil
		made := l.statement(s)
		out = append(out, l.before...)
		out = append(out, made...)
		l.before = outer
		if rest := body[i+1:]; len(rest) > 0 && len(l.stops) > 0 && leaves(s) {
			stop := l.stops[len(l.stops)-1]
			return append(out, when(not(attribute(stop, "skip")), l.body(rest)...))
		}
	}
	return out
}

// leaves reports whether a statement may break or continue the loop that it is in.
func leaves(node any) bool {
	_, isContinue := node.(*syntax.Continue)
	return isContinue || breaks(node) || inLoop(node, leaves)
}

// inLoop reports whether something holds for a part of a statement that is in the same loop as the statement.
func inLoop(node any, holds func(any) bool) bool {
	switch n := node.(type) {
	case *syntax.For: // its else is not part of the loop
		return within(n.Otherwise, holds)
	case *syntax.Macro:
		return false
	}
	found := false
	syntax.Children(node, func(x any) { found = found || holds(x) })
	return found
}

func (l *lowerer) statement(s syntax.Statement) []syntax.Statement {
	switch s := s.(type) {
	case *syntax.Text:
		return []syntax.Statement{s}
	case *syntax.Print:
		return l.print(l.value(s.X), s.Line)
	case *syntax.If:
		return l.ifs(s)
	case *syntax.For:
		return l.loop(s)
	case *syntax.Set:
		return l.set(s)
	case *syntax.SetBlock:
		x := l.captured(s.Body, s.Line)
		var value syntax.Expression = x
		if s.Filter != nil {
			value = l.value(onto(s.Filter, x))
		}
		return []syntax.Statement{assign(s.Target, value)}
	case *syntax.FilterBlock:
		return l.print(l.value(onto(s.Filter, l.captured(s.Body, s.Line))), s.Line)
	case *syntax.Macro:
		return []syntax.Statement{l.macro(s.Definition, s.Line)}
	case *syntax.CallBlock:
		if s.Call == nil {
			return l.generation(s)
		}
		if within(s.Caller.Body, func(node any) bool { return calls(node, s.Call.Function) }) {
			l.cannot(s.Line, "a call block within another, or a call of its macro")
		}
		return append([]syntax.Statement{l.macro(callerOf(s), s.Line)}, l.print(l.value(s.Call), s.Line)...)
	case *syntax.With:
		return l.with(s)
	case *syntax.Break:
		return l.leave("stop", s.Line)
	case *syntax.Continue:
		return l.leave("", s.Line)
	}
	panic(fmt.Sprintf("internal error: lowering a %T", s))
}

// generation is a scope, which matters only if it assigns names.
func (l *lowerer) generation(s *syntax.CallBlock) []syntax.Statement {
	switch body := s.Caller.Body; {
	case !within(body, assigns):
		return l.body(body)
	case len(l.iterables) > 0 && within(body, readsLoop):
		l.cannot(s.Line, "a generation block that reads loop and assigns names")
		return l.body(body)
	default:
		return l.with(&syntax.With{Body: body, Line: s.Line})
	}
}

// assigns reports whether a part of a statement assigns a name.
func assigns(node any) bool {
	switch n := node.(type) {
	case *syntax.Set:
		_, ofNamespace := n.Target.(*syntax.NamespaceTarget)
		return !ofNamespace
	case *syntax.SetBlock, *syntax.Macro:
		return true
	}
	return inLoop(node, assigns)
}

// readsLoop reports whether a part of a statement reads the variable of the loop that it is in.
func readsLoop(node any) bool {
	if n, ok := node.(*syntax.Name); ok && n.ID == "loop" {
		return true
	}
	if n, ok := node.(*syntax.For); ok && readsLoop(n.Iterable) {
		return true
	}
	return inLoop(node, readsLoop)
}

// calls reports whether a part of a statement is a call block or calls the macro: the engine has one caller for all.
func calls(node any, function syntax.Expression) bool {
	if b, ok := node.(*syntax.CallBlock); ok && b.Call != nil {
		return true
	}
	if c, ok := node.(*syntax.Call); ok {
		f, ok1 := c.Function.(*syntax.Name)
		macro, ok2 := function.(*syntax.Name)
		if ok1 && ok2 && f.ID == macro.ID {
			return true
		}
	}
	found := false
	syntax.Children(node, func(x any) { found = found || calls(x, function) })
	return found
}

// callerOf is the macro caller of a call block; the engine finds macros by name wherever they are defined.
func callerOf(s *syntax.CallBlock) *syntax.Definition {
	m := *s.Caller
	m.Name = "caller"
	return &m
}

// captured defines a macro of statements before the current one, and returns the call that gives their text.
func (l *lowerer) captured(body []syntax.Statement, line int) *syntax.Call {
	m := &syntax.Definition{Name: l.fresh().ID, Body: body}
	l.macros[m.Name] = m
	l.before = append(l.before, l.macro(m, line))
	return &syntax.Call{Function: named(m.Name), Line: line}
}

// onto applies a chain of filters to an expression.
func onto(chain syntax.Expression, x syntax.Expression) syntax.Expression {
	f, ok := chain.(*syntax.Filter)
	if !ok {
		return x
	}
	g := *f
	g.X = x
	if f.X != nil {
		g.X = onto(f.X, x)
	}
	return &g
}

func (l *lowerer) macro(m *syntax.Definition, line int) syntax.Statement {
	if m.Varargs || m.Kwargs {
		l.cannot(line, "a macro with varargs or kwargs")
	}
	stops := l.stops
	l.stops = nil
	body := l.body(m.Body)
	l.stops = stops
	return &syntax.Macro{Definition: &syntax.Definition{Name: m.Name, Parameters: m.Parameters, Body: body}, Line: line}
}

// print prints a value as Python's str does. The engine prints values other than texts as JSON.
func (l *lowerer) print(x syntax.Expression, line int) []syntax.Statement {
	switch c := x.(type) {
	case *syntax.Constant:
		if s, ok := c.Value.(string); ok && s == "" {
			return nil
		}
	case *syntax.Conditional:
		no := l.print(c.No, line)
		return []syntax.Statement{&syntax.If{Branches: []syntax.Branch{{Test: c.Test, Body: l.print(c.Yes, line)}}, Otherwise: no}}
	}
	if isCount(x) {
		return []syntax.Statement{&syntax.Print{X: x, Line: line}}
	}
	if s := l.shown(x); s != x {
		if c, ok := s.(*syntax.Conditional); ok {
			return l.print(c, line)
		}
		x = s
	}
	return []syntax.Statement{&syntax.Print{X: x, Line: line}}
}

// ifs drops branches that only raise an exception: the original renders no text there.
func (l *lowerer) ifs(s *syntax.If) []syntax.Statement {
	out := &syntax.If{}
	for _, b := range s.Branches {
		if raises(b.Body) {
			continue
		}
		out.Branches = append(out.Branches, syntax.Branch{Test: l.condition(b.Test), Body: nil, Line: b.Line})
		out.Branches[len(out.Branches)-1].Body = l.body(b.Body)
	}
	if !raises(s.Otherwise) {
		out.Otherwise = l.body(s.Otherwise)
	}
	if len(out.Branches) == 0 {
		return out.Otherwise
	}
	return []syntax.Statement{out}
}

func raises(body []syntax.Statement) bool {
	found := false
	for _, s := range body {
		switch s := s.(type) {
		case *syntax.Text:
			if strings.TrimSpace(s.Text) != "" {
				return false
			}
			continue
		case *syntax.Print:
			if c, ok := s.X.(*syntax.Call); ok {
				if n, ok := c.Function.(*syntax.Name); ok && n.ID == "raise_exception" {
					found = true
					continue
				}
			}
		}
		return false
	}
	return found
}

func (l *lowerer) set(s *syntax.Set) []syntax.Statement {
	if targets, ok := s.Target.(*syntax.Tuple); ok {
		var values []syntax.Expression
		switch v := s.Value.(type) {
		case *syntax.Tuple:
			values = v.Items
		case *syntax.List:
			values = v.Items
		}
		if values == nil || len(values) != len(targets.Items) {
			held := l.hold(l.value(s.Value))
			values = nil
			for i := range targets.Items {
				values = append(values, &syntax.Item{X: held, Key: constant(int64(i))})
			}
		} else {
			values = slices.Clone(values)
			for i := range values {
				n := l.fresh()
				l.before = append(l.before, assign(n, l.value(values[i])))
				values[i] = n
			}
		}
		var out []syntax.Statement
		for i, target := range targets.Items {
			out = append(out, assign(target, values[i]))
		}
		return out
	}
	return []syntax.Statement{&syntax.Set{Target: s.Target, Value: l.value(s.Value), Line: s.Line}}
}

// with makes a scope: a loop that runs once.
func (l *lowerer) with(s *syntax.With) []syntax.Statement {
	if len(l.iterables) > 0 && within(s.Body, readsLoop) {
		l.cannot(s.Line, "loop in a with block")
	}
	var body []syntax.Statement
	for i, target := range s.Targets {
		body = append(body, l.set(&syntax.Set{Target: target, Value: s.Values[i], Line: s.Line})...)
	}
	body = append(body, l.body(s.Body)...)
	return []syntax.Statement{&syntax.For{Target: l.fresh(), Iterable: listed(constant(int64(0))), Body: body}}
}

// isIdentifierName reports whether a name is an identifier to the engine, which knows ASCII only.
func isIdentifierName(s string) bool {
	if s == "" || s[0] >= '0' && s[0] <= '9' {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if c != '_' && (c|0x20 < 'a' || c|0x20 > 'z') && (c < '0' || c > '9') {
			return false
		}
	}
	return true
}
