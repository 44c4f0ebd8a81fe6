package template

import (
	"math"
	"math/big"
	"math/bits"
	"slices"
	"strings"
)

// sign is + or - of a number.
func (r *renderer) sign(operator string, v any) any {
	if i, ok := integer(v); ok {
		if operator == "-" {
			if i == math.MinInt64 {
				panic(r.overflow())
			}
			i = -i
		}
		return i
	}
	switch v := v.(type) {
	case float64:
		if operator == "-" {
			v = -v
		}
		return v
	case *undefined:
		panic(r.use(v))
	}
	panic(r.fail("TypeError", "bad operand type for unary %s: '%s'", operator, typeName(v)))
}

// overflow is the error for integers that fit Python and not 64 bits.
func (r *renderer) overflow() failure { return r.unsupported("an integer of more than 64 bits") }

// arithmetic is one of + - * / // % **.
func (r *renderer) arithmetic(operator string, v, w any) any {
	if s, ok := str(v); ok && operator == "%" {
		_, escape := v.(markup)
		t := r.printf(s, w, escape)
		if escape {
			return markup(t)
		}
		return t
	}
	for _, x := range []any{v, w} {
		if u, ok := x.(*undefined); ok {
			panic(r.use(u))
		}
	}
	i, ok1 := integer(v)
	j, ok2 := integer(w)
	if ok1 && ok2 {
		return r.integers(operator, i, j)
	}
	f, ok1 := float(v)
	g, ok2 := float(w)
	if ok1 && ok2 {
		return r.floats(operator, f, g)
	}
	switch operator {
	case "+":
		return r.add(v, w)
	case "*":
		if n, ok := integer(w); ok {
			return r.repeat(v, n)
		}
		if n, ok := integer(v); ok {
			return r.repeat(w, n)
		}
	}
	panic(r.mismatch(operator, v, w))
}

func (r *renderer) mismatch(operator string, v, w any) failure {
	return r.fail("TypeError", "unsupported operand type(s) for %s: '%s' and '%s'", operator, typeName(v), typeName(w))
}

func (r *renderer) integers(operator string, i, j int64) any {
	switch operator {
	case "+":
		if s := i + j; (s > i) == (j > 0) {
			return s
		}
		panic(r.overflow())
	case "-":
		if s := i - j; (s < i) == (j > 0) {
			return s
		}
		panic(r.overflow())
	case "*":
		return r.multiply(i, j)
	case "/":
		if j == 0 {
			panic(r.fail("ZeroDivisionError", "division by zero"))
		}
		if i == 0 && j < 0 {
			return math.Copysign(0, -1)
		}
		q, _ := big.NewRat(i, j).Float64()
		return q
	case "//", "%":
		if j == 0 {
			panic(r.fail("ZeroDivisionError", "integer division or modulo by zero"))
		}
		if i == math.MinInt64 && j == -1 {
			if operator == "%" {
				return int64(0)
			}
			panic(r.overflow())
		}
		q, m := i/j, i%j
		if m != 0 && (m < 0) != (j < 0) {
			q, m = q-1, m+j
		}
		if operator == "%" {
			return m
		}
		return q
	}
	if j < 0 {
		panic(r.unsupported("a power of a fraction"))
	}
	return r.power(i, j)
}

func (r *renderer) multiply(i, j int64) any {
	hi, lo := bits.Mul64(magnitude(i), magnitude(j))
	switch negative := (i < 0) != (j < 0); {
	case hi == 0 && lo <= math.MaxInt64 && !negative:
		return int64(lo)
	case hi == 0 && lo <= 1<<63 && negative:
		return -int64(lo)
	}
	panic(r.overflow())
}

func magnitude(i int64) uint64 {
	if i < 0 {
		return -uint64(i)
	}
	return uint64(i)
}

func (r *renderer) power(i, j int64) any {
	switch i {
	case 0, 1:
		if j == 0 {
			return int64(1)
		}
		return i
	case -1:
		return 1 - 2*(j&1)
	}
	var p any = int64(1)
	for range min(j, 64) {
		p = r.multiply(p.(int64), i)
	}
	return p
}

func (r *renderer) floats(operator string, f, g float64) any {
	switch operator {
	case "+":
		return f + g
	case "-":
		return f - g
	case "*":
		return f * g
	case "**": // the bits of math.Pow depend on the machine
		panic(r.unsupported("a power of a fraction"))
	}
	if g == 0 {
		panic(r.fail("ZeroDivisionError", "float division by zero"))
	}
	if operator == "/" {
		return f / g
	}
	m := math.Mod(f, g)
	q := (f - m) / g
	if m != 0 && (g < 0) != (m < 0) {
		m += g
		q--
	} else if m == 0 {
		m = math.Copysign(0, g)
	}
	if operator == "%" {
		return m
	}
	if q == 0 {
		return math.Copysign(0, f/g)
	}
	floor := math.Floor(q)
	if q-floor > 0.5 {
		floor++
	}
	return floor
}

// add joins texts, lists or tuples.
func (r *renderer) add(v, w any) any {
	a, ok1 := str(v)
	b, ok2 := str(w)
	if ok1 && ok2 {
		_, left := v.(markup)
		_, right := w.(markup)
		switch {
		case left && !right:
			b = escape(b)
		case right && !left:
			a = escape(a)
		}
		r.size(len(a) + len(b))
		if left || right {
			return markup(a + b)
		}
		return a + b
	}
	if l, ok := v.([]any); ok {
		if m, ok := w.([]any); ok {
			r.size(16 * (len(l) + len(m)))
			return slices.Concat(l, m)
		}
	}
	if l, ok := asTuple(v); ok {
		if m, ok := asTuple(w); ok {
			r.size(16 * (len(l) + len(m)))
			return slices.Concat(l, m)
		}
	}
	panic(r.mismatch("+", v, w))
}

// repeat is n copies of a text, list or tuple.
func (r *renderer) repeat(v any, n int64) any {
	n = max(n, 0)
	size := 0
	s, isText := str(v)
	l, isList := v.([]any)
	t, isTuple := asTuple(v)
	switch {
	case isText:
		size = len(s)
	case isList:
		size = 16 * len(l)
	case isTuple:
		size = 16 * len(t)
	default:
		panic(r.mismatch("*", v, n))
	}
	if size > 0 && n > int64(r.limits.Output/size) {
		panic(r.limit("a text of more than %d bytes", r.limits.Output))
	}
	r.size(size * int(n))
	if size == 0 {
		n = 0
	}
	switch {
	case isList:
		return slices.Repeat(l, int(n))
	case isTuple:
		return slices.Repeat(t, int(n))
	}
	if _, ok := v.(markup); ok {
		return markup(strings.Repeat(s, int(n)))
	}
	return strings.Repeat(s, int(n))
}
