package repository

import (
	"fmt"
	"slices"

	"github.com/llmexport/llmexport/runtime/tensor"
	"github.com/llmexport/llmexport/runtime/tokenizer"
)

// remotePieces are classes that repositories bring as Python code and that give what the library `sentencepiece` gives, with
// bos and eos as the repository sets them. Others are unknown.
var remotePieces = []string{"BaichuanTokenizer", "InternLMTokenizer", "OrionTokenizer", "YiTokenizer"}

// SentencePiece reads the .model file of a repository and defines the tokenizer that AutoTokenizer of transformers 5.23 makes of
// it. That is not always what the library `sentencepiece` gives: transformers ignores the normalizer of the file where it has a
// class of its own, and never adds a space before the text where it has none. See [DefineSentencePiece] for the errors.
func (c *Config) SentencePiece(b []byte) (*Definition, error) {
	m, err := readSentencePiece(b)
	if err != nil {
		return nil, err
	}
	var d *Definition
	switch k := c.class(); {
	case c.isRemote():
		if !slices.Contains(remotePieces, c.Class) {
			return nil, unsupported("tokenizer class", c.Class+", which is code of the repository,")
		}
		c.complete(map[string]string{"unk_token": m.trainer.unk, "bos_token": m.trainer.bos, "eos_token": m.trainer.eos})
		if d, err = m.define(); err != nil {
			return nil, err
		}
	case k == nil:
		if d, err = m.backend(c); err != nil {
			return nil, err
		}
	case k.byteFallback:
		c.complete(k.special)
		tokens := m.tokens()
		unk := ""
		if k.unk != "" {
			unk = c.named(k.unk).Content
		}
		d = &Definition{normalizer: k.normalizer, preTokenizer: k.preTokenizer(c), decoder: k.decoder(c)}
		d.bpeModel(tokens, impliedMerges(ranksByID(tokens), false), bpeSettings(unk, k.fuse, k.byteFallback))
		if unk != "" && d.ids[unk] == 0 && tokens[0] != unk {
			return nil, fmt.Errorf("unk_token %q is not a piece: %w", unk, tensor.ErrCorrupt)
		}
	default:
		return nil, unsupported("tokenizer class", c.Class+" with a SentencePiece model")
	}
	if !c.isRemote() && len(c.extra) == 0 {
		for _, p := range m.pieces {
			if p.kind == spControl || p.kind == spUserDefined {
				c.extra = append(c.extra, tokenizer.AddedToken{Content: p.text, Special: p.kind == spControl})
			}
		}
	}
	d.apply(c)
	return d, d.frame(c)
}

// isRemote reports whether AutoTokenizer would run code of the repository.
func (c *Config) isRemote() bool { return c.Remote && registered[c.ModelType] == "" }

// backend defines the tokenizer that TokenizersBackend makes of a file.
func (m *sentencePiece) backend(c *Config) (*Definition, error) {
	t := m.trainer
	special := map[string]string{}
	for name, token := range map[string]struct {
		id   int32
		text string
	}{"bos_token": {t.bosID, t.bos}, "eos_token": {t.eosID, t.eos}, "unk_token": {t.unkID, t.unk}} {
		if token.id >= 0 {
			special[name] = token.text
		}
	}
	c.complete(special)
	pieces := slices.Clone(m.pieces)
	known := make(map[string]bool, len(pieces))
	for _, p := range pieces {
		known[p.text] = true
	}
	for _, a := range c.added {
		// Placeholders of the file take the names that the repository gives them.
		if int(a.ID) < len(pieces) && !known[a.Content] && t.model != spUnigram {
			delete(known, pieces[a.ID].text)
			pieces[a.ID].text, known[a.Content] = a.Content, true
		}
	}
	d := &Definition{}
	switch t.model {
	case spUnigram:
		if t.unkID < 0 || int(t.unkID) >= len(pieces) {
			return nil, fmt.Errorf("unk_id %d is not a piece: %w", t.unkID, tensor.ErrCorrupt)
		}
		d.unigramModel(pieces, part{"unk_id": t.unkID, "byte_fallback": t.byteFallback})
	default:
		tokens := (&sentencePiece{pieces: pieces}).tokens()
		// The merges are those of the file's own spelling.
		d.bpeModel(tokens, impliedMerges(ranksByID(m.tokens()), false), bpeSettings(t.unk, true, t.byteFallback))
	}
	steps := []part{replaceLiteral(" ", metaspace)}
	if len(m.normalizer.charsMap) > 0 {
		steps = slices.Insert(steps, 0, part{"type": "Precompiled", "precompiled_charsmap": m.normalizer.charsMap})
	}
	d.normalizer = sequenceOf("normalizers", steps...)
	d.decoder = spDecoder(false)
	return d, nil
}

// ranksByID ranks tokens as transformers merges them: the lowest id first.
func ranksByID(tokens []string) map[string]int32 {
	ranks := make(map[string]int32, len(tokens))
	for id, token := range tokens {
		ranks[token] = int32(id)
	}
	return ranks
}
