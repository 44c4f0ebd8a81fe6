package tokenizer

import (
	"strings"
	"unicode/utf8"
)

// The patterns that have a scanner written by hand, recognised by their exact text.
const (
	patternGPT2   = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
	patternLlama3 = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	patternQwen2  = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	patternQwen35 = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
)

// scanners find the end of the match that begins at byte i < len(s). Each matches at every position,
// so the matches of a text lie without a gap.
var scanners = map[string]func(t *classTable, s string, i int) int{
	patternGPT2:   scanGPT2,
	patternLlama3: func(t *classTable, s string, i int) int { return scanLlama3(t, s, i, letter, 3) },
	patternQwen2:  func(t *classTable, s string, i int) int { return scanLlama3(t, s, i, letter, 1) },
	patternQwen35: func(t *classTable, s string, i int) int { return scanLlama3(t, s, i, letter|mark, 1) },
}

func scanGPT2(t *classTable, s string, i int) int {
	if n := contraction(s[i:], false); n > 0 {
		return i + n
	}
	j := i
	if s[i] == ' ' {
		j++
	}
	if c, n := t.at(s, j); n > 0 {
		switch {
		case c&letter != 0:
			return t.run(s, j+n, letter, 0)
		case c&number != 0:
			return t.run(s, j+n, number, 0)
		case c&space == 0:
			return t.run(s, j+n, 0, space|letter|number)
		}
	}
	return scanSpace(t, s, i)
}

// scanLlama3 is the pattern of Llama 3 with words made of the classes word and numbers of at most digits
// characters.
func scanLlama3(t *classTable, s string, i int, word uint8, digits int) int {
	if n := contraction(s[i:], true); n > 0 {
		return i + n
	}
	c, n := t.at(s, i)
	if c&(newline|letter|number) == 0 {
		if j := t.run(s, i+n, word, 0); j > i+n {
			return j
		}
	}
	if c&word != 0 {
		return t.run(s, i+n, word, 0)
	}
	if c&number != 0 {
		j := i + n
		for ; digits > 1; digits-- {
			c, n := t.at(s, j)
			if c&number == 0 {
				break
			}
			j += n
		}
		return j
	}
	j := i
	if s[i] == ' ' {
		j++
	}
	if k := t.run(s, j, 0, space|word|number); k > j {
		return t.run(s, k, newline, 0)
	}
	// The run of white space up to and with its last line end, if it has one.
	end := t.run(s, i, space, 0)
	if k := strings.LastIndexAny(s[i:end], "\r\n"); k >= 0 {
		return i + k + 1
	}
	return scanSpace(t, s, i)
}

// scanSpace is \s+(?!\S)|\s+ : a run of white space leaves its last character to what follows.
func scanSpace(t *classTable, s string, i int) int {
	end := t.run(s, i, space, 0)
	if end == len(s) {
		return end
	}
	_, n := utf8.DecodeLastRuneInString(s[i:end])
	if end-n > i {
		return end - n
	}
	return end
}

// contraction is the length of the English contraction that s starts with, or 0.
func contraction(s string, fold bool) int {
	if len(s) < 2 || s[0] != '\'' {
		return 0
	}
	lower := func(i int) byte {
		if c := s[i]; fold && c >= 'A' && c <= 'Z' {
			return c + 'a' - 'A'
		}
		return s[i]
	}
	switch lower(1) {
	case 's', 't', 'm', 'd':
		return 2
	case 'r', 'v':
		if len(s) > 2 && lower(2) == 'e' {
			return 3
		}
	case 'l':
		if len(s) > 2 && lower(2) == 'l' {
			return 3
		}
	}
	// The long s folds to s; it is the only letter outside ASCII that does so here.
	if fold && strings.HasPrefix(s[1:], "ſ") {
		return 1 + len("ſ")
	}
	return 0
}
