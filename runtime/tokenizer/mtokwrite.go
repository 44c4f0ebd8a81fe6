package tokenizer

import (
	"fmt"
	"slices"
	"strings"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// MTOKOptions is what a tokenizer.mtok holds and a tokenizer.json does not.
type MTOKOptions struct {
	// Special ids are recognised in a text before all other added tokens; Stop ids end generation; Prefix ids
	// stand before every encoded text and are usually the Tokenizer's PrefixIDs.
	Special, Stop, Prefix []int32
	// ChatTemplate is a Jinja template, EOS the text of its eos_token. Both may be empty.
	ChatTemplate, EOS string
}

// MTOK writes a tokenizer.mtok for the engines 3.5.0, 3.6.0 and 3.6.1. The same Tokenizer and options give
// the same bytes.
//
// Added tokens are entries of the vocabulary too, because the engine decodes nothing else; ids that do not
// exist become entries without text. The composing of NFC is left out: the engine is not able to do it, and its
// table for single code points changes more texts than it mends. The text of bos is empty and the
// post-processor has no steps, so that bos comes from the prefix ids and only from there.
//
// What would change ids throughout is tensor.ErrUnsupported: a pattern beyond the engine's scanner, a split
// other than Isolated and Removed, add_prefix_space, single_word, ids behind the text, a token of more than
// 65535 bytes. What changes them now and then is listed by Losses.
func (t *Tokenizer) MTOK(o MTOKOptions) ([]byte, error) {
	b, err := t.mtokBytes(o)
	if err != nil {
		return nil, fmt.Errorf("tokenizer.mtok: %w", err)
	}
	return b, nil
}

func (t *Tokenizer) mtokBytes(o MTOKOptions) ([]byte, error) {
	for _, list := range [][]int32{o.Special, o.Stop, o.Prefix} {
		for _, id := range list {
			if _, ok := t.Token(id); !ok {
				return nil, fmt.Errorf("id %d is no token: %w", id, tensor.ErrUnsupported)
			}
		}
	}
	if len(t.suffix) > 0 {
		return nil, unsupported("post-processor", "that puts ids behind the text")
	}
	pre, err := t.mtokPreTokenizer()
	if err != nil {
		return nil, err
	}
	m := &mtok{
		Special: append([]int32(nil), o.Special...), Stop: o.Stop, Prefix: o.Prefix,
		PreTokenizer: pre,
		Decoder:      decNode{Tag: decByteLevel},
		Sections:     5, Template: o.ChatTemplate, EOS: o.EOS, PostProcess: "\x00\x00",
	}
	// The engine takes the first special token that fits, so longer ones come first.
	slices.SortStableFunc(m.Special, func(a, b int32) int {
		if d := len(t.tokens[b]) - len(t.tokens[a]); d != 0 {
			return d
		}
		return int(a - b)
	})
	m.Special = slices.Compact(m.Special)
	for id, token := range t.tokens {
		m.Model.Vocab = append(m.Model.Vocab, vocabEntry{Token: token, ID: int32(id)})
	}
	sortedVocab(m.Model.Vocab)
	for p, e := range t.model.merges {
		m.Model.Merges = append(m.Model.Merges, mergeEntry{int32(p >> 32), int32(uint32(p)), e.rank})
	}
	slices.SortFunc(m.Model.Merges, func(a, b mergeEntry) int {
		if a.Left != b.Left {
			return int(a.Left - b.Left)
		}
		return int(a.Right - b.Right)
	})
	for _, a := range t.added {
		if a.SingleWord {
			return nil, unsupported(fmt.Sprintf("added token %q", a.Content), "with single_word")
		}
		// As an entry of the vocabulary it would be found for the byte, which has no token otherwise.
		if b, ok := fromStandIns(a.Content); ok && len(b) == 1 && m0.byteID[b[0]] < 0 {
			return nil, unsupported(fmt.Sprintf("added token %q", a.Content), "that stands for a byte")
		}
		m.Added = append(m.Added, mtokAdded{a.ID, a.Special, a.LStrip, a.RStrip, a.Content})
	}
	return m.marshal()
}

// mtokPreTokenizer translates the stages.
func (t *Tokenizer) mtokPreTokenizer() (preNode, error) {
	var nodes []preNode
	steps, _ := t.preTokenizer.(preTokenizerSequence)
	for _, s := range steps {
		switch s := s.(type) {
		case *splitStage:
			n := preNode{Tag: preSplit, Regex: s.regex, Flag: s.invert}
			switch s.behavior {
			case isolated:
				n.Behavior = splitIsolated
			case removed:
				n.Behavior = splitRemoved
			default:
				return preNode{}, unsupported(`pre-tokenizer "Split"`, "with behavior "+string(s.behavior))
			}
			if err := checkEngineRegex(s.regex); err != nil {
				return preNode{}, fmt.Errorf(`pre-tokenizer "Split": %w`, err)
			}
			nodes = append(nodes, n)
		case *byteLevelStage:
			if s.prefixSpace {
				return preNode{}, unsupported(`pre-tokenizer "ByteLevel"`, "with add_prefix_space")
			}
			nodes = append(nodes, preNode{Tag: preByteLevel, Flag: s.useRegex})
		}
	}
	if len(nodes) == 1 {
		return nodes[0], nil
	}
	return preNode{Tag: preSequence, Children: nodes}, nil
}

// Losses says, one sentence each, for which texts a tokenizer.mtok of t gives other ids than t. Not listed, because true of
// every file: texts with the control characters U+0001 to U+0007, which the engine's scanner takes for letters, digits and
// the like; with the line separators U+0085, U+2028 and U+2029, which are no white space to it; or with code points younger
// than Unicode 15.
func (t *Tokenizer) Losses() []string {
	var out []string
	if t.normalizer != nil {
		out = append(out, "text that is not composed (NFC) stays so")
	}
	if n := t.unreached(); n > 0 {
		out = append(out, fmt.Sprintf("%d tokens are not reached by merges (ignore_merges): their words are cut into several", n))
	}
	for _, a := range t.added {
		if a.LStrip || a.RStrip {
			which := "white space outside ASCII"
			if a.Special {
				which = "white space"
			}
			out = append(out, fmt.Sprintf("%s beside %q is kept", which, a.Content))
		}
		if strings.Contains(a.Content, "▁") || strings.Contains(a.Content, "<0x") {
			out = append(out, fmt.Sprintf("%q is found in the text of its decoded form too", a.Content))
		}
	}
	return out
}

// unreached counts the tokens that ignore_merges alone can produce.
func (t *Tokenizer) unreached() int {
	n := 0
	var ids []int32
	m, ok := t.model.(*bpe)
	if !ok {
		return 0
	}
	for word, id := range m.words {
		if word == "" {
			continue
		}
		if ids = m.merge(ids[:0], word); len(ids) != 1 || ids[0] != id {
			n++
		}
	}
	return n
}
