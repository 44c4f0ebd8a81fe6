package template

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode"
)

// text is a value as Python's str gives it.
func (r *renderer) text(v any) string {
	if s, ok := str(v); ok {
		return s
	}
	if _, ok := v.(*undefined); ok {
		return ""
	}
	return r.repr(v)
}

// repr is a value as Python's repr gives it.
func (r *renderer) repr(v any) string {
	var b output
	r.writeRepr(&b, v, 0)
	return b.String()
}

func (r *renderer) writeRepr(b *output, v any, depth int) {
	if depth > maxValueDepth {
		panic(r.fail("RecursionError", "maximum recursion depth exceeded while getting the repr of an object"))
	}
	r.step(1)
	several := func(open, end string, n int, element func(i int)) {
		b.WriteString(open)
		for i := range n {
			if i > 0 {
				b.WriteString(", ")
			}
			element(i)
		}
		r.write(b, end)
	}
	elements := func(open, end string, l []any) {
		several(open, end, len(l), func(i int) { r.writeRepr(b, l[i], depth+1) })
	}
	if t, ok := asTuple(v); ok {
		end := ")"
		if len(t) == 1 {
			end = ",)"
		}
		elements("(", end, t)
		return
	}
	switch v := v.(type) {
	case nil:
		r.write(b, "None")
	case bool:
		if v {
			r.write(b, "True")
		} else {
			r.write(b, "False")
		}
	case int64:
		r.write(b, strconv.FormatInt(v, 10))
	case float64:
		r.write(b, formatFloat(v))
	case string:
		r.write(b, quote(v))
	case markup:
		r.write(b, "Markup("+quote(string(v))+")")
	case []any:
		elements("[", "]", v)
	case *Object:
		several("{", "}", v.Len(), func(i int) {
			r.writeRepr(b, v.keys[i], depth+1)
			b.WriteString(": ")
			r.writeRepr(b, v.values[i], depth+1)
		})
	case *view:
		several(v.kind+"([", "])", v.of.Len(), func(i int) { r.writeRepr(b, v.at(i), depth+1) })
	case *sequence:
		s := fmt.Sprintf("range(%d, %d", v.start, v.stop)
		if v.step != 1 {
			s += fmt.Sprintf(", %d", v.step)
		}
		r.write(b, s+")")
	case *namespace:
		b.WriteString("<Namespace ")
		r.writeRepr(b, v.attributes, depth+1)
		r.write(b, ">")
	case *undefined:
		r.write(b, "Undefined")
	case *macro:
		name := "anonymous"
		if v.definition.Name != "" {
			name = quote(v.definition.Name)
		}
		r.write(b, "<Macro "+name+">")
	case *loop:
		r.write(b, fmt.Sprintf("<LoopContext %d/%d>", v.index0+1, v.count(r)))
	case *generator, *function:
		panic(r.unsupported("the text of a %s, which holds an address,", typeName(v)))
	default:
		panic(fmt.Sprintf("internal error: a value of type %T", v))
	}
}

// formatFloat is the shortest text that gives the same number, in the form of Python's repr.
func formatFloat(f float64) string {
	switch {
	case math.IsNaN(f):
		return "nan"
	case math.IsInf(f, 1):
		return "inf"
	case math.IsInf(f, -1):
		return "-inf"
	}
	e := strconv.FormatFloat(f, 'e', -1, 64)
	exponent, _ := strconv.Atoi(e[strings.IndexByte(e, 'e')+1:])
	if exponent < -4 || exponent >= 16 {
		return e
	}
	s := strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}

// quote is Python's repr of a text.
func quote(s string) string {
	mark := byte('\'')
	if strings.Contains(s, "'") && !strings.Contains(s, `"`) {
		mark = '"'
	}
	var b strings.Builder
	b.WriteByte(mark)
	for _, c := range s {
		switch {
		case c == rune(mark) || c == '\\':
			b.WriteByte('\\')
			b.WriteRune(c)
		case c == '\n':
			b.WriteString(`\n`)
		case c == '\r':
			b.WriteString(`\r`)
		case c == '\t':
			b.WriteString(`\t`)
		case unicode.IsPrint(c):
			b.WriteRune(c)
		case c < 0x100:
			fmt.Fprintf(&b, `\x%02x`, c)
		case c < 0x10000:
			fmt.Fprintf(&b, `\u%04x`, c)
		default:
			fmt.Fprintf(&b, `\U%08x`, c)
		}
	}
	b.WriteByte(mark)
	return b.String()
}

// isLineBreak is where Python's str.splitlines splits.
func isLineBreak(c rune) bool {
	switch c {
	case '\n', '\r', '\v', '\f', 0x1c, 0x1d, 0x1e, 0x85, 0x2028, 0x2029:
		return true
	}
	return false
}
