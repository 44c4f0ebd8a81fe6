package template

import (
	"fmt"
	"slices"
	"strings"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// Lower writes the template in the small part of Jinja that the interpreter of the MNN engine renders as jinja2 does:
// default arguments of macros are given at every call, filters and methods that it lacks become loops, an "or" whose
// value is used becomes a condition, and so on. What it cannot express it leaves out or as it is, and lists in left,
// each with its line; the text may be right all the same, where a conversation does not come there. Branches that only
// raise an exception are dropped: conversations that the original refuses are rendered somehow.
//
// That a lowered template renders as the original does is for the caller to prove, by rendering both.
func (t *Template) Lower() (text string, left []*Error) {
	l := &lowerer{macros: map[string]*macroDefinition{}, several: map[string]bool{}, json: map[string]bool{}, prefix: "_v"}
	names := map[string]bool{}
	walk(t.body, func(node any) {
		switch n := node.(type) {
		case *name:
			names[n.id] = true
		case *macroStatement:
			l.define(n.macro)
		case *callBlock:
			if n.call != nil {
				l.define(callerOf(n))
			}
		case *setStatement:
			if target, ok := n.target.(*name); ok {
				f, ok := n.value.(*filter)
				_, known := l.json[target.id]
				l.json[target.id] = ok && f.name == "tojson" && (!known || l.json[target.id])
			}
		}
	})
	for anyWith(names, l.prefix) {
		l.prefix += "_"
	}
	body := l.body(t.body)
	// The engine leaves these undefined where transformers gives a value.
	var prelude []statement
	for _, d := range []struct {
		id    string
		value any
	}{{"tools", nil}, {"documents", nil}, {"add_generation_prompt", false}} {
		if names[d.id] {
			x := &name{d.id}
			prelude = append(prelude, &ifStatement{branches: []branch{{
				test: &unary{operator: "not", x: &test{x: x, name: "defined"}},
				body: []statement{&setStatement{target: x, value: &constant{d.value}}},
			}}})
		}
	}
	for _, e := range l.left {
		e.Name = t.name
	}
	if text = source(append(prelude, body...)); text == "" {
		text = "{{ '' }}" // an empty template is none to the engine
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
func walk(body []statement, visit func(any)) {
	var each func(any)
	each = func(node any) {
		visit(node)
		children(node, each)
	}
	for _, s := range body {
		each(s)
	}
}

// lowerer rewrites a tree. Names of its own begin with prefix.
type lowerer struct {
	macros  map[string]*macroDefinition
	several map[string]bool // names of macros that differ in their parameters
	json    map[string]bool // names that are only ever what tojson makes
	prefix  string
	names   int
	before  []statement // what the statement at hand needs in front of it
	left    []*Error

	iterables []*name // of the loops around, for previtem and nextitem; nil where not needed
	stops     []*name // the namespaces with the flags of the loops around that have break or continue
}

func (l *lowerer) define(m *macroDefinition) {
	if other := l.macros[m.name]; other != nil && (len(m.defaults)+len(other.defaults) > 0 || !slices.Equal(m.parameters, other.parameters)) {
		l.several[m.name] = true
	}
	l.macros[m.name] = m
}

func (l *lowerer) cannot(line int, format string, args ...any) {
	l.left = append(l.left, &Error{Line: line, Kind: "TemplateSyntaxError", Message: fmt.Sprintf(format, args...) + " has no equivalent in the engine", err: tensor.ErrUnsupported})
}

func (l *lowerer) fresh() *name {
	l.names++
	return &name{numbered(l.prefix, l.names)}
}

// hold gives an expression without parts that has the value of x.
func (l *lowerer) hold(x expression) expression {
	switch x := x.(type) {
	case *name, *constant:
		return x
	case *attribute:
		if _, ok := x.x.(*name); ok {
			return x
		}
	}
	n := l.fresh()
	l.before = append(l.before, &setStatement{target: n, value: x})
	return n
}

// shared gives an expression that may be written several times: what is large is held, as repetitions within each other
// would grow without bound.
func (l *lowerer) shared(x expression) expression {
	const most = 16 // parts
	parts := 0
	var count func(any)
	count = func(node any) {
		if parts++; parts <= most {
			children(node, count)
		}
	}
	if count(x); parts > most {
		return l.hold(x)
	}
	return x
}

// body lowers statements in their order.
func (l *lowerer) body(body []statement) []statement {
	var out []statement
	for i, s := range body {
		outer := l.before
		l.before = nil
		made := l.statement(s)
		out = append(out, l.before...)
		out = append(out, made...)
		l.before = outer
		if rest := body[i+1:]; len(rest) > 0 && len(l.stops) > 0 && leaves(s) {
			stop := l.stops[len(l.stops)-1]
			return append(out, &ifStatement{branches: []branch{{
				test: &unary{operator: "not", x: &attribute{x: stop, name: "skip"}},
				body: l.body(rest),
			}}})
		}
	}
	return out
}

// leaves reports whether a statement may break or continue the loop that it is in.
func leaves(node any) bool {
	_, isContinue := node.(*continueStatement)
	return isContinue || breaks(node) || inLoop(node, leaves)
}

// inLoop reports whether something holds for a part of a statement that is in the same loop as the statement.
func inLoop(node any, holds func(any) bool) bool {
	switch n := node.(type) {
	case *forStatement: // its else is no part of the loop
		return within(n.otherwise, holds)
	case *macroStatement:
		return false
	}
	found := false
	children(node, func(x any) { found = found || holds(x) })
	return found
}

func (l *lowerer) statement(s statement) []statement {
	switch s := s.(type) {
	case *textStatement:
		return []statement{s}
	case *printStatement:
		return l.print(l.value(s.x), s.line)
	case *ifStatement:
		return l.ifs(s)
	case *forStatement:
		return l.loop(s)
	case *setStatement:
		return l.set(s)
	case *setBlock:
		x := l.captured(s.body, s.line)
		var value expression = x
		if s.filter != nil {
			value = l.value(onto(s.filter, x))
		}
		return []statement{&setStatement{target: s.target, value: value}}
	case *filterBlock:
		return l.print(l.value(onto(s.filter, l.captured(s.body, s.line))), s.line)
	case *macroStatement:
		return []statement{l.macro(s.macro, s.line)}
	case *callBlock:
		if s.call == nil {
			return l.generation(s)
		}
		if within(s.caller.body, func(node any) bool { return calls(node, s.call.function) }) {
			l.cannot(s.line, "a call block within another, or a call of its macro")
		}
		return append([]statement{l.macro(callerOf(s), s.line)}, l.print(l.value(s.call), s.line)...)
	case *withStatement:
		return l.with(s)
	case *breakStatement:
		return l.leave("stop", s.line)
	case *continueStatement:
		return l.leave("", s.line)
	}
	panic(fmt.Sprintf("internal error: lowering a %T", s))
}

// generation is a scope of its own, which counts where it assigns names.
func (l *lowerer) generation(s *callBlock) []statement {
	switch body := s.caller.body; {
	case !within(body, assigns):
		return l.body(body)
	case len(l.iterables) > 0 && within(body, readsLoop):
		l.cannot(s.line, "a generation block that reads loop and assigns names")
		return l.body(body)
	default:
		return l.with(&withStatement{body: body, line: s.line})
	}
}

// assigns reports whether a part of a statement assigns a name.
func assigns(node any) bool {
	switch n := node.(type) {
	case *setStatement:
		_, ofNamespace := n.target.(*namespaceTarget)
		return !ofNamespace
	case *setBlock, *macroStatement:
		return true
	}
	return inLoop(node, assigns)
}

// readsLoop reports whether a part of a statement reads the variable of the loop that it is in.
func readsLoop(node any) bool {
	if n, ok := node.(*name); ok && n.id == "loop" {
		return true
	}
	if n, ok := node.(*forStatement); ok && readsLoop(n.iterable) {
		return true
	}
	return inLoop(node, readsLoop)
}

// calls reports whether a part of a statement is a call block or calls a macro: the engine has one caller for all.
func calls(node any, function expression) bool {
	if b, ok := node.(*callBlock); ok && b.call != nil {
		return true
	}
	if c, ok := node.(*call); ok {
		f, ok1 := c.function.(*name)
		macro, ok2 := function.(*name)
		if ok1 && ok2 && f.id == macro.id {
			return true
		}
	}
	found := false
	children(node, func(x any) { found = found || calls(x, function) })
	return found
}

// callerOf is what a call block is to the macro that it calls; the engine finds macros by name wherever they are made.
func callerOf(s *callBlock) *macroDefinition {
	m := *s.caller
	m.name = "caller"
	return &m
}

// captured makes a macro of statements, in front of the one at hand, and the call that gives their text.
func (l *lowerer) captured(body []statement, line int) *call {
	m := &macroDefinition{name: l.fresh().id, body: body}
	l.macros[m.name] = m
	l.before = append(l.before, l.macro(m, line))
	return &call{function: &name{m.name}, line: line}
}

// onto puts an expression at the start of a chain of filters.
func onto(chain expression, x expression) expression {
	f, ok := chain.(*filter)
	if !ok {
		return x
	}
	g := *f
	g.x = x
	if f.x != nil {
		g.x = onto(f.x, x)
	}
	return &g
}

func (l *lowerer) macro(m *macroDefinition, line int) statement {
	if m.varargs || m.kwargs {
		l.cannot(line, "a macro with varargs or kwargs")
	}
	stops := l.stops
	l.stops = nil
	body := l.body(m.body)
	l.stops = stops
	return &macroStatement{macro: &macroDefinition{name: m.name, parameters: m.parameters, body: body}, line: line}
}

// print shows a value as Python's str does. The engine shows what is no text as JSON.
func (l *lowerer) print(x expression, line int) []statement {
	switch c := x.(type) {
	case *constant:
		if s, ok := c.value.(string); ok && s == "" {
			return nil
		}
	case *conditional:
		no := l.print(c.no, line)
		return []statement{&ifStatement{branches: []branch{{test: c.test, body: l.print(c.yes, line)}}, otherwise: no}}
	}
	if isCount(x) {
		return []statement{&printStatement{x, line}}
	}
	if s := l.shown(x); s != x {
		if c, ok := s.(*conditional); ok {
			return l.print(c, line)
		}
		x = s
	}
	return []statement{&printStatement{x, line}}
}

// ifs drops branches that only raise an exception: what the original does not render may be rendered in any way.
func (l *lowerer) ifs(s *ifStatement) []statement {
	out := &ifStatement{}
	for _, b := range s.branches {
		if raises(b.body) {
			continue
		}
		out.branches = append(out.branches, branch{test: l.condition(b.test), body: nil, line: b.line})
		out.branches[len(out.branches)-1].body = l.body(b.body)
	}
	if !raises(s.otherwise) {
		out.otherwise = l.body(s.otherwise)
	}
	if len(out.branches) == 0 {
		return out.otherwise
	}
	return []statement{out}
}

func raises(body []statement) bool {
	found := false
	for _, s := range body {
		switch s := s.(type) {
		case *textStatement:
			if strings.TrimSpace(s.text) != "" {
				return false
			}
			continue
		case *printStatement:
			if c, ok := s.x.(*call); ok {
				if n, ok := c.function.(*name); ok && n.id == "raise_exception" {
					found = true
					continue
				}
			}
		}
		return false
	}
	return found
}

func (l *lowerer) set(s *setStatement) []statement {
	if targets, ok := s.target.(*tupleLiteral); ok {
		var values []expression
		switch v := s.value.(type) {
		case *tupleLiteral:
			values = v.items
		case *listLiteral:
			values = v.items
		}
		if values == nil || len(values) != len(targets.items) {
			held := l.hold(l.value(s.value))
			values = nil
			for i := range targets.items {
				values = append(values, &item{x: held, key: &constant{int64(i)}})
			}
		} else {
			values = slices.Clone(values)
			for i := range values {
				n := l.fresh()
				l.before = append(l.before, &setStatement{target: n, value: l.value(values[i])})
				values[i] = n
			}
		}
		var out []statement
		for i, target := range targets.items {
			out = append(out, &setStatement{target: target, value: values[i]})
		}
		return out
	}
	return []statement{&setStatement{target: s.target, value: l.value(s.value), line: s.line}}
}

// with makes a scope of a loop that runs once.
func (l *lowerer) with(s *withStatement) []statement {
	if len(l.iterables) > 0 && within(s.body, readsLoop) {
		l.cannot(s.line, "loop in a with block")
	}
	var body []statement
	for i, target := range s.targets {
		body = append(body, l.set(&setStatement{target: target, value: s.values[i], line: s.line})...)
	}
	body = append(body, l.body(s.body)...)
	return []statement{&forStatement{target: l.fresh(), iterable: &listLiteral{items: []expression{&constant{int64(0)}}}, body: body}}
}
