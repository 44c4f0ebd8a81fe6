package dialect

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// spaceMark stands for a space in tokens.
const spaceMark = "▁"

// Cuts returns two patterns for a BPE tokenizer without a pre-tokenizer (Llama 2, Gemma), for which the whole text is one
// word. The engine merges a word in quadratic time: seconds for a page. So the text is cut where no merge reaches across,
// which does not change ids.
//
// The matches of words, all of a text, are words with the spaces before them;
// ends matches the punctuation that ends such a piece. The tokens are all that merges make, with metaspaces for spaces; the
// text that is matched has the spaces still. A pattern is empty if there is no place to cut.
func Cuts(tokens []string) (words, ends string) {
	// Characters before a space inside a token: there is no cut between these and spaces.
	var sticky []rune
	enders := []rune("\n,.;:!?)")
	inside := func(token string, visit func(a, b rune)) {
		last := rune(-1)
		for _, r := range token {
			if last >= 0 {
				visit(last, r)
			}
			last = r
		}
	}
	for _, token := range tokens {
		if i := strings.LastIndex(token, spaceMark); i <= 0 || strings.TrimLeft(token[:i], spaceMark) == "" {
			continue
		}
		inside(token, func(a, b rune) {
			if b == '▁' && a != '▁' && !slices.Contains(sticky, a) {
				sticky = append(sticky, a)
			}
		})
	}
	// The engine's classes know ASCII only.
	if slices.ContainsFunc(sticky, func(r rune) bool { return r >= utf8.RuneSelf }) {
		return "", ""
	}
	// Punctuation ends a word unless a token continues after it with anything but such punctuation.
	for before := -1; before != len(enders); {
		before = len(enders)
		for _, token := range tokens {
			inside(token, func(a, b rune) {
				if i := slices.Index(enders, a); i >= 0 && !slices.Contains(enders, b) {
					enders = slices.Delete(enders, i, i+1)
				}
			})
		}
	}
	slices.Sort(sticky)
	class := func(list []rune) string {
		var b strings.Builder
		for _, r := range list {
			b.WriteString(classChar(r))
		}
		return b.String()
	}
	word := "[^ " + class(sticky) + "]"
	if len(sticky) > 0 {
		word = "(?:" + word + "|[" + class(sticky) + "] *)"
	}
	if len(enders) > 0 {
		ends = "[" + class(enders) + "]+"
	}
	if words = " *" + word + "+| +"; check(words) != nil {
		return "", ""
	}
	return words, ends
}
