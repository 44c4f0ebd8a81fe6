//go:build tokenizers

package tokenizerstest

import (
	"math/rand/v2"
	"strings"
	"unicode/utf8"
)

// generator makes files, patterns and texts, always the same ones from one seed.
type generator struct{ *rand.Rand }

func newGenerator(seed uint64) generator { return generator{rand.New(rand.NewPCG(seed, 0))} }

func pick[T any](g generator, list []T) T { return list[g.IntN(len(list))] }

// oneIn is true once in n times.
func (g generator) oneIn(n int) bool { return g.IntN(n) == 0 }

// letters are what most texts are made of: few, so that what is made of them meets often.
var letters = strings.Split("a,b,c,a,b,ab,the, the, a,in, in,A,Ab,AB, , , ,  ,1,12,2024,.,',\",!,-,_,é,的,是", ",")

// oddities are what tokenizers treat in ways of their own.
var oddities = []string{
	"'s", "'S", "'t", "n't", "'re", "'ll", "'LL", "don't", "I'm", "\n", "\n\n", "\r\n", "\r", "\t", "\v", "\f", "   ", "        ",
	" \n", "\n ", "\x00", "\x01", "\x1c", "\x1f", "\x7f",
	"\u0080", "\u0085", "\u00a0", "\u00ad", "\u2003", "\u2028", "\u2029", "\u3000", "\u1680", "\u180e", "\u200b", "\u200c", "\u200d",
	"\u200e", "\u2060", "\ufeff", "\ufffd", "\ufffc", "\ufffe",
	"\u0301", "\u0300", "\u0308", "\u0323", "\u0327", "\u0345", "e\u0301", "a\u0323\u0307", "\u1e69", "s\u0307\u0323", "\u0344",
	"\u0958", "\u0f43", "\u2126", "\u212a", "\u212b",
	"각", "가", "힣", "\u1100\u1161\u11a8", "\u1100\u1161", "가\u11a8", "\u11a8", "\u1161", "\ua960\ud7b0", "한국어",
	"😀", "👍🏽", "👨\u200d👩\u200d👧", "🇩🇪", "🇩", "1\ufe0f\u20e3", "❤\ufe0f", "☺", "🏴\U000e0067\U000e0062\U000e007f",
	"İ", "ı", "i\u0307", "ß", "ẞ", "ſ", "Σ", "ΣΑΣ", "ς", "ﬁ", "ŉ", "ǅ", "Ǆ", "ǆ", "ﬀ", "Å", "K", "Ⅷ", "ⅷ", "ⓐ", "Ⓐ", "ª", "º",
	"²", "½", "①", "١", "३", "𝟘", "𝟏𝟐", "〇", "一", "万", "Ａ", "１", "！", "ｱﾞ", "㍿", "㎏", "…", "℀", "﷽", "№",
	"日本語", "カタカナ", "ひらがな", "ー", "々", "〆", "、", "。", "·", "¿", "«", "»", "—", "$", "+", "^", "`", "|", "~", "<", ">", "=", "€", "©", "™", "°", "×", "≠", "=\u0338",
	"ไทย", "ที่", "العربية", "ال\u064b", "שלום", "हिन्दी", "क्षि", "தமிழ்", "བོད་", "မြန်မာ", "ខ្មែរ", "ქართული", "Ქ", "Ꭰ", "ꭰ", "Պ",
	"և", "Ж", "й", "и\u0306", "Ё",
	"▁", "▁▁", "▁a", "Ġ", "Ġa", "Ċ", "ĉ", "Ã", "©", "Ā", "ł", "Ń", "ŀ", "##", "##a", "</w>", "a</w>", "@@", "<0x41>", "<0x0A>",
	"<0xE7>", "<unk>", "[UNK]", "<s>", "</s>",
	"𐐀", "𐐨", "𠀀", "𪜶", "\U0002b73a", "\U0002b820", "丽", "豈", "\ue000", "\uffff", "\U0010ffff", "\U0001fae8", "\u0378", "\u1c89",
	"\ua7cb", "\U00010d50", "\U0001e5d0", "\u0897", "\u088f", "\U00016ea0", "\U0001faea",
	"snake_case", "camelCase", "HTTPServer", "http://a.b/c?d=e", "a@b.c", "1,234.56", "1e-9", "0x1F", "{\"a\": [1]}",
	"if (a) {\n\treturn b;\n}", "//", "...", "--", "\\n", "*a*", "#",
}

// char is any code point, mostly of a block that letters lie in.
func (g generator) char() string {
	top := pick(g, []int{0x80, 0x250, 0x3000, 0x3000, 0x10000, 0x20000, 0x110000})
	r := rune(g.IntN(top))
	if !utf8.ValidRune(r) {
		r = 'x'
	}
	return string(r)
}

// text is made to hit pieces, which are the tokens of a tokenizer.
func (g generator) text(pieces []string) string {
	var b strings.Builder
	n := pick(g, []int{1, 2, 4, 8, 16})
	plain := g.oneIn(3)
	for range n {
		part := ""
		switch k := g.IntN(20); {
		case k < 9 || plain:
			part = pick(g, letters)
		case k < 13:
			part = pick(g, oddities)
		case k < 14:
			part = g.char()
		default:
			part = pick(g, pieces)
			switch g.IntN(8) {
			case 0: // not quite
				r := []rune(part)
				if len(r) > 1 {
					at := g.IntN(len(r))
					part = string(r[:at]) + string(r[at+1:])
				}
			case 1:
				part = strings.ToUpper(part)
			case 2:
				part = " " + part + pick(g, []string{" ", "  ", "\n", "\u00a0", "a"})
			case 3:
				part += part
			}
		}
		b.WriteString(part)
		if g.oneIn(60) {
			b.WriteString(strings.Repeat(part, pick(g, []int{3, 20, 70})))
		}
	}
	return b.String()
}
