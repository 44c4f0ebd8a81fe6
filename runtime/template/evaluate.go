package template

import (
	"fmt"
	"strings"

	"github.com/llmexport/llmexport/runtime/template/syntax"
)

// maxDepth bounds the recursion of the interpreter itself.
const maxDepth = 20_000 // twice the parts that syntax allows an expression

// evaluate computes an expression.
func (r *renderer) evaluate(x syntax.Expression, s *scope) any {
	r.step(1)
	if r.depth++; r.depth > maxDepth {
		panic(r.limit("expressions nested more than %d deep", maxDepth))
	}
	defer func() { r.depth-- }()
	switch n := x.(type) {
	case *syntax.Constant:
		return n.Value
	case *syntax.Name:
		return s.get(n.ID)
	case *syntax.Tuple:
		return tuple(r.all(n.Items, s))
	case *syntax.List:
		return r.all(n.Items, s)
	case *syntax.Dict:
		return r.dictLiteral(n, s)
	case *syntax.Unary:
		v := r.evaluate(n.X, s)
		if n.Operator == "not" {
			return !truth(v)
		}
		r.line = n.Line
		return r.sign(n.Operator, v)
	case *syntax.Binary:
		v := r.evaluate(n.X, s)
		if n.Operator == "and" && !truth(v) || n.Operator == "or" && truth(v) {
			return v
		}
		w := r.evaluate(n.Y, s)
		if n.Operator == "and" || n.Operator == "or" {
			return w
		}
		r.line = n.Line
		return r.arithmetic(n.Operator, v, w)
	case *syntax.Concat:
		return r.join("", r.all(n.Parts, s))
	case *syntax.Comparison:
		return r.comparison(n, s)
	case *syntax.Conditional:
		return r.conditional(n, s)
	case *syntax.Attribute:
		v := r.evaluate(n.X, s)
		r.line = n.Line
		return r.attribute(v, n.Name)
	case *syntax.Item:
		v := r.evaluate(n.X, s)
		key := r.evaluate(n.Key, s)
		r.line = n.Line
		return r.item(v, key)
	case *syntax.Slice:
		return r.sliceExpression(n, s)
	case *syntax.Call:
		function := r.evaluate(n.Function, s)
		args, keywords := r.arguments(&n.Arguments, s)
		r.line = n.Line
		return r.call(function, args, keywords)
	case *syntax.Filter:
		v := r.evaluate(n.X, s)
		args, keywords := r.arguments(&n.Arguments, s)
		r.line = n.Line
		return r.filter(n.Name, v, args, keywords)
	case *syntax.Test:
		v := r.evaluate(n.X, s)
		args, keywords := r.arguments(&n.Arguments, s)
		r.line = n.Line
		return r.test(n.Name, v, args, keywords)
	}
	panic(fmt.Sprintf("internal error: an expression of type %T", x))
}

func (r *renderer) all(xs []syntax.Expression, s *scope) []any {
	l := make([]any, len(xs))
	for i, x := range xs {
		l[i] = r.evaluate(x, s)
	}
	return l
}

func (r *renderer) dictLiteral(n *syntax.Dict, s *scope) any {
	o := NewObject()
	for i := range n.Keys {
		key := r.evaluate(n.Keys[i], s)
		r.put(o, key, r.evaluate(n.Values[i], s))
	}
	return o
}

// key is the hashable form of a key, which must have one.
func (r *renderer) key(v any) any {
	h, ok := r.hash(v)
	if !ok {
		panic(r.fail("TypeError", "unhashable type: '%s'", typeName(v)))
	}
	return h
}

// put sets a key of any type.
func (r *renderer) put(o *Object, key, v any) { o.put(key, r.key(key), v) }

// join is Python's sep.join(map(str, l)).
func (r *renderer) join(sep string, l []any) string {
	var b strings.Builder
	for i, v := range l {
		if i > 0 {
			b.WriteString(sep)
		}
		r.write(&b, r.text(v))
	}
	r.size(b.Len())
	return b.String()
}

func (r *renderer) comparison(n *syntax.Comparison, s *scope) any {
	v := r.evaluate(n.First, s)
	for _, o := range n.Rest {
		w := r.evaluate(o.X, s)
		r.line = n.Line
		if !r.compare(o.Operator, v, w) {
			return false
		}
		v = w
	}
	return true
}

func (r *renderer) conditional(n *syntax.Conditional, s *scope) any {
	v := r.evaluate(n.Test, s)
	switch {
	case truth(v):
		return r.evaluate(n.Yes, s)
	case n.No != nil:
		return r.evaluate(n.No, s)
	}
	return &undefined{hint: "the inline if-expression evaluated to false and no else section was defined"}
}

// filter applies a filter by name.
func (r *renderer) filter(name string, v any, args []any, keywords []keyword) any {
	f := filters[name]
	if f == nil {
		if missingFilters[name] {
			panic(r.unsupported("the filter %q", name))
		}
		panic(r.fail("TemplateRuntimeError", "no filter named %q", name))
	}
	return f.apply(r, v, r.bind(name, f.parameters, args, keywords))
}

// test applies a test by name.
func (r *renderer) test(name string, v any, args []any, keywords []keyword) bool {
	t := tests[name]
	if t == nil {
		panic(r.fail("TemplateRuntimeError", "no test named %q", name))
	}
	if len(keywords) > 0 || len(args) != t.arguments {
		panic(r.fail("TypeError", "the test %q takes %d arguments", name, t.arguments))
	}
	return t.holds(r, v, args)
}
