package template

// globals are the functions that every template has.
var globals = &scope{names: map[string]any{
	"range":           &function{"range", rangeFunction},
	"dict":            &function{"dict", func(r *renderer, args []any, keywords []keyword) (any, error) { return r.dict(args, keywords) }},
	"namespace":       &function{"namespace", namespaceFunction},
	"raise_exception": &function{"raise_exception", raiseException},
	"strftime_now":    &function{"strftime_now", strftimeNow},
	"lipsum":          lackingFunction("lipsum"),
	"cycler":          lackingFunction("cycler"),
	"joiner":          lackingFunction("joiner"),
}}

func lackingFunction(id string) *function {
	return &function{id, func(r *renderer, _ []any, _ []keyword) (any, error) {
		return nil, r.unsupported("the function %s", id)
	}}
}

func rangeFunction(r *renderer, args []any, keywords []keyword) (any, error) {
	bound, err := r.bind("range", unnamed(1, "start", "stop", "step"), args, keywords)
	if err != nil {
		return nil, err
	}
	n := [3]int64{0, 0, 1}
	for i, a := range bound {
		if a == unset {
			continue
		}
		v, ok := integer(a)
		if !ok {
			return nil, r.fail("TypeError", "'%s' object cannot be interpreted as an integer", typeName(a))
		}
		n[i] = v
	}
	if len(args) == 1 {
		n[0], n[1] = 0, n[0]
	}
	return r.newRange(n[0], n[1], n[2])
}

// dict is Python's dict(mapping or pairs, **keywords).
func (r *renderer) dict(args []any, keywords []keyword) (*Object, error) {
	o := NewObject()
	if len(args) > 1 {
		return nil, r.fail("TypeError", "dict expected at most 1 argument, got %d", len(args))
	}
	if len(args) == 1 {
		if u, ok := args[0].(*undefined); ok {
			return nil, r.use(u)
		} else if from, ok := args[0].(*Object); ok {
			o = from.clone()
		} else if err := r.putPairs(o, args[0]); err != nil {
			return nil, err
		}
	}
	for _, k := range keywords {
		o.Set(k.name, k.value)
	}
	return o, r.step(o.Len())
}

func (r *renderer) putPairs(o *Object, pairs any) error {
	l, err := r.list(pairs)
	if err != nil {
		return err
	}
	for i, e := range l {
		pair, err := r.list(e)
		if err != nil {
			return err
		}
		if len(pair) != 2 {
			return r.fail("ValueError", "dictionary update sequence element #%d has length %d; 2 is required", i, len(pair))
		}
		if err := r.put(o, pair[0], pair[1]); err != nil {
			return err
		}
	}
	return nil
}

func namespaceFunction(r *renderer, args []any, keywords []keyword) (any, error) {
	o, err := r.dict(args, keywords)
	if err != nil {
		return nil, err
	}
	n := &namespace{NewObject()}
	for i, key := range o.keys {
		id, ok := str(key)
		if !ok {
			n.attributes.put(key, o.hashed[i], o.values[i])
			continue
		}
		if err := r.setAttribute(n, id, o.values[i]); err != nil {
			return nil, err
		}
	}
	return n, nil
}

// raiseException ends rendering with the template's own message.
func raiseException(r *renderer, args []any, keywords []keyword) (any, error) {
	bound, err := r.bind("raise_exception", takes(1, "message"), args, keywords)
	if err != nil {
		return nil, err
	}
	message, err := r.text(bound[0])
	if err != nil {
		return nil, err
	}
	return nil, r.fail("TemplateError", "%s", message)
}

func strftimeNow(r *renderer, args []any, keywords []keyword) (any, error) {
	bound, err := r.bind("strftime_now", takes(1, "format"), args, keywords)
	if err != nil {
		return nil, err
	}
	format, err := r.textArgument(bound[0])
	if err != nil {
		return nil, err
	}
	return r.strftime(format)
}
