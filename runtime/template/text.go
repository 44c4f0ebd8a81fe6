package template

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode"
)

// text is a value as Python's str gives it.
func (r *renderer) text(v any) (string, error) {
	if s, ok := str(v); ok {
		return s, nil
	}
	if _, ok := v.(*undefined); ok {
		return "", nil
	}
	return r.repr(v)
}

// repr is a value as Python's repr gives it.
func (r *renderer) repr(v any) (string, error) {
	var b output
	err := r.writeRepr(&b, v, 0)
	return b.String(), err
}

func (r *renderer) writeRepr(b *output, v any, depth int) error {
	if depth > maxValueDepth {
		return r.fail("RecursionError", "maximum recursion depth exceeded while getting the repr of an object")
	}
	if err := r.step(1); err != nil {
		return err
	}
	several := func(open, end string, n int, element func(i int) error) error {
		b.WriteString(open)
		for i := range n {
			if i > 0 {
				b.WriteString(", ")
			}
			if err := element(i); err != nil {
				return err
			}
		}
		return r.write(b, end)
	}
	elements := func(open, end string, l []any) error {
		return several(open, end, len(l), func(i int) error { return r.writeRepr(b, l[i], depth+1) })
	}
	if t, ok := asTuple(v); ok {
		if len(t) == 1 {
			return elements("(", ",)", t)
		}
		return elements("(", ")", t)
	}
	switch v := v.(type) {
	case nil:
		return r.write(b, "None")
	case bool:
		if v {
			return r.write(b, "True")
		}
		return r.write(b, "False")
	case int64:
		return r.write(b, strconv.FormatInt(v, 10))
	case float64:
		return r.write(b, formatFloat(v))
	case string:
		return r.write(b, quote(v))
	case markup:
		return r.write(b, "Markup("+quote(string(v))+")")
	case []any:
		return elements("[", "]", v)
	case *Object:
		return several("{", "}", v.Len(), func(i int) error {
			if err := r.writeRepr(b, v.keys[i], depth+1); err != nil {
				return err
			}
			b.WriteString(": ")
			return r.writeRepr(b, v.values[i], depth+1)
		})
	case *view:
		return several(v.kind+"([", "])", v.of.Len(), func(i int) error { return r.writeRepr(b, v.at(i), depth+1) })
	case *sequence:
		if v.step != 1 {
			return r.write(b, fmt.Sprintf("range(%d, %d, %d)", v.start, v.stop, v.step))
		}
		return r.write(b, fmt.Sprintf("range(%d, %d)", v.start, v.stop))
	case *namespace:
		b.WriteString("<Namespace ")
		if err := r.writeRepr(b, v.attributes, depth+1); err != nil {
			return err
		}
		return r.write(b, ">")
	case *undefined:
		return r.write(b, "Undefined")
	case *macro:
		if v.definition.name == "" {
			return r.write(b, "<Macro anonymous>")
		}
		return r.write(b, "<Macro "+quote(v.definition.name)+">")
	case *loop:
		n, err := v.count(r)
		if err != nil {
			return err
		}
		return r.write(b, fmt.Sprintf("<LoopContext %d/%d>", v.index0+1, n))
	case *generator, *function:
		return r.unsupported("the text of a %s, which holds an address,", typeName(v))
	}
	return fmt.Errorf("internal error: a value of type %T", v)
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

// isSpace is Python's str.isspace of one character.
func isSpace(c rune) bool { return unicode.IsSpace(c) || c >= 0x1c && c <= 0x1f }

// isLineBreak is where Python's str.splitlines splits.
func isLineBreak(c rune) bool {
	switch c {
	case '\n', '\r', '\v', '\f', 0x1c, 0x1d, 0x1e, 0x85, 0x2028, 0x2029:
		return true
	}
	return false
}
