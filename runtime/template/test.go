package template

import "unicode"

// namedTest is a test: the number of its arguments, and whether it holds.
type namedTest struct {
	arguments int
	holds     func(r *renderer, v any, args []any) bool
}

// tests are the tests by name.
var tests map[string]*namedTest

func init() { // two of them look tests and filters up
	list := map[string]*namedTest{
		"boolean":     is(func(v any) bool { _, ok := v.(bool); return ok }),
		"callable":    is(callable),
		"defined":     is(func(v any) bool { _, ok := v.(*undefined); return !ok }),
		"divisibleby": {1, func(r *renderer, v any, args []any) bool { return r.divisible(v, args[0], 0) }},
		"escaped":     is(func(v any) bool { _, ok := v.(markup); return ok }),
		"even":        {0, func(r *renderer, v any, _ []any) bool { return r.divisible(v, int64(2), 0) }},
		"odd":         {0, func(r *renderer, v any, _ []any) bool { return r.divisible(v, int64(2), 1) }},
		"false":       is(func(v any) bool { return same(v, false) }),
		"filter":      {0, nameTest(func(s string) bool { return filters[s] != nil || missingFilters[s] })},
		"float":       is(func(v any) bool { _, ok := v.(float64); return ok }),
		"in":          {1, func(r *renderer, v any, args []any) bool { return r.contains(args[0], v) }},
		"integer":     is(func(v any) bool { _, ok := v.(int64); return ok }),
		"iterable":    is(iterable),
		"lower":       {0, caseTest(isLower)},
		"mapping":     is(func(v any) bool { _, ok := v.(*Object); return ok }),
		"none":        is(func(v any) bool { return v == nil }),
		"number":      is(func(v any) bool { _, ok := float(v); return ok }),
		"sameas":      {1, func(_ *renderer, v any, args []any) bool { return same(v, args[0]) }},
		"sequence":    is(isSequence),
		"string":      is(func(v any) bool { _, ok := str(v); return ok }),
		"test":        {0, nameTest(func(s string) bool { return tests[s] != nil })},
		"true":        is(func(v any) bool { return same(v, true) }),
		"undefined":   is(func(v any) bool { _, ok := v.(*undefined); return ok }),
		"upper":       {0, caseTest(isUpper)},
	}
	for operator, names := range map[string][]string{
		"==": {"eq", "equalto"}, "!=": {"ne"}, ">": {"gt", "greaterthan"}, ">=": {"ge"}, "<": {"lt", "lessthan"}, "<=": {"le"},
	} {
		list[operator] = &namedTest{1, func(r *renderer, v any, args []any) bool { return r.compare(operator, v, args[0]) }}
		for _, n := range names {
			list[n] = list[operator]
		}
	}
	tests = list
}

func is(holds func(v any) bool) *namedTest {
	return &namedTest{0, func(_ *renderer, v any, _ []any) bool { return holds(v) }}
}

func callable(v any) bool {
	switch v.(type) {
	case *function, *macro, *loop, *undefined: // the class of undefined values has a method to be called
		return true
	}
	return false
}

func iterable(v any) bool {
	switch v.(type) {
	case nil, bool, int64, float64, *function, *macro, *namespace:
		return false
	}
	return true
}

func isSequence(v any) bool {
	switch v.(type) {
	case string, markup, []any, tuple, *group, *Object, *sequence, *undefined:
		return true
	}
	return false
}

// divisible is whether v % n is rest.
func (r *renderer) divisible(v, n any, rest int64) bool {
	return r.equal(r.arithmetic("%", v, n), rest)
}

// nameTest looks a value up among names.
func nameTest(known func(string) bool) func(*renderer, any, []any) bool {
	return func(r *renderer, v any, _ []any) bool {
		r.key(v) // which fails if v is not hashable
		s, _ := str(v)
		return known(s)
	}
}

func caseTest(holds func(rune) bool) func(*renderer, any, []any) bool {
	return func(r *renderer, v any, _ []any) bool {
		return hasCase(r.text(v), holds)
	}
}

func isAlphanumeric(c rune) bool { return unicode.IsLetter(c) || unicode.IsNumber(c) }
