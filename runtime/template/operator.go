package template

import (
	"math"
	"math/big"
	"math/bits"
	"slices"
	"strings"
)

// sign is + or - of a number.
func (r *renderer) sign(operator string, v any) (any, error) {
	if i, ok := integer(v); ok {
		if operator == "-" {
			if i == math.MinInt64 {
				return nil, r.overflow()
			}
			i = -i
		}
		return i, nil
	}
	switch v := v.(type) {
	case float64:
		if operator == "-" {
			v = -v
		}
		return v, nil
	case *undefined:
		return nil, r.use(v)
	}
	return nil, r.fail("TypeError", "bad operand type for unary %s: '%s'", operator, typeName(v))
}

// overflow is the error for integers that do not fit 64 bits, which Python has.
func (r *renderer) overflow() error { return r.unsupported("an integer of more than 64 bits") }

// arithmetic is one of + - * / // % **.
func (r *renderer) arithmetic(operator string, v, w any) (any, error) {
	if s, ok := str(v); ok && operator == "%" {
		_, escape := v.(markup)
		t, err := r.printf(s, w, escape)
		if escape {
			return markup(t), err
		}
		return t, err
	}
	for _, x := range []any{v, w} {
		if u, ok := x.(*undefined); ok {
			return nil, r.use(u)
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
	return nil, r.mismatch(operator, v, w)
}

func (r *renderer) mismatch(operator string, v, w any) error {
	return r.fail("TypeError", "unsupported operand type(s) for %s: '%s' and '%s'", operator, typeName(v), typeName(w))
}

func (r *renderer) integers(operator string, i, j int64) (any, error) {
	switch operator {
	case "+":
		if s := i + j; (s > i) == (j > 0) {
			return s, nil
		}
		return nil, r.overflow()
	case "-":
		if s := i - j; (s < i) == (j > 0) {
			return s, nil
		}
		return nil, r.overflow()
	case "*":
		return r.multiply(i, j)
	case "/":
		if j == 0 {
			return nil, r.fail("ZeroDivisionError", "division by zero")
		}
		if i == 0 && j < 0 {
			return math.Copysign(0, -1), nil
		}
		q, _ := big.NewRat(i, j).Float64()
		return q, nil
	case "//", "%":
		if j == 0 {
			return nil, r.fail("ZeroDivisionError", "integer division or modulo by zero")
		}
		if i == math.MinInt64 && j == -1 {
			if operator == "%" {
				return int64(0), nil
			}
			return nil, r.overflow()
		}
		q, m := i/j, i%j
		if m != 0 && (m < 0) != (j < 0) {
			q, m = q-1, m+j
		}
		if operator == "%" {
			return m, nil
		}
		return q, nil
	}
	if j < 0 {
		return nil, r.unsupported("a power of a fraction")
	}
	return r.power(i, j)
}

func (r *renderer) multiply(i, j int64) (any, error) {
	hi, lo := bits.Mul64(magnitude(i), magnitude(j))
	switch negative := (i < 0) != (j < 0); {
	case hi == 0 && lo <= math.MaxInt64 && !negative:
		return int64(lo), nil
	case hi == 0 && lo <= 1<<63 && negative:
		return -int64(lo), nil
	}
	return nil, r.overflow()
}

func magnitude(i int64) uint64 {
	if i < 0 {
		return -uint64(i)
	}
	return uint64(i)
}

func (r *renderer) power(i, j int64) (any, error) {
	switch i {
	case 0, 1:
		if j == 0 {
			return int64(1), nil
		}
		return i, nil
	case -1:
		return 1 - 2*(j&1), nil
	}
	var p any = int64(1)
	for range min(j, 64) {
		var err error
		if p, err = r.multiply(p.(int64), i); err != nil {
			return nil, err
		}
	}
	return p, nil
}

func (r *renderer) floats(operator string, f, g float64) (any, error) {
	switch operator {
	case "+":
		return f + g, nil
	case "-":
		return f - g, nil
	case "*":
		return f * g, nil
	case "**": // math.Pow has not the same bits on every machine
		return nil, r.unsupported("a power of a fraction")
	}
	if g == 0 {
		return nil, r.fail("ZeroDivisionError", "float division by zero")
	}
	if operator == "/" {
		return f / g, nil
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
		return m, nil
	}
	if q == 0 {
		return math.Copysign(0, f/g), nil
	}
	floor := math.Floor(q)
	if q-floor > 0.5 {
		floor++
	}
	return floor, nil
}

// add joins texts, lists or tuples.
func (r *renderer) add(v, w any) (any, error) {
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
		if err := r.size(len(a) + len(b)); err != nil {
			return nil, err
		}
		if left || right {
			return markup(a + b), nil
		}
		return a + b, nil
	}
	if l, ok := v.([]any); ok {
		if m, ok := w.([]any); ok {
			return slices.Concat(l, m), r.size(16 * (len(l) + len(m)))
		}
	}
	if l, ok := asTuple(v); ok {
		if m, ok := asTuple(w); ok {
			return slices.Concat(l, m), r.size(16 * (len(l) + len(m)))
		}
	}
	return nil, r.mismatch("+", v, w)
}

// repeat is n copies of a text, list or tuple.
func (r *renderer) repeat(v any, n int64) (any, error) {
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
		return nil, r.mismatch("*", v, n)
	}
	if size > 0 && n > int64(r.limits.Output/size) {
		return nil, r.limit("a text of more than %d bytes", r.limits.Output)
	}
	if err := r.size(size * int(n)); err != nil {
		return nil, err
	}
	if size == 0 {
		n = 0
	}
	switch {
	case isList:
		return slices.Repeat(l, int(n)), nil
	case isTuple:
		return slices.Repeat(t, int(n)), nil
	}
	if _, ok := v.(markup); ok {
		return markup(strings.Repeat(s, int(n))), nil
	}
	return strings.Repeat(s, int(n)), nil
}
