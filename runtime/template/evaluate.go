package template

import "strings"

// maxDepth bounds the recursion of the interpreter itself.
const maxDepth = 2 * maxExpression

// evaluate computes an expression.
func (r *renderer) evaluate(x expression, s *scope) (any, error) {
	if err := r.step(1); err != nil {
		return nil, err
	}
	if r.depth++; r.depth > maxDepth {
		return nil, r.limit("expressions nested more than %d deep", maxDepth)
	}
	defer func() { r.depth-- }()
	switch n := x.(type) {
	case *constant:
		return n.value, nil
	case *name:
		return s.get(n.id), nil
	case *tupleLiteral:
		l, err := r.all(n.items, s)
		return tuple(l), err
	case *listLiteral:
		return r.all(n.items, s)
	case *dictLiteral:
		return r.dictLiteral(n, s)
	case *unary:
		v, err := r.evaluate(n.x, s)
		if err != nil {
			return nil, err
		}
		if n.operator == "not" {
			return !truth(v), nil
		}
		r.line = n.line
		return r.sign(n.operator, v)
	case *binary:
		v, err := r.evaluate(n.x, s)
		if err != nil {
			return nil, err
		}
		if n.operator == "and" && !truth(v) || n.operator == "or" && truth(v) {
			return v, nil
		}
		w, err := r.evaluate(n.y, s)
		if err != nil || n.operator == "and" || n.operator == "or" {
			return w, err
		}
		r.line = n.line
		return r.arithmetic(n.operator, v, w)
	case *concat:
		return r.concat(n, s)
	case *comparison:
		return r.comparison(n, s)
	case *conditional:
		return r.conditional(n, s)
	case *attribute:
		v, err := r.evaluate(n.x, s)
		if err != nil {
			return nil, err
		}
		r.line = n.line
		return r.attribute(v, n.name)
	case *item:
		v, err := r.evaluate(n.x, s)
		if err != nil {
			return nil, err
		}
		key, err := r.evaluate(n.key, s)
		if err != nil {
			return nil, err
		}
		r.line = n.line
		return r.item(v, key)
	case *slice:
		return r.sliceExpression(n, s)
	case *call:
		function, err := r.evaluate(n.function, s)
		if err != nil {
			return nil, err
		}
		args, keywords, err := r.arguments(&n.arguments, s)
		if err != nil {
			return nil, err
		}
		r.line = n.line
		return r.call(function, args, keywords)
	case *filter:
		return r.filterExpression(n, s)
	case *test:
		return r.testExpression(n, s)
	}
	return nil, r.fail("TypeError", "internal error: an expression of type %T", x)
}

func (r *renderer) all(xs []expression, s *scope) ([]any, error) {
	l := make([]any, len(xs))
	for i, x := range xs {
		var err error
		if l[i], err = r.evaluate(x, s); err != nil {
			return nil, err
		}
	}
	return l, nil
}

func (r *renderer) dictLiteral(n *dictLiteral, s *scope) (any, error) {
	o := NewObject()
	for i := range n.keys {
		key, err := r.evaluate(n.keys[i], s)
		if err != nil {
			return nil, err
		}
		v, err := r.evaluate(n.values[i], s)
		if err != nil {
			return nil, err
		}
		if err := r.put(o, key, v); err != nil {
			return nil, err
		}
	}
	return o, nil
}

func (r *renderer) unhashable(v any) error {
	return r.fail("TypeError", "unhashable type: '%s'", typeName(v))
}

// put sets a key of any type.
func (r *renderer) put(o *Object, key, v any) error {
	h, ok, err := r.hash(key)
	if err == nil && !ok {
		err = r.unhashable(key)
	}
	if err == nil {
		o.put(key, h, v)
	}
	return err
}

func (r *renderer) concat(n *concat, s *scope) (any, error) {
	l, err := r.all(n.parts, s)
	if err != nil {
		return nil, err
	}
	return r.join("", l)
}

// join is Python's sep.join(map(str, l)).
func (r *renderer) join(sep string, l []any) (string, error) {
	var b strings.Builder
	for i, v := range l {
		if i > 0 {
			b.WriteString(sep)
		}
		t, err := r.text(v)
		if err != nil {
			return "", err
		}
		if err := r.write(&b, t); err != nil {
			return "", err
		}
	}
	return b.String(), r.size(b.Len())
}

func (r *renderer) comparison(n *comparison, s *scope) (any, error) {
	v, err := r.evaluate(n.first, s)
	if err != nil {
		return nil, err
	}
	for _, o := range n.rest {
		w, err := r.evaluate(o.x, s)
		if err != nil {
			return nil, err
		}
		r.line = n.line
		ok, err := r.compare(o.operator, v, w)
		if err != nil || !ok {
			return false, err
		}
		v = w
	}
	return true, nil
}

func (r *renderer) conditional(n *conditional, s *scope) (any, error) {
	v, err := r.evaluate(n.test, s)
	if err != nil {
		return nil, err
	}
	switch {
	case truth(v):
		return r.evaluate(n.yes, s)
	case n.no != nil:
		return r.evaluate(n.no, s)
	}
	return &undefined{hint: "the inline if-expression evaluated to false and no else section was defined"}, nil
}

func (r *renderer) filterExpression(n *filter, s *scope) (any, error) {
	v, err := r.evaluate(n.x, s)
	if err != nil {
		return nil, err
	}
	args, keywords, err := r.arguments(&n.arguments, s)
	if err != nil {
		return nil, err
	}
	r.line = n.line
	return r.filter(n.name, v, args, keywords)
}

// filter applies a filter by name.
func (r *renderer) filter(name string, v any, args []any, keywords []keyword) (any, error) {
	f := filters[name]
	if f == nil {
		if missingFilters[name] {
			return nil, r.unsupported("the filter %q", name)
		}
		return nil, r.fail("TemplateRuntimeError", "no filter named %q", name)
	}
	bound, err := r.bind(name, f.parameters, args, keywords)
	if err != nil {
		return nil, err
	}
	return f.apply(r, v, bound)
}

func (r *renderer) testExpression(n *test, s *scope) (any, error) {
	v, err := r.evaluate(n.x, s)
	if err != nil {
		return nil, err
	}
	args, keywords, err := r.arguments(&n.arguments, s)
	if err != nil {
		return nil, err
	}
	r.line = n.line
	return r.test(n.name, v, args, keywords)
}

// test applies a test by name.
func (r *renderer) test(name string, v any, args []any, keywords []keyword) (bool, error) {
	t := tests[name]
	if t == nil {
		return false, r.fail("TemplateRuntimeError", "no test named %q", name)
	}
	if len(keywords) > 0 || len(args) != t.arguments {
		return false, r.fail("TypeError", "the test %q takes %d arguments", name, t.arguments)
	}
	return t.holds(r, v, args)
}
