package template

import (
	"context"
	"fmt"
	"strings"

	"github.com/llmexport/llmexport/runtime/template/syntax"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// renderer is one run of a template.
type renderer struct {
	ctx    context.Context
	limits Limits
	steps  int // done
	depth  int // of the evaluation
	calls  int // macros and recursive loops within each other
	line   int // of what is being evaluated
}

func newRenderer(ctx context.Context, limits Limits) *renderer {
	return &renderer{ctx: ctx, limits: limits.WithDefaults(), line: 1}
}

// value makes a value of a template from one of Go.
func (r *renderer) value(v any) (w any, err error) {
	defer recovered(&err)
	return r.convert(v, 0), nil
}

func (r *renderer) render(t *syntax.Template, root *scope) (text string, err error) {
	defer recovered(&err)
	text, _ = r.capture(t.Body, newScope(root, t.Hidden))
	return text, nil
}

// output collects text.
type output = strings.Builder

// scope holds the names of a block. An inner block reads the names of outer ones and assigns its own.
type scope struct {
	names  map[string]any
	parent *scope
}

func newScope(parent *scope, hidden []string) *scope {
	s := &scope{parent: parent}
	for _, id := range hidden {
		s.set(id, unset)
	}
	return s
}

// unset is the value of a known name without a value, which hides outer names.
var unset any = new(int)

func (s *scope) set(id string, v any) {
	if s.names == nil {
		s.names = map[string]any{}
	}
	s.names[id] = v
}

func (s *scope) get(id string) any {
	for ; s != nil; s = s.parent {
		if v, ok := s.names[id]; ok {
			if v == unset {
				break
			}
			return v
		}
	}
	return &undefined{name: id}
}

// signal is how a list of statements ended.
type signal uint8

const (
	normal signal = iota
	broken
	continued
)

// failure carries the error of a rendering: as in text/template it travels as a panic, from where it arises to
// recovered. An interpreter has errors in every second line, of which none is handled on the way.
type failure struct{ error }

// recovered turns the panic of a failed rendering into its error. It is deferred before a renderer starts.
func recovered(err *error) {
	switch f := recover().(type) {
	case nil:
	case failure:
		*err = f.error
	default:
		panic(f)
	}
}

// fail is an error that the template made; kind is Python's name of it.
func (r *renderer) fail(kind, format string, args ...any) failure {
	return failure{&Error{Line: r.line, Kind: kind, Message: fmt.Sprintf(format, args...)}}
}

// unsupported is the error for a feature of jinja2 that this package lacks.
func (r *renderer) unsupported(format string, args ...any) failure {
	e := &Error{Line: r.line, Kind: "NotImplementedError", Message: fmt.Sprintf(format, args...) + " is not supported"}
	e.Err = tensor.ErrUnsupported
	return failure{e}
}

func (r *renderer) limit(format string, args ...any) failure {
	return failure{&Error{Line: r.line, Kind: "LimitError", Message: fmt.Sprintf(format, args...), Err: ErrLimit}}
}

// step counts n units of work. It ends a template that takes too long.
func (r *renderer) step(n int) {
	before := r.steps
	r.steps += n
	if r.steps > r.limits.Steps || r.steps < 0 {
		panic(r.limit("more than %d steps", r.limits.Steps))
	}
	if before>>10 != r.steps>>10 {
		if err := r.ctx.Err(); err != nil {
			panic(failure{err})
		}
	}
}

// size counts the work of making a text of n bytes, or a list of n/16 elements, and rejects one that is too large.
func (r *renderer) size(n int) {
	if n > r.limits.Output || n < 0 {
		panic(r.limit("a text of more than %d bytes", r.limits.Output))
	}
	r.step(n >> 4)
}

// write appends text to out.
func (r *renderer) write(out *output, s string) {
	if out.Len()+len(s) > r.limits.Output {
		panic(r.limit("an output of more than %d bytes", r.limits.Output))
	}
	out.WriteString(s)
	r.step(len(s) >> 4)
}

// execute runs statements in a scope.
func (r *renderer) execute(body []syntax.Statement, s *scope, out *output) signal {
	for _, st := range body {
		r.step(1)
		if sig := r.statement(st, s, out); sig != normal {
			return sig
		}
	}
	return normal
}

func (r *renderer) statement(st syntax.Statement, s *scope, out *output) signal {
	switch n := st.(type) {
	case *syntax.Text:
		r.write(out, n.Text)
	case *syntax.Print:
		r.line = n.Line
		r.write(out, r.text(r.evaluate(n.X, s)))
	case *syntax.If:
		return r.ifStatement(n, s, out)
	case *syntax.For:
		return r.forStatement(n, s, out)
	case *syntax.Set:
		r.line = n.Line
		r.checkTarget(n.Target, s)
		r.assign(n.Target, r.evaluate(n.Value, s), s)
	case *syntax.SetBlock:
		return r.setBlock(n, s, out)
	case *syntax.Macro:
		s.set(n.Definition.Name, &macro{n.Definition, s})
	case *syntax.CallBlock:
		r.line = n.Line
		r.callBlock(n, s, out)
	case *syntax.FilterBlock:
		inner := newScope(s, n.Hidden)
		text, sig := r.capture(n.Body, inner)
		if sig != normal {
			return sig
		}
		r.line = n.Line
		v := r.evaluate(withText(n.Filter, text), inner)
		text, ok := str(v)
		if !ok {
			panic(r.fail("TypeError", "expected str instance, %s found", typeName(v)))
		}
		r.write(out, text)
	case *syntax.With:
		return r.withStatement(n, s, out)
	case *syntax.Break:
		return broken
	case *syntax.Continue:
		return continued
	}
	return normal
}

// capture returns the text of statements.
func (r *renderer) capture(body []syntax.Statement, s *scope) (string, signal) {
	var b output
	sig := r.execute(body, s, &b)
	return b.String(), sig
}

// withText returns a chain of filters applied to a text.
func withText(x syntax.Expression, text string) syntax.Expression {
	f := *x.(*syntax.Filter)
	if f.X == nil {
		f.X = &syntax.Constant{Value: text}
	} else {
		f.X = withText(f.X, text)
	}
	return &f
}

func (r *renderer) ifStatement(n *syntax.If, s *scope, out *output) signal {
	for _, b := range n.Branches {
		r.line = b.Line
		if truth(r.evaluate(b.Test, s)) {
			return r.execute(b.Body, s, out)
		}
	}
	return r.execute(n.Otherwise, s, out)
}

func (r *renderer) setBlock(n *syntax.SetBlock, s *scope, out *output) signal {
	inner := newScope(s, n.Hidden)
	text, sig := r.capture(n.Body, inner)
	if sig != normal {
		return sig // the text of an interrupted block is lost
	}
	r.line = n.Line
	var v any = text
	if n.Filter != nil {
		v = r.evaluate(withText(n.Filter, text), inner)
	}
	r.assign(n.Target, v, s)
	return normal
}

func (r *renderer) withStatement(n *syntax.With, s *scope, out *output) signal {
	r.line = n.Line
	inner := newScope(s, n.Hidden)
	for i, x := range n.Values {
		r.assign(n.Targets[i], r.evaluate(x, s), inner)
	}
	return r.execute(n.Body, inner, out)
}

func (r *renderer) callBlock(n *syntax.CallBlock, s *scope, out *output) {
	caller := &macro{n.Caller, s}
	var v any
	if n.Call == nil {
		v = r.callMacro(caller, nil, nil)
	} else {
		function := r.evaluate(n.Call.Function, s)
		args, keywords := r.arguments(&n.Call.Arguments, s)
		v = r.call(function, args, append(keywords, keyword{"caller", caller}))
	}
	r.write(out, r.text(v))
}

// checkTarget rejects attributes of anything but a namespace, before the value is evaluated.
func (r *renderer) checkTarget(target syntax.Expression, s *scope) {
	switch t := target.(type) {
	case *syntax.NamespaceTarget:
		if _, ok := s.get(t.ID).(*namespace); !ok {
			panic(r.fail("TemplateRuntimeError", "cannot assign attribute on non-namespace object"))
		}
	case *syntax.Tuple:
		for _, x := range t.Items {
			r.checkTarget(x, s)
		}
	}
}

// assign assigns to a target.
func (r *renderer) assign(target syntax.Expression, v any, s *scope) {
	switch t := target.(type) {
	case *syntax.Name:
		s.set(t.ID, v)
	case *syntax.NamespaceTarget:
		ns, ok := s.get(t.ID).(*namespace)
		if !ok {
			panic(r.fail("TemplateRuntimeError", "cannot assign attribute on non-namespace object"))
		}
		r.setAttribute(ns, t.Attribute, v)
	case *syntax.Tuple:
		next := r.iterate(v)
		for i, x := range t.Items {
			e, ok := next()
			if !ok {
				panic(r.fail("ValueError", "not enough values to unpack (expected %d, got %d)", len(t.Items), i))
			}
			r.assign(x, e, s)
		}
		if _, more := next(); more {
			panic(r.fail("ValueError", "too many values to unpack (expected %d)", len(t.Items)))
		}
	}
}
