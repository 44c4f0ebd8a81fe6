package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/llmexport/llmexport/internal/jsondoc"
)

// Canonical returns the spelling of a JSON value in which manifests and reports are written:
//
//   - UTF-8, one value, one newline at the end;
//   - members of objects sorted by the bytes of their names, each on its own line, indented by one
//     space per level, ": " after the name;
//   - elements of arrays also on their own lines, except that an array of numbers only is on one line,
//     separated by ", "; empty arrays and objects are [] and {};
//   - strings escape the quote, the backslash and characters below U+0020 (\n, \r, \t, else \u00xx) and
//     nothing else;
//   - numbers without fraction and exponent stay as they are, all others are the shortest
//     decimal that gives the same float64, as strconv.FormatFloat prints it for 'g' and -1.
//
// It fails on values that encoding/json cannot marshal (including NaN and infinities) or [jsondoc.Check] rejects, and if the
// result has more than [MaxSize] bytes.
func Canonical(v any) ([]byte, error) { return canonical(v, MaxSize) }

// canonical writes at most limit bytes.
func canonical(v any, limit int) ([]byte, error) {
	raw, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	if err := jsondoc.Check(raw); err != nil {
		return nil, err
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var tree any
	if err := dec.Decode(&tree); err != nil {
		return nil, err
	}
	b := &bounded{limit: limit - 1} // and a line end
	if err := b.value(tree, 0); err != nil {
		return nil, err
	}
	b.WriteByte('\n')
	return b.Bytes(), nil
}

// errLong reports a canonical form above its limit.
var errLong = errors.New("the canonical form takes too many bytes")

// bounded is a canonical form that is being written. Line ends and indents make it larger than the JSON that it was made from,
// so its size is compared with the limit after every value.
type bounded struct {
	bytes.Buffer
	limit int
}

func (b *bounded) value(v any, depth int) error {
	if err := b.write(v, depth); err != nil {
		return err
	}
	if b.Len() > b.limit {
		return errLong
	}
	return nil
}

func (b *bounded) write(v any, depth int) error {
	switch v := v.(type) {
	case nil:
		b.WriteString("null")
	case bool:
		b.WriteString(strconv.FormatBool(v))
	case string:
		b.text(v)
	case json.Number:
		return b.number(v.String())
	case []any:
		return b.array(v, depth)
	case map[string]any:
		return b.object(v, depth)
	default:
		panic(fmt.Sprintf("internal error: %T in decoded JSON", v))
	}
	return nil
}

func (b *bounded) object(v map[string]any, depth int) error {
	if len(v) == 0 {
		b.WriteString("{}")
		return nil
	}
	b.WriteByte('{')
	for i, key := range slices.Sorted(maps.Keys(v)) {
		if i > 0 {
			b.WriteByte(',')
		}
		b.newline(depth + 1)
		b.text(key)
		b.WriteString(": ")
		if err := b.value(v[key], depth+1); err != nil {
			return fmt.Errorf("%.80q: %w", key, err)
		}
	}
	b.newline(depth)
	b.WriteByte('}')
	return nil
}

func (b *bounded) array(v []any, depth int) error {
	oneLine := !slices.ContainsFunc(v, func(e any) bool { _, ok := e.(json.Number); return !ok })
	b.WriteByte('[')
	for i, e := range v {
		switch {
		case i > 0 && oneLine:
			b.WriteString(", ")
		case i > 0:
			b.WriteByte(',')
		}
		if !oneLine {
			b.newline(depth + 1)
		}
		if err := b.value(e, depth+1); err != nil {
			return err
		}
	}
	if !oneLine {
		b.newline(depth)
	}
	b.WriteByte(']')
	return nil
}

func (b *bounded) newline(depth int) {
	b.WriteByte('\n')
	for range depth {
		b.WriteByte(' ')
	}
}

func (b *bounded) number(s string) error {
	if !strings.ContainsAny(s, ".eE") {
		b.WriteString(s)
		return nil
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil || math.IsInf(f, 0) {
		return fmt.Errorf("number %.40s does not fit a float64", s)
	}
	b.WriteString(strconv.FormatFloat(f, 'g', -1, 64))
	return nil
}

// text writes a string. It does not use encoding/json, whose escapes have changed between Go releases.
func (b *bounded) text(s string) {
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\r':
			b.WriteString(`\r`)
		case r == '\t':
			b.WriteString(`\t`)
		case r < 0x20:
			fmt.Fprintf(b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
}
