package dialect

import (
	"sync"
	"unicode"
	"unicode/utf8"

	"github.com/llmexport/llmexport/runtime/tokenizer/internal/chars"
)

// The engine has a scanner of its own for the patterns of pre-tokenizers. It folds a text to one byte a
// character: ASCII stays, everything else becomes the number of its class. So the control characters 1 to 7 count
// as members of these classes, and all letters outside ASCII are equal. The classes are those of Unicode.
const (
	FoldLetters = 1 + iota
	FoldNumbers
	FoldSpaces
	FoldOther
	FoldMarks
	FoldPunctuation
	FoldSymbols
)

// foldTable has the byte that stands for a character. The engine's tables are of Unicode 15, as Go's are.
var foldTable = sync.OnceValue(func() *[unicode.MaxRune + 1]byte {
	t := new([unicode.MaxRune + 1]byte)
	for i := range t {
		t[i] = FoldOther
	}
	set := func(class byte, rt *unicode.RangeTable) { chars.Each(rt, func(c rune) { t[c] = class }) }
	set(FoldLetters, unicode.L)
	set(FoldNumbers, unicode.N)
	set(FoldSpaces, unicode.Zs)
	set(FoldMarks, unicode.M)
	set(FoldPunctuation, unicode.P)
	set(FoldSymbols, unicode.S)
	for c := range byte(utf8.RuneSelf) {
		t[c] = c
	}
	return t
})

// Fold is the byte for a character: ASCII itself, or the number of its class.
func Fold(r rune) byte { return foldTable()[r] }

// foldedText is a text as the scanner reads it.
type foldedText struct {
	chars []byte
	// at is where each character begins in the text, and one entry more for its end; empty if every character
	// is one byte.
	at []int32
}

var foldedTexts = sync.Pool{New: func() any { return new(foldedText) }}

// fold takes a text. A byte that is not UTF-8 is a character, U+FFFD.
func (f *foldedText) fold(s string) {
	f.chars, f.at = append(f.chars[:0], s...), f.at[:0]
	i := 0
	for i < len(s) && s[i] < utf8.RuneSelf {
		i++
	}
	if i == len(s) {
		return
	}
	for k := range i {
		f.at = append(f.at, int32(k))
	}
	f.chars = f.chars[:i]
	table := foldTable()
	for k, r := range s[i:] {
		f.chars = append(f.chars, table[r])
		f.at = append(f.at, int32(i+k))
	}
	f.at = append(f.at, int32(len(s)))
}

// offset is the byte at which character i begins.
func (f *foldedText) offset(i int) int {
	if len(f.at) == 0 {
		return i
	}
	return int(f.at[i])
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
