package tokenizer

import (
	"strings"
	"unicode"
)

// lowercase is the normalizer Lowercase: the lower case of each code point by itself, so that a final sigma becomes σ
// and not ς.
type lowercase struct{}

func (lowercase) normalize(a aligned) aligned { return a.mapped(lower) }

// youngCases maps capital letters that Go 1.26 (Unicode 15) lacks to their distance from the small ones of Unicode 17,
// which the library `tokenizers` 0.23 knows.
var youngCases = []struct {
	lo, hi, delta rune
}{
	{0x1C89, 0x1C89, 1}, {0xA7CB, 0xA7CB, 0x264 - 0xA7CB}, {0xA7CC, 0xA7CC, 1}, {0xA7CE, 0xA7CE, 1}, {0xA7D2, 0xA7D2, 1},
	{0xA7D4, 0xA7D4, 1}, {0xA7DA, 0xA7DA, 1}, {0xA7DC, 0xA7DC, 0x19B - 0xA7DC}, {0x10D50, 0x10D65, 0x20},
	{0x16EA0, 0x16EB8, 0x1B},
}

func lower(s string) string {
	// İ is the only letter whose lower case is two code points.
	const dotted, dottedLower = "\u0130", "i\u0307"
	if strings.Contains(s, dotted) {
		s = strings.ReplaceAll(s, dotted, dottedLower)
	}
	return strings.Map(func(r rune) rune {
		if r >= youngCases[0].lo {
			for _, c := range youngCases {
				if r >= c.lo && r <= c.hi {
					return r + c.delta
				}
			}
		}
		return unicode.ToLower(r)
	}, s)
}
