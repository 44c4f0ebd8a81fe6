package tokenizer

import (
	"unicode"
	"unicode/utf8"
)

// The engine has a scanner of its own for the patterns of pre-tokenizers. It folds a text to one byte a
// character: ASCII stays, everything else becomes the number of its class. So the control characters 1 to 7 pass
// for members of these classes, and letters outside ASCII are all alike.
const (
	foldLetters = 1 + iota
	foldNumbers
	foldSpaces
	foldOther
	foldMarks
	foldPunctuation
	foldSymbols
)

// foldRune is the byte that stands for a character. The engine's tables are of Unicode 15, as Go's are.
func foldRune(r rune) byte {
	switch {
	case r < utf8.RuneSelf:
		return byte(r)
	case unicode.IsLetter(r):
		return foldLetters
	case unicode.IsNumber(r):
		return foldNumbers
	case unicode.Is(unicode.Zs, r):
		return foldSpaces
	case unicode.IsMark(r):
		return foldMarks
	case unicode.IsPunct(r):
		return foldPunctuation
	case unicode.IsSymbol(r):
		return foldSymbols
	}
	return foldOther
}

// foldText folds s; offsets[i] is where character i begins, and one more entry is len(s). A byte that is
// not UTF-8 is a character, U+FFFD.
func foldText(s string) (folded []byte, offsets []int) {
	folded = make([]byte, 0, len(s))
	offsets = make([]int, 0, len(s)+1)
	for i, r := range s {
		folded = append(folded, foldRune(r))
		offsets = append(offsets, i)
	}
	return folded, append(offsets, len(s))
}

// byteSet is a set of folded characters.
type byteSet [4]uint64

func (s *byteSet) add(c byte)      { s[c>>6] |= 1 << (c & 63) }
func (s *byteSet) has(c byte) bool { return s[c>>6]>>(c&63)&1 != 0 }
func (s *byteSet) addAll(o byteSet) {
	for i := range s {
		s[i] |= o[i]
	}
}

func (s byteSet) negated() byteSet {
	for i := range s {
		s[i] = ^s[i]
	}
	return s
}

func setOf(chars string, ranges ...string) byteSet {
	var s byteSet
	for i := range len(chars) {
		s.add(chars[i])
	}
	for _, r := range ranges {
		for c := r[0]; c <= r[1]; c++ {
			s.add(c)
		}
	}
	return s
}

var (
	setLetters     = setOf("\x01", "AZ", "az")
	setNumbers     = setOf("\x02", "09")
	setSpaces      = setOf("\x03 \t\n\r\f\v")
	setMarks       = setOf("\x05")
	setPunctuation = setOf("\x06!\"#%&'()*,-./:;?@[\\]_{}")
	setSymbols     = setOf("\x07$+<=>^`|~")
	setWord        = func() byteSet { s := setOf("_"); s.addAll(setLetters); s.addAll(setNumbers); return s }()
)
