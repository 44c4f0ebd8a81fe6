package tokenizer

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/llmexport/llmexport/runtime/tokenizer/internal/bytelevel"
	"github.com/llmexport/llmexport/runtime/tokenizer/internal/mtok"
)

// model translates the model.
func (f *engineForm) model() (mtok.Model, error) {
	switch m := f.t.model.(type) {
	case *bpe:
		return f.bpe(m)
	case *unigram:
		return f.unigram(m)
	case *wordPiece:
		f.lose(fmt.Sprintf("a word of more than %d bytes, not characters, is unknown", m.maxChars))
		return mtok.Model{Tag: mtok.ModelWordPiece, Unknown: f.t.tokens[m.unk], Prefix: m.prefix, MaxBytes: int(min(m.maxChars, 1<<20)), Vocab: f.vocab(nil)}, nil
	}
	return mtok.Model{}, unsupported("model", fmt.Sprintf("of type %T by the engine", f.t.model))
}

func (f *engineForm) bpe(m *bpe) (mtok.Model, error) {
	const kind = `model "BPE"`
	if m.prefix != "" || m.suffix != "" {
		return mtok.Model{}, unsupported(kind, "with continuing_subword_prefix or end_of_word_suffix by the engine")
	}
	n := mtok.Model{Tag: mtok.ModelBPE, ByteFallback: m.byteFallback, Vocab: f.vocab(nil)}
	for p, e := range m.Merges {
		n.Merges = append(n.Merges, mtok.Merge{Left: p.Left(), Right: p.Right(), Rank: e.Rank})
	}
	slices.SortFunc(n.Merges, func(a, b mtok.Merge) int {
		if a.Left != b.Left {
			return int(a.Left - b.Left)
		}
		return int(a.Right - b.Right)
	})
	if m.raw {
		for _, a := range f.t.vocabulary.added {
			// As an entry of the vocabulary it would be found for the byte, which has no other token.
			if b, ok := bytelevel.Decode(a.Content); ok && len(b) == 1 && m.byteID[b[0]] < 0 {
				return mtok.Model{}, unsupported(fmt.Sprintf("added token %q", a.Content), "that stands for a byte by the engine")
			}
		}
	} else if m.unk >= 0 && !(m.byteFallback && m.complete) {
		f.lose(fmt.Sprintf("unknown characters vanish instead of becoming %q", f.t.tokens[m.unk]))
	}
	if count := m.unreached(); count > 0 {
		f.lose(fmt.Sprintf("%d tokens are not reached by merges (ignore_merges): their words become several tokens", count))
	}
	return n, nil
}

// unigram sets scores such that the engine cuts as the library does: it takes an unknown character for the score of the
// unknown token, and bytes as ordinary tokens.
func (f *engineForm) unigram(m *unigram) (mtok.Model, error) {
	isByte := map[int32]bool{}
	if m.byteID != nil {
		for _, id := range m.byteID {
			if id < 0 {
				return mtok.Model{}, unsupported(`model "Unigram"`, "with byte_fallback and without a token for every byte by the engine")
			}
			isByte[id] = true
		}
		f.lose("texts with unknown characters may be cut differently around them")
	}
	for id, score := range m.scores {
		if math.Abs(score) > mtok.MaxScore || math.Abs(m.unkScore) > mtok.MaxScore {
			return mtok.Model{}, unsupported(fmt.Sprintf("token %q", f.t.tokens[id]), fmt.Sprintf("with the score %g by the engine", score))
		}
	}
	return mtok.Model{Tag: mtok.ModelUnigram, UnknownID: m.unk, ByteFallback: m.byteID != nil, Vocab: f.vocab(func(id int32) float64 {
		if id == m.unk || isByte[id] || int(id) >= len(m.scores) {
			return m.unkScore
		}
		return m.scores[id]
	})}, nil
}

// vocab lists all ids, added tokens too, with their scores, if there are any.
func (f *engineForm) vocab(scores func(id int32) float64) []mtok.Token {
	var out []mtok.Token
	for id, token := range f.t.tokens {
		e := mtok.Token{Text: token, ID: int32(id)}
		if scores != nil {
			e.Score = scores(e.ID)
		}
		out = append(out, e)
	}
	mtok.SortVocab(out)
	return out
}

// unreached counts the words of ignore_merges that no merges produce.
func (m *bpe) unreached() int {
	n := 0
	var ids []int32
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

// added translates the added tokens.
func (f *engineForm) added() ([]mtok.Added, error) {
	var out []mtok.Added
	var strip, decoded, normalized []string
	for _, a := range f.t.vocabulary.added {
		if a.SingleWord {
			return nil, unsupported(fmt.Sprintf("added token %q", a.Content), "with single_word by the engine")
		}
		if a.LStrip || a.RStrip {
			strip = append(strip, a.Content)
		}
		if strings.Contains(a.Content, metaspace) || strings.Contains(a.Content, "<0x") {
			decoded = append(decoded, a.Content)
		}
		if _, ok := f.t.found[a.ID]; ok {
			normalized = append(normalized, a.Content)
		}
		out = append(out, mtok.Added{ID: a.ID, Special: a.Special, LStrip: a.LStrip, RStrip: a.RStrip, Content: a.Content})
	}
	for _, l := range []struct {
		tokens []string
		what   string
	}{
		{strip, "white space outside ASCII is kept next to"},
		{decoded, "also found by their decoded form:"},
		{normalized, "found before normalization instead of after it:"},
	} {
		switch n := len(l.tokens); n {
		case 0:
		case 1:
			f.lose(fmt.Sprintf("%s %q", l.what, l.tokens[0]))
		default:
			f.lose(fmt.Sprintf("%s %q and %d more added tokens", l.what, l.tokens[0], n-1))
		}
	}
	return out, nil
}
