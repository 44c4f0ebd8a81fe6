package tokenizer

import (
	"math/rand/v2"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/llmexport/llmexport/runtime/tokenizer/internal/bytelevel"
	"github.com/llmexport/llmexport/runtime/tokenizer/internal/merge"
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
	texts := []string{"", " ", "\n", "a", "▁", "\x80", "<s>", "\u00a0", "  ", "a ", " a", strings.Repeat("ab", 200), strings.Repeat(" ", 300), strings.Repeat("中", 150), strings.Repeat("a", 101)}
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
func (v *nodeVocab) model(n modelNode, tokens []string, score func(i int) float64) modelNode {
	for i, t := range tokens {
		n.Vocab = append(n.Vocab, vocabEntry{Token: t, ID: int32(i), Score: score(i)})
	}
	sortedVocab(n.Vocab)
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
func (v *nodeVocab) bpe(n modelNode, extra ...string) modelNode {
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
					n.Merges = append(n.Merges, mergeEntry{Left: a, Right: b})
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
	slices.SortFunc(n.Merges, func(a, b mergeEntry) int {
		if a.Left != b.Left {
			return int(a.Left - b.Left)
		}
		return int(a.Right - b.Right)
	})
	return v.model(n, tokens, noScore)
}

func (v *nodeVocab) wordPiece(prefix string, maxBytes int) modelNode {
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
	return v.model(modelNode{Tag: modelWordPiece, Unknown: "[UNK]", Prefix: prefix, MaxBytes: maxBytes}, tokens, noScore)
}

func (v *nodeVocab) unigram(unknown int32, fallback bool, extra ...string) modelNode {
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
	return v.model(modelNode{Tag: modelUnigram, UnknownID: unknown, ByteFallback: fallback}, tokens, func(i int) float64 {
		if i == int(unknown) {
			return -4
		}
		return -float64(v.rng.IntN(12)) / 2
	})
}

// nodeCases are files with every node of the format, alone and in the company that it keeps in real files.
func nodeCases() map[string]*mtok {
	plain := func(s string) string { return s }
	spaced := func(s string) string { return strings.ReplaceAll(s, " ", "▁") }
	base := newNodeVocab(1, plain).bpe(modelNode{}, spelledBytes(0)...)
	mapped := newNodeVocab(2, bytelevel.Encode).bpe(modelNode{}, func() (all []string) {
		for b := range 256 {
			if b != 'Q' {
				all = append(all, bytelevel.StandIn(byte(b)))
			}
		}
		return all
	}()...)
	metaspace := newNodeVocab(3, spaced).bpe(modelNode{}, append(spelledBytes(7), "▁")...)
	wordPiece := newNodeVocab(4, strings.ToLower).wordPiece("##", 100)
	unigram := newNodeVocab(5, spaced).unigram(0, false, "▁")
	fallback := newNodeVocab(6, spaced).unigram(0, true, append(spelledBytes(0), "▁")...)

	cases := map[string]*mtok{}
	add := func(name string, norm normNode, pre preNode, model modelNode, dec decNode, change ...func(*mtok)) {
		m := &mtok{Normalizer: norm, PreTokenizer: pre, Model: model, Decoder: dec, Special: []int32{0, 1, 2, 3, 4, 5, 6}, Sections: 5, PostProcess: "\x00\x00"}
		for _, c := range change {
			c(m)
		}
		cases[name] = m
	}
	table := []substitution{{'A', "a"}, {'B', ""}, {0xAD, ""}, {0xC9, "E\u0301"}, {0xE9, "e\u0301"}, {0x130, "I\u0307"}, {0x300, "!"}, {0x2126, "Ω"}, {0x2460, "1"}, {0xFB01, "fi"}, {0xFDFA, "صلى الله"}, {0xFFFD, "?"}, {0x1F44D, "up"}}
	nfd := []substitution{{0xC9, "E\u0301"}, {0xE9, "e\u0301"}, {0x390, "ι\u0308\u0301"}, {0x1100, "\u0327"}, {0xFFFD, "\x80x"}}
	norms := map[string]normNode{
		"empty":        {Tag: normEmpty},
		"prepend":      {Tag: normPrepend, Content: "▁"},
		"replace":      {Tag: normReplace, Pattern: " ", Content: "▁"},
		"replace grow": {Tag: normReplace, Pattern: "aa", Content: "aab"},
		"replace none": {Tag: normReplace, Content: "x"},
		"table":        {Tag: normTable, Table: table},
		"table empty":  {Tag: normTable},
		"lower":        {Tag: normBert, Lower: true},
		"bert":         {Tag: normBert, Clean: true, Chinese: true, Lower: true},
		"bert accents": {Tag: normBert, Accents: true},
		"clean":        {Tag: normBert, Clean: true},
		"chinese":      {Tag: normBert, Chinese: true},
		"accents":      {Tag: normBertTable, Accents: true, Table: nfd},
		"bert table":   {Tag: normBertTable, Clean: true, Chinese: true, Accents: true, Lower: true, Table: nfd},
		"bert plain":   {Tag: normBertTable, Clean: true, Chinese: true, Lower: true},
		"strip":        {Tag: normStrip, Left: true, Right: true},
		"strip left":   {Tag: normStrip, Left: true},
		"strip right":  {Tag: normStrip, Right: true},
		"sequence": {Tag: normSequence, Children: []normNode{{Tag: normStrip, Left: true, Right: true}, {Tag: normPrepend, Content: "▁"},
			{Tag: normReplace, Pattern: " ", Content: "▁"}, {Tag: normSequence}, {Tag: normSequence, Children: []normNode{{Tag: normBert, Lower: true}}}}},
		"sequence none": {Tag: normSequence, Children: []normNode{{Tag: normNone}, {Tag: normBert, Lower: true}, {Tag: normNone}}},
	}
	fuse := decNode{Tag: decFuse}
	for name, n := range norms {
		add("norm "+name, n, preNode{}, metaspace, fuse)
	}
	split := func(regex string, invert bool, behavior uint8) preNode {
		return preNode{Tag: preSplit, Regex: regex, Flag: invert, Behavior: behavior}
	}
	pres := map[string]preNode{
		"digits":           {Tag: preDigits, Flag: true},
		"digits runs":      {Tag: preDigits},
		"metaspace":        {Tag: preMetaspace, Replacement: "▁"},
		"metaspace prefix": {Tag: preMetaspace, Replacement: "▁", Flag: true},
		"metaspace none":   {Tag: preMetaspace, Flag: true},
		"metaspace other":  {Tag: preMetaspace, Replacement: "_-", Flag: true},
		"bert":             {Tag: preBert},
		"sequence":         {Tag: preSequence, Children: []preNode{{Tag: preBert}, {Tag: preMetaspace, Replacement: "▁", Flag: true}, {Tag: preSequence, Children: []preNode{{Tag: preDigits, Flag: true}}}}},
		"sequence none":    {Tag: preSequence, Children: []preNode{{Tag: preNone}, {Tag: preDigits, Flag: true}, {Tag: preNone}}},
		"wide":             split("[一-龥぀-ゟ゠-ヿ]+", false, 0),
		"wide negated":     split("[^一-龥 ]+", false, 0),
		"wide one":         split("[一-龥]", false, 2),
		"wide removed":     split("▁", false, 1),
		"wide two":         split("中文+", true, 0),
		"wide invalid":     split("[\ufff0-\uffff]", false, 0),
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
		add("pre "+name, normNode{}, n, base, decNode{Tag: decSequence, Children: []decNode{{Tag: decByteFallback}, fuse}})
	}
	byteLevel := preNode{Tag: preByteLevel}
	mappings := map[string]preNode{
		"gpt2": {Tag: preByteLevel, Flag: true}, "none": byteLevel,
		"twice":     {Tag: preSequence, Children: []preNode{byteLevel, byteLevel}},
		"first":     {Tag: preSequence, Children: []preNode{byteLevel, {Tag: preDigits, Flag: true}}},
		"llama3":    {Tag: preSequence, Children: []preNode{split(regex.Llama3, false, 0), byteLevel}},
		"deepseek":  {Tag: preSequence, Children: []preNode{split(`\p{N}{1,3}`, false, 0), split("[一-龥぀-ゟ゠-ヿ]+", false, 0), split("[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+", false, 0), byteLevel}},
		"gpt4o":     {Tag: preSequence, Children: []preNode{split(`[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`, false, 0), byteLevel}},
		"digits":    {Tag: preSequence, Children: []preNode{{Tag: preDigits, Flag: true}, {Tag: preByteLevel, Flag: true}}},
		"metaspace": {Tag: preSequence, Children: []preNode{{Tag: preMetaspace, Replacement: "Ġ", Flag: true}, byteLevel}},
	}
	for name, n := range mappings {
		add("map "+name, normNode{}, n, mapped, decNode{})
	}
	inModel := mapped
	inModel.ByteLevel = true
	add("map in model", normNode{}, split(regex.Llama3, false, 0), inModel, decNode{})
	add("map before and in model", normNode{}, byteLevel, inModel, decNode{})
	add("no stand-ins", normNode{}, byteLevel, base, decNode{})

	added := func(m *mtok) {
		m.Prefix = []int32{1, 5}
		m.Special = []int32{5, 6, 1, 2, 400, 9999}
		m.Added = []mtokAdded{{1, true, false, false, "<s>"}, {700, false, true, true, "<x>"}, {701, false, false, true, "<xy>"}, {702, false, true, false, "<mask>"},
			{703, false, false, false, "<x>"}, {704, false, false, false, ""}, {705, false, false, false, "hello"}, {706, false, false, false, "hel"}, {707, false, false, false, "\u00a0"}, {6, true, true, true, "<|im_end|>"}, {9999, true, false, false, "<y>"}}
	}
	add("added bpe", norms["sequence"], preNode{}, metaspace, fuse, added)
	add("added map", normNode{}, preNode{Tag: preByteLevel, Flag: true}, mapped, decNode{}, added)
	wpDecoder := decNode{Tag: decWordPiece, Content: "##", Flag: true}
	add("added wordpiece", norms["bert"], preNode{Tag: preBert}, wordPiece, wpDecoder, added)
	add("added unigram", norms["table"], preNode{Tag: preMetaspace, Replacement: "▁", Flag: true}, unigram, decNode{Tag: decMetaspace, Content: "▁", Flag: true}, added)

	add("wordpiece", norms["bert table"], preNode{Tag: preBert}, wordPiece, wpDecoder)
	add("wordpiece short", norms["bert"], preNode{Tag: preBert}, newNodeVocab(8, strings.ToLower).wordPiece("##", 5), wpDecoder)
	add("wordpiece no prefix", norms["lower"], split(`\s+`, false, 1), newNodeVocab(9, strings.ToLower).wordPiece("", 100), decNode{Tag: decWordPiece})
	add("wordpiece whole text", normNode{}, preNode{}, wordPiece, decNode{Tag: decSequence, Children: []decNode{wpDecoder, {}, {Tag: decWordPiece, Content: "a"}}})
	for name, m := range map[string]modelNode{"unigram": unigram, "unigram bytes": fallback, "unigram other unknown": newNodeVocab(10, spaced).unigram(12, false, "▁"), "unigram bytes unknown": newNodeVocab(11, spaced).unigram(9, true, append(spelledBytes(0), "▁")...)} {
		add(name, norms["replace"], preNode{}, m, fuse)
		add(name+" metaspace", normNode{}, preNode{Tag: preSequence, Children: []preNode{split(`\s+`, false, 1), {Tag: preMetaspace, Replacement: "▁", Flag: true}}}, m, decNode{Tag: decReplace, Pattern: "▁", Content: " "})
	}

	// Tokens that are spelled like bytes, more or less.
	odd := modelNode{}
	tokens := append(slices.Clone(specials), "<0x41>", "<0x4>", "<0x4G>", "<0x 41>", "<0x+4>", "<0x-1>", "<0x0x>", "<0x0X1>", "<0xzz", "<0xĠ4>", "<0x\n\n\n41", "<0x", "<0x123>", "a<0xE2>▁<0x96><0x81>", "▁<0x▁41>", "Ġ", "Ġ▁Ċ", "<0xC4><0xA0>", "é", "中", "##a", "▁##a", "<0x- 1>", "<0x+-1>", "<0x++1>", "<0x 4 1>", "<0x0 x1>")
	odd = (&nodeVocab{}).model(odd, tokens, noScore)
	specialOdd := func(m *mtok) { m.Special = []int32{9, 12, 10, 24, 23, 28, 1, 14} }
	add("decode bytes", normNode{}, preNode{}, odd, fuse, specialOdd)
	add("decode map", normNode{}, preNode{}, odd, decNode{}, specialOdd)
	add("decode wordpiece", normNode{}, preNode{}, odd, wpDecoder, specialOdd)
	for name, n := range map[string]decNode{"strip": {Tag: decStrip, Content: " ", Start: 1}, "replace": {Tag: decReplace, Pattern: "a", Content: "b"}, "metaspace": {Tag: decMetaspace, Content: "▁", Flag: true}, "sequence": {Tag: decSequence}} {
		add("decode "+name, normNode{}, preNode{}, base, n)
	}
	return cases
}
