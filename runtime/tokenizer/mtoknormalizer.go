package tokenizer

import (
	"fmt"
	"sync"

	"github.com/llmexport/llmexport/runtime/tokenizer/internal/dialect"
	"github.com/llmexport/llmexport/runtime/tokenizer/internal/mtok"
)

// normalizer translates a normalizer.
func (f *engineForm) normalizer(n normalizer) (mtok.Normalizer, error) {
	const kind = "normalizer"
	switch n := n.(type) {
	case nil:
		return mtok.Normalizer{}, nil
	case normalizerSequence:
		var nodes []mtok.Normalizer
		for _, step := range n {
			node, err := f.normalizer(step)
			if err != nil {
				return mtok.Normalizer{}, err
			}
			switch node.Tag {
			case mtok.NormNone: // which the engine rejects within a sequence
			case mtok.NormSequence:
				nodes = append(nodes, node.Children...)
			default:
				nodes = append(nodes, node)
			}
		}
		return normSequenceOf(nodes), nil
	case unicodeForm:
		if n.compose {
			f.lose("two rare cases of Unicode normalize differently: three or more combining marks in an unusual order, and trailing Hangul jamo without a syllable")
		} else {
			f.lose("combining marks in an unusual order are not reordered")
		}
		return literalForm(n), nil
	case *precompiled:
		f.lose("of the table of the SentencePiece model only single characters and canonical pairs are replaced")
		return literal(textOf(n)), nil
	case nmt, stripAccents:
		return literal(textOf(n)), nil
	case lowercase:
		return mtok.Normalizer{Tag: mtok.NormSequence, Children: []mtok.Normalizer{
			{Tag: mtok.NormReplace, Pattern: "\u0130", Content: "i\u0307"}, {Tag: mtok.NormBert, Lower: true},
		}}, nil
	case bert:
		// The engine's own cleaning keeps format characters, and strips spacing marks as accents.
		chinese := n.chinese
		n.chinese = false
		node := literal(textOf(n))
		if chinese {
			node.Children = append(node.Children, mtok.Normalizer{Tag: mtok.NormBert, Chinese: true})
		}
		return node, nil
	case prepend:
		return mtok.Normalizer{Tag: mtok.NormPrepend, Content: string(n)}, nil
	case replace:
		pattern, ok := n.pattern, true
		if n.find != nil {
			pattern, ok = dialect.Unquote(n.regex)
		}
		if !ok {
			return mtok.Normalizer{}, unsupported(fmt.Sprintf(`%s "Replace" of %q`, kind, n.regex), "by the engine, which replaces plain texts only")
		}
		return mtok.Normalizer{Tag: mtok.NormReplace, Pattern: pattern, Content: n.content}, nil
	case strip:
		if n.right || f.release < "3.6" {
			return mtok.Normalizer{}, unsupported(kind+` "Strip"`, "by the engine, which strips at the left only, and since 3.6.0")
		}
		f.lose("white space outside ASCII at the start of a text may stay")
		return mtok.Normalizer{Tag: mtok.NormStrip, Left: n.left}, nil
	}
	return mtok.Normalizer{}, unsupported(kind, fmt.Sprintf("of type %T by the engine", n))
}

// normSequenceOf joins nodes to one.
func normSequenceOf(nodes []mtok.Normalizer) mtok.Normalizer {
	switch len(nodes) {
	case 0:
		return mtok.Normalizer{}
	case 1:
		return nodes[0]
	}
	return mtok.Normalizer{Tag: mtok.NormSequence, Children: nodes}
}

// textOf applies a normalizer to a text.
func textOf(n normalizer) func(string) string {
	return func(s string) string { return n.normalize(align(s)).text }
}

// The form takes some fifty milliseconds to spell out.
var literalNFC = sync.OnceValue(func() mtok.Normalizer { return literal(formNFC.apply) })

func literalForm(f unicodeForm) mtok.Normalizer {
	if f == formNFC {
		return literalNFC()
	}
	return literal(f.apply)
}
