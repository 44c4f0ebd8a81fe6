package template

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/llmexport/llmexport/runtime/template/syntax"
)

// textMethod is a method of str. If wrapped, the method of a markup returns a markup.
type textMethod struct {
	parameters parameters
	wrapped    bool
	call       func(r *renderer, s string, args []any) any
}

// textMethod calls a method of a text, or of a markup.
func (r *renderer) textMethod(id string, m *textMethod, s string, isMarkup bool, args []any, keywords []keyword) any {
	bound := r.bind(id, m.parameters, args, keywords)
	r.step(len(s) >> 4)
	if !isMarkup || !m.wrapped {
		if isMarkup && m.parameters.any {
			panic(r.unsupported("Markup.%s", id))
		}
		return m.call(r, s, bound)
	}
	switch id {
	case "replace", "center", "ljust", "rjust": // the text that they put in
		if t, ok := bound[1].(string); ok {
			bound[1] = escape(t)
		}
	case "join":
		bound[0] = r.escapeAll(bound[0])
	}
	switch v := m.call(r, s, bound).(type) {
	case string:
		return markup(v)
	case []any:
		return asMarkup(v)
	case tuple:
		return tuple(asMarkup(v))
	default:
		return v
	}
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
func (r *renderer) escapeAll(v any) []any {
	l := r.list(v)
	out := make([]any, len(l))
	for i, e := range l {
		out[i] = escapeFilter(r, e, nil)
	}
	return out
}

var htmlEscaper = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&#34;", "'", "&#39;")

// escape replaces the special characters of HTML.
func escape(s string) string { return htmlEscaper.Replace(s) }

// textArgument is an argument that must be a text.
func (r *renderer) textArgument(v any) string {
	s, ok := str(v)
	if !ok {
		panic(r.fail("TypeError", "must be str, not %s", typeName(v)))
	}
	return s
}

// intArgument is an argument that must be an integer, or its default.
func (r *renderer) intArgument(v any, otherwise int64) int {
	if v == unset {
		return int(otherwise)
	}
	i, ok := integer(v)
	if !ok {
		panic(r.fail("TypeError", "'%s' object cannot be interpreted as an integer", typeName(v)))
	}
	const far = 1 << 40 // beyond all texts, and safe to compute with
	return int(min(max(i, -far), far))
}

// simple is a method without parameters.
func simple(wrapped bool, f func(s string) any) *textMethod {
	return &textMethod{unnamed(0), wrapped, func(r *renderer, s string, _ []any) any {
		r.step(len(s) >> 2)
		return f(s)
	}}
}

// every is a method that tests all characters of a text that is not empty.
func every(holds func(rune) bool) *textMethod {
	return simple(false, func(s string) any {
		return s != "" && strings.IndexFunc(s, func(c rune) bool { return !holds(c) }) < 0
	})
}

// strip is strip, lstrip or rstrip.
func strip(left, right bool) *textMethod {
	return &textMethod{unnamed(0, "chars"), true, func(r *renderer, s string, args []any) any {
		return r.strip(s, given(args[0], nil), left, right)
	}}
}

// strip removes characters, white space when chars is nil, from the ends of s.
func (r *renderer) strip(s string, chars any, left, right bool) string {
	cut := syntax.IsSpace
	if chars != nil {
		set := r.textArgument(chars)
		cut = func(c rune) bool { return strings.ContainsRune(set, c) }
		r.step(len(s) >> 4 * (len(set)>>4 + 1))
	}
	if left {
		s = strings.TrimLeftFunc(s, cut)
	}
	if right {
		s = strings.TrimRightFunc(s, cut)
	}
	return s
}

// affix is startswith or endswith, of one text or a tuple of them.
func affix(has func(s, affix string) bool) *textMethod {
	return &textMethod{unnamed(1, "affix", "start", "end"), false, func(r *renderer, s string, args []any) any {
		s, _ = r.window(s, args[1], args[2])
		choices, ok := args[0].(tuple)
		if !ok {
			choices = tuple{args[0]}
		}
		for _, c := range choices {
			if t := r.textArgument(c); s != noWindow && has(s, t) {
				return true
			}
		}
		return false
	}}
}

// noWindow stands for a part that begins after the end of a text: it does not even contain the empty text.
const noWindow = "\xff"

// window is the part of s between two indices of characters, and the index of its first one.
func (r *renderer) window(s string, start, end any) (string, int) {
	if given(start, nil) == nil && given(end, nil) == nil {
		return s, 0
	}
	n := utf8.RuneCountInString(s)
	from, to, _, count := r.sliceIndices([3]any{given(start, nil), given(end, nil)}, int64(n))
	if i, ok := integer(given(start, nil)); ok && i > int64(n) || from > to {
		return noWindow, 0
	}
	return sliceText(s, from, 1, count, n), int(from)
}

// finder is find, rfind, index or rindex.
func finder(index func(s, t string) int, must bool) *textMethod {
	return &textMethod{unnamed(1, "sub", "start", "end"), false, func(r *renderer, s string, args []any) any {
		t := r.textArgument(args[0])
		s, from := r.window(s, args[1], args[2])
		at := -1
		if s != noWindow {
			at = index(s, t)
		}
		if at < 0 {
			if must {
				panic(r.fail("ValueError", "substring not found"))
			}
			return int64(-1)
		}
		return int64(from + utf8.RuneCountInString(s[:at]))
	}}
}

// padded is center, ljust or rjust; left returns how many of n characters come first.
func padded(left func(n, width int) int) *textMethod {
	return &textMethod{unnamed(1, "width", "fillchar"), true, func(r *renderer, s string, args []any) any {
		width := r.intArgument(args[0], 0)
		fill := r.textArgument(given(args[1], " "))
		if utf8.RuneCountInString(fill) != 1 {
			panic(r.fail("TypeError", "the fill character must be exactly one character long"))
		}
		return r.pad(s, fill, width, left)
	}}
}

func (r *renderer) pad(s, fill string, width int, left func(n, width int) int) string {
	n := width - utf8.RuneCountInString(s)
	if n <= 0 {
		return s
	}
	r.size(len(s) + n*len(fill))
	l := left(n, width)
	return strings.Repeat(fill, l) + s + strings.Repeat(fill, n-l)
}

func padRight(int, int) int    { return 0 }
func padLeft(n, _ int) int     { return n }
func padBoth(n, width int) int { return n/2 + n&width&1 } // as CPython rounds

// replace replaces the first count occurrences of old, all of them when it is negative.
func (r *renderer) replace(s, old, new string, count int) string {
	n := strings.Count(s, old)
	if count >= 0 {
		n = min(n, count)
	}
	r.step(len(s) >> 4)
	r.size(len(s) + n*(len(new)-len(old)))
	return strings.Replace(s, old, new, n)
}

func isDecimal(c rune) bool { return unicode.Is(unicode.Nd, c) }

func isIdentifier(s string) bool {
	for i, c := range s {
		if !syntax.IsWord(c) || i == 0 && c != '_' && !unicode.IsLetter(c) {
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
