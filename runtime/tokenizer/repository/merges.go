package repository

import (
	"cmp"
	"slices"
	"unicode/utf8"
)

// Vocabularies that come without a list of merges (SentencePiece, tiktoken) imply it: two tokens whose texts together are a
// token merge into it, those that make an earlier token first.

// impliedMerge is one of them, with the ranks of the result and of the parts.
type impliedMerge struct {
	left, right string
	rank, l, r  int32
}

// impliedMerges finds all merges of a vocabulary, whose ranks differ. Tokens are cut between characters, or with raw
// between any two bytes. The order within one result decides only when it can be made in two ways at once: the shorter left
// part first, or with raw the one of lower rank, as transformers has it.
func impliedMerges(ranks map[string]int32, raw bool) []impliedMerge {
	var out []impliedMerge
	for token, rank := range ranks {
		for i := 1; i < len(token); i++ {
			if !raw && !utf8.RuneStart(token[i]) {
				continue
			}
			l, ok := ranks[token[:i]]
			if !ok {
				continue
			}
			if r, ok := ranks[token[i:]]; ok {
				out = append(out, impliedMerge{token[:i], token[i:], rank, l, r})
			}
		}
	}
	slices.SortFunc(out, func(a, b impliedMerge) int {
		switch {
		case a.rank != b.rank:
			return cmp.Compare(a.rank, b.rank)
		case !raw:
			return cmp.Compare(len(a.left), len(b.left))
		}
		return cmp.Or(cmp.Compare(a.l, b.l), cmp.Compare(a.r, b.r))
	})
	return out
}
