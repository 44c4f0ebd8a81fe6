package tokenizer

import (
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/llmexport/llmexport/runtime/tokenizer/internal/mtok"
)

// The engine merges a word in time quadratic in its length, and a tokenizer without a pre-tokenizer (Llama 2, Gemma) has one
// word, the whole text: seconds for a page. So the text is cut where no merge reaches across, which changes no ids.

const metaspace = "▁"

// cutPatterns are two patterns for the engine. The matches of words, all of a text, are words with the spaces before them;
// ends matches the punctuation that ends such a piece. The tokens are all that merges make, with metaspaces for spaces; the
// text that is matched has the spaces still. A pattern is empty when there is nothing to cut at.
func cutPatterns(tokens []string) (words, ends string) {
	// What stands before a space inside of a token: there is no cut between these and spaces.
	var sticky []rune
	enders := []rune("\n,.;:!?)")
	inside := func(token string, visit func(a, b rune)) {
		last := rune(-1)
		for _, r := range token {
			if last >= 0 {
				visit(last, r)
			}
			last = r
		}
	}
	for _, token := range tokens {
		if i := strings.LastIndex(token, metaspace); i <= 0 || strings.TrimLeft(token[:i], metaspace) == "" {
			continue
		}
		inside(token, func(a, b rune) {
			if b == '▁' && a != '▁' && !slices.Contains(sticky, a) {
				sticky = append(sticky, a)
			}
		})
	}
	// The engine's classes know ASCII only.
	if slices.ContainsFunc(sticky, func(r rune) bool { return r >= utf8.RuneSelf }) {
		return "", ""
	}
	// Punctuation ends a word unless a token goes on behind it, other than with such punctuation.
	for before := -1; before != len(enders); {
		before = len(enders)
		for _, token := range tokens {
			inside(token, func(a, b rune) {
				if i := slices.Index(enders, a); i >= 0 && !slices.Contains(enders, b) {
					enders = slices.Delete(enders, i, i+1)
				}
			})
		}
	}
	slices.Sort(sticky)
	class := func(list []rune) string {
		var b strings.Builder
		for _, r := range list {
			b.WriteString(engineClassChar(r))
		}
		return b.String()
	}
	word := "[^ " + class(sticky) + "]"
	if len(sticky) > 0 {
		word = "(?:" + word + "|[" + class(sticky) + "] *)"
	}
	if len(enders) > 0 {
		ends = "[" + class(enders) + "]+"
	}
	return " *" + word + "+| +", ends
}

// engineClassChar spells a character inside a class of the engine's patterns.
func engineClassChar(r rune) string {
	switch r {
	case '\n':
		return `\n`
	case '\r':
		return `\r`
	case '\t':
		return `\t`
	}
	if r < utf8.RuneSelf && strings.ContainsRune(`\]^-[`, r) {
		return `\` + string(r)
	}
	return string(r)
}

// cut adds the cuts to a BPE tokenizer whose text is one word, with metaspaces for spaces. Spaces become metaspaces behind the
// cuts then, not in the normalizer.
func (f *engineForm) cut(m *mtok.File) {
	if m.Model.Tag != mtok.ModelBPE || m.PreTokenizer.Tag != mtok.PreNone || !f.noSpaces() {
		return
	}
	steps := []mtok.Normalizer{m.Normalizer}
	if m.Normalizer.Tag == mtok.NormSequence {
		steps = slices.Clone(m.Normalizer.Children)
	}
	last := len(steps) - 1
	tokens := make([]string, 0, len(m.Model.Merges))
	for _, e := range m.Model.Merges {
		tokens = append(tokens, f.t.tokens[e.Left]+f.t.tokens[e.Right])
	}
	words, ends := cutPatterns(tokens)
	if words == "" || checkEngineRegex(words) != nil {
		return
	}
	for i := range last {
		switch n := &steps[i]; {
		case n.Tag == mtok.NormPrepend && n.Content == metaspace:
			n.Content = " "
		case strings.Contains(n.Content, metaspace) || strings.Contains(n.Pattern, metaspace):
			return
		}
	}
	m.Normalizer = normSequenceOf(steps[:last])
	nodes := []mtok.PreTokenizer{{Tag: mtok.PreSplit, Regex: words, Behavior: mtok.SplitIsolated}}
	if ends != "" {
		nodes = append(nodes, mtok.PreTokenizer{Tag: mtok.PreSplit, Regex: ends, Behavior: mtok.SplitMergedWithPrevious})
	}
	m.PreTokenizer = preSequenceOf(append(nodes, mtok.PreTokenizer{Tag: mtok.PreMetaspace, Replacement: metaspace}))
}
