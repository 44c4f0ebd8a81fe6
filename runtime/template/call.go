package template

import "github.com/llmexport/llmexport/runtime/template/syntax"

// arguments evaluates the arguments of a call.
func (r *renderer) arguments(a *syntax.Arguments, s *scope) ([]any, []keyword) {
	args := r.all(a.Positional, s)
	var keywords []keyword
	for _, k := range a.Keyword {
		keywords = append(keywords, keyword{k.Name, r.evaluate(k.X, s)})
	}
	if a.Star != nil {
		args = append(args, r.list(r.evaluate(a.Star, s))...)
	}
	if a.StarStar != nil {
		v := r.evaluate(a.StarStar, s)
		o, ok := v.(*Object)
		if !ok {
			panic(r.fail("TypeError", "argument after ** must be a mapping, not %s", typeName(v)))
		}
		for i, key := range o.keys {
			id, ok := str(key)
			if !ok {
				panic(r.fail("TypeError", "keywords must be strings"))
			}
			if _, ok := find(keywords, id); ok {
				panic(r.fail("TypeError", "got multiple values for keyword argument '%s'", id))
			}
			keywords = append(keywords, keyword{id, o.values[i]})
		}
	}
	return args, keywords
}

func find(keywords []keyword, id string) (any, bool) {
	for _, k := range keywords {
		if k.name == id {
			return k.value, true
		}
	}
	return nil, false
}

// call calls a function, a macro or a recursive loop.
func (r *renderer) call(f any, args []any, keywords []keyword) any {
	switch f := f.(type) {
	case *function:
		return f.call(r, args, keywords)
	case *macro:
		return r.callMacro(f, args, keywords)
	case *loop:
		bound := r.bind("loop", parameters{required: 1, names: []string{"iterable"}}, args, keywords)
		if f.body == nil {
			panic(r.fail("TypeError", "the loop must have the 'recursive' marker to be called recursively"))
		}
		return f.body(bound[0], f.depth0+1)
	case *undefined:
		panic(r.use(f))
	}
	panic(r.fail("TypeError", "'%s' object is not callable", typeName(f)))
}

// parameters are those of a function. The first ones are required; the first unnamed ones are passed by position only.
type parameters struct {
	names    []string
	required int
	unnamed  int
	any      bool // takes further arguments of any name: bound as a list after the parameters, and a list of keywords
}

// bind sorts the arguments of a call by parameter; missing ones are unset.
func (r *renderer) bind(name string, p parameters, args []any, keywords []keyword) []any {
	bound := make([]any, len(p.names), len(p.names)+2)
	for i := range bound {
		bound[i] = unset
	}
	n := copy(bound, args)
	if len(args) > n && !p.any {
		panic(r.fail("TypeError", "%s() takes at most %d arguments (%d given)", name, len(p.names), len(args)))
	}
	var others []keyword
next:
	for _, k := range keywords {
		for i, id := range p.names {
			if id != k.name || i < p.unnamed {
				continue
			}
			if bound[i] != unset {
				panic(r.fail("TypeError", "%s() got multiple values for argument '%s'", name, id))
			}
			bound[i] = k.value
			continue next
		}
		if !p.any {
			panic(r.fail("TypeError", "%s() got an unexpected keyword argument '%s'", name, k.name))
		}
		others = append(others, k)
	}
	for i := range p.required {
		if bound[i] == unset {
			panic(r.fail("TypeError", "%s() missing argument '%s'", name, p.names[i]))
		}
	}
	if p.any {
		bound = append(bound, args[n:], others)
	}
	return bound
}

// macro is a macro, or the body of a call block, with its outer scope.
type macro struct {
	definition *syntax.Definition
	scope      *scope
}

// callMacro returns the text of a macro.
func (r *renderer) callMacro(m *macro, args []any, keywords []keyword) any {
	r.enter()
	defer r.leave()
	d := m.definition
	inner := newScope(m.scope, d.Hidden)
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
	n := min(len(args), len(d.Parameters))
	foundCaller := false
	for i, id := range d.Parameters {
		var v any = unset
		if i < n {
			v = args[i]
			foundCaller = foundCaller || id == "caller" && n == len(d.Parameters)
		} else {
			if w, ok := take(id); ok {
				v = w
			}
			foundCaller = foundCaller || id == "caller"
		}
		inner.set(id, v)
	}
	if d.Caller && !foundCaller {
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
	if d.Kwargs {
		inner.set("kwargs", left)
	} else if left.Len() > 0 {
		panic(r.fail("TypeError", "macro %s takes no keyword argument %v", quote(d.Name), left.keys[0]))
	}
	if d.Varargs {
		inner.set("varargs", append(tuple{}, args[n:]...))
	} else if len(args) > n {
		panic(r.fail("TypeError", "macro %s takes not more than %d argument(s)", quote(d.Name), len(d.Parameters)))
	}
	for i, id := range d.Parameters {
		if inner.names[id] != unset {
			continue
		}
		v := any(&undefined{hint: "parameter " + quote(id) + " was not provided"})
		if j := i - len(d.Parameters) + len(d.Defaults); j >= 0 {
			v = r.evaluate(d.Defaults[j], inner)
		}
		inner.set(id, v)
	}
	text, _ := r.capture(d.Body, inner)
	return text
}

// attribute is macro.name.
func (m *macro) attribute(id string) (any, bool) {
	d := m.definition
	switch id {
	case "name":
		if d.Name == "" { // the body of a call block
			return nil, true
		}
		return d.Name, true
	case "arguments":
		t := tuple{}
		for _, p := range d.Parameters {
			t = append(t, p)
		}
		return t, true
	case "catch_kwargs":
		return d.Kwargs, true
	case "catch_varargs":
		return d.Varargs, true
	case "caller":
		return d.Caller, true
	}
	return nil, false
}
