package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/llmexport/llmexport/runtime/template"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// ErrCrash says that the engine would hang, run out of memory or stack, or crash.
var ErrCrash = errors.New("the engine hangs or crashes")

// maxDepth bounds expressions and statements within each other while they are evaluated, calls of macros included. The
// engine goes on until its stack ends, which on a thread with little of it may be sooner than on others.
const maxDepth = 2000

// renderer holds what the renderings of one call share, and the variables of the current one.
type renderer struct {
	ctx       context.Context
	limits    template.Limits
	steps     int
	depth     int
	undefined *value // one for all names, so that what a template sets on it stays
	globals   *value
	scopes    []*value
	macros    map[string]*macroStatement
}

// valueSteps is what a value costs; with its place in a list it is less than 150 bytes.
const valueSteps = 8

// step counts work, and memory that is made: one step is about 16 bytes of values or 64 of texts.
func (r *renderer) step(n int) error {
	before := r.steps
	r.steps += n
	if r.steps > r.limits.Steps {
		return fmt.Errorf("more than %d steps: %w", r.limits.Steps, template.ErrLimit)
	}
	if before>>12 != r.steps>>12 {
		return r.ctx.Err()
	}
	return nil
}

// size checks the length of a text that is about to be made.
func (r *renderer) size(n int) error {
	if n > r.limits.Output {
		return fmt.Errorf("more than %d bytes: %w", r.limits.Output, template.ErrLimit)
	}
	return r.step(1 + n/64)
}

func (r *renderer) write(out *strings.Builder, s string) error {
	if out.Len()+len(s) > r.limits.Output {
		return r.size(out.Len() + len(s))
	}
	out.WriteString(s)
	return r.step(1 + len(s)/64)
}

// enter counts a level of evaluation; the caller defers leave.
func (r *renderer) enter() error {
	if r.depth++; r.depth > maxDepth {
		return fmt.Errorf("evaluated more than %d deep, as a macro that calls itself without end is: %w", maxDepth, template.ErrLimit)
	}
	return r.step(1)
}

func (r *renderer) leave() { r.depth-- }

// clone copies a value with all that it holds.
func (r *renderer) clone(v *value) (*value, error) {
	if err := r.step(valueSteps); err != nil {
		return nil, err
	}
	c := *v
	c.elements, c.members = nil, nil
	if len(v.elements) > 0 {
		c.elements = make([]*value, len(v.elements))
	}
	if len(v.members) > 0 {
		c.members = make([]member, len(v.members))
	}
	var err error
	for i, e := range v.elements {
		if c.elements[i], err = r.clone(e); err != nil {
			return nil, err
		}
	}
	for i, m := range v.members {
		if c.members[i].value, err = r.clone(m.value); err != nil {
			return nil, err
		}
		c.members[i].key = m.key
	}
	return &c, nil
}

// assign copies a value into a place.
func (r *renderer) assign(place, v *value) error {
	if place == v {
		return nil
	}
	c, err := r.clone(v)
	if err == nil {
		*place = *c
	}
	return err
}

// put sets a member. A name with a zero byte is lost in the engine, and what is read for it then is anything.
func (r *renderer) put(o *value, key string, v *value) error {
	if strings.IndexByte(key, 0) >= 0 {
		return fmt.Errorf("key %q holds a zero byte: %w", key, tensor.ErrUnsupported)
	}
	return r.assign(o.place(key), v)
}

// push appends a copy to a list.
func (r *renderer) push(l, v *value) error {
	c, err := r.clone(v)
	l.elements = append(l.elements, c)
	return err
}

// lookup is a variable's own value.
func (r *renderer) lookup(name string) *value {
	for i := len(r.scopes) - 1; i >= 0; i-- {
		if v := r.scopes[i].member(name); v != nil {
			return v
		}
	}
	return r.undefined
}

// set assigns a variable of the innermost scope.
func (r *renderer) set(name string, v *value) error { return r.put(r.scopes[len(r.scopes)-1], name, v) }

func (r *renderer) pushScope(scope *value) { r.scopes = append(r.scopes, scope) }

func (r *renderer) popScope() { r.scopes = r.scopes[:len(r.scopes)-1] }

// render renders statements with variables that hide the globals.
func (r *renderer) render(body []statement, variables *value) (string, error) {
	r.scopes = []*value{r.globals, variables}
	r.macros = map[string]*macroStatement{}
	var out strings.Builder
	err := r.body(body, &out)
	return out.String(), err
}

func (r *renderer) body(body []statement, out *strings.Builder) error {
	if err := r.enter(); err != nil {
		return err
	}
	defer r.leave()
	for _, s := range body {
		if err := r.statement(s, out); err != nil {
			return err
		}
	}
	return nil
}

func (r *renderer) statement(s statement, out *strings.Builder) error {
	switch s := s.(type) {
	case *textStatement:
		return r.write(out, s.text)
	case *macroStatement:
		r.macros[s.name] = s
		return nil
	case *forStatement:
		return r.loop(s, out)
	case *setStatement:
		v, err := r.eval(s.value)
		if err != nil {
			return err
		}
		return r.setTarget(s.target, v)
	case *ifStatement:
		v, err := r.eval(s.test)
		if err != nil {
			return err
		}
		if v.truth() {
			return r.body(s.yes, out)
		}
		return r.body(s.no, out)
	}
	v, err := r.eval(s.(*printStatement).x)
	if err != nil || v.isUndefined() {
		return err
	}
	if v.kind == text {
		return r.write(out, v.text)
	}
	json, err := r.dump(v)
	if err != nil {
		return err
	}
	return r.write(out, json)
}

// setTarget assigns to a name, or to an attribute of one. Whatever else is before the = is ignored.
func (r *renderer) setTarget(target expression, v *value) error {
	switch t := target.(type) {
	case *variable:
		return r.set(t.name, v)
	case *attribute:
		x, ok := t.x.(*variable)
		if !ok {
			return nil
		}
		owner := r.lookup(x.name)
		if owner.kind == null {
			return nil
		}
		// The name's own value changes, a text or number into an object; what does not exist is made from the one
		// value that stands for it, which has changed as well.
		if err := r.put(owner, t.name, v); err != nil || owner != r.undefined {
			return err
		}
		return r.set(x.name, owner)
	}
	return nil
}

func (r *renderer) loop(s *forStatement, out *strings.Builder) error {
	iterable, err := r.eval(s.iterable)
	if err != nil || iterable.isUndefined() {
		return err
	}
	items := iterable.elements
	if iterable.kind == object {
		for _, key := range sortedKeys(iterable, strings.Compare) {
			items = append(items, newText(key))
		}
	}
	var accepted []*value
	for _, e := range items {
		if err := r.step(4); err != nil {
			return err
		}
		if s.test != nil {
			scope, err := r.unpack(s.names, e)
			if err != nil {
				return err
			}
			r.pushScope(scope)
			v, err := r.eval(s.test)
			if err != nil {
				return err
			}
			r.popScope()
			if !v.truth() {
				continue
			}
		}
		accepted = append(accepted, e)
	}
	for i, e := range accepted {
		scope, err := r.unpack(s.names, e)
		if err != nil {
			return err
		}
		if err := r.step(6 * valueSteps); err != nil {
			return err
		}
		*scope.place("loop") = *newObject(
			member{"index0", newInt(int64(i))},
			member{"index", newInt(int64(i + 1))},
			member{"first", newBool(i == 0)},
			member{"last", newBool(i == len(accepted)-1)},
			member{"length", newInt(int64(len(accepted)))},
		)
		r.pushScope(scope)
		if err := r.body(s.body, out); err != nil {
			return err
		}
		r.popScope()
	}
	return nil
}

// unpack makes the scope of one element. With several names an element that is no list, or too short, goes to the
// first, and the others stay what they are outside.
func (r *renderer) unpack(names []string, e *value) (*value, error) {
	scope := newObject()
	if len(names) == 1 || len(names) > 0 && len(e.elements) < len(names) {
		return scope, r.put(scope, names[0], e)
	}
	for i, name := range names {
		if err := r.put(scope, name, e.elements[i]); err != nil {
			return nil, err
		}
	}
	return scope, nil
}
