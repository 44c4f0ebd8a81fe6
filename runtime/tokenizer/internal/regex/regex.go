// Package regex finds the matches of patterns in Oniguruma's syntax over Unicode, as the library `tokenizers` does with
// Oniguruma. It supports the syntax that needs no captured groups: alternation, groups, classes with ranges, nesting and &&,
// properties, quantifiers of all three kinds, look-around, atomic groups, anchors, and the options i and m. Other syntax is
// rejected by name when a pattern is compiled.
//
// Matching is leftmost-first backtracking that remembers which states failed at which positions, so that every pattern
// takes time linear in the length of the text. Remembered states live in pages of positions, which are dropped once a match
// has passed them. That bound is why the package exists: texts and patterns come from strangers, the standard library lacks
// look-around and possessive quantifiers, and dlclark/regexp2, which has them, takes exponential time on hostile text and
// matched ordinary text at 5.5 MB/s.
//
// The patterns of well-known models have scanners written by hand, see [Scanners].
package regex

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Span is a match: the bytes from Start up to End.
type Span struct{ Start, End int }

// Compile returns a function that lists the matches in a text as the library does: from left to right, none inside
// another, and no empty one directly after another match.
func Compile(pattern string) (func(s string) []Span, error) {
	re, err := parseRegex(pattern)
	if err != nil {
		return nil, fmt.Errorf("regex %.400q: %w", pattern, err)
	}
	return re.findAll, nil
}

// parseRegex compiles a pattern.
func parseRegex(pattern string) (*regex, error) {
	p := reParser{in: pattern}
	if !utf8.ValidString(pattern) {
		return nil, p.corrupt("not UTF-8")
	}
	n, err := p.parse()
	if err != nil {
		return nil, err
	}
	return compileNode(n)
}

func (re *regex) findAll(s string) []Span {
	m := re.matcher(s)
	defer re.release(m)
	return m.findAll()
}

func (m *reMatcher) findAll() []Span {
	var out []Span
	s := m.s
	last := -1 // the end of the last match
	for from := 0; from <= len(s); {
		start, end := m.search(from)
		if start < 0 {
			break
		}
		if start == end && end == last {
			if from == len(s) {
				break
			}
			_, n := utf8.DecodeRuneInString(s[from:])
			from += n
			continue
		}
		out = append(out, Span{start, end})
		from, last = end, end
	}
	return out
}

// Quote escapes a literal text for use in a pattern, in Oniguruma's syntax and in that of .mtok.
func Quote(text string) string {
	var b strings.Builder
	for _, c := range text {
		if strings.ContainsRune(`\.+*?()|[]{}^$`, c) {
			b.WriteByte('\\')
		}
		b.WriteRune(c)
	}
	return b.String()
}
