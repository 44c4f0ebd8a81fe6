//go:build tokenizers

package tokenizerstest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"
)

// object is a JSON object.
type object map[string]any

// sample is a tokenizer.json and what to try on it.
type sample struct {
	file  object
	texts []string
	ids   [][]int32
}

func (s *sample) json() string { return marshal(s.file) }

func marshal(v any) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic("internal error: " + err.Error())
	}
	return b.String()
}

// sample makes a tokenizer and so many texts.
func (g generator) sample(texts int) *sample {
	f := object{"version": "1.0", "truncation": g.truncation(), "padding": g.padding()}
	f["normalizer"] = g.optional(3, func() object { return g.normalizer(2) })
	f["pre_tokenizer"] = g.optional(6, func() object { return g.preTokenizer(2) })
	// Words as the model gets them, more or less.
	spell := func(s string) string { return s }
	switch all := marshal(f); {
	case strings.Contains(all, `"ByteLevel"`):
		spell = standIns
	case strings.Contains(all, "▁"):
		spell = func(s string) string { return strings.ReplaceAll(s, " ", "▁") }
	}
	var words []string
	for len(words) < 60 {
		text := []rune(spell(g.text(letters)))
		if len(text) == 0 {
			continue
		}
		from := g.IntN(len(text))
		words = append(words, string(text[from:min(len(text), from+1+g.IntN(8))]))
	}
	model, tokens := g.model(words)
	f["model"] = model
	added := g.added(tokens)
	f["added_tokens"] = added
	contents := []string{}
	ids := len(tokens)
	for _, a := range added {
		contents = append(contents, a["content"].(string))
		ids = max(ids, a["id"].(int)+1)
	}
	all := append(slices.Clone(tokens), contents...)
	f["post_processor"] = g.optional(2, func() object { return g.postProcessor(all, 2) })
	f["decoder"] = g.optional(5, func() object { return g.decoder(2) })
	if g.oneIn(12) {
		g.damage(f)
	}
	s := &sample{file: f}
	pieces := slices.Clone(words)
	for range len(words) / max(1, len(contents)) {
		pieces = append(pieces, contents...)
	}
	for range texts {
		s.texts = append(s.texts, g.text(pieces))
	}
	for range texts / 4 {
		list := []int32{}
		for range g.IntN(12) {
			id := int32(g.IntN(ids + 2))
			list = append(list, id)
			if g.oneIn(6) {
				list = append(list, id, id)
			}
		}
		s.ids = append(s.ids, list)
	}
	return s
}

// optional is null once in n times.
func (g generator) optional(n int, make func() object) any {
	if g.oneIn(n) {
		return nil
	}
	return make()
}

func (g generator) bool() bool { return g.oneIn(2) }

func (g generator) truncation() any {
	return g.optional(2, func() object {
		return object{"direction": pick(g, []string{"Left", "Right"}), "max_length": 2 + g.IntN(9),
			"strategy": pick(g, []string{"LongestFirst", "OnlyFirst"}), "stride": g.IntN(2)}
	})
}

func (g generator) padding() any {
	return g.optional(2, func() object {
		return object{"strategy": pick(g, []any{"BatchLongest", object{"Fixed": 20}}), "direction": pick(g, []string{"Left", "Right"}),
			"pad_to_multiple_of": pick(g, []any{nil, 8}), "pad_id": 0, "pad_type_id": 0, "pad_token": "<pad>"}
	})
}

// some is a short text of a pattern or a content.
func (g generator) some() string {
	return pick(g, []string{" ", " ", "a", "b", "ab", "é", "▁", "  ", "\n", "'", "", "aa", "\u0301", "``", "x", "  a", "😀", "\u00a0", "的"})
}

func (g generator) patternObject() object {
	if g.oneIn(3) {
		return object{"String": g.some()}
	}
	return object{"Regex": g.pattern()}
}

func (g generator) sequence(key string, depth int, make func(int) object) object {
	list := []object{}
	for range pick(g, []int{0, 1, 2, 2, 2, 3, 3, 4}) {
		list = append(list, make(depth-1))
	}
	return object{"type": "Sequence", key: list}
}

func (g generator) normalizer(depth int) object {
	if depth > 0 && g.oneIn(3) {
		return g.sequence("normalizers", depth, g.normalizer)
	}
	switch t := pick(g, []string{"NFC", "NFD", "NFKC", "NFKD", "Lowercase", "Nmt", "StripAccents", "Strip", "Replace", "Replace",
		"Prepend", "BertNormalizer", "ByteLevel", "Precompiled"}); t {
	case "Strip":
		return object{"type": t, "strip_left": g.bool(), "strip_right": g.bool()}
	case "Replace":
		return object{"type": t, "pattern": g.patternObject(), "content": g.some()}
	case "Prepend":
		return object{"type": t, "prepend": g.some()}
	case "BertNormalizer":
		return object{"type": t, "clean_text": g.bool(), "handle_chinese_chars": g.bool(), "strip_accents": pick(g, []any{nil, true, false}), "lowercase": g.bool()}
	case "Precompiled":
		return object{"type": t, "precompiled_charsmap": charsmap()}
	default:
		return object{"type": t}
	}
}

var behaviors = []string{"Removed", "Isolated", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"}

func (g generator) metaspace() object {
	o := object{"type": "Metaspace", "replacement": pick(g, []string{"▁", "▁", "▁", "_", "Ġ", "a", " "}),
		"prepend_scheme": pick(g, []string{"always", "first", "never"}), "split": g.bool()}
	if g.oneIn(4) {
		delete(o, "split")
	}
	if g.oneIn(4) {
		o["add_prefix_space"] = o["prepend_scheme"] != "never"
	}
	return o
}

func (g generator) byteLevel() object {
	return object{"type": "ByteLevel", "add_prefix_space": g.bool(), "trim_offsets": g.bool(), "use_regex": g.bool()}
}

func (g generator) preTokenizer(depth int) object {
	if depth > 0 && g.oneIn(3) {
		return g.sequence("pretokenizers", depth, g.preTokenizer)
	}
	switch t := pick(g, []string{"BertPreTokenizer", "ByteLevel", "ByteLevel", "ByteLevel", "CharDelimiterSplit", "Metaspace",
		"Metaspace", "Whitespace", "WhitespaceSplit", "Split", "Split", "Split", "Split", "Split", "Punctuation", "Digits", "UnicodeScripts", "FixedLength"}); t {
	case "ByteLevel":
		return g.byteLevel()
	case "CharDelimiterSplit":
		return object{"type": t, "delimiter": pick(g, []string{" ", "a", "é", "▁", "\n", "-"})}
	case "Metaspace":
		return g.metaspace()
	case "Split":
		return object{"type": t, "pattern": g.patternObject(), "behavior": pick(g, behaviors), "invert": g.oneIn(3)}
	case "Punctuation":
		return object{"type": t, "behavior": pick(g, behaviors)}
	case "Digits":
		return object{"type": t, "individual_digits": g.bool()}
	case "FixedLength":
		return object{"type": t, "length": 1 + g.IntN(6)}
	default:
		return object{"type": t}
	}
}

// vocabulary numbers tokens in any order.
func (g generator) vocabulary(tokens []string) (vocab map[string]int, byID []string) {
	byID = slices.Clone(tokens)
	if g.bool() {
		g.Shuffle(len(byID), func(i, j int) { byID[i], byID[j] = byID[j], byID[i] })
	}
	vocab = map[string]int{}
	for i, t := range byID {
		vocab[t] = i
	}
	return vocab, byID
}

// unique drops repetitions.
func unique(list []string) []string {
	seen := map[string]bool{}
	return slices.DeleteFunc(list, func(s string) bool {
		again := seen[s]
		seen[s] = true
		return again
	})
}

// characters are those of words, without some of them.
func (g generator) characters(words []string) []string {
	var out []string
	for _, w := range words {
		out = append(out, strings.Split(w, "")...)
	}
	out = unique(out)
	if g.oneIn(3) {
		out = slices.DeleteFunc(out, func(string) bool { return g.oneIn(8) })
	}
	return out
}

// bytesOf are the tokens of bytes, once in a while not all.
func (g generator) bytesOf() []string {
	var out []string
	missing := g.oneIn(4)
	for b := range 256 {
		if !missing || !g.oneIn(20) {
			out = append(out, fmt.Sprintf("<0x%02X>", b))
		}
	}
	return out
}

// model is a model and its tokens by id.
func (g generator) model(words []string) (object, []string) {
	switch k := g.IntN(10); {
	case k < 5:
		return g.bpe(words)
	case k < 8:
		return g.unigram(words)
	case k < 9:
		return g.wordPiece(words)
	}
	unk := g.unk()
	vocab, byID := g.vocabulary(unique(append(append(g.characters(words), words...), unk)))
	return object{"type": "WordLevel", "vocab": vocab, "unk_token": unk}, byID
}

func (g generator) unk() string { return pick(g, []string{"<unk>", "[UNK]", "a", "▁"}) }

func (g generator) bpe(words []string) (object, []string) {
	m := object{
		"type": "BPE", "dropout": nil, "unk_token": nil, "continuing_subword_prefix": pick(g, []any{nil, nil, nil, nil, "", "##", "a"}),
		"end_of_word_suffix": pick(g, []any{nil, nil, nil, nil, "", "</w>", "b"}), "fuse_unk": g.bool(), "byte_fallback": g.oneIn(3), "ignore_merges": g.oneIn(3),
	}
	prefix, _ := m["continuing_subword_prefix"].(string)
	suffix, _ := m["end_of_word_suffix"].(string)
	tokens := g.characters(words)
	if g.oneIn(4) {
		for b := range 256 {
			tokens = append(tokens, standIns(string([]byte{byte(b)})))
		}
	}
	for _, c := range slices.Clone(tokens) {
		if prefix != "" {
			tokens = append(tokens, prefix+c)
		}
		if suffix != "" {
			tokens = append(tokens, c+suffix, prefix+c+suffix)
		}
	}
	if m["byte_fallback"] == true || g.oneIn(10) {
		tokens = append(tokens, g.bytesOf()...)
	}
	if g.bool() {
		unk := g.unk()
		m["unk_token"] = unk
		tokens = append(tokens, unk)
	}
	tokens = unique(tokens)
	have := map[string]bool{}
	for _, t := range tokens {
		have[t] = true
	}
	var merges [][]string
	merged := map[[2]string]bool{}
	add := func(a, b string) string {
		if len(b) < len(prefix) || !have[a] || !have[b] {
			return ""
		}
		both := a + b[len(prefix):]
		if !utf8.ValidString(both) || both == "" || len(both) > 60 {
			return ""
		}
		if !merged[[2]string{a, b}] || g.oneIn(30) {
			merged[[2]string{a, b}] = true
			merges = append(merges, []string{a, b})
			if !have[both] {
				have[both] = true
				tokens = append(tokens, both)
			}
		}
		return both
	}
	count := pick(g, []int{0, 5, 60, 60, 200})
	for range count {
		if g.oneIn(4) && len(tokens) > 0 {
			add(pick(g, tokens), pick(g, tokens))
			continue
		}
		// What a word is merged to in some order.
		symbols := strings.Split(pick(g, words), "")
		for i := range symbols {
			if i > 0 {
				symbols[i] = prefix + symbols[i]
			}
			if i == len(symbols)-1 {
				symbols[i] += suffix
			}
		}
		for range 3 {
			if len(symbols) < 2 {
				break
			}
			at := g.IntN(len(symbols) - 1)
			both := add(symbols[at], symbols[at+1])
			if both == "" {
				break
			}
			symbols = slices.Replace(symbols, at, at+2, both)
		}
	}
	if g.bool() {
		tokens = append(tokens, words...) // those that merges do not reach
		tokens = unique(tokens)
	}
	g.Shuffle(len(merges), func(i, j int) {
		if g.oneIn(4) {
			merges[i], merges[j] = merges[j], merges[i]
		}
	})
	m["merges"] = merges
	if merges == nil {
		m["merges"] = [][]string{}
	}
	if !slices.ContainsFunc(merges, func(p []string) bool { return strings.Contains(p[0]+p[1], " ") || strings.HasPrefix(p[0], "#version") }) && g.bool() {
		lines := []string{}
		for _, p := range merges {
			lines = append(lines, p[0]+" "+p[1])
		}
		m["merges"] = lines
	}
	vocab, byID := g.vocabulary(tokens)
	m["vocab"] = vocab
	return m, byID
}

func (g generator) unigram(words []string) (object, []string) {
	tokens := append(g.characters(words), words...)
	for range 20 {
		tokens = append(tokens, pick(g, words)+pick(g, words))
	}
	fallback := g.oneIn(3)
	if fallback || g.oneIn(10) {
		tokens = append(tokens, g.bytesOf()...)
	}
	unk := g.unk()
	_, byID := g.vocabulary(unique(append(tokens, unk)))
	if g.oneIn(10) {
		byID = append(byID, pick(g, byID)) // twice
	}
	kind := g.IntN(5)
	var vocab [][]any
	for range byID {
		score := 0.0
		switch kind {
		case 0:
			score = -float64(g.IntN(5))
		case 1:
			score = math.Round(-g.ExpFloat64()*40) / 8
		case 2:
			score = g.NormFloat64() * 5
		default:
			score = -g.Float64() * 15
		}
		vocab = append(vocab, []any{byID[len(vocab)], score})
	}
	return object{"type": "Unigram", "unk_id": slices.Index(byID, unk), "vocab": vocab, "byte_fallback": fallback}, byID
}

func (g generator) wordPiece(words []string) (object, []string) {
	prefix := pick(g, []string{"##", "##", "", "▁", "a"})
	tokens := append(g.characters(words), words...)
	for range 60 {
		tokens = append(tokens, prefix+pick(g, tokens))
	}
	for _, c := range g.characters(words) {
		tokens = append(tokens, prefix+c)
	}
	unk := g.unk()
	vocab, byID := g.vocabulary(unique(append(tokens, unk)))
	return object{"type": "WordPiece", "unk_token": unk, "continuing_subword_prefix": prefix,
		"max_input_chars_per_word": pick(g, []int{100, 100, 5, 1, 0}), "vocab": vocab}, byID
}

// added are added tokens, numbered as the library numbers them.
func (g generator) added(tokens []string) []object {
	out := []object{}
	ids := map[string]int{}
	for id, t := range tokens {
		ids[t] = id
	}
	next := len(ids)
	seen := map[string]bool{}
	for range pick(g, []int{0, 1, 3, 6, 10}) {
		content := ""
		switch g.IntN(8) {
		case 0:
			content = pick(g, tokens)
		case 1:
			content = pick(g, oddities)
		case 2:
			content = g.text(letters)
		case 3: // one that begins another, or that another begins
			if len(out) > 0 {
				content = pick(g, out)["content"].(string)
				if r := []rune(content); g.bool() && len(r) > 1 {
					content = string(r[:1+g.IntN(len(r)-1)])
				} else {
					content += pick(g, letters)
				}
			}
		default:
			content = pick(g, []string{"<s>", "</s>", "<|im_start|>", "<|im_end|>", "<|im_", "[INST]", "[/INST]", "<tool>", "<pad>",
				"[MASK]", " <sp>", "<sp> ", "a", "ab", " ab", "the", "é", "É", "e\u0301", "\u0301", "的", "😀", "  ", "\n", "\n\n", "<0x41>",
				"##a", "Ġ", "ﬁ", "<ﬁ>", "ABC", "<E>"})
		}
		if content == "" || seen[content] || len(content) > 200 {
			continue
		}
		seen[content] = true
		id, ok := ids[content]
		if !ok {
			id, next = next, next+1
		}
		out = append(out, object{"id": id, "content": content, "single_word": g.oneIn(4), "lstrip": g.oneIn(3), "rstrip": g.oneIn(3),
			"normalized": g.bool(), "special": g.bool()})
	}
	slices.SortStableFunc(out, func(a, b object) int { return a["id"].(int) - b["id"].(int) })
	return out
}

func (g generator) postProcessor(tokens []string, depth int) object {
	if depth > 0 && g.oneIn(4) {
		return g.sequence("processors", depth, func(d int) object { return g.postProcessor(tokens, d) })
	}
	pair := func() []any {
		id := g.IntN(len(tokens))
		return []any{tokens[id], id}
	}
	switch t := pick(g, []string{"TemplateProcessing", "TemplateProcessing", "BertProcessing", "RobertaProcessing", "ByteLevel"}); t {
	case "TemplateProcessing":
		special := object{}
		pieces := func(text string) []object {
			list := []object{}
			for range g.IntN(3) {
				p := pair()
				name := p[0].(string)
				special[name] = object{"id": name, "ids": []any{p[1]}, "tokens": []any{name}}
				if g.oneIn(5) {
					q := pair()
					special[name] = object{"id": name, "ids": []any{p[1], q[1]}, "tokens": []any{name, q[0]}}
				}
				list = append(list, object{"SpecialToken": object{"id": name, "type_id": g.IntN(2)}})
			}
			return append(list, object{"Sequence": object{"id": text, "type_id": 0}})
		}
		single := pieces("A")
		for range g.IntN(2) {
			more := pieces("A")
			single = append(single, more[:len(more)-1]...)
		}
		return object{"type": t, "single": single, "pair": append(pieces("A"), pieces("B")...), "special_tokens": special}
	case "BertProcessing":
		return object{"type": t, "sep": pair(), "cls": pair()}
	case "RobertaProcessing":
		return object{"type": t, "sep": pair(), "cls": pair(), "trim_offsets": g.bool(), "add_prefix_space": g.bool()}
	default:
		return g.byteLevel()
	}
}

func (g generator) decoder(depth int) object {
	if depth > 0 && g.oneIn(3) {
		return g.sequence("decoders", depth, g.decoder)
	}
	switch t := pick(g, []string{"ByteLevel", "ByteLevel", "BPEDecoder", "WordPiece", "Metaspace", "CTC", "Replace", "Replace",
		"Fuse", "Strip", "ByteFallback"}); t {
	case "ByteLevel":
		return g.byteLevel()
	case "BPEDecoder":
		return object{"type": t, "suffix": pick(g, []string{"</w>", "", "a", "b"})}
	case "WordPiece":
		return object{"type": t, "prefix": pick(g, []string{"##", "", "a", "▁"}), "cleanup": g.bool()}
	case "Metaspace":
		return g.metaspace()
	case "CTC":
		return object{"type": t, "pad_token": pick(g, []string{"<pad>", "", "a"}), "word_delimiter_token": pick(g, []string{"|", "", "b"}), "cleanup": g.bool()}
	case "Replace":
		return object{"type": t, "pattern": g.patternObject(), "content": g.some()}
	case "Strip":
		return object{"type": t, "content": pick(g, []string{" ", "a", "▁", "é"}), "start": g.IntN(3), "stop": g.IntN(3)}
	default:
		return object{"type": t}
	}
}

// damage changes one value somewhere in a file.
func (g generator) damage(f object) {
	var node any = f
	// A round trip makes all nodes maps and lists of one type.
	var plain map[string]any
	if err := json.Unmarshal([]byte(marshal(f)), &plain); err != nil {
		panic("internal error: " + err.Error())
	}
	for k, v := range plain {
		f[k] = v
	}
	odd := []any{nil, true, 0, -1, 1.5, "", "a", "Sequence", []any{}, map[string]any{}, 1 << 40, []any{nil}, "\u0301"}
	node = map[string]any(f)
	for {
		switch n := node.(type) {
		case map[string]any:
			if len(n) == 0 {
				return
			}
			keys := make([]string, 0, len(n))
			for k := range n {
				keys = append(keys, k)
			}
			slices.Sort(keys)
			k := pick(g, keys)
			child := n[k]
			if inner, ok := child.(map[string]any); ok && len(inner) > 0 && !g.oneIn(5) {
				node = child
				continue
			}
			if inner, ok := child.([]any); ok && len(inner) > 0 && !g.oneIn(5) {
				node = child
				continue
			}
			switch g.IntN(4) {
			case 0:
				delete(n, k)
			case 1:
				n[pick(g, []string{"extra", strings.ToUpper(k), "type"})] = pick(g, odd)
			default:
				n[k] = pick(g, odd)
			}
			return
		case []any:
			i := g.IntN(len(n))
			switch n[i].(type) {
			case map[string]any, []any:
				if !g.oneIn(5) {
					node = n[i]
					if l, ok := node.([]any); ok && len(l) == 0 {
						return
					}
					continue
				}
			}
			n[i] = pick(g, odd)
			return
		default:
			return
		}
	}
}

// standIns spells bytes as ByteLevel does.
func standIns(s string) string {
	var b strings.Builder
	for i := range len(s) {
		b.WriteRune(standIn[s[i]])
	}
	return b.String()
}

// standIn is the character of each byte: itself if it can be seen, and one from U+0100 on otherwise.
var standIn = func() (table [256]rune) {
	next := rune(0x100)
	for b := range table {
		if b >= '!' && b <= '~' || b >= 0xA1 && b <= 0xAC || b >= 0xAE {
			table[b] = rune(b)
		} else {
			table[b] = next
			next++
		}
	}
	return table
}()

// charsmap is a table of replacements of a SentencePiece model.
var charsmap = sync.OnceValue(func() string {
	b, err := os.ReadFile(filepath.Join(root, "runtime", "tokenizer", "testdata", "normalizers.json"))
	if err != nil {
		panic(err)
	}
	var f struct {
		Charsmap string `json:"charsmap"`
	}
	if err := json.Unmarshal(b, &f); err != nil || f.Charsmap == "" {
		panic("normalizers.json has no charsmap")
	}
	return f.Charsmap
})
