package template

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/llmexport/llmexport/runtime/template/syntax"
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
		"isprintable":  simple(false, func(s string) any { return strings.IndexFunc(s, func(c rune) bool { return !unicode.IsPrint(c) }) < 0 }),
		"isspace":      every(syntax.IsSpace),
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
		"format": {parameters{any: true}, false, func(r *renderer, s string, args []any) any {
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

func countText(r *renderer, s string, args []any) any {
	t := r.textArgument(args[0])
	s, _ = r.window(s, args[1], args[2])
	if s == noWindow {
		return int64(0)
	}
	return int64(strings.Count(s, t))
}

func expandTabs(r *renderer, s string, args []any) any {
	size := r.intArgument(args[0], 8)
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
				r.size(n)
			}
			r.write(&b, strings.Repeat(" ", n))
			column += n
		}
	}
	return b.String()
}

func formatMap(r *renderer, s string, args []any) any {
	o, ok := args[0].(*Object)
	if !ok {
		panic(r.fail("TypeError", "'%s' object is not a mapping", typeName(args[0])))
	}
	return r.format(s, nil, nil, o)
}

func joinText(r *renderer, s string, args []any) any {
	l := r.list(args[0])
	for i, v := range l {
		if _, ok := str(v); !ok {
			panic(r.fail("TypeError", "sequence item %d: expected str instance, %s found", i, typeName(v)))
		}
	}
	return r.join(s, l)
}

func partition(index func(s, t string) int, last bool) func(*renderer, string, []any) any {
	return func(r *renderer, s string, args []any) any {
		sep := r.textArgument(args[0])
		if sep == "" {
			panic(r.fail("ValueError", "empty separator"))
		}
		i := index(s, sep)
		switch {
		case i >= 0:
			return tuple{s[:i], sep, s[i+len(sep):]}
		case last:
			return tuple{"", "", s}
		}
		return tuple{s, "", ""}
	}
}

func trimmer(trim func(s, affix string) string) func(*renderer, string, []any) any {
	return func(r *renderer, s string, args []any) any {
		return trim(s, r.textArgument(args[0]))
	}
}

func replaceText(r *renderer, s string, args []any) any {
	old := r.textArgument(args[0])
	new := r.textArgument(args[1])
	count := r.intArgument(args[2], -1)
	return r.replace(s, old, new, count)
}

// splitArguments are the separator, nil for white space, and the greatest number of cuts, negative for any.
func (r *renderer) splitArguments(args []any) (sep any, most int) {
	most = r.intArgument(args[1], -1)
	sep = given(args[0], nil)
	if sep == nil {
		return nil, most
	}
	t := r.textArgument(sep)
	if t == "" {
		panic(r.fail("ValueError", "empty separator"))
	}
	return t, most
}

func split(r *renderer, s string, args []any) any {
	sep, most := r.splitArguments(args)
	out := []any{}
	if sep == nil {
		for s = strings.TrimLeftFunc(s, syntax.IsSpace); s != ""; s = strings.TrimLeftFunc(s, syntax.IsSpace) {
			end := strings.IndexFunc(s, syntax.IsSpace)
			if end < 0 || most >= 0 && len(out) >= most {
				end = len(s)
			}
			out = append(out, s[:end])
			s = s[end:]
		}
		r.step(len(out))
		return out
	}
	parts := most + 1
	if most < 0 {
		parts = -1
	}
	for _, part := range strings.SplitN(s, sep.(string), parts) {
		out = append(out, part)
	}
	r.step(len(out))
	return out
}

func rsplit(r *renderer, s string, args []any) any {
	sep, most := r.splitArguments(args)
	out := []any{}
	for most < 0 || len(out) < most {
		i, n := -1, 1
		if sep == nil {
			s = strings.TrimRightFunc(s, syntax.IsSpace)
			if s == "" {
				break
			}
			i = strings.LastIndexFunc(s, syntax.IsSpace)
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
		s = strings.TrimRightFunc(s, syntax.IsSpace)
		if strings.TrimLeftFunc(s, syntax.IsSpace) == "" {
			s = ""
		} else if most < 0 || len(out) < most {
			s = strings.TrimLeftFunc(s, syntax.IsSpace)
		}
	}
	if sep != nil || s != "" {
		out = append(out, s)
	}
	slices.Reverse(out)
	r.step(len(out))
	return out
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

func splitLinesMethod(r *renderer, s string, args []any) any {
	out := splitLines(s, truth(given(args[0], false)))
	r.step(len(out))
	return out
}

func zfill(r *renderer, s string, args []any) any {
	width := r.intArgument(args[0], 0)
	sign := ""
	if s != "" && (s[0] == '+' || s[0] == '-') {
		sign, s = s[:1], s[1:]
	}
	return sign + r.pad(s, "0", width-len(sign), padLeft)
}
