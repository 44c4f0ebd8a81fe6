package template

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// textMethod is a method of str. If it is wrapped, the method of a markup gives a markup.
type textMethod struct {
	parameters parameters
	wrapped    bool
	call       func(r *renderer, s string, args []any) (any, error)
}

// textMethod calls a method of a text, or of a markup.
func (r *renderer) textMethod(id string, m *textMethod, s string, isMarkup bool, args []any, keywords []keyword) (any, error) {
	bound, err := r.bind(id, m.parameters, args, keywords)
	if err != nil {
		return nil, err
	}
	if err := r.step(len(s) >> 4); err != nil {
		return nil, err
	}
	if !isMarkup || !m.wrapped {
		if isMarkup && m.parameters.any {
			return nil, r.unsupported("Markup.%s", id)
		}
		return m.call(r, s, bound)
	}
	switch id {
	case "replace", "center", "ljust", "rjust": // the text that they put in
		if t, ok := bound[1].(string); ok {
			bound[1] = escape(t)
		}
	case "join":
		if bound[0], err = r.escapeAll(bound[0]); err != nil {
			return nil, err
		}
	}
	v, err := m.call(r, s, bound)
	switch v := v.(type) {
	case string:
		return markup(v), err
	case []any:
		return asMarkup(v), err
	case tuple:
		return tuple(asMarkup(v)), err
	}
	return v, err
}

func asMarkup(l []any) []any {
	out := make([]any, len(l))
	for i, v := range l {
		out[i] = v
		if s, ok := v.(string); ok {
			out[i] = markup(s)
		}
	}
	return out
}

// escapeAll are the elements of v as texts, escaped unless they are markup.
func (r *renderer) escapeAll(v any) ([]any, error) {
	l, err := r.list(v)
	out := make([]any, len(l))
	for i, e := range l {
		if out[i], err = escapeFilter(r, e, nil); err != nil {
			return nil, err
		}
	}
	return out, err
}

var htmlEscaper = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&#34;", "'", "&#39;")

// escape replaces the characters that mean something in HTML.
func escape(s string) string { return htmlEscaper.Replace(s) }

// textArgument is an argument that must be a text.
func (r *renderer) textArgument(v any) (string, error) {
	s, ok := str(v)
	if !ok {
		return "", r.fail("TypeError", "must be str, not %s", typeName(v))
	}
	return s, nil
}

// intArgument is an argument that must be an integer, or its default.
func (r *renderer) intArgument(v any, otherwise int64) (int, error) {
	if v == unset {
		return int(otherwise), nil
	}
	i, ok := integer(v)
	if !ok {
		return 0, r.fail("TypeError", "'%s' object cannot be interpreted as an integer", typeName(v))
	}
	const far = 1 << 40 // beyond all texts, and safe to compute with
	return int(min(max(i, -far), far)), nil
}

// simple is a method without parameters.
func simple(wrapped bool, f func(s string) any) *textMethod {
	return &textMethod{unnamed(0), wrapped, func(r *renderer, s string, _ []any) (any, error) {
		return f(s), r.step(len(s) >> 2)
	}}
}

// every is a method that asks for a property of all characters of a text that has some.
func every(holds func(rune) bool) *textMethod {
	return simple(false, func(s string) any {
		return s != "" && strings.IndexFunc(s, func(c rune) bool { return !holds(c) }) < 0
	})
}

// strip is strip, lstrip or rstrip.
func strip(left, right bool) *textMethod {
	return &textMethod{unnamed(0, "chars"), true, func(r *renderer, s string, args []any) (any, error) {
		return r.strip(s, given(args[0], nil), left, right)
	}}
}

// strip removes characters, white space when chars is nil, from the ends of s.
func (r *renderer) strip(s string, chars any, left, right bool) (string, error) {
	cut := isSpace
	if chars != nil {
		set, err := r.textArgument(chars)
		if err != nil {
			return "", err
		}
		cut = func(c rune) bool { return strings.ContainsRune(set, c) }
		if err := r.step(len(s) >> 4 * (len(set)>>4 + 1)); err != nil {
			return "", err
		}
	}
	if left {
		s = strings.TrimLeftFunc(s, cut)
	}
	if right {
		s = strings.TrimRightFunc(s, cut)
	}
	return s, nil
}

// affix is startswith or endswith, of one text or a tuple of them.
func affix(has func(s, affix string) bool) *textMethod {
	return &textMethod{unnamed(1, "affix", "start", "end"), false, func(r *renderer, s string, args []any) (any, error) {
		s, _, err := r.window(s, args[1], args[2])
		if err != nil {
			return nil, err
		}
		choices, ok := args[0].(tuple)
		if !ok {
			choices = tuple{args[0]}
		}
		for _, c := range choices {
			t, err := r.textArgument(c)
			if err != nil {
				return nil, err
			}
			if s != noWindow && has(s, t) {
				return true, nil
			}
		}
		return false, nil
	}}
}

// noWindow stands for a part of a text that begins behind the text's end: not even the empty text is in it.
const noWindow = "\xff"

// window is the part of s between two indices of characters, and the index of its first one.
func (r *renderer) window(s string, start, end any) (string, int, error) {
	if given(start, nil) == nil && given(end, nil) == nil {
		return s, 0, nil
	}
	n := utf8.RuneCountInString(s)
	from, to, _, count, err := r.sliceIndices([3]any{given(start, nil), given(end, nil)}, int64(n))
	if err != nil {
		return "", 0, err
	}
	if i, ok := integer(given(start, nil)); ok && i > int64(n) || from > to {
		return noWindow, 0, nil
	}
	return sliceText(s, from, 1, count, n), int(from), nil
}

// finder is find, rfind, index or rindex.
func finder(index func(s, t string) int, must bool) *textMethod {
	return &textMethod{unnamed(1, "sub", "start", "end"), false, func(r *renderer, s string, args []any) (any, error) {
		t, err := r.textArgument(args[0])
		if err != nil {
			return nil, err
		}
		s, from, err := r.window(s, args[1], args[2])
		if err != nil {
			return nil, err
		}
		at := -1
		if s != noWindow {
			at = index(s, t)
		}
		if at < 0 {
			if must {
				return nil, r.fail("ValueError", "substring not found")
			}
			return int64(-1), nil
		}
		return int64(from + utf8.RuneCountInString(s[:at])), nil
	}}
}

// padded is center, ljust or rjust: pad says how many of n characters come first.
func padded(left func(n, width int) int) *textMethod {
	return &textMethod{unnamed(1, "width", "fillchar"), true, func(r *renderer, s string, args []any) (any, error) {
		width, err := r.intArgument(args[0], 0)
		if err != nil {
			return nil, err
		}
		fill, err := r.textArgument(given(args[1], " "))
		if err != nil {
			return nil, err
		}
		if utf8.RuneCountInString(fill) != 1 {
			return nil, r.fail("TypeError", "the fill character must be exactly one character long")
		}
		return r.pad(s, fill, width, left)
	}}
}

func (r *renderer) pad(s, fill string, width int, left func(n, width int) int) (string, error) {
	n := width - utf8.RuneCountInString(s)
	if n <= 0 {
		return s, nil
	}
	if n > r.limits.Output {
		return "", r.size(n)
	}
	if err := r.size(len(s) + n*len(fill)); err != nil {
		return "", err
	}
	l := left(n, width)
	return strings.Repeat(fill, l) + s + strings.Repeat(fill, n-l), nil
}

func padRight(int, int) int    { return 0 }
func padLeft(n, _ int) int     { return n }
func padBoth(n, width int) int { return n/2 + n&width&1 } // as CPython rounds

// replace replaces the first count occurrences of old, all of them when it is negative.
func (r *renderer) replace(s, old, new string, count int) (string, error) {
	n := strings.Count(s, old)
	if count >= 0 {
		n = min(n, count)
	}
	if err := r.step(len(s) >> 4); err != nil {
		return "", err
	}
	if n > 0 && len(new) > r.limits.Output/n {
		return "", r.size(r.limits.Output + 1)
	}
	if err := r.size(len(s) + n*(len(new)-len(old))); err != nil {
		return "", err
	}
	return strings.Replace(s, old, new, n), nil
}

func isDecimal(c rune) bool { return unicode.Is(unicode.Nd, c) }

func isIdentifier(s string) bool {
	for i, c := range s {
		if !isWord(c) || i == 0 && c != '_' && !unicode.IsLetter(c) {
			return false
		}
	}
	return s != ""
}

// isDigit is Python's str.isdigit of one character: superscripts and circled digits count.
func isDigit(c rune) bool {
	return isDecimal(c) || strings.ContainsRune("²³¹", c) || c >= 0x2070 && c <= 0x2079 && c != 0x2071 ||
		c >= 0x2080 && c <= 0x2089 || c >= 0x2460 && c <= 0x2468 || c >= 0x2474 && c <= 0x247c || c >= 0x2488 && c <= 0x2490
}

func isPrintable(c rune) bool { return unicode.IsPrint(c) }
