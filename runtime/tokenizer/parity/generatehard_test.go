package parity

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// join puts pieces together with or without something between them.
func (g *generator) join(n int, piece func() string) string {
	sep := pick(g, []string{"", "", " ", " ", "  ", "\n", "\t", "-"})
	var s []string
	for range n {
		s = append(s, piece())
	}
	return strings.Join(s, sep)
}

// around sets s between neighbours of other kinds.
func (g *generator) around(s string) string {
	return pick(g, []string{"", "", "a", "word ", " ", "1", "x", "的", "é", "\n", "(", "'"}) + s +
		pick(g, []string{"", "", "b", " word", " ", "2", ".", "字", "\n", "s", ")", "'s"})
}

// unicode goes through scripts, categories, and code points as such.
func (g *generator) unicode() {
	for _, s := range g.scripts {
		g.fill(g.hard, "script-"+strings.ToLower(s.name), 15, func() string {
			return g.around(g.join(g.between(1, 5), func() string { return g.of(s.runes, g.between(1, 6)) }))
		})
	}
	for _, c := range g.categories {
		g.fill(g.hard, "category-"+strings.ToLower(c.name), 26, func() string {
			return g.join(g.between(1, 4), func() string { return g.around(g.of(c.runes, g.between(1, 4))) })
		})
	}
	for c := rune(0x80); c <= utf8.MaxRune; c += 1867 {
		if utf8.ValidRune(c) {
			g.hard("codepoint", "a"+string(c)+"b 1"+string(c)+"2 "+string(c))
		}
	}
	for c := rune(0x80); c < 0x3400; c += 19 { // denser where most of what has case, width or a decomposition is
		g.hard("codepoint", string(c)+string(c)+" "+string(c)+"a")
	}
	young := blocks(0x105c0, 0x105f3, 0x10d40, 0x10d8f, 0x11380, 0x113e2, 0x116d0, 0x116e3, 0x11bc0, 0x11be1, 0x13460, 0x143fa,
		0x16100, 0x16139, 0x16d40, 0x16d79, 0x1cc00, 0x1ccf9, 0x1e5d0, 0x1e5fa,
		0x2ebf0, 0x2ee5d, 0x2ffc, 0x2fff, 0x31ef, 0x31ef, 0x1c89, 0x1c8a, 0xa7cb, 0xa7cd, 0xa7da, 0xa7dc, 0x10940, 0x10959, 0x11db0,
		0x11ddb, 0x16ea0, 0x16ed3, 0x1e6c0, 0x1e6fe, 0x323b0, 0x33479, 0x897, 0x897, 0x1fae9, 0x1fae9, 0x20c1, 0x20c1)
	g.fill(g.hard, "young", 250, func() string {
		return g.around(g.join(g.between(1, 4), func() string { return g.of(young, g.between(1, 4)) }))
	})
	nonchars := append(blocks(0xfdd0, 0xfdef), 0xfffe, 0xffff, 0x1fffe, 0x1ffff, 0x8fffe, 0x10fffe, 0x10ffff)
	for _, x := range []struct {
		class string
		n     int
		runes []rune
	}{
		{"control", 200, blocks(0, 0x1f, 0x7f, 0x9f)}, {"format", 300, g.byCategory["Cf"]}, {"private", 60, g.byCategory["Co"]},
		{"noncharacter", 60, nonchars}, {"unassigned", 120, g.byCategory["Cn"]},
		{"format", 100, []rune{0x200b, 0x200c, 0x200d, 0x200e, 0x200f, 0x2060, 0xfeff, 0xad, 0x61c, 0xfe0e, 0xfe0f, 0xfe00, 0xe0101, 0x34f}},
		{"replacement", 60, []rune{0xfffd, 0xfffc, 0xfff9, 0xfffa, 0xfffb, 0xfeff}},
	} {
		g.fill(g.hard, x.class, x.n, func() string {
			return g.join(g.between(1, 4), func() string { return g.around(g.of(x.runes, g.between(1, 3))) })
		})
	}
	for c := rune(0); c < 0xa0; c++ {
		if c < 0x20 || c >= 0x7f {
			g.hard("control", string(c))
			g.hard("control", "a"+string(c)+"b "+string(c)+string(c)+" 1"+string(c)+"2")
		}
	}
	for _, c := range g.byCategory["Cf"] {
		g.hard("format", "a"+string(c)+"b"+string(c))
	}
	digits := append(append(append([]rune(nil), g.byCategory["Nd"]...), g.byCategory["No"]...), g.byCategory["Nl"]...)
	g.fill(g.hard, "digit", 150, func() string {
		return g.join(g.between(1, 3), func() string { return g.around(g.of(digits, g.between(1, 6))) })
	})
	for i := 0; i+10 <= len(g.byCategory["Nd"]); i += 10 { // runs within one script
		for range 4 {
			g.hard("digit", g.around(g.of(g.byCategory["Nd"][i:i+10], g.between(1, 9))+pick(g,
				[]string{"", ".", ",", " ", "0"})+g.of(g.byCategory["Nd"][i:i+10], g.between(1, 5))))
		}
	}
	compat := blocks(0xff01, 0xff9f, 0xffe0, 0xffe6, 0xfb00, 0xfb06, 0x2460, 0x24ff, 0x2070, 0x209c, 0x1d400, 0x1d7ff, 0xfe70,
		0xfefc, 0xfb50, 0xfdfc, 0x3200, 0x33ff, 0x2100, 0x218b, 0xbc, 0xbe, 0x2000, 0x200a, 0x132, 0x133, 0x149, 0x149, 0x1c4, 0x1cc,
		0xf900, 0xfad9, 0x2f00, 0x2fd5, 0x3131, 0x318e, 0x1f100, 0x1f251)
	g.fill(g.hard, "compatibility", 450, func() string {
		return g.around(g.join(g.between(1, 4), func() string { return g.of(compat, g.between(1, 5)) }))
	})
	folds := []rune("ſKÅİıẞßςσΣǅǆǄǈǋǲŉΐΰﬀﬁﬅẖẗẘẙẚẛևᏸꭰᲀᲁᲐაⅰⅠⓐⒶꙊᲈᾀᾈᾼῌῼĲ𐐀𐐨𞤀𞤢")
	g.fill(g.hard, "case", 250, func() string {
		return g.around(g.join(g.between(1, 3), func() string { return pick(g, []string{"", "a", "A", "STRA", "strA"}) + g.of(folds, g.between(1, 4)) }))
	})
	punct := append(append([]rune("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"), []rune("–—‘’“”…•¿¡«»、。！？（）「」《》·‐‖‰†‡§¶")...), g.byCategory["Po"]...)
	g.fill(g.hard, "punctuation", 350, func() string {
		if g.chance(3) {
			return g.around(strings.Repeat(string(pick(g, punct[:60])), g.between(2, 30)))
		}
		return g.join(g.between(1, 4), func() string { return g.around(g.of(punct, g.between(1, 5))) })
	})
	g.fill(g.hard, "symbol", 200, func() string {
		return g.join(g.between(1, 3), func() string {
			return g.around(g.of(g.byCategory[pick(g, []string{"Sm", "Sc", "Sk", "So"})], g.between(1, 4)))
		})
	})
}

// blocks lists the code points from the first to the second of every pair.
func blocks(pairs ...rune) (list []rune) {
	for i := 0; i < len(pairs); i += 2 {
		for c := pairs[i]; c <= pairs[i+1]; c++ {
			list = append(list, c)
		}
	}
	return list
}

// marks are what a normalizer changes, or must not.
func (g *generator) marks() {
	var pairs []string // letters with a canonical decomposition, decomposed
	for _, c := range blocks(0xc0, 0x233, 0x386, 0x3ce, 0x400, 0x4f9, 0x622, 0x6d3, 0x929, 0x9df, 0xa33, 0xb5d, 0xb94, 0xd4c, 0xdda,
		0xdde, 0xf43, 0xfb9, 0x1026, 0x1026, 0x1b06, 0x1b43, 0x1e00, 0x1fff, 0x212b, 0x212b, 0x219a, 0x22ed, 0x304c, 0x30fe,
		0x1109a, 0x110ab, 0x1112e, 0x1112f, 0x1134b, 0x1134c, 0x114bb, 0x114be, 0x115ba, 0x115bb, 0x11938, 0x11938) {
		if d := norm.NFD.String(string(c)); d != string(c) {
			pairs = append(pairs, d)
			if len(pairs)%2 == 0 {
				g.hard("decomposed", g.around(d+string(c)))
			}
		}
	}
	// All of Latin's pairs once more in words, and those that Unicode forbids to compose, or that have two forms.
	g.fill(g.hard, "decomposed", 350, func() string {
		return g.join(g.between(1, 3), func() string {
			return pick(g, []string{"", "m", "na", "Z"}) + pick(g, pairs) + pick(g, []string{"", "l", "te"}) + pick(g, pairs)
		})
	})
	above := []rune{0x300, 0x301, 0x302, 0x303, 0x304, 0x306, 0x307, 0x308, 0x30a, 0x30b, 0x30c, 0x30f, 0x311, 0x313, 0x314, 0x342,
		0x345, 0x340, 0x341, 0x343, 0x344}
	below := []rune{0x323, 0x324, 0x325, 0x327, 0x328, 0x32d, 0x32e, 0x330, 0x331, 0x31b, 0x334, 0x338, 0x316, 0x35c, 0x360, 0x489, 0x20dd, 0x1ab0, 0x1dc0}
	bases := []rune("aeiouyAEIOUYcdghklnrstwzCDGHKLNRSTWZαεηιουωΑΩаеиоуАЕИ<=>あかハ\u00e2\u01a1\u1ea1ạǖṩ")
	g.fill(g.hard, "marks", 450, func() string {
		return g.around(g.join(g.between(1, 3), func() string {
			s := string(pick(g, bases))
			for range g.between(1, 4) {
				if g.chance(2) {
					s += string(pick(g, above))
				} else {
					s += string(pick(g, below))
				}
			}
			return s
		}))
	})
	g.fill(g.hard, "marks", 100, func() string { // without a base, or on one that takes none
		return pick(g, []string{"", " ", "\n", "1", "-", "的", "🙂", "\u200b", "\t"}) + g.of(append(above, g.byCategory["Mn"]...),
			g.between(1, 4)) + pick(g, []string{"", "a", " b"})
	})
	jamo := [3][]rune{blocks(0x1100, 0x1112), blocks(0x1161, 0x1175), blocks(0x11a8, 0x11c2)}
	odd := blocks(0x1113, 0x115f, 0x1160, 0x1160, 0x1176, 0x11a7, 0x11c3, 0x11ff, 0xa960, 0xa97c, 0xd7b0, 0xd7fb, 0x302e, 0x302f)
	g.fill(g.hard, "jamo", 350, func() string {
		return g.around(g.join(g.between(1, 3), func() string {
			var b strings.Builder
			for range g.between(1, 4) {
				switch g.n(7) {
				case 0, 1, 2:
					b.WriteString(string(pick(g, jamo[0])) + string(pick(g, jamo[1])))
					if g.chance(2) {
						b.WriteRune(pick(g, jamo[2]))
					}
				case 3:
					b.WriteString(string(rune(0xac00+28*g.n(399))) + string(pick(g, jamo[2])))
				case 4:
					b.WriteRune(pick(g, jamo[g.n(3)]))
				case 5:
					b.WriteString(string(rune(0xac00+g.n(11172))) + string(pick(g, jamo[1])))
				default:
					b.WriteRune(pick(g, odd))
				}
			}
			return b.String()
		}))
	})
	g.fill(g.hard, "indic", 400, func() string { // consonants, nukta, vowel signs, virama and joiners, of one script
		base := pick(g, []rune{0x900, 0x980, 0xa00, 0xa80, 0xb00, 0xb80, 0xc00, 0xc80, 0xd00})
		at := func(offsets ...rune) string { return string(base + pick(g, offsets)) }
		return g.around(g.join(g.between(1, 3), func() string {
			var b strings.Builder
			for range g.between(1, 4) {
				b.WriteString(at(0x15, 0x16, 0x17, 0x1c, 0x21, 0x22, 0x28, 0x2b, 0x2f, 0x30, 0x33))
				b.WriteString(pick(g, []string{"", at(0x3c), at(0x4d), at(0x4d) + "\u200d", at(0x4d) + "\u200c",
					at(0x3e, 0x3f, 0x40, 0x41, 0x42, 0x46, 0x47, 0x48), at(0x47) + at(0x3e), at(0x46) + at(0x56, 0x57, 0x3e), at(0x4d) +
						at(0x3c), at(0x02), at(0x52) + at(0x51)}))
			}
			return b.String()
		}))
	})
	consonants, subjoined, vowels := blocks(0xf40, 0xf6c), blocks(0xf90, 0xfbc), append(blocks(0xf71, 0xf84), 0xf39, 0xf35)
	g.fill(g.hard, "tibetan", 200, func() string {
		return g.around(g.join(g.between(1, 4), func() string {
			return string(pick(g, consonants)) + g.of(subjoined, g.n(3)) + g.of(vowels, g.n(4)) + pick(g, []string{"", "\u0f0b", "\u0f0c", "\u0f0d "})
		}))
	})
	g.fill(g.hard, "pointed", 200, func() string { // Hebrew and Arabic with several marks on a letter
		if g.chance(2) {
			return g.around(g.join(g.between(1, 4), func() string {
				return g.of(blocks(0x5d0, 0x5ea), 1) + g.of(blocks(0x591, 0x5bd, 0x5bf, 0x5c7), g.between(0, 3))
			}))
		}
		return g.around(g.join(g.between(1, 4), func() string {
			return g.of(blocks(0x621, 0x64a, 0x671, 0x6d3), 1) + g.of(blocks(0x64b, 0x65f, 0x670, 0x670, 0x6d6, 0x6dc, 0x8d3, 0x8fe), g.between(0, 3))
		}))
	})
	g.fill(g.hard, "thai", 120, func() string {
		base := pick(g, []rune{0xe00, 0xe80})
		return g.around(g.join(g.between(1, 4), func() string {
			return g.of(blocks(base+1, base+0x2e), 1) + g.of(blocks(base+0x31, base+0x3a, base+0x47, base+0x4e), g.between(0, 3))
		}))
	})
}

func (g *generator) emoji() {
	faces := blocks(0x1f600, 0x1f64f, 0x1f910, 0x1f9ff, 0x1f300, 0x1f3fa, 0x1f680, 0x1f6c5, 0x1fa70, 0x1faf8, 0x2600, 0x27bf)
	hands := []rune("👋🤚🖐✋🖖👌🤌🤏✌🤞🤟🤘🤙👈👉👆🖕👇☝👍👎✊👊🤛🤜👏🙌👐🤲🙏✍💅🤳💪🦵🦶👂🦻👃👶🧒👦👧🧑👱👨🧔👩🧓👴👵🙍🙎🙅🙆💁🙋🧏🙇🤦🤷👮🕵💂🥷👷🤴👸👳🏃💃🕺🏄🚣🏊⛹🏋🚴🤸🫰🫵")
	skins := blocks(0x1f3fb, 0x1f3ff)
	const zwj, vs16 = "\u200d", "\ufe0f"
	flag := func() string { return g.of(blocks(0x1f1e6, 0x1f1ff), 2) }
	things := []string{"💻", "🚀", "🔬", "⚕️", "⚖️", "✈️", "🌾", "🍳", "🎓", "🎤", "🏫", "🏭", "🎨", "🚒", "🔧", "🦰", "🦱", "🦳", "🦲", "♀️", "♂️", "🦽", "🦯", "🍼", "⚧️", "➡️"}
	one := func() string {
		switch g.n(14) {
		case 0:
			return string(pick(g, faces))
		case 1:
			return string(pick(g, faces)) + pick(g, []string{vs16, "\ufe0e"})
		case 2:
			return string(pick(g, hands)) + string(pick(g, skins))
		case 3:
			return string(pick(g, hands)) + string(pick(g, skins)) + zwj + pick(g, things)
		case 4:
			return pick(g, []string{"👩", "👨", "🧑"}) + zwj + pick(g, things)
		case 5:
			s := pick(g, []string{"👩", "👨"})
			for range g.between(1, 3) {
				s += zwj + pick(g, []string{"👩", "👨", "👧", "👦", "❤️" + zwj + "👨"})
			}
			return s
		case 6:
			return pick(g, []string{"🇩🇪", "🇯🇵", "🇺🇸", "🇫🇷", "🇪🇺", "🇺🇦", flag(), flag(), flag()})
		case 7:
			return string(pick(g, []rune("0123456789#*"))) + pick(g, []string{vs16, ""}) + "\u20e3"
		case 8:
			return "🏴" + pick(g, []string{"\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f",
				"\U000e0067\U000e0062\U000e0073\U000e0063\U000e0074\U000e007f", zwj + "☠️", "\U000e0067\U000e0062"})
		case 9:
			return pick(g, []string{"🏳️" + zwj + "🌈", "🏳️" + zwj + "⚧️", "❤️" + zwj + "🔥", "👁️" + zwj + "🗨️", "🐻" + zwj + "❄️",
				"😮" + zwj + "💨", "😵" + zwj + "💫", "🐕" + zwj + "🦺", "🍋" + zwj + "🟩", "🐦" + zwj + "🔥", "⛓️" + zwj + "💥", "🙂" + zwj + "↔️"})
		case 10: // cut
			return pick(g, []string{zwj, vs16, string(pick(g, skins)), g.of(blocks(0x1f1e6, 0x1f1ff), 1), "👩" + zwj, zwj + "💻", "1" + vs16, "\u20e3", zwj + zwj + "👩"})
		case 11:
			return string(pick(g, []rune("©®‼⁉™ℹ↔↩⌚⏏Ⓜ▪▶◀☀☁☎☑☔☕☠☯♠♥♨♻⚓⚡⚽✂✅✈✔✨❄❌❓❤➕➰⤴⬅⭐〰〽㊗㊙🀄🃏🅰🆎🈁🈚"))) + pick(g, []string{"", vs16, "\ufe0e"})
		case 12:
			return pick(g, []string{"🫱", "👩", "👨", "🧑"}) + string(pick(g, skins)) + zwj + pick(g, []string{"🤝" + zwj, "❤️" + zwj, ""}) +
				pick(g, []string{"🫲", "👩", "👨", "🧑"}) + string(pick(g, skins))
		default:
			return string(pick(g, blocks(0x1fa70, 0x1faff, 0x1f7e0, 0x1f7f0, 0x1f90c, 0x1f93f, 0x1fae0, 0x1faef)))
		}
	}
	g.fill(g.hard, "emoji", 500, func() string { return one() })
	g.fill(g.hard, "emoji", 500, func() string { return g.join(g.between(1, 4), func() string { return g.around(one()) }) })
}

var allSpaces = []rune{' ', '\t', '\n', '\v', '\f', '\r', 0x85, 0xa0, 0x1680, 0x2000, 0x2001, 0x2002, 0x2003, 0x2004, 0x2005,
	0x2006, 0x2007, 0x2008, 0x2009, 0x200a, 0x2028, 0x2029, 0x202f, 0x205f, 0x3000}

// spaces are runs of white space, of what looks like it, and of several kinds.
func (g *generator) spaces() {
	alike := append([]rune{0x180e, 0x200b, 0x2060, 0xfeff, 0x1c, 0x1d, 0x1e, 0x1f, 0x2800, 0x3164}, allSpaces...)
	for _, c := range alike {
		for _, n := range []int{1, 2, 3, 4, 5, 8, 16} {
			g.hard("whitespace", strings.Repeat(string(c), n))
			g.hard("whitespace", g.around(strings.Repeat(string(c), n)+pick(g, []string{"x", "", "1", "\n"})))
		}
	}
	for n := 1; n < 90; n++ {
		g.hard("whitespace", pick(g, []string{"a", "", ")"})+strings.Repeat(" ", n)+pick(g, []string{"b", "", "1", "\n", "\t"}))
		if n%3 == 0 {
			g.hard("whitespace", strings.Repeat(pick(g, []string{"\n", "\r\n", " \n", "\t", "\n\t"}), n)+pick(g, []string{"b", "", " "}))
		}
	}
	ascii := []string{" ", "  ", "\t", "\n", "\r\n", "\r", "\n\n", "   ", "    "}
	g.fill(g.hard, "whitespace", 200, func() string {
		return g.join(g.between(1, 3), func() string { return g.around(pick(g, ascii) + pick(g, ascii) + pick(g, ascii)) })
	})
	g.fill(g.hard, "whitespace", 200, func() string {
		return g.around(g.of(alike, g.between(1, 5)) + pick(g, []string{"", "a", "A", ".", "1"}) + g.of(alike, g.between(0, 4)))
	})
}

// bytes are texts that are not UTF-8.
func (g *generator) bytes() {
	bad := []string{
		"\x80", "\xbf", "\xc0", "\xc1", "\xf5", "\xff", "\xfe", "\xc3", "\xe4\xbd", "\xe4", "\xf0\x9f\x98", "\xf0\x9f", "\xf0", // lone, impossible and cut
		"\xc0\x80", "\xc0\xaf", "\xe0\x80\xaf", "\xe0\x9f\xbf", "\xf0\x80\x80\xaf", "\xf0\x8f\xbf\xbf", // overlong
		"\xed\xa0\x80", "\xed\xbf\xbf", "\xed\xa0\xbd\xed\xb8\x80", "\xed\xaf\xbf", // surrogates
		"\xf4\x90\x80\x80", "\xf7\xbf\xbf\xbf", "\xf8\x88\x80\x80\x80", "\xfc\x84\x80\x80\x80\x80", // beyond
		"\xc3\x28", "\xe2\x28\xa1", "\xe2\x82\x28", "\xf0\x28\x8c\xbc", "\xf0\x90\x28\xbc", "\xff\xfe\x41\x00", "\xef\xbb", "\xa9\xc3",
		"caf\xe9", "\x93quoted\x94", "na\xefve",
	}
	for _, b := range bad {
		g.hard("invalid", b)
		g.hard("invalid", g.around(b)+" "+b+"x")
	}
	g.fill(g.hard, "invalid", 350, func() string {
		return g.join(g.between(1, 3), func() string { return g.around(pick(g, bad) + pick(g, []string{"", "a", "é", "你", pick(g, bad)})) })
	})
	g.fill(g.hard, "invalid", 100, func() string {
		b := make([]byte, g.between(1, 16))
		for i := range b {
			b[i] = byte(g.next())
		}
		return string(b)
	})
}

// tokens are contractions, special tokens and what tokenizers themselves write for bytes and spaces.
func (g *generator) tokens() {
	quotes := []string{"'", "'", "'", "’", "''", "`", "\u02bc", "＇", "\"", " '", "' "}
	ends := []string{"s", "S", "t", "T", "re", "RE", "rE", "Re", "ve", "VE", "vE", "m", "M", "ll", "LL", "lL", "Ll", "d", "D", "ſ",
		"ſs", "Kd", "tis", "l", "r", "v", "e", "ss", "Ｓ", "ß", "reſ", "1", "", "é"}
	stems := []string{"I", "you", "WE", "don", "x", "", " ", "\n", "1", "é", "Ж", "的", ".", "'", "don't", "K", "\u0301", "\t", "_"}
	g.fill(g.hard, "contraction", 500, func() string {
		return g.join(g.between(1, 4), func() string {
			return pick(g, stems) + pick(g, quotes) + pick(g, ends) + pick(g, []string{"", "", " ", "x", "'", "."})
		})
	})
	special := strings.Fields(`<|endoftext|> <|im_start|> <|im_end|> <s> </s> <unk> <pad> [INST] [/INST] <<SYS>> <</SYS>>
<|begin_of_text|> <|end_of_text|> <|eot_id|> <|start_header_id|>
<|end_header_id|> <|eom_id|> <|python_tag|> <bos> <eos> <start_of_turn> <end_of_turn> <|user|> <|assistant|> <|system|> <|end|>
<think> </think> <tool_call> </tool_call> <|fim_prefix|>
<|fim_middle|> <|fim_suffix|> <|vision_start|> <|image_pad|> <｜begin▁of▁sentence｜> <｜end▁of▁sentence｜> <｜User｜> <｜Assistant｜>
[CLS] [SEP] [MASK] [PAD] [UNK] <mask> [gMASK] <sop> <eop>
<|START_OF_TURN_TOKEN|> <|END_OF_TURN_TOKEN|> <|CHATBOT_TOKEN|> <BOS_TOKEN> <|channel|> <|message|> <|return|> <|endofprompt|>
[TOOL_CALLS] [AVAILABLE_TOOLS] <reserved_106> <|reserved_special_token_7|>
<unused42> <extra_id_0> ▁<extra_id_99> <EOT> <META> <|plugin|> <|action_start|> <|interpreter|> <|startofpiece|> <2en>
>>ABSTRACT<< <fim_prefix> <filename> <gh_stars> <jupyter_code> <mask_1> <image_soft_token> <|observation|>`)
	for _, s := range special {
		g.hard("token", s)
		g.hard("token", "text "+s+" text")
		g.hard("token", "text"+s+"text"+s+s)
		g.hard("token", "\n"+s+"\n\n  "+s)
	}
	g.fill(g.hard, "token", 350, func() string {
		return g.join(g.between(1, 4), func() string { return g.around(pick(g, special)) })
	})
	g.fill(g.hard, "token", 200, func() string { // cut, doubled, in other cases
		s := pick(g, special)
		switch g.n(5) {
		case 0:
			return g.around(s[:g.runeCut(s)])
		case 1:
			return g.around(s[g.runeCut(s):])
		case 2:
			return strings.ToUpper(s) + strings.ToLower(s)
		case 3:
			i := g.runeCut(s)
			return s[:i] + pick(g, special) + s[i:]
		default:
			i := g.runeCut(s)
			return s[:i] + pick(g, []string{" ", "\u200b", "\u0301", "\n", "|", "<"}) + s[i:]
		}
	})
	for b := range 256 {
		if b%5 == 0 {
			g.hard("bytetoken", g.around(fmt.Sprintf("<0x%02X>", b)))
		}
	}
	g.fill(g.hard, "bytetoken", 100, func() string {
		return g.join(g.between(1, 4), func() string {
			return pick(g, []string{"<0x0A>", "<0x41>", "<0xE4>", "<0xBD>", "<0xA0>", "<0xff>", "<0x4>", "<0x100>", "\\x41", "&#65;",
				"%41", "\\u0041", "<0x0a>", "<0X41>", "<0x20>"})
		})
	})
	stand := []rune("ĠĠĠĊĉčĀāŁłġĢŀ¡¢£¤¥¦¬®°ÿðŁĤĺ▁▁▁▂␣·")
	g.fill(g.hard, "standin", 300, func() string {
		return g.join(g.between(1, 4), func() string {
			return pick(g, []string{"", "a", "the", "Hello", " "}) + g.of(stand, g.between(1, 3)) + pick(g, []string{"", "a", "the", "##ing", "@@", "</w>", " "})
		})
	})
	g.fill(g.hard, "standin", 80, func() string {
		return g.around(strings.Repeat("▁", g.between(1, 20)) + pick(g, []string{"", " ", "a"}))
	})
}

// runeCut is a place between two characters of s.
func (g *generator) runeCut(s string) int {
	i := g.between(1, len(s)-1)
	for i < len(s) && !utf8.RuneStart(s[i]) {
		i++
	}
	return i
}

// long are words and runs that make slow tokenizers visible.
func (g *generator) long() {
	units := []string{"a", "ab", "A", "1", " ", "\n", "é", "e\u0301", "的", "的一", "!", "=", "-", "'", "<", "ſ", "🙂", "👩\u200d",
		"\u0301", "가", "ᄀ", "▁", "Ġ", "\x00", "\u200b", "the", "Straße", "0123456789", "\t", "\r\n", " \n", "_", "aA", "a1", "a.", "ก",
		"क्", "ا", "\xff", "\u3000", "<|", "\u00a0"}
	for _, u := range units {
		for _, n := range []int{60, 300, 1000} {
			g.hard("long", strings.Repeat(u, n/len(u)))
		}
	}
	for _, u := range []string{"a", "ab", " ", "1", "的", "=", "e\u0301", "\n", "aB", "<"} {
		g.hard("long", strings.Repeat(u, 10000/len(u)))
	}
	letters := []rune("abcdefghijklmnopqrstuvwxyz")
	for _, n := range []int{100, 300, 1000, 3000} {
		for range 4 {
			g.hard("long", g.of(letters, n))
			g.hard("long", g.of([]rune("ACGT"), n))
			g.hard("long", g.of([]rune("0123456789abcdef"), n))
		}
	}
	g.hard("long", g.of(letters, 10000))
}

// splices cut all texts and recombine the pieces, mostly between characters.
func (g *generator) splices() {
	all := g.strings
	g.fill(g.hard, "splice", 3400, func() string {
		var b strings.Builder
		for range g.between(2, 4) {
			s := pick(g, all).Text
			from := g.n(len(s))
			piece := s[from : from+min(len(s)-from, g.between(1, 24))]
			if !g.chance(12) {
				piece = strings.TrimFunc(strings.ToValidUTF8(piece, "\x00"), func(r rune) bool { return r == 0 })
			}
			b.WriteString(piece)
		}
		return b.String()
	})
}
