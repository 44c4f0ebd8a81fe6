package template

import (
	"fmt"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// unsupported is the error of what jinja2 can do and this package cannot.
func (r *renderer) unsupported(format string, args ...any) error {
	return &Error{Line: r.line, Kind: "NotImplementedError", Message: fmt.Sprintf(format, args...) + " is not supported", err: tensor.ErrUnsupported}
}

// arguments evaluates the arguments of a call.
func (r *renderer) arguments(a *arguments, s *scope) ([]any, []keyword, error) {
	args, err := r.all(a.positional, s)
	if err != nil {
		return nil, nil, err
	}
	var keywords []keyword
	for _, k := range a.keyword {
		v, err := r.evaluate(k.x, s)
		if err != nil {
			return nil, nil, err
		}
		keywords = append(keywords, keyword{k.name, v})
	}
	if a.star != nil {
		v, err := r.evaluate(a.star, s)
		if err != nil {
			return nil, nil, err
		}
		more, err := r.list(v)
		if err != nil {
			return nil, nil, err
		}
		args = append(args, more...)
	}
	if a.starStar != nil {
		v, err := r.evaluate(a.starStar, s)
		if err != nil {
			return nil, nil, err
		}
		o, ok := v.(*Object)
		if !ok {
			return nil, nil, r.fail("TypeError", "argument after ** must be a mapping, not %s", typeName(v))
		}
		for i, key := range o.keys {
			id, ok := str(key)
			if !ok {
				return nil, nil, r.fail("TypeError", "keywords must be strings")
			}
			if _, ok := find(keywords, id); ok {
				return nil, nil, r.fail("TypeError", "got multiple values for keyword argument '%s'", id)
			}
			keywords = append(keywords, keyword{id, o.values[i]})
		}
	}
	return args, keywords, nil
}

func find(keywords []keyword, id string) (any, bool) {
	for _, k := range keywords {
		if k.name == id {
			return k.value, true
		}
	}
	return nil, false
}

// call calls what can be called.
func (r *renderer) call(f any, args []any, keywords []keyword) (any, error) {
	switch f := f.(type) {
	case *function:
		return f.call(r, args, keywords)
	case *macro:
		return r.callMacro(f, args, keywords)
	case *loop:
		bound, err := r.bind("loop", parameters{required: 1, names: []string{"iterable"}}, args, keywords)
		if err != nil {
			return nil, err
		}
		if f.body == nil {
			return nil, r.fail("TypeError", "the loop must have the 'recursive' marker to be called recursively")
		}
		return f.body(bound[0], f.depth0+1)
	case *undefined:
		return nil, r.use(f)
	}
	return nil, r.fail("TypeError", "'%s' object is not callable", typeName(f))
}

// parameters describe what a function takes. The first ones are required; positional says how many may be given
// without their names, 0 for all of them, and unnamed how many may be given only so.
type parameters struct {
	names    []string
	required int
	unnamed  int
	any      bool // further arguments, and any names: bound as a list behind the parameters, and a list of keywords
}

// bind sorts the arguments of a call by parameter; what is not given is unset.
func (r *renderer) bind(name string, p parameters, args []any, keywords []keyword) ([]any, error) {
	bound := make([]any, len(p.names), len(p.names)+2)
	for i := range bound {
		bound[i] = unset
	}
	n := copy(bound, args)
	if len(args) > n && !p.any {
		return nil, r.fail("TypeError", "%s() takes at most %d arguments (%d given)", name, len(p.names), len(args))
	}
	var others []keyword
next:
	for _, k := range keywords {
		for i, id := range p.names {
			if id != k.name || i < p.unnamed {
				continue
			}
			if bound[i] != unset {
				return nil, r.fail("TypeError", "%s() got multiple values for argument '%s'", name, id)
			}
			bound[i] = k.value
			continue next
		}
		if !p.any {
			return nil, r.fail("TypeError", "%s() got an unexpected keyword argument '%s'", name, k.name)
		}
		others = append(others, k)
	}
	for i := range p.required {
		if bound[i] == unset {
			return nil, r.fail("TypeError", "%s() missing argument '%s'", name, p.names[i])
		}
	}
	if p.any {
		bound = append(bound, args[n:], others)
	}
	return bound, nil
}

// macro is a macro, or the body of a call block, with the scope that it sees.
type macro struct {
	definition *macroDefinition
	scope      *scope
}

// callMacro runs a macro for its text.
func (r *renderer) callMacro(m *macro, args []any, keywords []keyword) (any, error) {
	if err := r.enter(); err != nil {
		return nil, err
	}
	defer r.leave()
	d := m.definition
	inner := newScope(m.scope, d.hidden)
	rest := NewObject()
	for _, k := range keywords {
		rest.Set(k.name, k.value)
	}
	take := func(id string) (any, bool) {
		i, ok := rest.index[id]
		if !ok || rest.values[i] == unset {
			return nil, false
		}
		v := rest.values[i]
		rest.values[i] = unset
		return v, true
	}
	n := min(len(args), len(d.parameters))
	foundCaller := false
	for i, id := range d.parameters {
		var v any = unset
		if i < n {
			v = args[i]
			foundCaller = foundCaller || id == "caller" && n == len(d.parameters)
		} else {
			if w, ok := take(id); ok {
				v = w
			}
			foundCaller = foundCaller || id == "caller"
		}
		inner.set(id, v)
	}
	if d.caller && !foundCaller {
		v, ok := take("caller")
		if !ok || v == nil {
			v = &undefined{hint: "No caller defined"}
		}
		inner.set("caller", v)
	}
	left := NewObject()
	for i, v := range rest.values {
		if v != unset {
			left.put(rest.keys[i], rest.keys[i], v)
		}
	}
	if d.kwargs {
		inner.set("kwargs", left)
	} else if left.Len() > 0 {
		return nil, r.fail("TypeError", "macro %s takes no keyword argument %v", quote(d.name), left.keys[0])
	}
	if d.varargs {
		inner.set("varargs", append(tuple{}, args[n:]...))
	} else if len(args) > n {
		return nil, r.fail("TypeError", "macro %s takes not more than %d argument(s)", quote(d.name), len(d.parameters))
	}
	for i, id := range d.parameters {
		if inner.names[id] != unset {
			continue
		}
		v := any(&undefined{hint: "parameter " + quote(id) + " was not provided"})
		if j := i - len(d.parameters) + len(d.defaults); j >= 0 {
			var err error
			if v, err = r.evaluate(d.defaults[j], inner); err != nil {
				return nil, err
			}
		}
		inner.set(id, v)
	}
	text, _, err := r.capture(d.body, inner)
	return text, err
}

// attribute is macro.name.
func (m *macro) attribute(id string) (any, bool) {
	d := m.definition
	switch id {
	case "name":
		if d.name == "" { // the body of a call block
			return nil, true
		}
		return d.name, true
	case "arguments":
		t := tuple{}
		for _, p := range d.parameters {
			t = append(t, p)
		}
		return t, true
	case "catch_kwargs":
		return d.kwargs, true
	case "catch_varargs":
		return d.varargs, true
	case "caller":
		return d.caller, true
	}
	return nil, false
}
