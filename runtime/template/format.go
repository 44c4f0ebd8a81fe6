package template

import (
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// format is Python's s.format(*args, **keywords), or s.format_map(mapping) when mapping is not nil.
func (r *renderer) format(s string, args []any, keywords []keyword, mapping *Object) string {
	f := &formatter{r: r, args: args, keywords: keywords, mapping: mapping}
	return f.format(s, 2)
}

// formatter is one call of format. next counts the fields without a name, -1 after one with a number.
type formatter struct {
	r        *renderer
	args     []any
	keywords []keyword
	mapping  *Object
	next     int
}

func (f *formatter) format(s string, depth int) string {
	if depth < 0 {
		panic(f.r.fail("ValueError", "max string recursion exceeded"))
	}
	var b strings.Builder
	for s != "" {
		i := strings.IndexAny(s, "{}")
		if i < 0 {
			b.WriteString(s)
			break
		}
		b.WriteString(s[:i])
		switch {
		case i+1 < len(s) && s[i+1] == s[i]:
			b.WriteByte(s[i])
			s = s[i+2:]
			continue
		case s[i] == '}':
			panic(f.r.fail("ValueError", "Single '}' encountered in format string"))
		}
		end := fieldEnd(s[i+1:])
		if end < 0 {
			panic(f.r.fail("ValueError", "expected '}' before end of string"))
		}
		f.r.write(&b, f.field(s[i+1:i+1+end], depth))
		s = s[i+end+2:]
	}
	return b.String()
}

// fieldEnd returns the index of the brace that closes a field, which may contain fields.
func fieldEnd(s string) int {
	open := 1
	for i := range len(s) {
		switch s[i] {
		case '{':
			open++
		case '}':
			if open--; open == 0 {
				return i
			}
		}
	}
	return -1
}

// field is one field without its braces: name[!conversion][:spec].
func (f *formatter) field(s string, depth int) string {
	name, spec := s, ""
	bracket := false
	for i := range len(s) {
		if s[i] == '[' {
			bracket = true
		} else if s[i] == ']' {
			bracket = false
		} else if !bracket && (s[i] == ':' || s[i] == '!') {
			name, spec = s[:i], s[i:]
			break
		}
	}
	v := f.value(name)
	if strings.HasPrefix(spec, "!") {
		if len(spec) < 2 || len(spec) > 2 && spec[2] != ':' {
			panic(f.r.fail("ValueError", "expected ':' after conversion specifier"))
		}
		switch spec[1] {
		case 's':
			v = f.r.text(v)
		case 'r':
			v = f.r.repr(v)
		case 'a':
			panic(f.r.unsupported("the conversion !a"))
		default:
			panic(f.r.fail("ValueError", "unknown conversion specifier %q", spec[1:2]))
		}
		spec = spec[2:]
	}
	spec = f.format(strings.TrimPrefix(spec, ":"), depth-1)
	return f.r.formatValue(v, spec)
}

// value returns the value of a field's name: an argument, or attributes and elements of one.
func (f *formatter) value(name string) any {
	end := strings.IndexAny(name, ".[")
	if end < 0 {
		end = len(name)
	}
	v := f.argument(name[:end])
	rest := name[end:]
	for rest != "" {
		if rest[0] == '.' {
			end := strings.IndexAny(rest[1:], ".[")
			if end < 0 {
				end = len(rest) - 1
			}
			v = f.r.attribute(v, rest[1:1+end])
			rest = rest[1+end:]
			continue
		}
		end := strings.IndexByte(rest, ']')
		if rest[0] != '[' || end < 2 {
			panic(f.r.fail("ValueError", "empty attribute in format string"))
		}
		var key any = rest[1:end]
		if i, err := strconv.ParseInt(rest[1:end], 10, 64); err == nil && i >= 0 {
			key = i
		}
		v = f.r.item(v, key)
		rest = rest[end+1:]
	}
	return v
}

func (f *formatter) argument(name string) any {
	i, err := strconv.Atoi(name)
	switch {
	case name == "":
		if f.next < 0 {
			panic(f.r.fail("ValueError", "cannot switch from manual field specification to automatic field numbering"))
		}
		i = f.next
		f.next++
	case err != nil:
		if f.mapping != nil {
			if v, ok := f.mapping.get(name); ok {
				return v
			}
		}
		if v, ok := find(f.keywords, name); ok {
			return v
		}
		panic(f.r.fail("KeyError", "%s", quote(name)))
	case f.next > 0:
		panic(f.r.fail("ValueError", "cannot switch from manual field specification to automatic field numbering"))
	default:
		f.next = -1
	}
	if i < 0 || i >= len(f.args) {
		panic(f.r.fail("IndexError", "Replacement index %d out of range for positional args tuple", i))
	}
	return f.args[i]
}

// layout is a format specification of Python, or of a directive after a % sign.
type layout struct {
	fill      string
	align     byte // < > ^ =, 0 for the default
	sign      byte // + or space, 0 for a sign of negative numbers only
	alternate bool
	width     int
	group     string // between groups of digits
	precision int    // -1 for none
	kind      byte
}

// parseLayout reads [[fill]align][sign][#][0][width][group][.precision][kind].
func (r *renderer) parseLayout(s string) layout {
	l := layout{fill: " ", precision: -1}
	_, n := utf8.DecodeRuneInString(s)
	if len(s) > n && strings.IndexByte("<>^=", s[n]) >= 0 {
		l.fill, l.align, s = s[:n], s[n], s[n+1:]
	} else if s != "" && strings.IndexByte("<>^=", s[0]) >= 0 {
		l.align, s = s[0], s[1:]
	}
	take := func(set string) byte {
		if s == "" || strings.IndexByte(set, s[0]) < 0 {
			return 0
		}
		c := s[0]
		s = s[1:]
		return c
	}
	if l.sign = take("+- "); l.sign == '-' {
		l.sign = 0
	}
	l.alternate = take("#") != 0
	if take("0") != 0 && l.align == 0 {
		l.fill, l.align = "0", '='
	}
	number := func() int {
		n := 0
		for s != "" && s[0] >= '0' && s[0] <= '9' {
			if n = n*10 + int(s[0]-'0'); n > r.limits.Output {
				r.size(n)
			}
			s = s[1:]
		}
		return n
	}
	l.width = number()
	if c := take(",_"); c != 0 {
		l.group = string(c)
	}
	if take(".") != 0 {
		if s == "" || s[0] < '0' || s[0] > '9' {
			panic(r.fail("ValueError", "format specifier missing precision"))
		}
		l.precision = number()
	}
	if s != "" {
		l.kind, s = s[0], s[1:]
	}
	if s != "" {
		panic(r.fail("ValueError", "invalid format specifier"))
	}
	return l
}

// formatValue is Python's format(v, spec).
func (r *renderer) formatValue(v any, spec string) string {
	if spec == "" {
		return r.text(v)
	}
	l := r.parseLayout(spec)
	if s, ok := str(v); ok {
		if l.align == '=' && l.fill == "0" {
			l.align = '<'
		}
		if l.kind != 0 && l.kind != 's' || l.sign != 0 || l.align == '=' || l.group != "" || l.alternate {
			panic(r.fail("ValueError", "invalid format specifier %s for object of type 'str'", quote(spec)))
		}
		return r.layText(s, l, '<')
	}
	if i, ok := integer(v); ok && strings.IndexByte("eEfFgG%", l.kind) < 0 || ok && l.kind == 0 {
		if l.precision >= 0 {
			panic(r.fail("ValueError", "Precision not allowed in integer format specifier"))
		}
		return r.layInteger(i, l)
	}
	if f, ok := float(v); ok {
		return r.layFloat(f, l)
	}
	panic(r.fail("TypeError", "unsupported format string passed to %s.__format__", typeName(v)))
}

// layText fits a text into a layout.
func (r *renderer) layText(s string, l layout, align byte) string {
	if n := utf8.RuneCountInString(s); l.precision >= 0 && l.precision < n {
		s = sliceText(s, 0, 1, int64(l.precision), n)
	}
	if l.align != 0 {
		align = l.align
	}
	switch align {
	case '<':
		return r.pad(s, l.fill, l.width, padRight)
	case '^':
		return r.pad(s, l.fill, l.width, func(n, _ int) int { return n / 2 })
	}
	return r.pad(s, l.fill, l.width, padLeft)
}

// layNumber fits a number into a layout: its sign, what stands before its digits, its digits, what follows them.
func (r *renderer) layNumber(negative bool, prefix, digits, rest string, l layout) string {
	sign := ""
	if negative {
		sign = "-"
	} else if l.sign != 0 {
		sign = string(l.sign)
	}
	if l.group != "" {
		if l.align == '=' && l.width > 0 {
			panic(r.unsupported("a number filled up between groups of digits"))
		}
		every := 3
		if strings.IndexByte("bxoX", l.kind) >= 0 && l.kind != 0 {
			every = 4
		}
		for i := len(digits) - every; i > 0; i -= every {
			digits = digits[:i] + l.group + digits[i:]
		}
	}
	l.precision = -1
	if l.align == '=' {
		return sign + prefix + r.pad(digits+rest, l.fill, l.width-len(sign)-len(prefix), padLeft)
	}
	return r.layText(sign+prefix+digits+rest, l, '>')
}

func (r *renderer) layInteger(i int64, l layout) string {
	base, prefix := 10, ""
	switch l.kind {
	case 0, 'd', 'n':
	case 'b':
		base, prefix = 2, "0b"
	case 'o':
		base, prefix = 8, "0o"
	case 'x':
		base, prefix = 16, "0x"
	case 'X':
		base, prefix = 16, "0X"
	case 'c':
		if i < 0 || i > utf8.MaxRune || !utf8.ValidRune(rune(i)) {
			panic(r.fail("OverflowError", "%%c arg not in range(0x110000)"))
		}
		return r.layText(string(rune(i)), l, '<')
	default:
		panic(r.fail("ValueError", "Unknown format code '%c' for object of type 'int'", l.kind))
	}
	digits := strconv.FormatUint(magnitude(i), base)
	if l.kind == 'X' {
		digits = strings.ToUpper(digits)
	}
	if !l.alternate {
		prefix = ""
	}
	return r.layNumber(i < 0, prefix, digits, "", l)
}

// layFloat fits a float into a layout.
func (r *renderer) layFloat(f float64, l layout) string {
	if l.alternate {
		panic(r.unsupported("the alternate form of a float"))
	}
	if l.precision > 1000 {
		panic(r.unsupported("a precision of %d digits", l.precision))
	}
	precision, kind, suffix := l.precision, l.kind, ""
	if precision < 0 {
		precision = 6
	}
	abs := math.Abs(f)
	var s string
	switch {
	case math.IsNaN(f) || math.IsInf(f, 0):
		s = formatFloat(abs)
	case kind == 'f' || kind == 'F':
		s = strconv.FormatFloat(abs, 'f', precision, 64)
	case kind == 'e' || kind == 'E':
		s = strconv.FormatFloat(abs, 'e', precision, 64)
	case kind == 'g' || kind == 'G' || kind == 'n':
		s = strconv.FormatFloat(abs, 'g', max(precision, 1), 64)
	case kind == '%':
		s, suffix = strconv.FormatFloat(abs*100, 'f', precision, 64), "%"
	case kind == 0 && l.precision < 0:
		s = formatFloat(abs)
	case kind == 0:
		s = shortFloat(abs, max(precision, 1))
	default:
		panic(r.fail("ValueError", "Unknown format code '%c' for object of type 'float'", kind))
	}
	if kind >= 'A' && kind <= 'Z' {
		s = strings.ToUpper(s)
	}
	digits := len(s) - len(strings.TrimLeft(s, "0123456789"))
	return r.layNumber(math.Signbit(f) && !math.IsNaN(f), "", s[:digits], s[digits:]+suffix, l)
}

// shortFloat has at most precision digits, at least one of them after the point.
func shortFloat(f float64, precision int) string {
	e := strconv.FormatFloat(f, 'e', precision-1, 64)
	at := strings.IndexByte(e, 'e')
	exponent, _ := strconv.Atoi(e[at+1:])
	if exponent < -4 || exponent+1 > precision-1 && f != 0 {
		mantissa := e[:at]
		if strings.Contains(mantissa, ".") {
			mantissa = strings.TrimRight(strings.TrimRight(mantissa, "0"), ".")
		}
		return mantissa + e[at:]
	}
	s := strconv.FormatFloat(f, 'f', max(precision-1-exponent, 1), 64)
	s = strings.TrimRight(s, "0")
	if strings.HasSuffix(s, ".") {
		s += "0"
	}
	return s
}
