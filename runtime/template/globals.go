package template

// globals are the functions that every template has.
var globals = &scope{names: map[string]any{
	"range":           &function{"range", rangeFunction},
	"dict":            &function{"dict", func(r *renderer, args []any, keywords []keyword) any { return r.dict(args, keywords) }},
	"namespace":       &function{"namespace", namespaceFunction},
	"raise_exception": &function{"raise_exception", raiseException},
	"strftime_now":    &function{"strftime_now", strftimeNow},
	"lipsum":          lackingFunction("lipsum"),
	"cycler":          lackingFunction("cycler"),
	"joiner":          lackingFunction("joiner"),
}}

func lackingFunction(id string) *function {
	return &function{id, func(r *renderer, _ []any, _ []keyword) any {
		panic(r.unsupported("the function %s", id))
	}}
}

func rangeFunction(r *renderer, args []any, keywords []keyword) any {
	bound := r.bind("range", unnamed(1, "start", "stop", "step"), args, keywords)
	n := [3]int64{0, 0, 1}
	for i, a := range bound {
		if a == unset {
			continue
		}
		v, ok := integer(a)
		if !ok {
			panic(r.fail("TypeError", "'%s' object cannot be interpreted as an integer", typeName(a)))
		}
		n[i] = v
	}
	if len(args) == 1 {
		n[0], n[1] = 0, n[0]
	}
	return r.newRange(n[0], n[1], n[2])
}

// dict is Python's dict(mapping or pairs, **keywords).
func (r *renderer) dict(args []any, keywords []keyword) *Object {
	o := NewObject()
	if len(args) > 1 {
		panic(r.fail("TypeError", "dict expected at most 1 argument, got %d", len(args)))
	}
	if len(args) == 1 {
		if u, ok := args[0].(*undefined); ok {
			panic(r.use(u))
		} else if from, ok := args[0].(*Object); ok {
			o = from.clone()
		} else {
			r.putPairs(o, args[0])
		}
	}
	for _, k := range keywords {
		o.Set(k.name, k.value)
	}
	r.step(o.Len())
	return o
}

func (r *renderer) putPairs(o *Object, pairs any) {
	for i, e := range r.list(pairs) {
		pair := r.list(e)
		if len(pair) != 2 {
			panic(r.fail("ValueError", "dictionary update sequence element #%d has length %d; 2 is required", i, len(pair)))
		}
		r.put(o, pair[0], pair[1])
	}
}

func namespaceFunction(r *renderer, args []any, keywords []keyword) any {
	o := r.dict(args, keywords)
	n := &namespace{NewObject()}
	for i, key := range o.keys {
		id, ok := str(key)
		if !ok {
			n.attributes.put(key, o.hashed[i], o.values[i])
			continue
		}
		r.setAttribute(n, id, o.values[i])
	}
	return n
}

// raiseException ends rendering with the template's own message.
func raiseException(r *renderer, args []any, keywords []keyword) any {
	bound := r.bind("raise_exception", takes(1, "message"), args, keywords)
	panic(r.fail("TemplateError", "%s", r.text(bound[0])))
}

func strftimeNow(r *renderer, args []any, keywords []keyword) any {
	bound := r.bind("strftime_now", takes(1, "format"), args, keywords)
	return r.strftime(r.textArgument(bound[0]))
}
