package dialect

import (
	"fmt"
	"iter"
	"strings"
	"unicode/utf8"

	"github.com/llmexport/llmexport/runtime/tokenizer/internal/regex"
)

// The engine folds a text to one byte a character before it matches: ASCII stays, a letter outside ASCII becomes 1, whatever
// its case or script. Patterns that need more are approximated:
//
//	\p{Lu} \p{Lt}          A-Z, and letters outside ASCII
//	\p{Ll}                 a-z, and letters outside ASCII
//	\p{Lm} \p{Lo}          letters outside ASCII
//	\p{Nd}                 0-9, and numbers outside ASCII
//	&&[^\p{Han}]           left out, and so is a branch [\p{Han}]+: Han counts as a letter
//	?+ *+ ++               ? * +
//
// Before the branch for words of mixed case comes one for words in capitals, some of them outside ASCII: the other would
// take the first of those for a small letter, and end the word there.

const (
	outsideLetters = string(rune(FoldLetters))
	outsideNumbers = string(rune(FoldNumbers))
)

// approximations replace properties in the classes of the engine.
var approximations = map[string]string{
	"Lu": "A-Z" + outsideLetters, "Lt": outsideLetters, "Ll": "a-z" + outsideLetters, "Lm": outsideLetters, "Lo": outsideLetters, "Nd": "0-9" + outsideNumbers,
}

// mixedCase begins a pattern that cuts words where small letters end (o200k, tekken); capitals is put before it.
const (
	mixedCase = `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+`
	capitals  = `[^\r\n\p{L}\p{N}]?[A-Z` + outsideLetters + `\p{M}]*[A-Z][A-Z` + outsideLetters + `\p{M}]*(?![\p{L}\p{M}])`
)

// Translate returns a pattern for the engine, and its approximations. It is empty for a pattern that separates letters by
// script only: such a cut matters only if a merge reaches across, which models trained with the pattern do not have.
func Translate(pattern string) (form string, losses []string, err error) {
	if scriptsOnly(pattern) {
		return "", []string{fmt.Sprintf("letters of %s are not cut off", pattern)}, nil
	}
	form = pattern
	if without := strings.ReplaceAll(strings.ReplaceAll(form, `&&[^\p{Han}]`, ""), `[\p{Han}]+|`, ""); without != form {
		form = without
		losses = append(losses, "adjacent Han and other letters are one word")
	}
	if greedy := withoutPossessive(form); greedy != form {
		form = greedy
		losses = append(losses, "possessive quantifiers are greedy")
	}
	// The branch for capitals has the contractions of the one that it stands before.
	if rest, ok := strings.CutPrefix(form, mixedCase); ok {
		end := strings.IndexByte(rest, '|')
		if strings.HasPrefix(rest, "(?i:") {
			end = strings.Index(rest, ")?|") + len(")?")
		}
		if end >= 0 {
			form = capitals + rest[:end] + "|" + form
		}
	}
	cased := false
	var b strings.Builder
	for e, in := range elements(form) {
		name, ok := strings.CutPrefix(e, `\p{`)
		set := approximations[strings.TrimSuffix(name, "}")]
		switch {
		case !ok || set == "":
			b.WriteString(e)
			continue
		case in:
			b.WriteString(set)
		default:
			b.WriteString("[" + set + "]")
		}
		cased = true
	}
	form = b.String()
	if cased {
		losses = append(losses, "outside ASCII, letters have no case and all numbers are digits")
	}
	if err := check(form); err != nil {
		return "", nil, fmt.Errorf("%w (from %q)", err, pattern)
	}
	return form, losses, nil
}

// elements are the parts of a pattern, characters, escapes and properties, and whether each stands within brackets; the
// closing one does.
func elements(pattern string) iter.Seq2[string, bool] {
	return func(yield func(string, bool) bool) {
		for in := false; pattern != ""; {
			_, n := utf8.DecodeRuneInString(pattern)
			if pattern[0] == '\\' && len(pattern) > 1 {
				_, next := utf8.DecodeRuneInString(pattern[1:])
				n += next
				if end := strings.IndexByte(pattern, '}'); strings.HasPrefix(pattern, `\p{`) && end >= 0 {
					n = end + 1
				}
			}
			e := pattern[:n]
			pattern = pattern[n:]
			if !yield(e, in) {
				return
			}
			switch e {
			case "[":
				in = true
			case "]":
				in = false
			}
		}
	}
}

// withoutPossessive makes possessive quantifiers greedy. If the rest cannot begin with characters that they took, as in the
// patterns of tiktoken, the matches are the same.
func withoutPossessive(regex string) string {
	var b strings.Builder
	quantified := false
	for e, in := range elements(regex) {
		if quantified && e == "+" {
			quantified = false
			continue
		}
		quantified = !in && (e == "?" || e == "*" || e == "+")
		b.WriteString(e)
	}
	return b.String()
}

// scriptsOnly reports whether a pattern is a run of one class of characters outside ASCII.
func scriptsOnly(pattern string) bool {
	set, ok := strings.CutPrefix(pattern, "[")
	if !ok {
		return false
	}
	set, ok = strings.CutSuffix(set, "]+")
	return ok && set != "" && !strings.ContainsFunc(set, func(r rune) bool { return r != '-' && r < utf8.RuneSelf })
}

// Unquote returns the text that a pattern matches, if there is only one.
func Unquote(pattern string) (string, bool) {
	var b strings.Builder
	for e := range elements(pattern) {
		switch {
		case len(e) > 1 && e[0] == '\\':
			r, ok := regex.PlainEscape(e[1])
			if !ok {
				return "", false
			}
			b.WriteRune(r)
		case strings.Contains(`.+*?()|[]{}^$`, e):
			return "", false
		default:
			b.WriteString(e)
		}
	}
	return b.String(), b.Len() > 0
}

// classChar spells a character inside a class of the engine's patterns.
func classChar(r rune) string {
	switch r {
	case '\n':
		return `\n`
	case '\r':
		return `\r`
	case '\t':
		return `\t`
	}
	if r < utf8.RuneSelf && strings.ContainsRune(`\]^-[`, r) {
		return `\` + string(r)
	}
	return string(r)
}

// OneCharacter returns the class of the characters that a pattern matches, if it matches single characters, and the class
// of all others.
func OneCharacter(regex string) (in, out string) {
	if inner, ok := strings.CutPrefix(regex, "["); ok && !strings.HasPrefix(inner, "^") && isClass(regex) {
		return regex, "[^" + inner
	}
	if text, ok := Unquote(regex); ok && utf8.RuneCountInString(text) == 1 {
		r, _ := utf8.DecodeRuneInString(text)
		c := classChar(r)
		return "[" + c + "]", "[^" + c + "]"
	}
	if strings.HasPrefix(regex, `\p{`) && strings.IndexByte(regex, '}') == len(regex)-1 || regex == `\s` {
		return "[" + regex + "]", "[^" + regex + "]"
	}
	return "", ""
}

// isClass reports whether a pattern that begins with a bracket ends where that closes.
func isClass(regex string) bool {
	end := 0
	for e, in := range elements(regex) {
		if end += len(e); in && e == "]" {
			return end == len(regex)
		}
	}
	return false
}
