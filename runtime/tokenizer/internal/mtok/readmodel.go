package mtok

import (
	"math"
	"slices"
	"strings"

	"github.com/llmexport/llmexport/runtime/tokenizer/internal/merge"
)

// model checks everything that the engine relies on without looking: order, ids in range, ids used once.
func (r *reader) model() Model {
	n := Model{Tag: r.u8()}
	size := r.u32()
	each := int64(6)
	var merges uint32
	switch n.Tag {
	case ModelBPE:
		n.ByteFallback, n.ByteLevel = r.bool(), r.bool()
		merges = r.u32()
	case ModelWordPiece:
		n.Unknown, n.Prefix = r.str(), r.str()
		n.MaxBytes = int(r.u32())
	case ModelUnigram:
		n.UnknownID, n.ByteFallback = r.id(), r.bool()
		if r.err == nil && int64(n.UnknownID) >= int64(size) {
			r.fail("id %d of the unknown token of %d tokens", n.UnknownID, size)
		}
		each = 14
	default:
		r.refuse("model of type %d", n.Tag)
	}
	left := int64(len(r.s) - r.pos)
	if need := int64(size)*each + int64(merges)*12; need > left {
		r.fail("%d tokens and %d merges in %d bytes", size, merges, left)
	}
	if r.err != nil {
		return n
	}
	n.Vocab = make([]Token, 0, size)
	used := make([]bool, size)
	for i := range int(size) {
		e := Token{Text: r.str(), ID: r.id()}
		if n.Tag == ModelUnigram {
			e.Score = r.f64()
		}
		switch {
		case r.err != nil:
			return n
		case int64(e.ID) >= int64(size):
			r.fail("token %q has id %d of %d", e.Text, e.ID, size)
			return n
		case used[e.ID]:
			r.fail("id %d has two tokens", e.ID)
			return n
		// Of equal tokens the engine finds the first.
		case i > 0 && n.Vocab[i-1].Text > e.Text:
			r.fail("token %q is not in order", e.Text)
			return n
		case math.IsNaN(e.Score) || math.Abs(e.Score) > MaxScore:
			r.refuse("token %q has the score %g", e.Text, e.Score)
			return n
		}
		used[e.ID] = true
		n.Vocab = append(n.Vocab, e)
	}
	n.Merges = r.merges(int(merges), int(size))
	return n
}

// MaxScore keeps sums of scores far from the numbers that the engine takes for minus infinity.
const MaxScore = 1e6

func (r *reader) merges(count, size int) []Merge {
	if count == 0 {
		return nil
	}
	all := make([]Merge, 0, count)
	last := merge.Pair(0)
	for i := range count {
		e := Merge{r.id(), r.id(), r.id()}
		p := merge.PairOf(e.Left, e.Right)
		switch {
		case r.err != nil:
			return nil
		case int(max(e.Left, e.Right)) >= size || e.Rank >= merge.MaxMerges:
			r.fail("merge of %d and %d with rank %d", e.Left, e.Right, e.Rank)
			return nil
		case i > 0 && last >= p:
			r.fail("merge of %d and %d is not in order", e.Left, e.Right)
			return nil
		}
		last = p
		all = append(all, e)
	}
	return all
}

// SortVocab puts entries into the order of the file.
func SortVocab(v []Token) {
	slices.SortFunc(v, func(a, b Token) int {
		if c := strings.Compare(a.Text, b.Text); c != 0 {
			return c
		}
		return int(a.ID) - int(b.ID)
	})
}
