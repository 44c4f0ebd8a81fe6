package template

import (
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/llmexport/llmexport/runtime/template/syntax"
)

// namedFilter is a filter: its parameters without the value that it is applied to.
type namedFilter struct {
	parameters parameters
	apply      func(r *renderer, v any, args []any) any
}

// filters are the filters by name.
var filters map[string]*namedFilter

// missingFilters are the filters of jinja2 that this package lacks.
var missingFilters = map[string]bool{
	"filesizeformat": true, "forceescape": true, "pprint": true, "random": true, "striptags": true, "truncate": true,
	"urlencode": true, "urlize": true, "wordwrap": true, "xmlattr": true,
}

func takes(required int, names ...string) parameters {
	return parameters{names: names, required: required}
}

func init() { // as map and others look filters up
	none := parameters{}
	list := map[string]*namedFilter{
		// Texts.
		"capitalize": {none, ofText(capitalize)},
		"center":     {takes(0, "width"), centerFilter},
		"escape":     {none, escapeFilter},
		"format":     {parameters{any: true}, formatFilter},
		"indent":     {takes(0, "width", "first", "blank"), indentFilter},
		"lower":      {none, ofText(lower)},
		"replace":    {takes(2, "old", "new", "count"), replaceFilter},
		"safe":       {none, func(r *renderer, v any, _ []any) any { return markup(r.text(v)) }},
		"string":     {none, func(r *renderer, v any, _ []any) any { return r.soft(v) }},
		"title":      {none, func(r *renderer, v any, _ []any) any { return titleFilter(r.text(v)) }},
		"tojson":     {takes(0, "ensure_ascii", "indent", "separators", "sort_keys"), tojson},
		"trim":       {takes(0, "chars"), trimFilter},
		"upper":      {none, ofText(upper)},
		"wordcount":  {none, wordCount},
		// Numbers.
		"abs":   {none, absFilter},
		"float": {takes(0, "default"), floatFilter},
		"int":   {takes(0, "default", "base"), intFilter},
		"round": {takes(0, "precision", "method"), roundFilter},
		// Values.
		"attr":    {takes(1, "name"), attrFilter},
		"default": {takes(0, "default_value", "boolean"), defaultFilter},
		"length":  {none, lengthFilter},
		// Lists.
		"batch":      {takes(1, "linecount", "fill_with"), batchFilter},
		"dictsort":   {takes(0, "case_sensitive", "by", "reverse"), dictSort},
		"first":      {none, firstFilter},
		"groupby":    {takes(1, "attribute", "default", "case_sensitive"), groupBy},
		"items":      {none, itemsFilter},
		"join":       {takes(0, "d", "attribute"), joinFilter},
		"last":       {none, lastFilter},
		"list":       {none, func(r *renderer, v any, _ []any) any { return r.list(v) }},
		"map":        {parameters{any: true}, mapFilter},
		"max":        {takes(0, "case_sensitive", "attribute"), extreme(">", "max")},
		"min":        {takes(0, "case_sensitive", "attribute"), extreme("<", "min")},
		"reject":     {parameters{any: true}, selection(false, false)},
		"rejectattr": {parameters{any: true}, selection(false, true)},
		"reverse":    {none, reverseFilter},
		"select":     {parameters{any: true}, selection(true, false)},
		"selectattr": {parameters{any: true}, selection(true, true)},
		"slice":      {takes(1, "slices", "fill_with"), sliceFilter},
		"sort":       {takes(0, "reverse", "case_sensitive", "attribute"), sortFilter},
		"sum":        {takes(0, "attribute", "start"), sumFilter},
		"unique":     {takes(0, "case_sensitive", "attribute"), uniqueFilter},
	}
	list["count"], list["d"], list["e"] = list["length"], list["default"], list["escape"]
	filters = list
}

// soft is a value as a text; a markup stays one.
func (r *renderer) soft(v any) any {
	if _, ok := str(v); ok {
		return v
	}
	return r.text(v)
}

// ofText makes a filter of texts, which takes other values as they print.
func ofText(f func(string) string) func(*renderer, any, []any) any {
	return func(r *renderer, v any, _ []any) any {
		s := r.text(v)
		r.step(len(s) >> 2)
		return like(v, f(s))
	}
}

// like is a text of the kind of v: a markup if v is one.
func like(v any, s string) any {
	if _, ok := v.(markup); ok {
		return markup(s)
	}
	return s
}

func trimFilter(r *renderer, v any, args []any) any {
	return like(v, r.strip(r.text(v), given(args[0], nil), true, true))
}

func centerFilter(r *renderer, v any, args []any) any {
	width := r.intArgument(args[0], 80)
	return like(v, r.pad(r.text(v), " ", width, padBoth))
}

func escapeFilter(r *renderer, v any, _ []any) any {
	if _, ok := v.(markup); ok {
		return v
	}
	return markup(escape(r.text(v)))
}

func formatFilter(r *renderer, v any, args []any) any {
	s := r.soft(v)
	positional, keywords := args[0].([]any), args[1].([]keyword)
	if len(keywords) == 0 {
		return r.arithmetic("%", s, tuple(positional))
	}
	if len(positional) > 0 {
		panic(r.fail("FilterArgumentError", "can't handle positional and keyword arguments at the same time"))
	}
	o := NewObject()
	for _, k := range keywords {
		o.Set(k.name, k.value)
	}
	return r.arithmetic("%", s, o)
}

func indentFilter(r *renderer, v any, args []any) any {
	s, ok := str(v)
	if !ok {
		if u, ok := v.(*undefined); ok {
			panic(r.use(u))
		}
		if _, ok := v.([]any); ok {
			panic(r.fail("AttributeError", "'list' object has no attribute 'splitlines'"))
		}
		panic(r.mismatch("+=", v, ""))
	}
	indent, ok := str(given(args[0], nil))
	if !ok {
		indent = r.pad("", " ", r.intArgument(args[0], 4), padRight)
	}
	blank := truth(given(args[2], false))
	var b strings.Builder
	if truth(given(args[1], false)) {
		b.WriteString(indent)
	}
	for i, l := range splitLines(s+"\n", false) {
		line := l.(string)
		if i > 0 {
			b.WriteByte('\n')
			if line != "" || blank {
				b.WriteString(indent)
			}
		}
		r.write(&b, line)
	}
	r.size(b.Len())
	return like(v, b.String())
}

func replaceFilter(r *renderer, v any, args []any) any {
	var s [3]string
	for i, a := range []any{v, args[0], args[1]} {
		s[i] = r.text(a)
	}
	count := -1
	if given(args[2], nil) != nil {
		count = r.intArgument(args[2], -1)
	}
	return r.replace(s[0], s[1], s[2], count)
}

// titleFilter differs from the method: words begin after blanks and brackets only.
func titleFilter(s string) string {
	var b strings.Builder
	for s != "" {
		end := strings.IndexFunc(s, beginsWord)
		if end < 0 {
			end = len(s)
		}
		if word := s[:end]; word != "" {
			_, n := utf8.DecodeRuneInString(word)
			b.WriteString(upper(word[:n]) + lower(word[n:]))
		}
		rest := strings.TrimLeftFunc(s[end:], beginsWord)
		b.WriteString(s[end : len(s)-len(rest)])
		s = rest
	}
	return b.String()
}

func beginsWord(c rune) bool { return syntax.IsSpace(c) || strings.ContainsRune("-({[<", c) }

func wordCount(r *renderer, v any, _ []any) any {
	s := r.text(v)
	r.step(len(s) >> 4)
	return int64(len(strings.FieldsFunc(s, func(c rune) bool { return !isAlphanumeric(c) && c != '_' })))
}

func absFilter(r *renderer, v any, _ []any) any {
	if i, ok := integer(v); ok {
		if i < 0 {
			return r.sign("-", i)
		}
		return i
	}
	if f, ok := v.(float64); ok {
		return math.Abs(f)
	}
	panic(r.fail("TypeError", "bad operand type for abs(): '%s'", typeName(v)))
}

// parseFloat is Python's float of a text.
func parseFloat(s string) (float64, bool) {
	s = plainDigits(strings.TrimFunc(s, syntax.IsSpace))
	if strings.ContainsAny(s, "xXpP") { // which Go reads as hexadecimal
		return 0, false
	}
	for i := range len(s) {
		if s[i] == '_' && (i == 0 || i+1 == len(s) || s[i-1] < '0' || s[i-1] > '9' || s[i+1] < '0' || s[i+1] > '9') {
			return 0, false
		}
	}
	f, err := strconv.ParseFloat(strings.ReplaceAll(s, "_", ""), 64)
	return f, err == nil || math.IsInf(f, 0)
}

func floatFilter(r *renderer, v any, args []any) any {
	if u, ok := v.(*undefined); ok {
		panic(r.use(u))
	}
	if f, ok := float(v); ok {
		return f
	}
	if s, ok := str(v); ok {
		if f, ok := parseFloat(s); ok {
			return f
		}
	}
	return given(args[0], 0.0)
}

func intFilter(r *renderer, v any, args []any) any {
	base := r.intArgument(args[1], 10)
	if u, ok := v.(*undefined); ok {
		panic(r.use(u))
	}
	if i, ok := integer(v); ok {
		return i
	}
	f, ok := v.(float64)
	if s, isText := str(v); isText {
		if i, ok := r.parseInt(s, base); ok {
			return i
		}
		f, ok = parseFloat(s)
		if math.IsInf(f, 0) {
			ok = false
		}
	} else if math.IsInf(f, 0) {
		panic(r.fail("OverflowError", "cannot convert float infinity to integer"))
	}
	switch {
	case !ok || math.IsNaN(f):
		return given(args[0], int64(0))
	case math.Abs(f) >= 1<<63:
		panic(r.overflow())
	}
	return int64(f)
}

// plainDigits replaces the digits of other scripts.
func plainDigits(s string) string {
	return strings.Map(func(c rune) rune {
		if c < utf8.RuneSelf || !isDecimal(c) {
			return c
		}
		zero := c // the digits of a script follow each other
		for isDecimal(zero-1) && c-zero < 50 {
			zero--
		}
		return '0' + (c-zero)%10
	}, s)
}

// parseInt is Python's int of a text.
func (r *renderer) parseInt(s string, base int) (any, bool) {
	s = plainDigits(strings.TrimFunc(s, syntax.IsSpace))
	negative := strings.HasPrefix(s, "-")
	if negative || strings.HasPrefix(s, "+") {
		s = s[1:]
	}
	if base != 0 && (base < 2 || base > 36) {
		return nil, false
	}
	if len(s) > 2 && s[0] == '0' {
		of := map[byte]int{'b': 2, 'o': 8, 'x': 16}[s[1]|0x20]
		if of != 0 && (base == of || base == 0) {
			base, s = of, strings.TrimPrefix(s[2:], "_")
		}
	}
	if base == 0 {
		base = 10
	}
	if s == "" || strings.HasPrefix(s, "_") || strings.HasSuffix(s, "_") || strings.Contains(s, "__") || s[0] == '-' || s[0] == '+' {
		return nil, false
	}
	u, err := strconv.ParseUint(strings.ReplaceAll(s, "_", ""), base, 64)
	if err != nil {
		if e, ok := err.(*strconv.NumError); ok && e.Err == strconv.ErrRange {
			panic(r.overflow())
		}
		return nil, false
	}
	if u > math.MaxInt64 {
		panic(r.overflow())
	}
	if negative {
		return -int64(u), true
	}
	return int64(u), true
}

func roundFilter(r *renderer, v any, args []any) any {
	precision := r.intArgument(args[0], 0)
	method, _ := str(given(args[1], "common"))
	if method != "common" && method != "ceil" && method != "floor" {
		panic(r.fail("FilterArgumentError", "method must be common, ceil or floor"))
	}
	f, ok := float(v)
	if !ok {
		if u, ok := v.(*undefined); ok && method != "common" {
			panic(r.use(u))
		}
		panic(r.fail("TypeError", "type %s doesn't define __round__ method", typeName(v)))
	}
	if precision < 0 || precision > 300 {
		panic(r.unsupported("round with a precision of %d", precision))
	}
	if i, ok := integer(v); ok && method == "common" {
		return i
	}
	if method == "common" {
		if !math.IsNaN(f) && !math.IsInf(f, 0) {
			f, _ = strconv.ParseFloat(strconv.FormatFloat(f, 'f', precision, 64), 64)
		}
		return f
	}
	if precision > 22 { // the greatest power of ten that is a float64
		panic(r.unsupported("round with a precision of %d and the method %s", precision, method))
	}
	scale := 1.0
	for range precision {
		scale *= 10
	}
	if f *= scale; math.IsInf(f, 0) {
		panic(r.fail("OverflowError", "cannot convert float infinity to integer"))
	} else if math.IsNaN(f) {
		panic(r.fail("ValueError", "cannot convert float NaN to integer"))
	}
	round := math.Floor
	if method == "ceil" {
		round = math.Ceil
	}
	return (round(f) + 0) / scale // jinja2 converts to an integer, which has no -0
}

func attrFilter(r *renderer, v any, args []any) any {
	id, ok := str(args[0])
	if !ok {
		panic(r.fail("TypeError", "attribute name must be string, not '%s'", typeName(args[0])))
	}
	if a, ok := r.member(v, id); ok {
		return a
	}
	return missing(v, id)
}

func defaultFilter(_ *renderer, v any, args []any) any {
	if _, ok := v.(*undefined); ok || truth(given(args[1], false)) && !truth(v) {
		return given(args[0], "")
	}
	return v
}

func lengthFilter(r *renderer, v any, _ []any) any {
	if l, ok := v.(*loop); ok {
		return int64(l.count(r))
	}
	n, ok := length(v)
	if !ok {
		panic(r.fail("TypeError", "object of type '%s' has no len()", typeName(v)))
	}
	return int64(n)
}
