package engine

import (
	"fmt"
	"strings"
)

// eval is the value of an expression. Both sides of every operator are evaluated, and/or included.
func (r *renderer) eval(x expression) *value {
	r.enter()
	defer r.leave()
	switch x := x.(type) {
	case *literal:
		return x.value
	case *variable:
		return r.lookup(x.name)
	case *attribute:
		return r.attribute(x)
	case *item:
		return r.item(x)
	case *slice:
		return r.slice(x)
	case *call:
		return r.call(x)
	case *method:
		return r.method(x)
	case *filter:
		return r.filter(x)
	case *test:
		return newBool(r.eval(x.x).is(x.name) != x.negated)
	case *binary:
		a := r.eval(x.x)
		return r.operate(x.operator, a, r.eval(x.y))
	case *conditional:
		if r.eval(x.test).truth() {
			return r.eval(x.yes)
		}
		return r.eval(x.no)
	case *list:
		l := &value{kind: array}
		for _, e := range x.items {
			r.push(l, r.eval(e))
		}
		return l
	}
	d := x.(*dict)
	o := newObject()
	for i := range d.keys {
		key := r.eval(d.keys[i])
		r.put(o, key.text, r.eval(d.values[i])) // a key that is not a text is empty
	}
	return o
}

// attribute is a member of an object, or the length of a list.
func (r *renderer) attribute(x *attribute) *value {
	v := r.eval(x.x)
	if m := v.member(x.name); m != nil {
		return m
	}
	if v.kind == array && x.name == "length" {
		return newInt(int64(len(v.elements)))
	}
	return r.undefined
}

// slice makes the object that stands for a slice until a list is indexed with it.
func (r *renderer) slice(x *slice) *value {
	o := newObject(member{"_type", newText("slice")}, member{"start", &value{}}, member{"stop", &value{}}, member{"step", &value{}})
	for i, part := range []expression{x.start, x.stop, x.step} {
		if part != nil {
			r.assign(o.members[i+1].value, r.eval(part))
		}
	}
	return o
}

// item indexes a list with an integer or slice, or an object with a text. A missing element is an empty text, and so
// is every element and slice of a text.
func (r *renderer) item(x *item) *value {
	v := r.eval(x.x)
	key := r.eval(x.key)
	switch {
	case v.kind == object && key.kind == text:
		if m := v.member(key.text); m != nil {
			return m
		}
	case v.kind == array && key.isInteger():
		i := key.integer()
		if i < 0 {
			i += int64(len(v.elements))
		}
		if i >= 0 && i < int64(len(v.elements)) {
			return v.elements[i]
		}
	case v.kind == array:
		if t := key.member("_type"); t != nil && t.text == "slice" {
			return r.cut(v, key)
		}
	}
	return newText("")
}

// cut slices a list. A step of 0 is 1; a backward slice that begins at or after the end is empty.
func (r *renderer) cut(v, s *value) *value {
	n := int64(len(v.elements))
	step := s.place("step").integer()
	if step == 0 {
		step = 1
	}
	start, stop := int64(0), n
	if step < 0 {
		start, stop = n-1, -1
	}
	if p := s.place("start"); p.kind != null {
		if start = p.integer(); start < 0 {
			start += n
		}
		start = min(max(start, 0), n)
	}
	if p := s.place("stop"); p.kind != null {
		if stop = p.integer(); stop < 0 {
			stop += n
		}
	}
	l := &value{kind: array}
	for i := start; i >= 0 && i < n && (step > 0 && i < stop || step < 0 && i > stop); i += step {
		r.push(l, v.elements[i])
		if (i+step < i) != (step < 0) {
			panic(failure{fmt.Errorf("a slice with step %d overflows: %w", step, ErrCrash)})
		}
	}
	return l
}

// call calls one of three functions or a macro. An unknown name gives an empty text; its arguments are not evaluated.
func (r *renderer) call(x *call) *value {
	if f, ok := functions[x.name]; ok {
		values := make([]*value, len(x.arguments))
		for i, a := range x.arguments {
			values[i] = r.eval(a.x)
		}
		return f(r, x.arguments, values)
	}
	m := r.macros[x.name]
	if m == nil {
		return newText("")
	}
	scope := newObject()
	position := 0
	for _, a := range x.arguments {
		name := a.name
		if name == "" {
			if position == len(m.parameters) {
				continue
			}
			name = m.parameters[position]
			position++
		}
		r.put(scope, name, r.eval(a.x))
	}
	// A macro reads all variables of its caller. A parameter without an argument is one of them, or undefined.
	r.pushScope(scope)
	defer r.popScope()
	var out strings.Builder
	r.body(m.body, &out)
	return newText(out.String())
}

// is tests a value; unknown tests fail.
func (v *value) is(name string) bool {
	switch name {
	case "defined":
		return !v.isUndefined()
	case "undefined":
		return v.isUndefined()
	case "none":
		return v.kind == null
	case "boolean":
		return v.kind == no || v.kind == yes
	case "string":
		return v.kind == text
	case "number":
		return v.kind == number
	case "sequence", "iterable":
		return v.kind == array || v.kind == text
	case "mapping":
		return v.kind == object
	case "true":
		return v.kind == yes
	case "false":
		return v.kind == no
	}
	return false
}

// rangeList makes the list of a range; a step of 0 gives none. A fraction counts as its bits.
func rangeList(r *renderer, _ []argument, values []*value) *value {
	start, stop, step := int64(0), int64(0), int64(1)
	switch {
	case len(values) == 1:
		stop = values[0].integer()
	case len(values) > 1:
		start, stop = values[0].integer(), values[1].integer()
	}
	if len(values) > 2 {
		step = values[2].integer()
	}
	l := &value{kind: array}
	for i := start; step > 0 && i < stop || step < 0 && i > stop; i += step {
		r.step(valueSteps)
		l.elements = append(l.elements, newInt(i))
		if next := i + step; (next < i) != (step < 0) {
			panic(failure{fmt.Errorf("range(%d, %d, %d) overflows: %w", start, stop, step, ErrCrash)})
		}
	}
	return l
}

// namespace keeps its keyword arguments only.
func namespace(r *renderer, arguments []argument, values []*value) *value {
	o := newObject()
	for i, a := range arguments {
		if a.name != "" {
			r.put(o, a.name, values[i])
		}
	}
	return o
}

func strftimeNow(r *renderer, _ []argument, values []*value) *value {
	format := "%Y-%m-%d"
	if len(values) > 0 {
		format = values[0].text
	}
	return newText(strftime(r.limits.Now, format))
}

// functions are all functions of the engine. Their names are variables as well.
var functions = map[string]func(*renderer, []argument, []*value) *value{
	"range":        rangeList,
	"namespace":    namespace,
	"strftime_now": strftimeNow,
}
