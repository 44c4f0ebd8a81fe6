// Package chars has the classes, sets and tables of code points for tokenizers, by the versions of Unicode that the library
// `tokenizers` 0.23 uses, which are not always that of Go.
package chars

import (
	"sync"
	"unicode"
	"unicode/utf8"
)

// Character classes as bits, those of the regular expressions of tokenizers.
const (
	Letter     uint8 = 1 << iota // \p{L}
	Number                       // \p{N}
	Space                        // \s
	Mark                         // \p{M}
	Numeric                      // what the Digits pre-tokenizer takes for a digit
	Newline                      // carriage return and line feed
	NotSmall                     // letters and marks that may begin a word in capitals: all but \p{Ll}
	NotCapital                   // those that may go on in small letters: all but \p{Lu} and \p{Lt}
)

// Younger lists, by general category and script, the code points that the tables of Go 1.26 (Unicode 15) lack and
// that the regular expressions of the library `tokenizers` 0.23 (Unicode 16) know. It must not be changed.
var Younger = map[string]*unicode.RangeTable{
	"Arabic":   Ranges(0x897, 0x897, 0x10EC2, 0x10EC4, 0x10EFC, 0x10EFC),
	"Balinese": Ranges(0x1B4E, 0x1B4F, 0x1B7F, 0x1B7F),
	"Common": Ranges(
		0x2427, 0x2429, 0x2FFC, 0x2FFF, 0x31E4, 0x31E5, 0x31EF, 0x31EF, 0x1CC00, 0x1CCF9, 0x1CD00, 0x1CEB3, 0x1F8B2, 0x1F8BB,
		0x1F8C0, 0x1F8C1, 0x1FA89, 0x1FA89, 0x1FA8F, 0x1FA8F, 0x1FABE, 0x1FABE, 0x1FAC6, 0x1FAC6, 0x1FADC, 0x1FADC,
		0x1FADF, 0x1FADF, 0x1FAE9, 0x1FAE9, 0x1FBCB, 0x1FBEF),
	"Cyrillic":             Ranges(0x1C89, 0x1C8A),
	"Egyptian_Hieroglyphs": Ranges(0x13460, 0x143FA),
	"Han":                  Ranges(0x2EBF0, 0x2EE5D),
	"Kawi":                 Ranges(0x11F5A, 0x11F5A),
	"Khitan_Small_Script":  Ranges(0x18CFF, 0x18CFF),
	"Myanmar":              Ranges(0x116D0, 0x116E3),
	"Latin":                Ranges(0xA7CB, 0xA7CD, 0xA7DA, 0xA7DC),
	"Ll":                   Ranges(0x1C8A, 0x1C8A, 0xA7CD, 0xA7CD, 0xA7DB, 0xA7DB, 0x10D70, 0x10D85),
	"Lm":                   Ranges(0x10D4E, 0x10D4E, 0x10D6F, 0x10D6F, 0x16D40, 0x16D42, 0x16D6B, 0x16D6C),
	"Lo": Ranges(
		0x105C0, 0x105F3, 0x10D4A, 0x10D4D, 0x10D4F, 0x10D4F, 0x10EC2, 0x10EC4, 0x11380, 0x11389, 0x1138B, 0x1138B,
		0x1138E, 0x1138E, 0x11390, 0x113B5, 0x113B7, 0x113B7, 0x113D1, 0x113D1, 0x113D3, 0x113D3, 0x11BC0, 0x11BE0,
		0x13460, 0x143FA, 0x16100, 0x1611D, 0x16D43, 0x16D6A, 0x18CFF, 0x18CFF, 0x1E5D0, 0x1E5ED, 0x1E5F0, 0x1E5F0,
		0x2EBF0, 0x2EE5D),
	"Lu": Ranges(0x1C89, 0x1C89, 0xA7CB, 0xA7CC, 0xA7DA, 0xA7DA, 0xA7DC, 0xA7DC, 0x10D50, 0x10D65),
	"Mc": Ranges(
		0x113B8, 0x113BA, 0x113C2, 0x113C2, 0x113C5, 0x113C5, 0x113C7, 0x113CA, 0x113CC, 0x113CD, 0x113CF, 0x113CF,
		0x1612A, 0x1612C),
	"Mn": Ranges(
		0x897, 0x897, 0x10D69, 0x10D6D, 0x10EFC, 0x10EFC, 0x113BB, 0x113C0, 0x113CE, 0x113CE, 0x113D0, 0x113D0,
		0x113D2, 0x113D2, 0x113E1, 0x113E2, 0x11F5A, 0x11F5A, 0x1611E, 0x16129, 0x1612D, 0x1612F, 0x1E5EE, 0x1E5EF),
	"Nd": Ranges(
		0x10D40, 0x10D49, 0x116D0, 0x116E3, 0x11BF0, 0x11BF9, 0x16130, 0x16139, 0x16D70, 0x16D79, 0x1CCF0, 0x1CCF9,
		0x1E5F1, 0x1E5FA),
	"Pd": Ranges(0x10D6E, 0x10D6E),
	"Po": Ranges(
		0x1B4E, 0x1B4F, 0x1B7F, 0x1B7F, 0x113D4, 0x113D5, 0x113D7, 0x113D8, 0x11BE1, 0x11BE1, 0x16D6D, 0x16D6F,
		0x1E5FF, 0x1E5FF),
	"Sm": Ranges(0x10D8E, 0x10D8F),
	"So": Ranges(
		0x2427, 0x2429, 0x2FFC, 0x2FFF, 0x31E4, 0x31E5, 0x31EF, 0x31EF, 0x1CC00, 0x1CCEF, 0x1CD00, 0x1CEB3,
		0x1F8B2, 0x1F8BB, 0x1F8C0, 0x1F8C1, 0x1FA89, 0x1FA89, 0x1FA8F, 0x1FA8F, 0x1FABE, 0x1FABE, 0x1FAC6, 0x1FAC6,
		0x1FADC, 0x1FADC, 0x1FADF, 0x1FADF, 0x1FAE9, 0x1FAE9, 0x1FBCB, 0x1FBEF),
}

// NumericOnly are the digits of Unicode 17, which the pre-tokenizer Digits knows.
var NumericOnly = Ranges(0x11DE0, 0x11DE9, 0x16FF4, 0x16FF6)

// Ranges makes a range table of pairs of first and last code points.
func Ranges(pairs ...uint32) *unicode.RangeTable {
	t := &unicode.RangeTable{}
	for i := 0; i < len(pairs); i += 2 {
		t.R32 = append(t.R32, unicode.Range32{Lo: pairs[i], Hi: pairs[i+1], Stride: 1})
	}
	return t
}

// ClassTable holds the classes of every code point, one byte each.
type ClassTable [unicode.MaxRune + 1]uint8

// Classes is the table, which is made once.
func Classes() *ClassTable { return classes() }

var classes = sync.OnceValue(func() *ClassTable {
	t := new(ClassTable)
	set := func(bits uint8, rt *unicode.RangeTable) { Each(rt, func(c rune) { t[c] |= bits }) }
	set(Letter, unicode.L)
	set(Number|Numeric, unicode.N)
	set(Numeric, NumericOnly)
	set(Space, unicode.White_Space)
	set(Mark, unicode.M)
	for name, bits := range map[string]uint8{"Lu": Letter, "Ll": Letter, "Lm": Letter, "Lo": Letter, "Nd": Number | Numeric, "Mn": Mark, "Mc": Mark} {
		set(bits, Younger[name])
	}
	for c := range t {
		if t[c]&(Letter|Mark) != 0 {
			t[c] |= NotSmall | NotCapital
		}
	}
	unset := func(bits uint8, tables ...*unicode.RangeTable) {
		for _, rt := range tables {
			Each(rt, func(c rune) { t[c] &^= bits })
		}
	}
	unset(NotSmall, unicode.Ll, Younger["Ll"])
	unset(NotCapital, unicode.Lu, unicode.Lt, Younger["Lu"])
	t['\r'] |= Newline
	t['\n'] |= Newline
	return t
})

// At returns the classes of the character of s that begins at byte i, and its length; 0, 0 at the end.
func (t *ClassTable) At(s string, i int) (uint8, int) {
	if i >= len(s) {
		return 0, 0
	}
	if c := s[i]; c < utf8.RuneSelf {
		return t[c], 1
	}
	r, n := utf8.DecodeRuneInString(s[i:])
	return t[r], n
}

// Run is the end of the longest run of characters from byte i on that have a class of want and none
// of not; want 0 means all characters.
func (t *ClassTable) Run(s string, i int, want, not uint8) int {
	for {
		c, n := t.At(s, i)
		if n == 0 || c&not != 0 || want != 0 && c&want == 0 {
			return i
		}
		i += n
	}
}
