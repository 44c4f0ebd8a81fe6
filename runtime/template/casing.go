package template

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/cases"
	"golang.org/x/text/language"
)

// upper is Python's str.upper: ß becomes SS.
func upper(s string) string { return cases.Upper(language.Und).String(s) }

// lower is Python's str.lower: İ becomes two characters, and a Σ that ends a word ς. Where a letter is both cased and
// ignored, such as ᵘ before Σ, the package cases decides otherwise.
func lower(s string) string {
	var b strings.Builder
	for i, c := range s {
		switch c {
		case 'İ':
			b.WriteString("i\u0307")
		case 'Σ':
			if endsWord(s, i) {
				b.WriteRune('ς')
			} else {
				b.WriteRune('σ')
			}
		default:
			b.WriteRune(unicode.ToLower(c))
		}
	}
	return b.String()
}

// endsWord is Unicode's condition Final_Sigma for the letter at i: a letter stands before it and none after it, apart
// from ignored characters.
func endsWord(s string, i int) bool {
	before := strings.TrimRightFunc(s[:i], ignoresCase)
	after := strings.TrimLeftFunc(s[i+len("Σ"):], ignoresCase)
	last, _ := utf8.DecodeLastRuneInString(before)
	first, _ := utf8.DecodeRuneInString(after)
	return before != "" && cased(last) && (after == "" || !cased(first))
}

func ignoresCase(c rune) bool {
	return strings.ContainsRune("'.:·’", c) || unicode.In(c, unicode.Mn, unicode.Me, unicode.Cf, unicode.Lm, unicode.Sk)
}

func cased(c rune) bool {
	return unicode.IsUpper(c) || unicode.IsLower(c) || unicode.IsTitle(c) || unicode.In(c, unicode.Other_Lowercase, unicode.Other_Uppercase)
}

// foldCase is Python's str.casefold: the lower case of the upper case of each character, with a few exceptions.
func foldCase(s string) string {
	var b strings.Builder
	for i, c := range s {
		switch {
		case c == 'ı':
			b.WriteRune(c)
		case c == 'ẞ':
			b.WriteString("ss")
		case unicode.Is(unicode.Cherokee, c):
			b.WriteRune(unicode.ToUpper(c))
		default:
			for _, u := range upper(s[i : i+utf8.RuneLen(c)]) {
				b.WriteString(lower(string(u)))
			}
		}
	}
	return b.String()
}

// titleCharacter is Python's str.title of one character: ß becomes Ss.
func titleCharacter(c string) string { return cases.Title(language.Und, cases.NoLower).String(c) }

// capitalize is Python's str.capitalize.
func capitalize(s string) string {
	if s == "" {
		return s
	}
	_, n := utf8.DecodeRuneInString(s)
	return titleCharacter(s[:n]) + lower(s)[len(lower(s[:n])):]
}

// title is Python's str.title: a word begins after a character without case.
func title(s string) string {
	lowered := lower(s)
	var b strings.Builder
	inWord := false
	at := 0 // in lowered, which follows s character by character
	for i, c := range s {
		_, n := utf8.DecodeRuneInString(s[i:])
		m := len(lower(s[i : i+n]))
		if inWord {
			b.WriteString(lowered[at : at+m])
		} else {
			b.WriteString(titleCharacter(s[i : i+n]))
		}
		at += m
		inWord = cased(c)
	}
	return b.String()
}

func swapCase(s string) string {
	lowered := lower(s)
	var b strings.Builder
	at := 0
	for i, c := range s {
		_, n := utf8.DecodeRuneInString(s[i:])
		m := len(lower(s[i : i+n]))
		switch {
		case unicode.IsUpper(c):
			b.WriteString(lowered[at : at+m])
		case unicode.IsLower(c):
			b.WriteString(upper(s[i : i+n]))
		default:
			b.WriteRune(c)
		}
		at += m
	}
	return b.String()
}

// hasCase reports whether a text has letters with case, and all of them fulfil a condition, as in str.islower.
func hasCase(s string, holds func(rune) bool) bool {
	found := false
	for _, c := range s {
		if cased(c) {
			if !holds(c) {
				return false
			}
			found = true
		}
	}
	return found
}

func isLower(c rune) bool { return unicode.IsLower(c) || unicode.Is(unicode.Other_Lowercase, c) }
func isUpper(c rune) bool { return unicode.IsUpper(c) || unicode.Is(unicode.Other_Uppercase, c) }

// isTitle is Python's str.istitle.
func isTitle(s string) bool {
	found, inWord := false, false
	for _, c := range s {
		switch {
		case isUpper(c) || unicode.IsTitle(c):
			if inWord {
				return false
			}
			found, inWord = true, true
		case isLower(c):
			if !inWord {
				return false
			}
		default:
			inWord = false
		}
	}
	return found
}
