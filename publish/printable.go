package publish

import (
	"strings"
	"unicode"
)

// printable keeps what a server says short and free of control characters.
func printable(s string, most int) string {
	clean := strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, s)
	return clean[:min(len(clean), most)]
}
