package tokenizer

import (
	"fmt"
	"slices"
	"strings"

	"github.com/llmexport/llmexport/runtime/tokenizer/internal/dialect"
	"github.com/llmexport/llmexport/runtime/tokenizer/internal/mtok"
	"github.com/llmexport/llmexport/runtime/tokenizer/internal/regex"
)

// preTokenizer translates the pre-tokenizer.
func (f *engineForm) preTokenizer() (mtok.PreTokenizer, error) {
	var nodes []mtok.PreTokenizer
	steps, _ := f.t.preTokenizer.(preTokenizerSequence)
	for _, s := range steps {
		if f.noSpaces() && isSplitAtSpace(s) {
			continue
		}
		more, err := f.step(s)
		if err != nil {
			return mtok.PreTokenizer{}, err
		}
		nodes = append(nodes, more...)
	}
	return preSequenceOf(nodes), nil
}

// preSequenceOf joins nodes to one.
func preSequenceOf(nodes []mtok.PreTokenizer) mtok.PreTokenizer {
	switch len(nodes) {
	case 0:
		return mtok.PreTokenizer{}
	case 1:
		return nodes[0]
	}
	return mtok.PreTokenizer{Tag: mtok.PreSequence, Children: nodes}
}

// noSpaces reports whether the normalizer ends with metaspaces for all spaces (Gemma).
func (f *engineForm) noSpaces() bool {
	last := f.t.normalizer
	if seq, ok := last.(normalizerSequence); ok && len(seq) > 0 {
		last = seq[len(seq)-1]
	}
	r, ok := last.(replace)
	return ok && r.find == nil && r.pattern == " " && r.content == metaspace
}

func isSplitAtSpace(p preTokenizer) bool {
	s, ok := p.(*splitStage)
	return ok && s.regex == regex.Quote(" ") && !s.invert
}

// step translates a step of the pre-tokenizer.
func (f *engineForm) step(p preTokenizer) ([]mtok.PreTokenizer, error) {
	const kind = "pre-tokenizer"
	switch p := p.(type) {
	case *splitStage:
		return f.split(p)
	case *byteLevelStage:
		var nodes []mtok.PreTokenizer
		if p.prefixSpace {
			// A metaspace that is a space puts one before a text that does not begin with one.
			nodes = append(nodes, mtok.PreTokenizer{Tag: mtok.PreMetaspace, Replacement: " ", Flag: true})
		}
		return append(nodes, mtok.PreTokenizer{Tag: mtok.PreByteLevel, Flag: p.useRegex}), nil
	case *charStage:
		return f.split(&splitStage{regex: p.regex, behavior: p.behavior})
	case whitespaceStage:
		return f.split(&splitStage{regex: `[\p{L}\p{M}\p{N}_]+|[^\s\p{L}\p{M}\p{N}_]+`, behavior: removed, invert: true})
	case *metaspaceStage:
		var nodes []mtok.PreTokenizer
		if !p.whole {
			nodes = append(nodes, mtok.PreTokenizer{Tag: mtok.PreSplit, Regex: " ?[^ ]+| ", Behavior: mtok.SplitIsolated})
		}
		return append(nodes, mtok.PreTokenizer{Tag: mtok.PreMetaspace, Replacement: p.replacement, Flag: f.prefix(p.prepend)}), nil
	}
	return nil, unsupported(kind, fmt.Sprintf("of type %T by the engine", p))
}

func (f *engineForm) split(p *splitStage) ([]mtok.PreTokenizer, error) {
	const kind = `pre-tokenizer "Split"`
	n := mtok.PreTokenizer{Tag: mtok.PreSplit, Flag: p.invert}
	switch p.behavior {
	case isolated:
		n.Behavior = mtok.SplitIsolated
	case removed:
		n.Behavior = mtok.SplitRemoved
	case mergedWithPrevious, mergedWithNext, contiguous:
		// For single characters, other matches do the same.
		in, out := dialect.OneCharacter(p.regex)
		switch {
		case in == "" || p.invert:
			return nil, unsupported(kind, fmt.Sprintf("with behavior %s by the engine", p.behavior))
		case p.behavior == mergedWithPrevious:
			p = &splitStage{regex: out + "*" + in + "|" + out + "+"}
		case p.behavior == mergedWithNext:
			p = &splitStage{regex: in + out + "*|" + out + "+"}
		default:
			p = &splitStage{regex: in + "+"}
		}
		n.Behavior = mtok.SplitIsolated
	default:
		return nil, unsupported(kind, fmt.Sprintf("with behavior %s by the engine", p.behavior))
	}
	regex, losses, err := dialect.Translate(p.regex)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", kind, err)
	}
	for _, l := range losses {
		f.lose(l)
	}
	if regex == "" {
		return nil, nil
	}
	n.Regex = regex
	return []mtok.PreTokenizer{n}, nil
}

// prefix decides whether the engine puts a space before texts. It does so at the start and after every special token, or
// nowhere; a prompt of a chat begins with a special token.
func (f *engineForm) prefix(p prependScheme) bool {
	switch {
	case p != prependFirst:
		return p == prependAlways
	case f.chat:
		f.lose("no space is put before a text that does not begin with a special token")
		return false
	}
	f.lose("a space is put before the text after each special token, not only at the start")
	return true
}

// cut adds the cuts to a BPE tokenizer whose text is one word, with metaspaces for spaces. Spaces become metaspaces after the
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

// SpaceFirst reports whether a space is put before a text, but not after an added token in it (the pre-tokenizer Metaspace with
// prepend_scheme "first").
func (t *Tokenizer) SpaceFirst() bool {
	steps, _ := t.preTokenizer.(preTokenizerSequence)
	for _, s := range steps {
		if m, ok := s.(*metaspaceStage); ok && m.prepend == prependFirst {
			return true
		}
	}
	return false
}
