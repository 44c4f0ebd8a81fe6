package template

import (
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// namedFilter is a filter: its parameters without the value that it is applied to.
type namedFilter struct {
	parameters parameters
	apply      func(r *renderer, v any, args []any) (any, error)
}

// filters are the filters by name.
var filters map[string]*namedFilter

// missingFilters are those of jinja2 that this package does not have.
var missingFilters = map[string]bool{
	"filesizeformat": true, "forceescape": true, "pprint": true, "random": true, "striptags": true, "truncate": true,
	"urlencode": true, "urlize": true, "wordwrap": true, "xmlattr": true,
}

func takes(required int, names ...string) parameters {
	return parameters{names: names, required: required}
}

func init() { // map and its kin look filters up
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
		"safe":       {none, func(r *renderer, v any, _ []any) (any, error) { s, err := r.text(v); return markup(s), err }},
		"string":     {none, func(r *renderer, v any, _ []any) (any, error) { return r.soft(v) }},
		"title":      {none, func(r *renderer, v any, _ []any) (any, error) { s, err := r.text(v); return titleFilter(s), err }},
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
		"list":       {none, func(r *renderer, v any, _ []any) (any, error) { return r.list(v) }},
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
func (r *renderer) soft(v any) (any, error) {
	if _, ok := str(v); ok {
		return v, nil
	}
	return r.text(v)
}

// ofText is a filter of texts, and of other values as they print.
func ofText(f func(string) string) func(*renderer, any, []any) (any, error) {
	return func(r *renderer, v any, _ []any) (any, error) {
		s, err := r.text(v)
		if err != nil {
			return nil, err
		}
		return like(v, f(s)), r.step(len(s) >> 2)
	}
}

// like is a text of the kind of v: a markup if v is one.
func like(v any, s string) any {
	if _, ok := v.(markup); ok {
		return markup(s)
	}
	return s
}

func trimFilter(r *renderer, v any, args []any) (any, error) {
	s, err := r.text(v)
	if err != nil {
		return nil, err
	}
	t, err := r.strip(s, given(args[0], nil), true, true)
	return like(v, t), err
}

func centerFilter(r *renderer, v any, args []any) (any, error) {
	width, err := r.intArgument(args[0], 80)
	if err != nil {
		return nil, err
	}
	s, err := r.text(v)
	if err != nil {
		return nil, err
	}
	t, err := r.pad(s, " ", width, padBoth)
	return like(v, t), err
}

func escapeFilter(r *renderer, v any, _ []any) (any, error) {
	if _, ok := v.(markup); ok {
		return v, nil
	}
	s, err := r.text(v)
	return markup(escape(s)), err
}

func formatFilter(r *renderer, v any, args []any) (any, error) {
	s, err := r.soft(v)
	if err != nil {
		return nil, err
	}
	positional, keywords := args[0].([]any), args[1].([]keyword)
	if len(keywords) == 0 {
		return r.arithmetic("%", s, tuple(positional))
	}
	if len(positional) > 0 {
		return nil, r.fail("FilterArgumentError", "can't handle positional and keyword arguments at the same time")
	}
	o := NewObject()
	for _, k := range keywords {
		o.Set(k.name, k.value)
	}
	return r.arithmetic("%", s, o)
}

func indentFilter(r *renderer, v any, args []any) (any, error) {
	s, ok := str(v)
	if !ok {
		if u, ok := v.(*undefined); ok {
			return nil, r.use(u)
		}
		if _, ok := v.([]any); ok {
			return nil, r.fail("AttributeError", "'list' object has no attribute 'splitlines'")
		}
		return nil, r.mismatch("+=", v, "")
	}
	indent, ok := str(given(args[0], nil))
	if !ok {
		n, err := r.intArgument(args[0], 4)
		if err != nil {
			return nil, err
		}
		if indent, err = r.pad("", " ", n, padRight); err != nil {
			return nil, err
		}
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
		if err := r.write(&b, line); err != nil {
			return nil, err
		}
	}
	return like(v, b.String()), r.size(b.Len())
}

func replaceFilter(r *renderer, v any, args []any) (any, error) {
	var s [3]string
	for i, a := range []any{v, args[0], args[1]} {
		var err error
		if s[i], err = r.text(a); err != nil {
			return nil, err
		}
	}
	count := -1
	if given(args[2], nil) != nil {
		var err error
		if count, err = r.intArgument(args[2], -1); err != nil {
			return nil, err
		}
	}
	return r.replace(s[0], s[1], s[2], count)
}

// titleFilter differs from the method: words begin behind blanks and brackets only.
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

func beginsWord(c rune) bool { return isSpace(c) || strings.ContainsRune("-({[<", c) }

func wordCount(r *renderer, v any, _ []any) (any, error) {
	s, err := r.text(v)
	if err != nil {
		return nil, err
	}
	return int64(len(strings.FieldsFunc(s, func(c rune) bool { return !isAlphanumeric(c) && c != '_' }))), r.step(len(s) >> 4)
}

func absFilter(r *renderer, v any, _ []any) (any, error) {
	if i, ok := integer(v); ok {
		if i < 0 {
			return r.sign("-", i)
		}
		return i, nil
	}
	if f, ok := v.(float64); ok {
		return math.Abs(f), nil
	}
	return nil, r.fail("TypeError", "bad operand type for abs(): '%s'", typeName(v))
}

// parseFloat is Python's float of a text.
func parseFloat(s string) (float64, bool) {
	s = plainDigits(strings.TrimFunc(s, isSpace))
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

func floatFilter(r *renderer, v any, args []any) (any, error) {
	if u, ok := v.(*undefined); ok {
		return nil, r.use(u)
	}
	if f, ok := float(v); ok {
		return f, nil
	}
	if s, ok := str(v); ok {
		if f, ok := parseFloat(s); ok {
			return f, nil
		}
	}
	return given(args[0], 0.0), nil
}

func intFilter(r *renderer, v any, args []any) (any, error) {
	base, err := r.intArgument(args[1], 10)
	if err != nil {
		return nil, err
	}
	if u, ok := v.(*undefined); ok {
		return nil, r.use(u)
	}
	if i, ok := integer(v); ok {
		return i, nil
	}
	f, ok := v.(float64)
	if s, isText := str(v); isText {
		if i, ok, err := r.parseInt(s, base); err != nil || ok {
			return i, err
		}
		f, ok = parseFloat(s)
		if math.IsInf(f, 0) {
			ok = false
		}
	} else if math.IsInf(f, 0) {
		return nil, r.fail("OverflowError", "cannot convert float infinity to integer")
	}
	switch {
	case !ok || math.IsNaN(f):
		return given(args[0], int64(0)), nil
	case math.Abs(f) >= 1<<63:
		return nil, r.overflow()
	}
	return int64(f), nil
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
func (r *renderer) parseInt(s string, base int) (any, bool, error) {
	s = plainDigits(strings.TrimFunc(s, isSpace))
	negative := strings.HasPrefix(s, "-")
	if negative || strings.HasPrefix(s, "+") {
		s = s[1:]
	}
	if base != 0 && (base < 2 || base > 36) {
		return nil, false, nil
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
		return nil, false, nil
	}
	u, err := strconv.ParseUint(strings.ReplaceAll(s, "_", ""), base, 64)
	if err != nil {
		if e, ok := err.(*strconv.NumError); ok && e.Err == strconv.ErrRange {
			return nil, false, r.overflow()
		}
		return nil, false, nil
	}
	if u > math.MaxInt64 {
		return nil, false, r.overflow()
	}
	if negative {
		return -int64(u), true, nil
	}
	return int64(u), true, nil
}

func roundFilter(r *renderer, v any, args []any) (any, error) {
	precision, err := r.intArgument(args[0], 0)
	if err != nil {
		return nil, err
	}
	method, _ := str(given(args[1], "common"))
	if method != "common" && method != "ceil" && method != "floor" {
		return nil, r.fail("FilterArgumentError", "method must be common, ceil or floor")
	}
	f, ok := float(v)
	if !ok {
		if u, ok := v.(*undefined); ok && method != "common" {
			return nil, r.use(u)
		}
		return nil, r.fail("TypeError", "type %s doesn't define __round__ method", typeName(v))
	}
	if precision < 0 || precision > 300 {
		return nil, r.unsupported("round with a precision of %d", precision)
	}
	if i, ok := integer(v); ok && method == "common" {
		return i, nil
	}
	if method == "common" {
		if !math.IsNaN(f) && !math.IsInf(f, 0) {
			f, _ = strconv.ParseFloat(strconv.FormatFloat(f, 'f', precision, 64), 64)
		}
		return f, nil
	}
	if precision > 22 { // the greatest power of ten that is a float64
		return nil, r.unsupported("round with a precision of %d and the method %s", precision, method)
	}
	scale := 1.0
	for range precision {
		scale *= 10
	}
	if f *= scale; math.IsInf(f, 0) {
		return nil, r.fail("OverflowError", "cannot convert float infinity to integer")
	} else if math.IsNaN(f) {
		return nil, r.fail("ValueError", "cannot convert float NaN to integer")
	}
	round := math.Floor
	if method == "ceil" {
		round = math.Ceil
	}
	return (round(f) + 0) / scale, nil // the reference makes an integer of it, which has no -0
}

func attrFilter(r *renderer, v any, args []any) (any, error) {
	id, ok := str(args[0])
	if !ok {
		return nil, r.fail("TypeError", "attribute name must be string, not '%s'", typeName(args[0]))
	}
	a, ok, err := r.member(v, id)
	if err == nil && !ok {
		return missing(v, id), nil
	}
	return a, err
}

func defaultFilter(_ *renderer, v any, args []any) (any, error) {
	if _, ok := v.(*undefined); ok || truth(given(args[1], false)) && !truth(v) {
		return given(args[0], ""), nil
	}
	return v, nil
}

func lengthFilter(r *renderer, v any, _ []any) (any, error) {
	if l, ok := v.(*loop); ok {
		n, err := l.count(r)
		return int64(n), err
	}
	n, ok := length(v)
	if !ok {
		return nil, r.fail("TypeError", "object of type '%s' has no len()", typeName(v))
	}
	return int64(n), nil
}
