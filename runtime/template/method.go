package template

// method is a method of a list or dict.
type method struct {
	parameters parameters
	call       func(r *renderer, self any, args []any) (any, error)
}

func bindMethod(id string, p parameters, self any, call func(r *renderer, self any, args []any) (any, error)) *function {
	return &function{id, func(r *renderer, args []any, keywords []keyword) (any, error) {
		bound, err := r.bind(id, p, args, keywords)
		if err != nil {
			return nil, err
		}
		return call(r, self, bound)
	}}
}

// unnamed are parameters that are given by position only.
func unnamed(required int, names ...string) parameters {
	return parameters{names: names, required: required, unnamed: len(names)}
}

// dictMethods are the methods of a dict that do not change it.
var dictMethods = map[string]method{
	"items":  {unnamed(0), func(_ *renderer, self any, _ []any) (any, error) { return &view{"dict_items", self.(*Object)}, nil }},
	"keys":   {unnamed(0), func(_ *renderer, self any, _ []any) (any, error) { return &view{"dict_keys", self.(*Object)}, nil }},
	"values": {unnamed(0), func(_ *renderer, self any, _ []any) (any, error) { return &view{"dict_values", self.(*Object)}, nil }},
	"copy": {unnamed(0), func(r *renderer, self any, _ []any) (any, error) {
		o := self.(*Object)
		return o.clone(), r.size(16 * o.Len())
	}},
	"get": {unnamed(1, "key", "default"), func(r *renderer, self any, args []any) (any, error) {
		h, ok, err := r.hash(args[0])
		if err != nil {
			return nil, err
		}
		if !ok {
			return nil, r.unhashable(args[0])
		}
		if v, ok := self.(*Object).get(h); ok {
			return v, nil
		}
		return given(args[1], nil), nil
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
	"copy": {unnamed(0), func(r *renderer, self any, _ []any) (any, error) {
		return r.list(self)
	}},
	"count": {unnamed(1, "value"), func(r *renderer, self any, args []any) (any, error) {
		l, err := r.list(self)
		if err != nil {
			return nil, err
		}
		n := int64(0)
		for _, v := range l {
			ok, err := r.equal(v, args[0])
			if err != nil {
				return nil, err
			}
			if ok {
				n++
			}
		}
		return n, nil
	}},
	"index": {unnamed(1, "value", "start", "stop"), func(r *renderer, self any, args []any) (any, error) {
		l, err := r.list(self)
		if err != nil {
			return nil, err
		}
		from, _, _, count, err := r.sliceIndices([3]any{given(args[1], nil), given(args[2], nil)}, int64(len(l)))
		if err != nil {
			return nil, err
		}
		for i, v := range l[from : from+count] {
			ok, err := r.equal(v, args[0])
			if err != nil {
				return nil, err
			}
			if ok {
				return from + int64(i), nil
			}
		}
		return nil, r.fail("ValueError", "the value is not in %s", typeName(self))
	}},
}
