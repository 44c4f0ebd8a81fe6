package tokenizer

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// The engine folds a text to one byte a character before it matches: ASCII stays, a letter outside ASCII becomes 1, whatever
// its case or script. Patterns that ask for more are given to it in an approximate form:
//
//	\p{Lu} \p{Lt}          A-Z, and letters outside ASCII
//	\p{Ll}                 a-z, and letters outside ASCII
//	\p{Lm} \p{Lo}          letters outside ASCII
//	\p{Nd}                 0-9, and numbers outside ASCII
//	&&[^\p{Han}]           left out, and so is a branch [\p{Han}]+: Han counts as a letter
//	?+ *+ ++               ? * +
//
// In front of the words of one case stands a branch for words in capitals, among them some outside ASCII: the branch behind
// would take the first of those for a small letter, and end the word there.

const (
	outsideLetters = string(rune(foldLetters))
	outsideNumbers = string(rune(foldNumbers))
)

// approximations are what stands for a property in a class of the engine.
var approximations = map[string]string{
	"Lu": "A-Z" + outsideLetters, "Lt": outsideLetters, "Ll": "a-z" + outsideLetters, "Lm": outsideLetters, "Lo": outsideLetters, "Nd": "0-9" + outsideNumbers,
}

// mixedCase is how a pattern begins that cuts words where small letters end (o200k, tekken), and capitals what is put before it.
const (
	mixedCase = `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+`
	capitals  = `[^\r\n\p{L}\p{N}]?[A-Z` + outsideLetters + `\p{M}]*[A-Z][A-Z` + outsideLetters + `\p{M}]*(?![\p{L}\p{M}])`
)

// engineRegexOf gives the form of a pattern for the engine, and what is approximate about it. It is empty for a pattern that
// tells letters apart by script only: whether they are cut there matters where a merge reaches across, which models trained
// with such a pattern do not have.
func engineRegexOf(pattern string) (regex string, losses []string, err error) {
	if scriptsOnly(pattern) {
		return "", []string{fmt.Sprintf("letters of %s are not cut off", pattern)}, nil
	}
	regex = pattern
	if without := strings.ReplaceAll(strings.ReplaceAll(regex, `&&[^\p{Han}]`, ""), `[\p{Han}]+|`, ""); without != regex {
		regex = without
		losses = append(losses, "Han and other letters side by side are one word")
	}
	if greedy := withoutPossessive(regex); greedy != regex {
		regex = greedy
		losses = append(losses, "possessive quantifiers are greedy ones")
	}
	// The branch for capitals has the contractions of the one that it stands before.
	if behind, ok := strings.CutPrefix(regex, mixedCase); ok {
		end := strings.IndexByte(behind, '|')
		if strings.HasPrefix(behind, "(?i:") {
			end = strings.Index(behind, ")?|") + len(")?")
		}
		if end >= 0 {
			regex = capitals + behind[:end] + "|" + regex
		}
	}
	cased := false
	var b strings.Builder
	for i := 0; i < len(regex); {
		name, ok := "", false
		if strings.HasPrefix(regex[i:], `\p{`) {
			name, _, ok = strings.Cut(regex[i+3:], "}")
		}
		set := approximations[name]
		switch {
		case ok && set != "" && inClass(regex[:i]):
			b.WriteString(set)
			i += len(`\p{}`) + len(name)
		case ok && set != "":
			b.WriteString("[" + set + "]")
			i += len(`\p{}`) + len(name)
		case regex[i] == '\\' && i+1 < len(regex):
			b.WriteString(regex[i : i+2])
			i += 2
			continue
		default:
			b.WriteByte(regex[i])
			i++
			continue
		}
		cased = true
	}
	regex = b.String()
	if cased {
		losses = append(losses, "outside ASCII, letters have no case and all numbers are digits")
	}
	if err := checkEngineRegex(regex); err != nil {
		return "", nil, fmt.Errorf("%w (from %q)", err, pattern)
	}
	return regex, losses, nil
}

// inClass reports whether a pattern that begins so is within brackets.
func inClass(before string) bool {
	in := false
	for i := 0; i < len(before); i++ {
		switch before[i] {
		case '\\':
			i++
		case '[':
			in = true
		case ']':
			in = false
		}
	}
	return in
}

// withoutPossessive makes possessive quantifiers greedy. Where what follows cannot begin with what they took, as in the patterns
// of tiktoken, that is the same.
func withoutPossessive(regex string) string {
	var b strings.Builder
	for i := 0; i < len(regex); i++ {
		c := regex[i]
		b.WriteByte(c)
		switch {
		case c == '\\' && i+1 < len(regex):
			i++
			b.WriteByte(regex[i])
		case strings.IndexByte("?*+", c) >= 0 && i+1 < len(regex) && regex[i+1] == '+' && !inClass(regex[:i]):
			i++
		}
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

// unquoteRegex gives the text that a pattern matches, if it is only one.
func unquoteRegex(pattern string) (string, bool) {
	var b strings.Builder
	for i := 0; i < len(pattern); i++ {
		c := pattern[i]
		if c == '\\' && i+1 < len(pattern) {
			r, ok := plainEscape(pattern[i+1])
			if !ok {
				return "", false
			}
			b.WriteRune(r)
			i++
			continue
		}
		if strings.IndexByte(`.+*?()|[]{}^$`, c) >= 0 {
			return "", false
		}
		b.WriteByte(c)
	}
	return b.String(), b.Len() > 0
}
