package tokenizer

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"github.com/llmexport/llmexport/runtime/tokenizer/engine"
	"github.com/llmexport/llmexport/runtime/tokenizer/internal/mtok"
)

// The engine has no normalizer for the forms of Unicode or for the table of a SentencePiece model: its own table maps one
// code point at a time, and converts control and format characters to spaces. Such normalizers are spelled out for it as
// literal replacements:
//
//  1. control and format characters are put aside, as code points for private use,
//  2. the table maps the code points that change by themselves,
//  3. the characters put aside come back,
//  4. two neighbouring marks in the wrong order change places (see markGroups),
//  5. each of the 940 canonical pairs becomes its composite, short composites first,
//  6. a composite in front of a mark that belongs before its own mark becomes the composite of the three,
//  7. Hangul: leading consonant and vowel become a syllable (399 pairs); for trailing consonants see trailing.
//
// Each replacement is made only if the normalizer makes it too, so steps 4 to 7 are empty for one that does not compose.
//
// For NFC these differ: three and more marks in the wrong order, marks beyond those of step 4 in the wrong order, composites
// across a mark that does not compose, and trailing jamo that follow no syllable.

// literal makes the nodes for a normalizer that maps characters and the marks after them.
func literal(normalize func(string) string) mtok.Normalizer {
	var nodes []mtok.Normalizer
	add := func(from, to string) {
		nodes = append(nodes, mtok.Normalizer{Tag: mtok.NormReplace, Pattern: from, Content: to})
	}
	known := map[string]bool{}
	replace := func(from, to string) {
		if from != to && !known[from] && normalize(from) == to {
			known[from] = true
			add(from, to)
		}
	}
	if table := substitutions(normalize); len(table) > 0 {
		aside := setAside()
		for i, r := range aside {
			add(string(r), string(placeholder+rune(i)))
		}
		nodes = append(nodes, mtok.Normalizer{Tag: mtok.NormTable, Table: table})
		for i, r := range aside {
			add(string(placeholder+rune(i)), normalize(string(r)))
		}
	}
	for _, marks := range markGroups() {
		for _, lo := range marks {
			for _, hi := range marks {
				if class(hi) > class(lo) {
					replace(string([]rune{hi, lo}), string([]rune{lo, hi}))
				}
			}
		}
	}
	pairs := canonicalPairs()
	for _, p := range pairs {
		replace(p.from, p.to)
	}
	for _, p := range pairs {
		if normalize(p.to) != p.to {
			continue // it does not compose
		}
		for _, m := range europeanMarks {
			from := p.to + string(m)
			replace(from, normalize(from))
		}
	}
	for l := range rune(hangulLs) {
		for v := range rune(hangulVs) {
			replace(string([]rune{hangulL + l, hangulV + v}), string(hangulS+(l*hangulVs+v)*hangulTs))
		}
	}
	if s := "\u1112\u1161\u11AB"; normalize(s) == "\uD55C" {
		trailing(add)
	}
	return mtok.Normalizer{Tag: mtok.NormSequence, Children: nodes}
}

// trailing joins trailing consonants to the syllables before them. As the engine replaces bytes, the 10,773 pairs need not be
// listed: only the last byte of a syllable matters, six bits of its code point, which has 16 values if there is no
// trailing consonant yet. Sums beyond the six bits leave the byte 0xFF, which no text has, for a carry.
func trailing(replace func(from, to string)) {
	const carry = "\xff"
	for low := byte(0); low < 64; low += 4 {
		for t := byte(1); t < hangulTs; t++ {
			from := string([]byte{0x80 + low}) + string(rune(hangulT)+rune(t))
			to := string([]byte{0x80 + (low+t)%64})
			if low+t >= 64 {
				to = carry + to
			}
			replace(from, to)
		}
	}
	for b := byte(0x80); b < 0xBF; b++ {
		replace(string([]byte{b})+carry, string([]byte{b + 1}))
	}
	for b := byte(0xEA); b < 0xED; b++ {
		replace(string([]byte{b, 0xBF})+carry, string([]byte{b + 1, 0x80}))
	}
}

// placeholder is the first of the code points that stand for those put aside, at the end of the last plane for private use.
const placeholder = 0x10F800

// setAside lists the characters that the engine's table would convert to spaces.
func setAside() []rune {
	var out []rune
	for r := rune(0); r <= 0xFFFF; r++ {
		if engine.IsControl(r) {
			out = append(out, r)
		}
	}
	return out
}

// substitutions lists the code points that normalize changes.
func substitutions(normalize func(string) string) []mtok.Substitution {
	var out []mtok.Substitution
	var block []rune
	add := func() {
		// Most blocks do not change. Line ends separate their code points.
		var b strings.Builder
		for _, r := range block {
			b.WriteRune(r)
			b.WriteByte('\n')
		}
		if text := b.String(); normalize(text) != text {
			for _, r := range block {
				if s := string(r); normalize(s) != s {
					out = append(out, mtok.Substitution{Char: r, Text: normalize(s)})
				}
			}
		}
		block = block[:0]
	}
	for r := rune(0); r <= unicode.MaxRune; r++ {
		if r == 0x40000 {
			r = 0xE0000 // the planes between have no characters
		}
		if utf8.ValidRune(r) && !engine.IsControl(r) && r != utf8.RuneError {
			block = append(block, r)
		}
		if r&0xFF == 0xFF {
			add()
		}
	}
	// The engine looks up a byte that is not UTF-8 as U+FFFD.
	if s := string(utf8.RuneError); len(out) > 0 {
		at, _ := slices.BinarySearchFunc(out, utf8.RuneError, func(e mtok.Substitution, r rune) int { return int(e.Char - r) })
		out = slices.Insert(out, at, mtok.Substitution{Char: utf8.RuneError, Text: normalize(s)})
	}
	return out
}

// europeanMarks are the combining marks of the Latin, Greek and Cyrillic composites.
var europeanMarks = []rune{
	0x300, 0x301, 0x302, 0x303, 0x304, 0x306, 0x307, 0x308, 0x309, 0x30A, 0x30B, 0x30C, 0x30F, 0x311, 0x313, 0x314, 0x31B,
	0x323, 0x324, 0x325, 0x326, 0x327, 0x328, 0x32D, 0x32E, 0x330, 0x331, 0x338, 0x342, 0x345,
}

// markGroups are the marks that may stand side by side in a text, group by group and sorted by class: those of European
// scripts, the vowels of Hebrew and Arabic, and those of each script of South Asia.
func markGroups() [][]rune {
	groups := [][]rune{europeanMarks}
	add := func(from, to rune) {
		var marks []rune
		for r := from; r <= to; r++ {
			if class(r) > 0 {
				marks = append(marks, r)
			}
		}
		groups = append(groups, marks)
	}
	add(0x5B0, 0x5C7)
	add(0x64B, 0x670)
	for block := rune(0x900); block < 0x1000; block += 0x80 {
		add(block, block+0x7F)
	}
	for i, marks := range groups {
		groups[i] = slices.Clone(marks)
		slices.SortStableFunc(groups[i], func(a, b rune) int { return int(class(a)) - int(class(b)) })
	}
	return groups
}

type canonicalPair struct{ from, to string }

// canonicalPairs lists the pairs that compose, Hangul left out, such that the first half of a pair is made before it.
func canonicalPairs() []canonicalPair {
	var out []canonicalPair
	for r := rune(0xC0); r <= 0x1FFFF; r++ {
		if r >= 0xAC00 && r <= 0xD7A3 || !utf8.ValidRune(r) || norm.NFD.PropertiesString(string(r)).Decomposition() == nil {
			continue
		}
		to := string(r)
		parts := []rune(norm.NFD.String(to))
		if len(parts) < 2 || nfc(string(parts)) != to {
			continue
		}
		last := len(parts) - 1
		out = append(out, canonicalPair{nfc(string(parts[:last])) + string(parts[last]), to})
	}
	slices.SortStableFunc(out, func(a, b canonicalPair) int {
		return len([]rune(norm.NFD.String(a.to))) - len([]rune(norm.NFD.String(b.to)))
	})
	return out
}
