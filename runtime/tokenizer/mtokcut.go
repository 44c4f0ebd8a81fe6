package tokenizer

import (
	"slices"
	"strings"

	"github.com/llmexport/llmexport/runtime/tokenizer/internal/dialect"
	"github.com/llmexport/llmexport/runtime/tokenizer/internal/mtok"
)

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
	words, ends := dialect.Cuts(tokens)
	if words == "" {
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
