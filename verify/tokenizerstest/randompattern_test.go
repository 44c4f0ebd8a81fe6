//go:build tokenizers

package tokenizerstest

import (
	"fmt"
	"strings"
)

// realPatterns are those of models.
var realPatterns = []string{
	`'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`,
	`(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`,
	`(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`,
	`(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`,
	`[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`,
	`[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_` + "`" + `{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`,
	`[一-龥぀-ゟ゠-ヿ]+`, `\p{N}{1,3}`, `\s?\p{L}+`, `[\r\n]`, `\s?[!-/:-~！-／：-～‘-‟　-。]+`, `\s+$`, `[一-龥ࠀ-一가-퟿]+`, `\p{N}`, ` `, `\n`, `\d`, `[0-9]`, `\s+`,
	` ?[^(\s|[.,!?…。，、।۔،])]+`, `\p{N}{1,3}(?=(?:\p{N}{3})*(?:\P{N}|$))`, `\p{Han}+|[^\p{Han}]+`, `[\p{L}\p{M}&&[^\p{Han}]]+`, ` ?[^\s]+| `, `\w+|[^\w\s]+`, `(?:\r?\n)+(?!\r?\n)`,
}

// properties are names of sets, of patterns and of some of its own.
var properties = strings.Fields(`L L N N M P S Z C Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc
Cf Co Han Latin Cyrillic Greek Hiragana Katakana Hangul Arabic Thai Common
	Alphabetic Alpha Space Digit Upper Lower Word Alnum Letter Number Punctuation`)

// pattern is a regular expression as tokenizers have them, or nearly so.
func (g generator) pattern() string {
	switch g.IntN(6) {
	case 0:
		return pick(g, realPatterns)
	case 1: // one branch less, one more, or another order
		branches := strings.Split(pick(g, realPatterns[:6]), "|")
		for range 1 + g.IntN(2) {
			at := g.IntN(len(branches))
			switch g.IntN(4) {
			case 0:
				branches = append(branches[:at:at], branches[at+1:]...)
			case 1:
				branches[at] = g.branch(2)
			case 2:
				to := g.IntN(len(branches))
				branches[at], branches[to] = branches[to], branches[at]
			default:
				branches[at] += pick(g, []string{"+", "?", `\s`, "*", "{2}"})
			}
			if len(branches) == 0 {
				return `\s+`
			}
		}
		return strings.Join(branches, "|")
	}
	return g.alternation(2)
}

func (g generator) alternation(depth int) string {
	var list []string
	for range 1 + g.IntN(3) {
		list = append(list, g.branch(depth))
	}
	return strings.Join(list, "|")
}

func (g generator) branch(depth int) string {
	var b strings.Builder
	for range 1 + g.IntN(3) {
		atom := g.atom(depth)
		b.WriteString(atom)
		// One of an assertion is refused, by the library too.
		assertion := strings.HasPrefix(atom, "(?") && strings.ContainsAny(atom[2:3], "=!<") && !strings.HasPrefix(atom, "(?<n>")
		if g.oneIn(2) && (!assertion || g.oneIn(20)) {
			b.WriteString(pick(g, []string{"+", "+", "*", "?", "{1,3}", "{2}", "{2,}", "+?", "*?", "??", "++", "?+", "*+"}))
		}
	}
	switch g.IntN(14) {
	case 0:
		b.WriteString(pick(g, []string{`(?!\S)`, `(?=\s)`, `(?!\p{L})`, `$`, `\b`, `\z`, `(?=.)`}))
	case 1:
		return pick(g, []string{`^`, `\b`, `(?<!\s)`, `(?<=\p{N})`, `(?<=a)`, `\A`, `\B`}) + b.String()
	}
	return b.String()
}

func (g generator) atom(depth int) string {
	switch k := g.IntN(16); {
	case k < 2:
		return pick(g, []string{"a", "b", "ab", " ", "1", "'", "é", "的", "\n", "▁", "-", ",", "İ", "ß", "A"})
	case k < 4:
		return pick(g, []string{`\s`, `\S`, `\d`, `\D`, `\w`, `\W`, `\n`, `\r`, `\t`, `\.`, `\'`, `\/`, `\-`, `\x20`, `\u0041`, `\x{1F600}`, `\h`, `\R`, `.`, `\H`})
	case k < 7:
		return g.property()
	case k < 12 || depth == 0:
		return g.class(1)
	case k < 14:
		return fmt.Sprintf("(%s%s)", pick(g, []string{"", "?:", "?:", "?i:", "?i:", "?>", "?<n>", "?m:", "?-i:"}), g.alternation(depth-1))
	case k < 15:
		return fmt.Sprintf("(%s%s)", pick(g, []string{"?!", "?=", "?!"}), g.alternation(depth-1))
	}
	return fmt.Sprintf("(%s%s)", pick(g, []string{"?<!", "?<="}), g.atom(0))
}

func (g generator) property() string {
	return fmt.Sprintf(`\%s{%s%s}`, pick(g, []string{"p", "p", "p", "P"}), pick(g, []string{"", "", "", "", "^"}), pick(g, properties))
}

func (g generator) class(depth int) string {
	var b strings.Builder
	b.WriteString(pick(g, []string{"[", "[", "[^"}))
	for range 1 + g.IntN(4) {
		switch g.IntN(9) {
		case 0, 1:
			b.WriteString(g.property())
		case 2, 3:
			b.WriteString(pick(g, []string{`\s`, `\d`, `\w`, `\S`, `\W`, `\r\n`, `\n`, `\t`, `\]`, `\\`, `\-`, `\.`, `\u00e9`, `\x41`, `\h`}))
		case 4, 5:
			b.WriteString(pick(g, []string{"a-z", "A-Z", "0-9", "!-/", "一-龥", "à-ÿ", "가-힣", "\u0300-\u036f", "a-c", "α-ω", "！-～", "a-zA-Z", "\u0000-\u001f", "😀-🙏"}))
		case 6:
			if depth > 0 {
				b.WriteString(pick(g, []string{"", "", "&&"}) + g.class(depth-1))
				continue
			}
			b.WriteString("_")
		case 7:
			b.WriteString(pick(g, []string{"[:alpha:]", "[:space:]", "[:^digit:]", "[:upper:]", "[:word:]", "&&[^a]", "|", "(", ")", "."}))
		default:
			b.WriteString(pick(g, []string{"a", "b", " ", "1", "'", "é", "的", "▁", ",", "ſ", "K", "ß", "+", "$", "^"}))
		}
	}
	return b.String() + "]"
}
