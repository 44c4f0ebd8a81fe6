package engine

import (
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/llmexport/llmexport/runtime/tokenizer/internal/bytelevel"
	"github.com/llmexport/llmexport/runtime/tokenizer/internal/merge"
	"github.com/llmexport/llmexport/runtime/tokenizer/internal/mtok"
	"github.com/llmexport/llmexport/runtime/tokenizer/internal/regex"
)

// nodeTexts are texts for the comparison with the real engine: bytes of all kinds, the same ones on every run.
func nodeTexts() []string {
	rng := rand.New(rand.NewPCG(7, 1))
	pick := func(list ...string) string { return list[rng.IntN(len(list))] }
	alphabets := []func() string{
		func() string { return string(rune('a' + rng.IntN(26))) },
		func() string {
			return pick("the", "it's", "I'LL", "DON'T", "hello", "World", "we've", "ab", "abc", "a")
		},
		func() string { return string(rune('0' + rng.IntN(10))) },
		func() string { return pick("12345", "٣٤", "Ⅷ", "½", "²", "७", "1,000.5") },
		func() string { return pick(" ", " ", "  ", "\t", "\n", "\r\n", "\n\n", "   ", "\v", "\f") },
		func() string {
			return pick("\u00a0", "\u3000", "\u2003", "\u0085", "\u2028", "\u2029", "\u200b", "\ufeff", "\u1680")
		},
		func() string { return string(rune(33 + rng.IntN(15))) },
		func() string {
			return pick(".", ",", "?!", "...", "--", "[", "]", "{}", "_", "~", "^", "$", "+=", "|", "`", "«", "。", "—", "£", "§", "€")
		},
		func() string { return string(rune(1 + rng.IntN(31))) },
		func() string { return string(rune(0x7F + rng.IntN(0x22))) },
		func() string { return string(rune(0xC0 + rng.IntN(0x40))) },
		func() string {
			return pick("e\u0301", "a\u0308", "\u0301", "\u0327\u0301", "é", "É", "ﬁ", "Å", "İ", "ß", "Ⱥ", "ΐ", "ﷺ", "ｱ", "①", "Ω")
		},
		func() string {
			return pick("中", "文", "日本語", "かな", "カナ", "한국어", "각", "\u1100\u1161", "龥", "龦", "豈", "𠀀", "゠ヿ", "ー")
		},
		func() string {
			return pick("👍", "👍🏽", "👨‍👩‍👧", "🇩🇪", "☕️", "❤", "1️⃣", "🏴‍☠️")
		},
		func() string {
			return pick("привет", "ПРИВЕТ", "שלום", "مرحبا", "नमस्ते", "ไทย", "Ελλάδα", "ჯ", "Ა", "Ꭰ")
		},
		func() string {
			return pick("\ue000", "\U000F0000", "\u0378", "\U0001FAE9", "\U00016D40", "\ufffd", "\ufffe", "\U0010FFFF", "\ufff9", "\u2060", "\u202e", "\u00ad")
		},
		func() string {
			return pick("\x80", "\xff", "\xc3", "\xe2\x96", "\xf0\x9f", "\xed\xa0\x80", "\xc0\xaf", "\xf4\x90\x80\x80", "\xe4\xb8", "\xbf\xbf")
		},
		func() string {
			return pick("<s>", "</s>", "<|im_start|>", "<|im_end|>", "<|im", "[UNK]", "[CLS]", " [CLS]", "<x>", "<x><y>", "<xy>", "<unk>", "<mask>")
		},
		func() string {
			return pick("▁", "▁▁", "Ġ", "Ċ", "##", "##ab", "<0x41>", "<0x0A>", "<0x", "\u0100", "\u0143")
		},
	}
	texts := []string{"", " ", "\n", "a", "▁", "\x80", "<s>", "\u00a0", "  ", "a ", " a", strings.Repeat("ab", 200),
		strings.Repeat(" ", 300), strings.Repeat("中", 150), strings.Repeat("a", 101)}
	for len(texts) < 3000 {
		var b strings.Builder
		use := make([]func() string, 1+rng.IntN(4))
		for i := range use {
			use[i] = alphabets[rng.IntN(len(alphabets))]
		}
		if rng.IntN(3) == 0 {
			use = alphabets
		}
		for range 1 + rng.IntN(24) {
			b.WriteString(use[rng.IntN(len(use))]())
		}
		if rng.IntN(20) == 0 {
			for range rng.IntN(8) {
				b.WriteByte(byte(1 + rng.IntN(255)))
			}
		}
		texts = append(texts, b.String())
	}
	return texts
}

// nodeVocab makes vocabularies from pieces of the texts.
type nodeVocab struct {
	rng    *rand.Rand
	pieces []string
}

// newNodeVocab takes texts as the model sees them and cuts out pieces of 2 to 6 characters.
func newNodeVocab(seed uint64, view func(string) string) *nodeVocab {
	v := &nodeVocab{rng: rand.New(rand.NewPCG(seed, 2))}
	texts := nodeTexts()
	for len(v.pieces) < 700 {
		runes := []rune(view(strings.ToValidUTF8(texts[v.rng.IntN(len(texts))], "")))
		if n := 2 + v.rng.IntN(5); len(runes) >= n {
			i := v.rng.IntN(len(runes) - n + 1)
			v.pieces = append(v.pieces, string(runes[i:i+n]))
		}
	}
	return v
}

// model numbers tokens in the order given and sorts them.
func (v *nodeVocab) model(n mtok.Model, tokens []string, score func(i int) float64) mtok.Model {
	for i, t := range tokens {
		n.Vocab = append(n.Vocab, mtok.Token{Text: t, ID: int32(i), Score: score(i)})
	}
	mtok.SortVocab(n.Vocab)
	return n
}

func noScore(int) float64 { return 0 }

// specials are the first tokens of every vocabulary.
var specials = []string{"<unk>", "<s>", "</s>", "[UNK]", "[CLS]", "<|im_start|>", "<|im_end|>", "", ""}

// spelledBytes are tokens for bytes, except every skip-th.
func spelledBytes(skip int) []string {
	var out []string
	const hex = "0123456789ABCDEF"
	for b := range 256 {
		if skip == 0 || b%skip != 1 {
			out = append(out, "<0x"+hex[b>>4:b>>4+1]+hex[b&15:b&15+1]+">")
		}
	}
	return out
}

// bpe makes merges for all pieces, in an order of their own. Characters that occur rarely have no token.
func (v *nodeVocab) bpe(n mtok.Model, extra ...string) mtok.Model {
	tokens := append(slices.Clone(specials), extra...)
	known := map[string]int32{}
	for i, t := range tokens {
		known[t] = int32(i)
	}
	id := func(t string) int32 {
		if i, ok := known[t]; ok {
			return i
		}
		known[t] = int32(len(tokens))
		tokens = append(tokens, t)
		return known[t]
	}
	for c := rune(33); c < 127; c++ {
		id(string(c))
	}
	seen := map[merge.Pair]bool{}
	for _, piece := range v.pieces {
		left := ""
		for _, r := range piece {
			if left != "" {
				a, b := id(left), id(string(r))
				if p := merge.PairOf(a, b); !seen[p] {
					seen[p] = true
					n.Merges = append(n.Merges, mtok.Merge{Left: a, Right: b})
				}
				id(left + string(r))
			}
			left += string(r)
		}
	}
	v.rng.Shuffle(len(n.Merges), func(i, j int) { n.Merges[i], n.Merges[j] = n.Merges[j], n.Merges[i] })
	for i := range n.Merges {
		n.Merges[i].Rank = int32(i / 2) // two of each rank: the left one is first
	}
	slices.SortFunc(n.Merges, func(a, b mtok.Merge) int {
		if a.Left != b.Left {
			return int(a.Left - b.Left)
		}
		return int(a.Right - b.Right)
	})
	return v.model(n, tokens, noScore)
}

func (v *nodeVocab) wordPiece(prefix string, maxBytes int) mtok.Model {
	tokens := slices.Clone(specials[:7])
	known := map[string]bool{}
	for _, t := range tokens {
		known[t] = true
	}
	add := func(t string) {
		if !known[t] {
			known[t] = true
			tokens = append(tokens, t)
		}
	}
	for c := rune(33); c < 127; c++ {
		add(string(c))
		if c != 'q' {
			add(prefix + string(c))
		}
	}
	for i, p := range v.pieces {
		r, n := utf8.DecodeRuneInString(p)
		add(string(r))
		if i%2 == 0 {
			add(p)
		}
		add(prefix + p[n:])
	}
	return v.model(mtok.Model{Tag: mtok.ModelWordPiece, Unknown: "[UNK]", Prefix: prefix, MaxBytes: maxBytes}, tokens, noScore)
}

func (v *nodeVocab) unigram(unknown int32, fallback bool, extra ...string) mtok.Model {
	tokens := append(slices.Clone(specials[:7]), extra...)
	known := map[string]bool{}
	for _, t := range tokens {
		known[t] = true
	}
	for _, p := range v.pieces {
		r, n := utf8.DecodeRuneInString(p)
		for _, t := range []string{p, string(r), p[n:]} {
			if !known[t] || v.rng.IntN(50) == 0 { // the same token twice, now and then
				known[t] = true
				tokens = append(tokens, t)
			}
		}
	}
	// Few different scores, so that paths are equal.
	return v.model(mtok.Model{Tag: mtok.ModelUnigram, UnknownID: unknown, ByteFallback: fallback}, tokens, func(i int) float64 {
		if i == int(unknown) {
			return -4
		}
		return -float64(v.rng.IntN(12)) / 2
	})
}

// nodeCases are files with every node of the format, alone and in the company that it keeps in real files.
func nodeCases() map[string]*mtok.File {
	plain := func(s string) string { return s }
	spaced := func(s string) string { return strings.ReplaceAll(s, " ", "▁") }
	base := newNodeVocab(1, plain).bpe(mtok.Model{}, spelledBytes(0)...)
	mapped := newNodeVocab(2, bytelevel.Encode).bpe(mtok.Model{}, func() (all []string) {
		for b := range 256 {
			if b != 'Q' {
				all = append(all, bytelevel.StandIn(byte(b)))
			}
		}
		return all
	}()...)
	metaspace := newNodeVocab(3, spaced).bpe(mtok.Model{}, append(spelledBytes(7), "▁")...)
	wordPiece := newNodeVocab(4, strings.ToLower).wordPiece("##", 100)
	unigram := newNodeVocab(5, spaced).unigram(0, false, "▁")
	fallback := newNodeVocab(6, spaced).unigram(0, true, append(spelledBytes(0), "▁")...)

	cases := map[string]*mtok.File{}
	add := func(name string, norm mtok.Normalizer, pre mtok.PreTokenizer, model mtok.Model, dec mtok.Decoder, change ...func(*mtok.File)) {
		m := &mtok.File{Normalizer: norm, PreTokenizer: pre, Model: model, Decoder: dec, Special: []int32{0, 1, 2, 3, 4, 5, 6}, Sections: 5, PostProcess: "\x00\x00"}
		for _, c := range change {
			c(m)
		}
		cases[name] = m
	}
	table := tableOf(map[rune]string{'A': "a", 'B': "", 0xAD: "", 0xC9: "E\u0301", 0xE9: "e\u0301", 0x130: "I\u0307", 0x300: "!",
		0x2126: "Ω", 0x2460: "1", 0xFB01: "fi", 0xFDFA: "صلى الله", 0xFFFD: "?", 0x1F44D: "up"})
	nfd := tableOf(map[rune]string{0xC9: "E\u0301", 0xE9: "e\u0301", 0x390: "ι\u0308\u0301", 0x1100: "\u0327", 0xFFFD: "\x80x"})
	norms := map[string]mtok.Normalizer{
		"empty":        {Tag: mtok.NormEmpty},
		"prepend":      {Tag: mtok.NormPrepend, Content: "▁"},
		"replace":      {Tag: mtok.NormReplace, Pattern: " ", Content: "▁"},
		"replace grow": {Tag: mtok.NormReplace, Pattern: "aa", Content: "aab"},
		"replace none": {Tag: mtok.NormReplace, Content: "x"},
		"table":        {Tag: mtok.NormTable, Table: table},
		"table empty":  {Tag: mtok.NormTable},
		"lower":        {Tag: mtok.NormBert, Lower: true},
		"bert":         {Tag: mtok.NormBert, Clean: true, Chinese: true, Lower: true},
		"bert accents": {Tag: mtok.NormBert, Accents: true},
		"clean":        {Tag: mtok.NormBert, Clean: true},
		"chinese":      {Tag: mtok.NormBert, Chinese: true},
		"accents":      {Tag: mtok.NormBertTable, Accents: true, Table: nfd},
		"bert table":   {Tag: mtok.NormBertTable, Clean: true, Chinese: true, Accents: true, Lower: true, Table: nfd},
		"bert plain":   {Tag: mtok.NormBertTable, Clean: true, Chinese: true, Lower: true},
		"strip":        {Tag: mtok.NormStrip, Left: true, Right: true},
		"strip left":   {Tag: mtok.NormStrip, Left: true},
		"strip right":  {Tag: mtok.NormStrip, Right: true},
		"sequence": {Tag: mtok.NormSequence, Children: []mtok.Normalizer{{Tag: mtok.NormStrip, Left: true, Right: true}, {Tag: mtok.NormPrepend, Content: "▁"},
			{Tag: mtok.NormReplace, Pattern: " ", Content: "▁"}, {Tag: mtok.NormSequence},
			{Tag: mtok.NormSequence, Children: []mtok.Normalizer{{Tag: mtok.NormBert, Lower: true}}}}},
		"sequence none": {Tag: mtok.NormSequence, Children: []mtok.Normalizer{{Tag: mtok.NormNone}, {Tag: mtok.NormBert, Lower: true}, {Tag: mtok.NormNone}}},
	}
	fuse := mtok.Decoder{Tag: mtok.DecFuse}
	for name, n := range norms {
		add("norm "+name, n, mtok.PreTokenizer{}, metaspace, fuse)
	}
	split := func(regex string, invert bool, behavior uint8) mtok.PreTokenizer {
		return mtok.PreTokenizer{Tag: mtok.PreSplit, Regex: regex, Flag: invert, Behavior: behavior}
	}
	pres := map[string]mtok.PreTokenizer{
		"digits":           {Tag: mtok.PreDigits, Flag: true},
		"digits runs":      {Tag: mtok.PreDigits},
		"metaspace":        {Tag: mtok.PreMetaspace, Replacement: "▁"},
		"metaspace prefix": {Tag: mtok.PreMetaspace, Replacement: "▁", Flag: true},
		"metaspace none":   {Tag: mtok.PreMetaspace, Flag: true},
		"metaspace other":  {Tag: mtok.PreMetaspace, Replacement: "_-", Flag: true},
		"bert":             {Tag: mtok.PreBert},
		"sequence": {Tag: mtok.PreSequence, Children: []mtok.PreTokenizer{{Tag: mtok.PreBert},
			{Tag: mtok.PreMetaspace, Replacement: "▁", Flag: true},
			{Tag: mtok.PreSequence, Children: []mtok.PreTokenizer{{Tag: mtok.PreDigits, Flag: true}}}}},
		"sequence none": {Tag: mtok.PreSequence, Children: []mtok.PreTokenizer{{Tag: mtok.PreNone}, {Tag: mtok.PreDigits, Flag: true}, {Tag: mtok.PreNone}}},
		"wide":          split("[一-龥぀-ゟ゠-ヿ]+", false, 0),
		"wide negated":  split("[^一-龥 ]+", false, 0),
		"wide one":      split("[一-龥]", false, 2),
		"wide removed":  split("▁", false, 1),
		"wide two":      split("中文+", true, 0),
		"wide invalid":  split("[\ufff0-\uffff]", false, 0),
	}
	for i, regex := range []string{
		`\s+`, ` `, `\p{N}`, `\p{N}{1,3}`, `[\p{L}\p{M}]+|\P{L}`, `\w+|[^\w\s]+`, `(?i:'s|'t|'re)|\p{Lu}?\p{Ll}+|\d{2}`, `\p{P}|\p{S}+`, `a*`, `(?:ab|a)c|(a|b)+`, `[^a-z\]]{2,}?.`,
		`\s+(?!\S)|\s+`, `(?=a)a|b`, `(?<=a)b|c`, `\ba|b`, `[\x41-\x43]+`, `(?:(?=a)|b)c|d`, `\p{L}|é`, `[à-ÿ]\p{L}`, `.`, `\p{Z}+|\p{Han}`, `a|`, `)a`, `x{,3}b|\t`, `[]a]+`, `(?!a)\p{L}+`, `(\p{L}\p{N}?)+`, `(?i)hello|(?i:hello)`, `\Qa`,
	} {
		for behavior := range uint8(4) {
			if behavior > 0 && i > 6 {
				continue
			}
			pres["split "+regex+" "+string('0'+rune(behavior))] = split(regex, false, behavior)
			if i < 5 {
				pres["split not "+regex+" "+string('0'+rune(behavior))] = split(regex, true, behavior)
			}
		}
	}
	for name, n := range pres {
		add("pre "+name, mtok.Normalizer{}, n, base, mtok.Decoder{Tag: mtok.DecSequence, Children: []mtok.Decoder{{Tag: mtok.DecByteFallback}, fuse}})
	}
	byteLevel := mtok.PreTokenizer{Tag: mtok.PreByteLevel}
	mappings := map[string]mtok.PreTokenizer{
		"gpt2": {Tag: mtok.PreByteLevel, Flag: true}, "none": byteLevel,
		"twice":  {Tag: mtok.PreSequence, Children: []mtok.PreTokenizer{byteLevel, byteLevel}},
		"first":  {Tag: mtok.PreSequence, Children: []mtok.PreTokenizer{byteLevel, {Tag: mtok.PreDigits, Flag: true}}},
		"llama3": {Tag: mtok.PreSequence, Children: []mtok.PreTokenizer{split(regex.Llama3, false, 0), byteLevel}},
		"deepseek": {Tag: mtok.PreSequence, Children: []mtok.PreTokenizer{split(`\p{N}{1,3}`, false, 0),
			split("[一-龥぀-ゟ゠-ヿ]+", false, 0),
			split("[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| "+
				"?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+", false, 0), byteLevel}},
		"gpt4o":     {Tag: mtok.PreSequence, Children: []mtok.PreTokenizer{split(`[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`, false, 0), byteLevel}},
		"digits":    {Tag: mtok.PreSequence, Children: []mtok.PreTokenizer{{Tag: mtok.PreDigits, Flag: true}, {Tag: mtok.PreByteLevel, Flag: true}}},
		"metaspace": {Tag: mtok.PreSequence, Children: []mtok.PreTokenizer{{Tag: mtok.PreMetaspace, Replacement: "Ġ", Flag: true}, byteLevel}},
	}
	for name, n := range mappings {
		add("map "+name, mtok.Normalizer{}, n, mapped, mtok.Decoder{})
	}
	inModel := mapped
	inModel.ByteLevel = true
	add("map in model", mtok.Normalizer{}, split(regex.Llama3, false, 0), inModel, mtok.Decoder{})
	add("map before and in model", mtok.Normalizer{}, byteLevel, inModel, mtok.Decoder{})
	add("no stand-ins", mtok.Normalizer{}, byteLevel, base, mtok.Decoder{})

	added := func(m *mtok.File) {
		m.Prefix = []int32{1, 5}
		m.Special = []int32{5, 6, 1, 2, 400, 9999}
		m.Added = []mtok.Added{{ID: 1, Special: true, Content: "<s>"}, {ID: 700, LStrip: true, RStrip: true, Content: "<x>"},
			{ID: 701, RStrip: true, Content: "<xy>"}, {ID: 702, LStrip: true, Content: "<mask>"},
			{ID: 703, Content: "<x>"}, {ID: 704, Content: ""}, {ID: 705, Content: "hello"}, {ID: 706, Content: "hel"}, {ID: 707,
				Content: "\u00a0"}, {ID: 6, Special: true, LStrip: true, RStrip: true, Content: "<|im_end|>"}, {ID: 9999, Special: true, Content: "<y>"}}
	}
	add("added bpe", norms["sequence"], mtok.PreTokenizer{}, metaspace, fuse, added)
	add("added map", mtok.Normalizer{}, mtok.PreTokenizer{Tag: mtok.PreByteLevel, Flag: true}, mapped, mtok.Decoder{}, added)
	wpDecoder := mtok.Decoder{Tag: mtok.DecWordPiece, Content: "##", Flag: true}
	add("added wordpiece", norms["bert"], mtok.PreTokenizer{Tag: mtok.PreBert}, wordPiece, wpDecoder, added)
	add("added unigram", norms["table"], mtok.PreTokenizer{Tag: mtok.PreMetaspace, Replacement: "▁", Flag: true}, unigram,
		mtok.Decoder{Tag: mtok.DecMetaspace, Content: "▁", Flag: true}, added)

	add("wordpiece", norms["bert table"], mtok.PreTokenizer{Tag: mtok.PreBert}, wordPiece, wpDecoder)
	add("wordpiece short", norms["bert"], mtok.PreTokenizer{Tag: mtok.PreBert}, newNodeVocab(8, strings.ToLower).wordPiece("##", 5), wpDecoder)
	add("wordpiece no prefix", norms["lower"], split(`\s+`, false, 1), newNodeVocab(9, strings.ToLower).wordPiece("", 100), mtok.Decoder{Tag: mtok.DecWordPiece})
	add("wordpiece whole text", mtok.Normalizer{}, mtok.PreTokenizer{}, wordPiece,
		mtok.Decoder{Tag: mtok.DecSequence, Children: []mtok.Decoder{wpDecoder, {}, {Tag: mtok.DecWordPiece, Content: "a"}}})
	for name, m := range map[string]mtok.Model{"unigram": unigram, "unigram bytes": fallback,
		"unigram other unknown": newNodeVocab(10, spaced).unigram(12, false, "▁"), "unigram bytes unknown": newNodeVocab(11,
			spaced).unigram(9, true, append(spelledBytes(0), "▁")...)} {
		add(name, norms["replace"], mtok.PreTokenizer{}, m, fuse)
		add(name+" metaspace", mtok.Normalizer{}, mtok.PreTokenizer{Tag: mtok.PreSequence,
			Children: []mtok.PreTokenizer{split(`\s+`, false, 1), {Tag: mtok.PreMetaspace, Replacement: "▁",
				Flag: true}}}, m, mtok.Decoder{Tag: mtok.DecReplace, Pattern: "▁", Content: " "})
	}

	// Tokens that are spelled like bytes, more or less.
	odd := mtok.Model{}
	tokens := append(slices.Clone(specials), "<0x41>", "<0x4>", "<0x4G>", "<0x 41>", "<0x+4>", "<0x-1>", "<0x0x>", "<0x0X1>",
		"<0xzz", "<0xĠ4>", "<0x\n\n\n41", "<0x", "<0x123>", "a<0xE2>▁<0x96><0x81>", "▁<0x▁41>", "Ġ", "Ġ▁Ċ", "<0xC4><0xA0>", "é", "中",
		"##a", "▁##a", "<0x- 1>", "<0x+-1>", "<0x++1>", "<0x 4 1>", "<0x0 x1>")
	odd = (&nodeVocab{}).model(odd, tokens, noScore)
	specialOdd := func(m *mtok.File) { m.Special = []int32{9, 12, 10, 24, 23, 28, 1, 14} }
	add("decode bytes", mtok.Normalizer{}, mtok.PreTokenizer{}, odd, fuse, specialOdd)
	add("decode map", mtok.Normalizer{}, mtok.PreTokenizer{}, odd, mtok.Decoder{}, specialOdd)
	add("decode wordpiece", mtok.Normalizer{}, mtok.PreTokenizer{}, odd, wpDecoder, specialOdd)
	for name, n := range map[string]mtok.Decoder{"strip": {Tag: mtok.DecStrip, Content: " ", Start: 1},
		"replace": {Tag: mtok.DecReplace, Pattern: "a", Content: "b"}, "metaspace": {Tag: mtok.DecMetaspace, Content: "▁",
			Flag: true}, "sequence": {Tag: mtok.DecSequence}} {
		add("decode "+name, mtok.Normalizer{}, mtok.PreTokenizer{}, base, n)
	}
	return cases
}

// tableOf is a table of substitutions.
func tableOf(texts map[rune]string) []mtok.Substitution {
	var out []mtok.Substitution
	for _, r := range slices.Sorted(maps.Keys(texts)) {
		out = append(out, mtok.Substitution{Char: r, Text: texts[r]})
	}
	return out
}
