package template

import (
	"context"
	"fmt"
	"strings"
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

// output collects text.
type output = strings.Builder

// scope holds the names of a block. An inner block sees the names of the outer ones and assigns its own.
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

// unset is the value of a name that is known and has no value, which hides outer names.
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

// signal says how a list of statements ended.
type signal uint8

const (
	normal signal = iota
	broken
	continued
)

// step counts n units of work. It is where a template that takes too long ends.
func (r *renderer) step(n int) error {
	before := r.steps
	r.steps += n
	if r.steps > r.limits.Steps || r.steps < 0 {
		return r.limit("more than %d steps", r.limits.Steps)
	}
	if before>>10 != r.steps>>10 {
		return r.ctx.Err()
	}
	return nil
}

// size counts the work of making a text of n bytes, or a list of n/16 elements, and refuses one that is too large.
func (r *renderer) size(n int) error {
	if n > r.limits.Output || n < 0 {
		return r.limit("a text of more than %d bytes", r.limits.Output)
	}
	return r.step(n >> 4)
}

func (r *renderer) limit(format string, args ...any) error {
	return &Error{Line: r.line, Kind: "LimitError", Message: fmt.Sprintf(format, args...), err: ErrLimit}
}

// fail is an error that the template made. The kind is what Python calls it.
func (r *renderer) fail(kind, format string, args ...any) error {
	return &Error{Line: r.line, Kind: kind, Message: fmt.Sprintf(format, args...)}
}

// write appends text to out.
func (r *renderer) write(out *output, s string) error {
	if out.Len()+len(s) > r.limits.Output {
		return r.limit("an output of more than %d bytes", r.limits.Output)
	}
	out.WriteString(s)
	return r.step(len(s) >> 4)
}

// run executes statements where no loop can be left.
func (r *renderer) run(body []statement, s *scope, out *output) error {
	_, err := r.execute(body, s, out)
	return err
}

// execute runs statements in a scope.
func (r *renderer) execute(body []statement, s *scope, out *output) (signal, error) {
	for _, st := range body {
		if err := r.step(1); err != nil {
			return normal, err
		}
		sig, err := r.statement(st, s, out)
		if err != nil || sig != normal {
			return sig, err
		}
	}
	return normal, nil
}

func (r *renderer) statement(st statement, s *scope, out *output) (signal, error) {
	switch n := st.(type) {
	case *textStatement:
		return normal, r.write(out, n.text)
	case *printStatement:
		r.line = n.line
		v, err := r.evaluate(n.x, s)
		if err != nil {
			return normal, err
		}
		text, err := r.text(v)
		if err != nil {
			return normal, err
		}
		return normal, r.write(out, text)
	case *ifStatement:
		return r.ifStatement(n, s, out)
	case *forStatement:
		return r.forStatement(n, s, out)
	case *setStatement:
		r.line = n.line
		if err := r.checkTarget(n.target, s); err != nil {
			return normal, err
		}
		v, err := r.evaluate(n.value, s)
		if err != nil {
			return normal, err
		}
		return normal, r.assign(n.target, v, s)
	case *setBlock:
		return r.setBlock(n, s, out)
	case *macroStatement:
		s.set(n.macro.name, &macro{n.macro, s})
	case *callBlock:
		r.line = n.line
		return normal, r.callBlock(n, s, out)
	case *filterBlock:
		inner := newScope(s, n.hidden)
		text, sig, err := r.capture(n.body, inner)
		if err != nil || sig != normal {
			return sig, err
		}
		r.line = n.line
		v, err := r.evaluate(withText(n.filter, text), inner)
		if err != nil {
			return normal, err
		}
		text, ok := str(v)
		if !ok {
			return normal, r.fail("TypeError", "expected str instance, %s found", typeName(v))
		}
		return normal, r.write(out, text)
	case *withStatement:
		return r.withStatement(n, s, out)
	case *breakStatement:
		return broken, nil
	case *continueStatement:
		return continued, nil
	}
	return normal, nil
}

// capture runs statements for their text.
func (r *renderer) capture(body []statement, s *scope) (string, signal, error) {
	var b output
	sig, err := r.execute(body, s, &b)
	return b.String(), sig, err
}

// withText is a chain of filters that begins with a text.
func withText(x expression, text string) expression {
	f := *x.(*filter)
	if f.x == nil {
		f.x = &constant{text}
	} else {
		f.x = withText(f.x, text)
	}
	return &f
}

func (r *renderer) ifStatement(n *ifStatement, s *scope, out *output) (signal, error) {
	for _, b := range n.branches {
		r.line = b.line
		v, err := r.evaluate(b.test, s)
		if err != nil {
			return normal, err
		}
		if truth(v) {
			return r.execute(b.body, s, out)
		}
	}
	return r.execute(n.otherwise, s, out)
}

func (r *renderer) setBlock(n *setBlock, s *scope, out *output) (signal, error) {
	inner := newScope(s, n.hidden)
	text, sig, err := r.capture(n.body, inner)
	if err != nil || sig != normal {
		// What a broken-off block has written goes nowhere.
		return sig, err
	}
	r.line = n.line
	var v any = text
	if n.filter != nil {
		if v, err = r.evaluate(withText(n.filter, text), inner); err != nil {
			return normal, err
		}
	}
	return normal, r.assign(n.target, v, s)
}

func (r *renderer) withStatement(n *withStatement, s *scope, out *output) (signal, error) {
	r.line = n.line
	inner := newScope(s, n.hidden)
	for i, x := range n.values {
		v, err := r.evaluate(x, s)
		if err != nil {
			return normal, err
		}
		if err := r.assign(n.targets[i], v, inner); err != nil {
			return normal, err
		}
	}
	return r.execute(n.body, inner, out)
}

func (r *renderer) callBlock(n *callBlock, s *scope, out *output) error {
	caller := &macro{n.caller, s}
	var v any
	var err error
	if n.call == nil {
		v, err = r.callMacro(caller, nil, nil)
	} else {
		var function any
		if function, err = r.evaluate(n.call.function, s); err != nil {
			return err
		}
		args, keywords, err2 := r.arguments(&n.call.arguments, s)
		if err2 != nil {
			return err2
		}
		v, err = r.call(function, args, append(keywords, keyword{"caller", caller}))
	}
	if err != nil {
		return err
	}
	text, err := r.text(v)
	if err != nil {
		return err
	}
	return r.write(out, text)
}

// checkTarget refuses attributes of what is no namespace, before the value is evaluated.
func (r *renderer) checkTarget(target expression, s *scope) error {
	switch t := target.(type) {
	case *namespaceTarget:
		if _, ok := s.get(t.id).(*namespace); !ok {
			return r.fail("TemplateRuntimeError", "cannot assign attribute on non-namespace object")
		}
	case *tupleLiteral:
		for _, x := range t.items {
			if err := r.checkTarget(x, s); err != nil {
				return err
			}
		}
	}
	return nil
}

// assign gives a target its value.
func (r *renderer) assign(target expression, v any, s *scope) error {
	switch t := target.(type) {
	case *name:
		s.set(t.id, v)
	case *namespaceTarget:
		ns, ok := s.get(t.id).(*namespace)
		if !ok {
			return r.fail("TemplateRuntimeError", "cannot assign attribute on non-namespace object")
		}
		return r.setAttribute(ns, t.attribute, v)
	case *tupleLiteral:
		next, err := r.iterate(v)
		if err != nil {
			return err
		}
		for i, x := range t.items {
			e, ok, err := next()
			if err != nil {
				return err
			}
			if !ok {
				return r.fail("ValueError", "not enough values to unpack (expected %d, got %d)", len(t.items), i)
			}
			if err := r.assign(x, e, s); err != nil {
				return err
			}
		}
		if _, more, err := next(); err != nil || more {
			if err == nil {
				err = r.fail("ValueError", "too many values to unpack (expected %d)", len(t.items))
			}
			return err
		}
	}
	return nil
}
