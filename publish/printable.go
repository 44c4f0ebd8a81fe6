package publish

import (
	"cmp"
	"strings"
	"unicode"
)

// printable shortens what a server says for a message on one line, without addresses, which may be signed.
func printable(s string) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) {
			return ' '
		}
		if !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, s[:min(len(s), 4*maxHubMessage)])
	words := strings.Fields(s)
	for i, w := range words {
		if strings.Contains(w, "://") {
			words[i] = "(address)"
		}
	}
	s = strings.Join(words, " ")
	return cmp.Or(strings.ToValidUTF8(s[:min(len(s), maxHubMessage)], ""), "without a reason")
}
