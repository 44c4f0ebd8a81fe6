// Package hftokenizers is the Rust library tokenizers inside the program, for a second opinion on token ids. It is linked
// only with the build tag hf_tokenizers and with cgo; "make hf-tokenizers" builds the library into bin/ and tests it. A
// build without the tag has Linked unset, and Open refuses.
package hftokenizers

import (
	"strings"
	"unicode/utf8"
)

// Takes tells whether the library can be given a text: its binding ends at U+0000 and takes only UTF-8.
func Takes(text string) bool { return utf8.ValidString(text) && !strings.ContainsRune(text, 0) }
