package tokenizer

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/llmexport/llmexport/runtime/tokenizer/internal/chars"
	"github.com/llmexport/llmexport/runtime/tokenizer/internal/trie"
)

// AddedToken is a token that is found in the text itself, before anything else happens to it.
type AddedToken struct {
	ID      int32
	Content string
	// Special tokens are left out by Decode on request.
	Special bool
	// LStrip and RStrip swallow the white space before and after the token.
	LStrip, RStrip bool
	// SingleWord tokens are not found next to a letter, a digit or an underscore.
	SingleWord bool
	// Normalized tokens are looked for after the normalizer has run, others before.
	Normalized bool
}

// maxAddedBytes bounds the text of an added token, and with it the time that a search takes. The longest of real
// files have about a hundred bytes.
const maxAddedBytes = 512

// matcher finds added tokens in a text: of those that begin first, the longest.
type matcher struct {
	tokens []AddedToken
	texts  *trie.Trie // of indices into tokens
}

// newMatcher takes tokens and the texts to find, which a normalizer may have changed. Of equal texts the first counts; an
// empty one is never found.
func newMatcher(tokens []AddedToken, texts []string) *matcher {
	list := make([]trie.Entry, len(texts))
	for i, text := range texts {
		list[i] = trie.Entry{Text: text, Value: int32(i)}
	}
	return &matcher{tokens: tokens, texts: trie.New(list)}
}

// cut calls text for the text between added tokens and token for each of them, in order. A token after white space that
// another token swallowed may take some of it again, unless it has lstrip, as in the library `tokenizers`.
func (m *matcher) cut(s string, text func(from, to int), token func(int32)) {
	done, search, spaceEnd := 0, 0, 0
	for {
		start, stop, i := m.texts.Find(s, search)
		if i < 0 {
			break
		}
		search = stop
		t := &m.tokens[i]
		if t.SingleWord && (wordBefore(s[:start]) || wordAfter(s[stop:])) {
			continue
		}
		if t.LStrip {
			if start < done {
				start = done
			} else {
				start = done + len(strings.TrimRightFunc(s[done:start], unicode.IsSpace))
			}
		}
		if t.RStrip {
			// White space that was swallowed before is not searched again.
			if spaceEnd = max(spaceEnd, stop); spaceEnd < len(s) {
				spaceEnd = len(s) - len(strings.TrimLeftFunc(s[spaceEnd:], unicode.IsSpace))
			}
			stop = spaceEnd
		}
		if start >= stop {
			continue // all of it was swallowed; the library drops it, or panics
		}
		if done < start {
			text(done, start)
		}
		token(t.ID)
		done = stop
	}
	if done < len(s) {
		text(done, len(s))
	}
}

func wordBefore(s string) bool {
	r, n := utf8.DecodeLastRuneInString(s)
	return n > 0 && isWord(r)
}

func wordAfter(s string) bool {
	r, n := utf8.DecodeRuneInString(s)
	return n > 0 && isWord(r)
}

// isWord is the class \w of the Unicode standard's regular expressions.
func isWord(r rune) bool {
	const zeroWidthNonJoiner, zeroWidthJoiner = 0x200C, 0x200D
	return chars.Classes()[r]&(chars.Letter|chars.Mark) != 0 || unicode.In(r, unicode.Nd, chars.Younger["Nd"], unicode.Nl, unicode.Pc, unicode.Other_Alphabetic) ||
		r == zeroWidthNonJoiner || r == zeroWidthJoiner
}
