package regex

import (
	"strings"
	"unicode/utf8"

	"github.com/llmexport/llmexport/runtime/tokenizer/internal/chars"
)

// The patterns that have a scanner written by hand, recognised by their exact text.
const (
	GPT2   = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
	Llama3 = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	Qwen2  = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	O200K  = `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	Tekken = `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	Qwen35 = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
)

// Scanners by pattern find the end of the match that begins at byte i < len(s). Each matches at every position,
// so the matches of a text lie without a gap. The map must not be changed.
var Scanners = map[string]func(t *chars.ClassTable, s string, i int) int{
	GPT2:   ScanGPT2,
	Llama3: func(t *chars.ClassTable, s string, i int) int { return scanLlama3(t, s, i, chars.Letter, 3) },
	Qwen2:  func(t *chars.ClassTable, s string, i int) int { return scanLlama3(t, s, i, chars.Letter, 1) },
	O200K:  func(t *chars.ClassTable, s string, i int) int { return scanO200K(t, s, i, 3, true) },
	Tekken: func(t *chars.ClassTable, s string, i int) int { return scanO200K(t, s, i, 1, false) },
	Qwen35: func(t *chars.ClassTable, s string, i int) int { return scanLlama3(t, s, i, chars.Letter|chars.Mark, 1) },
}

// ScanGPT2 is the scanner of GPT2.
func ScanGPT2(t *chars.ClassTable, s string, i int) int {
	if n := contraction(s[i:], false); n > 0 {
		return i + n
	}
	j := i
	if s[i] == ' ' {
		j++
	}
	if c, n := t.At(s, j); n > 0 {
		switch {
		case c&chars.Letter != 0:
			return t.Run(s, j+n, chars.Letter, 0)
		case c&chars.Number != 0:
			return t.Run(s, j+n, chars.Number, 0)
		case c&chars.Space == 0:
			return t.Run(s, j+n, 0, chars.Space|chars.Letter|chars.Number)
		}
	}
	return scanSpace(t, s, i)
}

// scanLlama3 is the pattern of Llama 3 with words made of the classes word and numbers of at most digits
// characters.
func scanLlama3(t *chars.ClassTable, s string, i int, word uint8, digits int) int {
	if n := contraction(s[i:], true); n > 0 {
		return i + n
	}
	c, n := t.At(s, i)
	if c&(chars.Newline|chars.Letter|chars.Number) == 0 {
		if j := t.Run(s, i+n, word, 0); j > i+n {
			return j
		}
	}
	if c&word != 0 {
		return t.Run(s, i+n, word, 0)
	}
	if c&chars.Number != 0 {
		return scanNumber(t, s, i+n, digits)
	}
	return scanOther(t, s, i, word, "")
}

// scanNumber ends a number of at most digits characters, the first of which lies before byte i.
func scanNumber(t *chars.ClassTable, s string, i, digits int) int {
	for ; digits > 1; digits-- {
		c, n := t.At(s, i)
		if c&chars.Number == 0 {
			break
		}
		i += n
	}
	return i
}

// scanOther is the rest of the pattern of Llama 3, after words and numbers. Symbols include the line ends after them, and
// the characters of more.
func scanOther(t *chars.ClassTable, s string, i int, word uint8, more string) int {
	j := i
	if s[i] == ' ' {
		j++
	}
	if k := t.Run(s, j, 0, chars.Space|word|chars.Number); k > j {
		for k < len(s) && (s[k] == '\r' || s[k] == '\n' || strings.IndexByte(more, s[k]) >= 0) {
			k++
		}
		return k
	}
	// The run of white space up to and with its last line end, if it has one.
	end := t.Run(s, i, chars.Space, 0)
	if k := strings.LastIndexAny(s[i:end], "\r\n"); k >= 0 {
		return i + k + 1
	}
	return scanSpace(t, s, i)
}

// scanO200K is the pattern of GPT-4o and others, in which a word ends before a capital letter after a small one.
func scanO200K(t *chars.ClassTable, s string, i, digits int, contractions bool) int {
	c, n := t.At(s, i)
	// A character before the word that is not a letter belongs to it; a mark may be such a character, or part of the word.
	starts := [2]int{i, -1}
	if c&(chars.Newline|chars.Letter|chars.Number) == 0 {
		starts = [2]int{i + n, i}
	}
	for _, small := range [2]bool{true, false} {
		for _, start := range starts {
			if start < 0 {
				continue
			}
			if end := scanCased(t, s, start, small); end > start {
				if contractions {
					end += contraction(s[end:], true)
				}
				return end
			}
		}
	}
	if c&chars.Number != 0 {
		return scanNumber(t, s, i+n, digits)
	}
	return scanOther(t, s, i, chars.Letter, "/")
}

// scanCased ends a word that begins at byte i: letters without a small one and then, or if small is set at least one, letters
// without a capital.
func scanCased(t *chars.ClassTable, s string, i int, small bool) int {
	capitals := t.Run(s, i, chars.NotSmall, 0)
	if end := t.Run(s, capitals, chars.NotCapital, 0); end > capitals || !small {
		return end
	}
	// The last of the first part may do for the second, if it has no case.
	for capitals > i {
		_, n := utf8.DecodeLastRuneInString(s[i:capitals])
		if c, _ := t.At(s, capitals-n); c&chars.NotCapital != 0 {
			return capitals
		}
		capitals -= n
	}
	return i
}

// scanSpace is \s+(?!\S)|\s+ : a run of white space leaves its last character to what follows.
func scanSpace(t *chars.ClassTable, s string, i int) int {
	end := t.Run(s, i, chars.Space, 0)
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
