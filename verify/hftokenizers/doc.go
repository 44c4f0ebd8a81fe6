// Package hftokenizers binds the Rust library tokenizers, for a second opinion on token ids. It is linked only with the
// build tag hf_tokenizers and with cgo; "make hf-tokenizers" builds the library into bin/ and tests it. In a build
// without the tag, Linked is false and Open fails.
package hftokenizers

import (
	"strings"
	"unicode/utf8"
)

// Takes reports whether the library can encode a text: its binding ends at U+0000 and accepts only UTF-8.
func Takes(text string) bool { return utf8.ValidString(text) && !strings.ContainsRune(text, 0) }
