package template

import (
	"fmt"
	"math"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// dumper writes JSON as Python's json.dumps does.
type dumper struct {
	r            *renderer
	out          output
	ascii        bool
	indent       string // of one level
	lines        bool   // an element per line
	comma, colon string
	sortKeys     bool
	level        int
}

// tojson is the filter of transformers, which replaces jinja2's: nothing is escaped for HTML.
func tojson(r *renderer, v any, args []any) any {
	d := &dumper{r: r, ascii: truth(given(args[0], false)), comma: ", ", colon: ": ", sortKeys: truth(given(args[3], false))}
	if indent := given(args[1], nil); indent != nil {
		d.lines, d.comma = true, ","
		if s, ok := str(indent); ok {
			d.indent = s
		} else {
			d.indent = r.pad("", " ", r.intArgument(indent, 0), padRight)
		}
	}
	if separators := given(args[2], nil); separators != nil {
		l := r.list(separators)
		if len(l) != 2 {
			panic(r.fail("ValueError", "two separators are needed, got %d", len(l)))
		}
		var ok1, ok2 bool
		d.comma, ok1 = str(l[0])
		d.colon, ok2 = str(l[1])
		if !ok1 || !ok2 {
			panic(r.fail("TypeError", "separators must be strings"))
		}
	}
	d.value(v)
	return d.out.String()
}

func (d *dumper) value(v any) {
	d.r.step(1)
	if s, ok := str(v); ok {
		d.text(s)
		return
	}
	if t, ok := asTuple(v); ok {
		v = []any(t)
	}
	switch v := v.(type) {
	case nil:
		d.r.write(&d.out, "null")
	case bool:
		d.r.write(&d.out, strconv.FormatBool(v))
	case int64:
		d.r.write(&d.out, strconv.FormatInt(v, 10))
	case float64:
		d.r.write(&d.out, jsonFloat(v))
	case []any:
		d.elements('[', ']', len(v), func(i int) { d.value(v[i]) })
	case *Object:
		d.object(v)
	default:
		panic(d.r.fail("TypeError", "Object of type %s is not JSON serializable", typeName(v)))
	}
}

func jsonFloat(f float64) string {
	switch {
	case math.IsNaN(f):
		return "NaN"
	case math.IsInf(f, 1):
		return "Infinity"
	case math.IsInf(f, -1):
		return "-Infinity"
	}
	return formatFloat(f)
}

// elements writes n elements between brackets.
func (d *dumper) elements(open, end byte, n int, element func(i int)) {
	if d.level++; d.level > maxValueDepth {
		panic(d.r.fail("RecursionError", "maximum recursion depth exceeded while encoding a JSON object"))
	}
	d.out.WriteByte(open)
	for i := range n {
		if i > 0 {
			d.r.write(&d.out, d.comma)
		}
		d.newline(d.level)
		element(i)
	}
	d.level--
	if n > 0 {
		d.newline(d.level)
	}
	d.r.write(&d.out, string(end))
}

func (d *dumper) newline(level int) {
	if !d.lines {
		return
	}
	d.out.WriteByte('\n')
	for range level {
		d.r.write(&d.out, d.indent)
	}
}

func (d *dumper) object(o *Object) {
	order := make([]any, o.Len())
	for i := range order {
		order[i] = int64(i)
	}
	if d.sortKeys {
		order = d.r.sorted(order, func(i any) any { return o.keys[i.(int64)] }, false)
	}
	d.elements('{', '}', o.Len(), func(i int) {
		at := order[i].(int64)
		d.text(d.key(o.keys[at]))
		d.r.write(&d.out, d.colon)
		d.value(o.values[at])
	})
}

// key is a key as a text.
func (d *dumper) key(v any) string {
	if s, ok := str(v); ok {
		return s
	}
	switch v := v.(type) {
	case nil:
		return "null"
	case bool:
		return strconv.FormatBool(v)
	case int64:
		return strconv.FormatInt(v, 10)
	case float64:
		return jsonFloat(v)
	}
	panic(d.r.fail("TypeError", "keys must be str, int, float, bool or None, not %s", typeName(v)))
}

func (d *dumper) text(s string) {
	d.out.WriteByte('"')
	begin := 0
	for i, c := range s {
		t := ""
		switch {
		case c == '"':
			t = `\"`
		case c == '\\':
			t = `\\`
		case c == '\n':
			t = `\n`
		case c == '\r':
			t = `\r`
		case c == '\t':
			t = `\t`
		case c == '\f':
			t = `\f`
		case c == '\b':
			t = `\b`
		case c < 0x20 || d.ascii && c >= 0x7f && c < 0x10000:
			t = fmt.Sprintf(`\u%04x`, c)
		case d.ascii && c >= 0x10000:
			high, low := utf16.EncodeRune(c)
			t = fmt.Sprintf(`\u%04x\u%04x`, high, low)
		default:
			continue
		}
		d.out.WriteString(s[begin:i])
		d.r.write(&d.out, t)
		begin = i + utf8.RuneLen(c)
	}
	d.r.write(&d.out, s[begin:])
	d.out.WriteByte('"')
}
