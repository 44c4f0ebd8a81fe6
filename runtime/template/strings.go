package template

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// textMethods are the methods of str.
var textMethods map[string]*textMethod

func init() { // some of them call what reads this table
	textMethods = map[string]*textMethod{
		"capitalize":   simple(true, func(s string) any { return capitalize(s) }),
		"casefold":     simple(true, func(s string) any { return foldCase(s) }),
		"lower":        simple(true, func(s string) any { return lower(s) }),
		"swapcase":     simple(true, func(s string) any { return swapCase(s) }),
		"title":        simple(true, func(s string) any { return title(s) }),
		"upper":        simple(true, func(s string) any { return upper(s) }),
		"isalnum":      every(func(c rune) bool { return unicode.IsLetter(c) || unicode.IsNumber(c) }),
		"isalpha":      every(unicode.IsLetter),
		"isascii":      simple(false, func(s string) any { return utf8.RuneCountInString(s) == len(s) }),
		"isdecimal":    every(isDecimal),
		"isdigit":      every(isDigit),
		"isidentifier": simple(false, func(s string) any { return isIdentifier(s) }),
		"islower":      simple(false, func(s string) any { return hasCase(s, isLower) }),
		"isnumeric":    every(unicode.IsNumber),
		"isprintable":  simple(false, func(s string) any { return strings.IndexFunc(s, func(c rune) bool { return !isPrintable(c) }) < 0 }),
		"isspace":      every(isSpace),
		"istitle":      simple(false, func(s string) any { return isTitle(s) }),
		"isupper":      simple(false, func(s string) any { return hasCase(s, isUpper) }),
		"strip":        strip(true, true),
		"lstrip":       strip(true, false),
		"rstrip":       strip(false, true),
		"startswith":   affix(strings.HasPrefix),
		"endswith":     affix(strings.HasSuffix),
		"find":         finder(strings.Index, false),
		"rfind":        finder(strings.LastIndex, false),
		"index":        finder(strings.Index, true),
		"rindex":       finder(strings.LastIndex, true),
		"center":       padded(padBoth),
		"ljust":        padded(padRight),
		"rjust":        padded(padLeft),
		"count":        {unnamed(1, "sub", "start", "end"), false, countText},
		"expandtabs":   {parameters{names: []string{"tabsize"}}, true, expandTabs},
		"format": {parameters{any: true}, false, func(r *renderer, s string, args []any) (any, error) {
			return r.format(s, args[0].([]any), args[1].([]keyword), nil)
		}},
		"format_map":   {unnamed(1, "mapping"), false, formatMap},
		"join":         {unnamed(1, "iterable"), true, joinText},
		"partition":    {unnamed(1, "sep"), true, partition(strings.Index, false)},
		"rpartition":   {unnamed(1, "sep"), true, partition(strings.LastIndex, true)},
		"removeprefix": {unnamed(1, "prefix"), true, trimmer(strings.TrimPrefix)},
		"removesuffix": {unnamed(1, "suffix"), true, trimmer(strings.TrimSuffix)},
		"replace":      {unnamed(2, "old", "new", "count"), true, replaceText},
		"split":        {parameters{names: []string{"sep", "maxsplit"}}, true, split},
		"rsplit":       {parameters{names: []string{"sep", "maxsplit"}}, true, rsplit},
		"splitlines":   {parameters{names: []string{"keepends"}}, true, splitLinesMethod},
		"zfill":        {unnamed(1, "width"), true, zfill},
	}
}

func countText(r *renderer, s string, args []any) (any, error) {
	t, err := r.textArgument(args[0])
	if err != nil {
		return nil, err
	}
	s, _, err = r.window(s, args[1], args[2])
	if err != nil || s == noWindow {
		return int64(0), err
	}
	return int64(strings.Count(s, t)), nil
}

func expandTabs(r *renderer, s string, args []any) (any, error) {
	size, err := r.intArgument(args[0], 8)
	if err != nil {
		return nil, err
	}
	var b strings.Builder
	column := 0
	for _, c := range s {
		switch {
		case c != '\t':
			b.WriteRune(c)
			column++
			if c == '\n' || c == '\r' {
				column = 0
			}
		case size > 0:
			n := size - column%size
			if n > r.limits.Output {
				return nil, r.size(n)
			}
			if err := r.write(&b, strings.Repeat(" ", n)); err != nil {
				return nil, err
			}
			column += n
		}
	}
	return b.String(), nil
}

func formatMap(r *renderer, s string, args []any) (any, error) {
	o, ok := args[0].(*Object)
	if !ok {
		return nil, r.fail("TypeError", "'%s' object is not a mapping", typeName(args[0]))
	}
	return r.format(s, nil, nil, o)
}

func joinText(r *renderer, s string, args []any) (any, error) {
	l, err := r.list(args[0])
	if err != nil {
		return nil, err
	}
	for i, v := range l {
		if _, ok := str(v); !ok {
			return nil, r.fail("TypeError", "sequence item %d: expected str instance, %s found", i, typeName(v))
		}
	}
	return r.join(s, l)
}

func partition(index func(s, t string) int, last bool) func(*renderer, string, []any) (any, error) {
	return func(r *renderer, s string, args []any) (any, error) {
		sep, err := r.textArgument(args[0])
		if err != nil {
			return nil, err
		}
		if sep == "" {
			return nil, r.fail("ValueError", "empty separator")
		}
		i := index(s, sep)
		switch {
		case i >= 0:
			return tuple{s[:i], sep, s[i+len(sep):]}, nil
		case last:
			return tuple{"", "", s}, nil
		}
		return tuple{s, "", ""}, nil
	}
}

func trimmer(trim func(s, affix string) string) func(*renderer, string, []any) (any, error) {
	return func(r *renderer, s string, args []any) (any, error) {
		t, err := r.textArgument(args[0])
		return trim(s, t), err
	}
}

func replaceText(r *renderer, s string, args []any) (any, error) {
	old, err := r.textArgument(args[0])
	if err != nil {
		return nil, err
	}
	new, err := r.textArgument(args[1])
	if err != nil {
		return nil, err
	}
	count, err := r.intArgument(args[2], -1)
	if err != nil {
		return nil, err
	}
	return r.replace(s, old, new, count)
}

// splitArguments are the separator, nil for white space, and the greatest number of cuts, negative for any.
func (r *renderer) splitArguments(args []any) (sep any, most int, err error) {
	if most, err = r.intArgument(args[1], -1); err != nil {
		return nil, 0, err
	}
	sep = given(args[0], nil)
	if sep == nil {
		return nil, most, nil
	}
	t, err := r.textArgument(sep)
	if err == nil && t == "" {
		err = r.fail("ValueError", "empty separator")
	}
	return t, most, err
}

func split(r *renderer, s string, args []any) (any, error) {
	sep, most, err := r.splitArguments(args)
	if err != nil {
		return nil, err
	}
	out := []any{}
	if sep == nil {
		for s = strings.TrimLeftFunc(s, isSpace); s != ""; s = strings.TrimLeftFunc(s, isSpace) {
			end := strings.IndexFunc(s, isSpace)
			if end < 0 || most >= 0 && len(out) >= most {
				end = len(s)
			}
			out = append(out, s[:end])
			s = s[end:]
		}
		return out, r.step(len(out))
	}
	parts := most + 1
	if most < 0 {
		parts = -1
	}
	for _, part := range strings.SplitN(s, sep.(string), parts) {
		out = append(out, part)
	}
	return out, r.step(len(out))
}

func rsplit(r *renderer, s string, args []any) (any, error) {
	sep, most, err := r.splitArguments(args)
	if err != nil {
		return nil, err
	}
	out := []any{}
	for most < 0 || len(out) < most {
		i, n := -1, 1
		if sep == nil {
			s = strings.TrimRightFunc(s, isSpace)
			if s == "" {
				break
			}
			i = strings.LastIndexFunc(s, isSpace)
			if i >= 0 {
				_, n = utf8.DecodeRuneInString(s[i:])
			}
		} else {
			i, n = strings.LastIndex(s, sep.(string)), len(sep.(string))
		}
		if i < 0 {
			break
		}
		out = append(out, s[i+n:])
		s = s[:i]
	}
	if sep == nil {
		s = strings.TrimRightFunc(s, isSpace)
		if strings.TrimLeftFunc(s, isSpace) == "" {
			s = ""
		} else if most < 0 || len(out) < most {
			s = strings.TrimLeftFunc(s, isSpace)
		}
	}
	if sep != nil || s != "" {
		out = append(out, s)
	}
	for i, j := 0, len(out)-1; i < j; i, j = i+1, j-1 {
		out[i], out[j] = out[j], out[i]
	}
	return out, r.step(len(out))
}

// splitLines cuts a text at its ends of lines.
func splitLines(s string, keep bool) []any {
	out := []any{}
	for s != "" {
		end := strings.IndexFunc(s, isLineBreak)
		if end < 0 {
			return append(out, s)
		}
		_, n := utf8.DecodeRuneInString(s[end:])
		if strings.HasPrefix(s[end:], "\r\n") {
			n = 2
		}
		if keep {
			out = append(out, s[:end+n])
		} else {
			out = append(out, s[:end])
		}
		s = s[end+n:]
	}
	return out
}

func splitLinesMethod(r *renderer, s string, args []any) (any, error) {
	out := splitLines(s, truth(given(args[0], false)))
	return out, r.step(len(out))
}

func zfill(r *renderer, s string, args []any) (any, error) {
	width, err := r.intArgument(args[0], 0)
	if err != nil {
		return nil, err
	}
	sign := ""
	if s != "" && (s[0] == '+' || s[0] == '-') {
		sign, s = s[:1], s[1:]
	}
	t, err := r.pad(s, "0", width-len(sign), padLeft)
	return sign + t, err
}
