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

// maxDepth bounds nested evaluation, calls of macros included. The engine continues until its stack overflows, which
// depends on the thread.
const maxDepth = 2000

// renderer holds the state that the renderings of one call share, and the variables of the current one.
type renderer struct {
	ctx       context.Context
	limits    template.Limits
	steps     int
	depth     int
	undefined *value // one for all names: what a template sets on it persists
	globals   *value
	scopes    []*value
	macros    map[string]*macroStatement
}

// failure carries an error as a panic from where it arises to recovered, as in package template.
type failure struct{ error }

// recovered turns the panic of a failed parse or rendering into its error. It is deferred before either starts.
func recovered(err *error) {
	switch f := recover().(type) {
	case nil:
	case failure:
		*err = f.error
	default:
		panic(f)
	}
}

// valueSteps is the cost of a value; with its place in a list it takes less than 150 bytes.
const valueSteps = 8

// step counts work and memory: one step is about 16 bytes of values or 64 of texts.
func (r *renderer) step(n int) {
	before := r.steps
	r.steps += n
	if r.steps > r.limits.Steps {
		panic(failure{fmt.Errorf("more than %d steps: %w", r.limits.Steps, template.ErrLimit)})
	}
	if before>>12 != r.steps>>12 {
		if err := r.ctx.Err(); err != nil {
			panic(failure{err})
		}
	}
}

// size checks the length of a text before it is made.
func (r *renderer) size(n int) {
	if n > r.limits.Output {
		panic(failure{fmt.Errorf("more than %d bytes: %w", r.limits.Output, template.ErrLimit)})
	}
	r.step(1 + n/64)
}

func (r *renderer) write(out *strings.Builder, s string) {
	if out.Len()+len(s) > r.limits.Output {
		r.size(out.Len() + len(s))
	}
	out.WriteString(s)
	r.step(1 + len(s)/64)
}

// enter counts a level of evaluation; the caller defers leave.
func (r *renderer) enter() {
	if r.depth++; r.depth > maxDepth {
		panic(failure{fmt.Errorf("nested more than %d deep, as by a macro that calls itself: %w", maxDepth, template.ErrLimit)})
	}
	r.step(1)
}

func (r *renderer) leave() { r.depth-- }

// clone copies a value deeply.
func (r *renderer) clone(v *value) *value {
	r.step(valueSteps)
	c := *v
	c.elements, c.members = nil, nil
	if len(v.elements) > 0 {
		c.elements = make([]*value, len(v.elements))
	}
	if len(v.members) > 0 {
		c.members = make([]member, len(v.members))
	}
	for i, e := range v.elements {
		c.elements[i] = r.clone(e)
	}
	for i, m := range v.members {
		c.members[i].value = r.clone(m.value)
		c.members[i].key = m.key
	}
	return &c
}

// assign copies a value into a place.
func (r *renderer) assign(place, v *value) {
	if place != v {
		*place = *r.clone(v)
	}
}

// put sets a member. The engine loses a name with a zero byte, and reads undefined memory for it then.
func (r *renderer) put(o *value, key string, v *value) {
	if strings.IndexByte(key, 0) >= 0 {
		panic(failure{fmt.Errorf("key %q holds a zero byte: %w", key, tensor.ErrUnsupported)})
	}
	r.assign(o.place(key), v)
}

// push appends a copy to a list.
func (r *renderer) push(l, v *value) {
	l.elements = append(l.elements, r.clone(v))
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
func (r *renderer) set(name string, v *value) { r.put(r.scopes[len(r.scopes)-1], name, v) }

func (r *renderer) pushScope(scope *value) { r.scopes = append(r.scopes, scope) }

func (r *renderer) popScope() { r.scopes = r.scopes[:len(r.scopes)-1] }

// render renders statements with variables that hide the globals.
func (r *renderer) render(body []statement, variables *value) string {
	r.scopes = []*value{r.globals, variables}
	r.macros = map[string]*macroStatement{}
	var out strings.Builder
	r.body(body, &out)
	return out.String()
}

func (r *renderer) body(body []statement, out *strings.Builder) {
	r.enter()
	defer r.leave()
	for _, s := range body {
		r.statement(s, out)
	}
}

func (r *renderer) statement(s statement, out *strings.Builder) {
	switch s := s.(type) {
	case *textStatement:
		r.write(out, s.text)
	case *macroStatement:
		r.macros[s.name] = s
	case *forStatement:
		r.loop(s, out)
	case *setStatement:
		r.setTarget(s.target, r.eval(s.value))
	case *ifStatement:
		if r.eval(s.test).truth() {
			r.body(s.yes, out)
		} else {
			r.body(s.no, out)
		}
	case *printStatement:
		switch v := r.eval(s.x); {
		case v.isUndefined():
		case v.kind == text:
			r.write(out, v.text)
		default:
			r.write(out, r.dump(v))
		}
	}
}

// setTarget assigns to a name, or to an attribute of one. Other targets are ignored.
func (r *renderer) setTarget(target expression, v *value) {
	switch t := target.(type) {
	case *variable:
		r.set(t.name, v)
	case *attribute:
		x, ok := t.x.(*variable)
		if !ok {
			return
		}
		owner := r.lookup(x.name)
		if owner.kind == null {
			return
		}
		// The value of the name itself changes, a text or number into an object. A missing name is created from the
		// one value that stands for all of them, which has changed as well.
		if r.put(owner, t.name, v); owner == r.undefined {
			r.set(x.name, owner)
		}
	}
}

func (r *renderer) loop(s *forStatement, out *strings.Builder) {
	iterable := r.eval(s.iterable)
	if iterable.isUndefined() {
		return
	}
	items := iterable.elements
	if iterable.kind == object {
		for _, key := range sortedKeys(iterable, strings.Compare) {
			items = append(items, newText(key))
		}
	}
	var accepted []*value
	for _, e := range items {
		r.step(4)
		if s.test != nil {
			r.pushScope(r.unpack(s.names, e))
			v := r.eval(s.test)
			r.popScope()
			if !v.truth() {
				continue
			}
		}
		accepted = append(accepted, e)
	}
	for i, e := range accepted {
		scope := r.unpack(s.names, e)
		r.step(6 * valueSteps)
		*scope.place("loop") = *newObject(
			member{"index0", newInt(int64(i))},
			member{"index", newInt(int64(i + 1))},
			member{"first", newBool(i == 0)},
			member{"last", newBool(i == len(accepted)-1)},
			member{"length", newInt(int64(len(accepted)))},
		)
		r.pushScope(scope)
		r.body(s.body, out)
		r.popScope()
	}
}

// unpack makes the scope of one element. With several names, an element that is not a list or is too short goes to the
// first, and the others keep their outer values.
func (r *renderer) unpack(names []string, e *value) *value {
	scope := newObject()
	if len(names) == 1 || len(names) > 0 && len(e.elements) < len(names) {
		r.put(scope, names[0], e)
		return scope
	}
	for i, name := range names {
		r.put(scope, name, e.elements[i])
	}
	return scope
}
