package tokenizer

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/llmexport/llmexport/runtime/tensor"
	"github.com/llmexport/llmexport/runtime/tokenizer/engine"
	"github.com/llmexport/llmexport/runtime/tokenizer/internal/mtok"
)

// MTOKOptions are the parts of a tokenizer.mtok that a tokenizer.json lacks.
type MTOKOptions struct {
	// Special ids are recognised in a text before all other added tokens; Stop ids end generation; Prefix ids
	// stand before every encoded text and are usually the Tokenizer's PrefixIDs.
	Special, Stop, Prefix []int32
	// ChatTemplate is a Jinja template, EOS the text of its eos_token. Both may be empty.
	ChatTemplate, EOS string
	// Whole: texts are whole ones, which ChatTemplate ends as the post-processor does, and not prompts of chats.
	Whole bool
	// Release is the oldest engine that must read the file, such as "3.5"; empty is the newest known.
	Release string
}

// MTOK writes a tokenizer.mtok for the LLM engine of MNN. The same Tokenizer and options give the same bytes.
//
// Added tokens are entries of the vocabulary too, because the engine decodes nothing else; ids that do not exist become
// entries without text. Special tokens that swallow white space are written as added tokens only, because the engine swallows
// none next to special ones. The text of bos is empty and the post-processor has no steps, so that bos comes from the prefix
// ids and only from there.
//
// A tokenizer that would get other ids for ordinary texts is tensor.ErrUnsupported. The losses name, one sentence each, the
// exceptional texts with other ids. Not listed, because they apply to every file, are texts with the control characters
// U+0001 to U+0007, which the engine's scanner takes for letters, digits and so on; with the line separators U+0085, U+2028
// and U+2029, which it does not take for white space; with code points younger than Unicode 15; and invalid UTF-8.
func (t *Tokenizer) MTOK(o MTOKOptions) (file []byte, losses []string, err error) {
	f := &engineForm{t: t, release: cmp.Or(o.Release, "3.6"), chat: o.ChatTemplate != "" && !o.Whole}
	m, err := f.file(o)
	if err == nil {
		file, err = m.Marshal()
	}
	if err != nil {
		return nil, nil, fmt.Errorf("tokenizer.mtok: %w", err)
	}
	return file, f.losses, nil
}

// engineForm is a tokenizer on its way into a .mtok, component by component.
type engineForm struct {
	t       *Tokenizer
	release string
	chat    bool // texts are prompts of chats
	losses  []string
}

// lose notes a loss once.
func (f *engineForm) lose(what string) {
	if !slices.Contains(f.losses, what) {
		f.losses = append(f.losses, what)
	}
}

func (f *engineForm) file(o MTOKOptions) (*mtok.File, error) {
	t := f.t
	for _, list := range [][]int32{o.Special, o.Stop, o.Prefix} {
		for _, id := range list {
			if _, ok := t.Token(id); !ok {
				return nil, fmt.Errorf("id %d is not a token: %w", id, tensor.ErrUnsupported)
			}
		}
	}
	m := &mtok.File{
		Stop: o.Stop, Prefix: o.Prefix,
		Sections: 5, Template: o.ChatTemplate, EOS: o.EOS, PostProcess: "\x00\x00",
	}
	var err error
	if m.Normalizer, err = f.normalizer(t.normalizer); err != nil {
		return nil, err
	}
	if err := engine.CheckNormalizer(&m.Normalizer); err != nil {
		return nil, err
	}
	if m.PreTokenizer, err = f.preTokenizer(); err != nil {
		return nil, err
	}
	if m.Model, err = f.model(); err != nil {
		return nil, err
	}
	f.cut(m)
	m.Decoder = f.decoder()
	if err := engine.CheckPrinted(&m.Decoder, t.tokens); err != nil {
		return nil, err
	}
	if m.Added, err = f.added(); err != nil {
		return nil, err
	}
	m.Special = f.special(o.Special)
	if len(t.suffix) > 0 && !o.Whole {
		f.lose("the ids that the post-processor appends to a text are left out, so that generation can continue")
	}
	return m, nil
}

// special orders the special ids and leaves out those that swallow white space.
func (f *engineForm) special(ids []int32) []int32 {
	var out []int32
	for _, id := range ids {
		if !slices.ContainsFunc(f.t.vocabulary.added, func(a AddedToken) bool { return a.ID == id && (a.LStrip || a.RStrip) }) {
			out = append(out, id)
		}
	}
	// The engine takes the first special token that fits, so longer ones come first.
	slices.SortStableFunc(out, func(a, b int32) int {
		if d := len(f.t.tokens[b]) - len(f.t.tokens[a]); d != 0 {
			return d
		}
		return int(a - b)
	})
	return slices.Compact(out)
}

// decoder returns nodes for the engine, which only checks them for tokens spelled in stand-ins and tokens of WordPiece. All
// other tokens have metaspaces and names of bytes.
func (f *engineForm) decoder() mtok.Decoder {
	if m, ok := f.t.model.(*wordPiece); ok {
		return mtok.Decoder{Tag: mtok.DecWordPiece, Content: m.prefix}
	}
	steps, _ := f.t.preTokenizer.(preTokenizerSequence)
	for _, p := range steps {
		if _, ok := p.(*byteLevelStage); ok {
			return mtok.Decoder{Tag: mtok.DecByteLevel}
		}
	}
	return mtok.Decoder{Tag: mtok.DecSequence, Children: []mtok.Decoder{{Tag: mtok.DecReplace, Pattern: metaspace, Content: " "},
		{Tag: mtok.DecByteFallback}, {Tag: mtok.DecFuse}}}
}
