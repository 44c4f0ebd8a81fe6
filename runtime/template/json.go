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

// tojson is the filter that transformers puts in the place of jinja2's: nothing is escaped for HTML.
func tojson(r *renderer, v any, args []any) (any, error) {
	d := &dumper{r: r, ascii: truth(given(args[0], false)), comma: ", ", colon: ": ", sortKeys: truth(given(args[3], false))}
	if indent := given(args[1], nil); indent != nil {
		d.lines, d.comma = true, ","
		if s, ok := str(indent); ok {
			d.indent = s
		} else if n, err := r.intArgument(indent, 0); err != nil {
			return nil, err
		} else if d.indent, err = r.pad("", " ", n, padRight); err != nil {
			return nil, err
		}
	}
	if separators := given(args[2], nil); separators != nil {
		l, err := r.list(separators)
		if err != nil {
			return nil, err
		}
		if len(l) != 2 {
			return nil, r.fail("ValueError", "two separators are needed, got %d", len(l))
		}
		var ok1, ok2 bool
		d.comma, ok1 = str(l[0])
		d.colon, ok2 = str(l[1])
		if !ok1 || !ok2 {
			return nil, r.fail("TypeError", "separators must be strings")
		}
	}
	err := d.value(v)
	return d.out.String(), err
}

func (d *dumper) value(v any) error {
	if err := d.r.step(1); err != nil {
		return err
	}
	if s, ok := str(v); ok {
		return d.text(s)
	}
	if t, ok := asTuple(v); ok {
		v = []any(t)
	}
	switch v := v.(type) {
	case nil:
		return d.r.write(&d.out, "null")
	case bool:
		return d.r.write(&d.out, strconv.FormatBool(v))
	case int64:
		return d.r.write(&d.out, strconv.FormatInt(v, 10))
	case float64:
		return d.r.write(&d.out, jsonFloat(v))
	case []any:
		return d.elements('[', ']', len(v), func(i int) error { return d.value(v[i]) })
	case *Object:
		return d.object(v)
	}
	return d.r.fail("TypeError", "Object of type %s is not JSON serializable", typeName(v))
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
func (d *dumper) elements(open, end byte, n int, element func(i int) error) error {
	if d.level++; d.level > maxValueDepth {
		return d.r.fail("RecursionError", "maximum recursion depth exceeded while encoding a JSON object")
	}
	d.out.WriteByte(open)
	for i := range n {
		if i > 0 {
			if err := d.r.write(&d.out, d.comma); err != nil {
				return err
			}
		}
		if err := d.newline(d.level); err != nil {
			return err
		}
		if err := element(i); err != nil {
			return err
		}
	}
	d.level--
	if n > 0 {
		if err := d.newline(d.level); err != nil {
			return err
		}
	}
	return d.r.write(&d.out, string(end))
}

func (d *dumper) newline(level int) error {
	if !d.lines {
		return nil
	}
	d.out.WriteByte('\n')
	for range level {
		if err := d.r.write(&d.out, d.indent); err != nil {
			return err
		}
	}
	return nil
}

func (d *dumper) object(o *Object) error {
	order := make([]any, o.Len())
	for i := range order {
		order[i] = int64(i)
	}
	if d.sortKeys {
		var err error
		if order, err = d.r.sorted(order, func(i any) (any, error) { return o.keys[i.(int64)], nil }, false); err != nil {
			return err
		}
	}
	return d.elements('{', '}', o.Len(), func(i int) error {
		at := order[i].(int64)
		key, err := d.key(o.keys[at])
		if err != nil {
			return err
		}
		if err := d.text(key); err != nil {
			return err
		}
		if err := d.r.write(&d.out, d.colon); err != nil {
			return err
		}
		return d.value(o.values[at])
	})
}

// key is a key as a text.
func (d *dumper) key(v any) (string, error) {
	if s, ok := str(v); ok {
		return s, nil
	}
	switch v := v.(type) {
	case nil:
		return "null", nil
	case bool:
		return strconv.FormatBool(v), nil
	case int64:
		return strconv.FormatInt(v, 10), nil
	case float64:
		return jsonFloat(v), nil
	}
	return "", d.r.fail("TypeError", "keys must be str, int, float, bool or None, not %s", typeName(v))
}

func (d *dumper) text(s string) error {
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
		if err := d.r.write(&d.out, t); err != nil {
			return err
		}
		begin = i + utf8.RuneLen(c)
	}
	if err := d.r.write(&d.out, s[begin:]); err != nil {
		return err
	}
	d.out.WriteByte('"')
	return nil
}
