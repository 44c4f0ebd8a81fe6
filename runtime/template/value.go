package template

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"unicode/utf8"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// A value of a template is one of: nil, bool, int64, float64, string, markup, []any (a list), tuple, *group, *Object
// (a dict), *view, *sequence (a range), *generator, *namespace, *undefined, *function, *macro, *loop. Lists and
// tuples are never changed once they are made.
type (
	tuple []any

	// markup is a text that the filters safe and escape return: text joined to it is escaped for HTML.
	markup string

	// group is an element of the result of the filter groupby, a tuple with names.
	group struct {
		grouper any
		list    []any
	}

	// view is the result of items, keys or values of a dict.
	view struct {
		kind string // dict_items, dict_keys or dict_values
		of   *Object
	}

	// sequence is a range; step is not 0.
	sequence struct{ start, stop, step, length int64 }

	// generator is a list that is computed while it is read, once.
	generator struct {
		name string
		next iterator
	}

	// namespace has attributes that a template may change.
	namespace struct{ attributes *Object }

	// undefined is the value of a missing name or attribute. It prints as nothing, and is an error when used. The
	// message is the hint, or made from the name and, if known, the type of its owner.
	undefined struct {
		hint  string
		name  any
		owner string
		kind  string // of the error, UndefinedError by default
	}

	// function is a function or method that a template may call.
	function struct {
		name string
		call func(r *renderer, args []any, keywords []keyword) any
	}

	// keyword is a named argument of a call.
	keyword struct {
		name  string
		value any
	}
)

func (u *undefined) message() string {
	switch {
	case u.hint != "":
		return u.hint
	case u.owner == "":
		return fmt.Sprintf("%s is undefined", quote(fmt.Sprint(u.name)))
	}
	if s, ok := u.name.(string); ok {
		return fmt.Sprintf("%s has no attribute %s", quote(u.owner), quote(s))
	}
	switch u.name.(type) {
	case nil, bool, int64, float64:
		return fmt.Sprintf("%s has no element %v", u.owner, u.name)
	}
	return fmt.Sprintf("%s has no element of type %s", u.owner, typeName(u.name)) // what it holds may be large
}

// use is the error of using a value that does not exist.
func (r *renderer) use(u *undefined) failure {
	kind := u.kind
	if kind == "" {
		kind = "UndefinedError"
	}
	return r.fail(kind, "%s", u.message())
}

// typeName is Python's name of a value's type.
func typeName(v any) string {
	switch v := v.(type) {
	case nil:
		return "NoneType"
	case bool:
		return "bool"
	case int64:
		return "int"
	case float64:
		return "float"
	case string:
		return "str"
	case markup:
		return "Markup"
	case []any:
		return "list"
	case tuple, *group:
		return "tuple"
	case *Object:
		return "dict"
	case *view:
		return v.kind
	case *sequence:
		return "range"
	case *generator:
		return "generator"
	case *namespace:
		return "Namespace"
	case *undefined:
		return "Undefined"
	case *macro:
		return "Macro"
	case *loop:
		return "LoopContext"
	}
	return "function"
}

// truth reports whether a value counts as true.
func truth(v any) bool {
	switch v := v.(type) {
	case nil:
		return false
	case bool:
		return v
	case int64:
		return v != 0
	case float64:
		return v != 0
	}
	n, ok := length(v)
	return !ok || n > 0
}

// length is the number of elements; ok is false for values without elements, or of unknown length.
func length(v any) (n int, ok bool) {
	switch v := v.(type) {
	case string:
		return utf8.RuneCountInString(v), true
	case markup:
		return utf8.RuneCountInString(string(v)), true
	case []any:
		return len(v), true
	case tuple:
		return len(v), true
	case *group:
		return 2, true
	case *Object:
		return v.Len(), true
	case *view:
		return v.of.Len(), true
	case *sequence:
		return int(v.length), true
	case *undefined:
		return 0, true
	case *loop:
		if n, ok := length(v.iterable); ok {
			return n, true
		}
	}
	return 0, false
}

// str returns a text; ok is false for other values.
func str(v any) (string, bool) {
	switch v := v.(type) {
	case string:
		return v, true
	case markup:
		return string(v), true
	}
	return "", false
}

// integer returns an integer; bools count as integers.
func integer(v any) (int64, bool) {
	switch v := v.(type) {
	case int64:
		return v, true
	case bool:
		if v {
			return 1, true
		}
		return 0, true
	}
	return 0, false
}

// float is a number as a float64.
func float(v any) (float64, bool) {
	if f, ok := v.(float64); ok {
		return f, true
	}
	i, ok := integer(v)
	return float64(i), ok
}

// asTuple is a tuple's elements.
func asTuple(v any) (tuple, bool) {
	switch v := v.(type) {
	case tuple:
		return v, true
	case *group:
		return tuple{v.grouper, v.list}, true
	}
	return nil, false
}

// maxValueDepth bounds the nesting of the caller's values, which ends the conversion of a cycle.
const maxValueDepth = 1000

// convert makes a value of a template from one of Go.
func (r *renderer) convert(v any, depth int) any {
	if depth > maxValueDepth {
		panic(failure{fmt.Errorf("nested more than %d deep: %w", maxValueDepth, tensor.ErrUnsupported)})
	}
	r.step(1)
	switch v := v.(type) {
	case nil, bool, int64, float64:
		return v
	case string:
		if !utf8.ValidString(v) {
			panic(failure{fmt.Errorf("a text that is not UTF-8: %w", tensor.ErrCorrupt)})
		}
		return v
	case json.Number:
		n, err := number(v)
		if err != nil {
			panic(failure{err})
		}
		return n
	case Message:
		return r.convert(v.object(), depth+1)
	case *Object:
		return r.convertObject(v, depth)
	case map[string]any:
		o := NewObject()
		for _, k := range slices.Sorted(maps.Keys(v)) {
			o.Set(k, v[k])
		}
		return r.convertObject(o, depth)
	}
	switch x := reflect.ValueOf(v); {
	case x.CanInt():
		return x.Int()
	case x.CanUint() && x.Uint() <= math.MaxInt64:
		return int64(x.Uint())
	case x.CanFloat():
		return x.Float()
	case x.Kind() == reflect.Slice:
		l := make([]any, x.Len())
		for i := range l {
			l[i] = r.convert(x.Index(i).Interface(), depth+1)
		}
		return l
	}
	panic(failure{fmt.Errorf("a value of type %T: %w", v, tensor.ErrUnsupported)})
}

func (r *renderer) convertObject(v *Object, depth int) any {
	o := NewObject()
	for i, k := range v.keys {
		o.put(r.convert(k, depth), k, r.convert(v.values[i], depth+1))
	}
	return o
}
