package template

// method is a method of a list or dict.
type method struct {
	parameters parameters
	call       func(r *renderer, self any, args []any) any
}

func bindMethod(id string, p parameters, self any, call func(r *renderer, self any, args []any) any) *function {
	return &function{id, func(r *renderer, args []any, keywords []keyword) any {
		return call(r, self, r.bind(id, p, args, keywords))
	}}
}

// unnamed are parameters that are given by position only.
func unnamed(required int, names ...string) parameters {
	return parameters{names: names, required: required, unnamed: len(names)}
}

// dictMethods are the methods of a dict that do not change it.
var dictMethods = map[string]method{
	"items":  {unnamed(0), func(_ *renderer, self any, _ []any) any { return &view{"dict_items", self.(*Object)} }},
	"keys":   {unnamed(0), func(_ *renderer, self any, _ []any) any { return &view{"dict_keys", self.(*Object)} }},
	"values": {unnamed(0), func(_ *renderer, self any, _ []any) any { return &view{"dict_values", self.(*Object)} }},
	"copy": {unnamed(0), func(r *renderer, self any, _ []any) any {
		o := self.(*Object)
		r.size(16 * o.Len())
		return o.clone()
	}},
	"get": {unnamed(1, "key", "default"), func(r *renderer, self any, args []any) any {
		if v, ok := self.(*Object).get(r.key(args[0])); ok {
			return v
		}
		return given(args[1], nil)
	}},
}

// given is an argument, or its default when it is not given.
func given(v, otherwise any) any {
	if v == unset {
		return otherwise
	}
	return v
}

// listMethods are the methods of lists, tuples and ranges that do not change them.
var listMethods = map[string]method{
	"copy": {unnamed(0), func(r *renderer, self any, _ []any) any {
		return r.list(self)
	}},
	"count": {unnamed(1, "value"), func(r *renderer, self any, args []any) any {
		n := int64(0)
		for _, v := range r.list(self) {
			if r.equal(v, args[0]) {
				n++
			}
		}
		return n
	}},
	"index": {unnamed(1, "value", "start", "stop"), func(r *renderer, self any, args []any) any {
		l := r.list(self)
		from, _, _, count := r.sliceIndices([3]any{given(args[1], nil), given(args[2], nil)}, int64(len(l)))
		for i, v := range l[from : from+count] {
			if r.equal(v, args[0]) {
				return from + int64(i)
			}
		}
		panic(r.fail("ValueError", "the value is not in %s", typeName(self)))
	}},
}
