package corpus

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// letters are tokens that one is able to read.
func letters(s string) []int32 {
	var t []int32
	for _, r := range s {
		t = append(t, r)
	}
	return t
}

func spell(windows [][]int32) string {
	all := make([]string, len(windows))
	for i, w := range windows {
		all[i] = string(w)
	}
	return strings.Join(all, " ")
}

func TestPack(t *testing.T) {
	plain := packing{window: 4, separator: letters("|")}
	all, whole, prefixed := plain, plain, plain
	all.all = true
	whole.whole, whole.separator = true, nil
	prefixed.prefix = letters("^")
	wholeAll := whole
	wholeAll.all = true
	for name, tc := range map[string]struct {
		p         packing
		documents string // separated by spaces; a piece that continues begins with +
		want      string
	}{
		"nothing":                          {plain, "", ""},
		"too short":                        {plain, "abc", ""},
		"exact":                            {plain, "abcd efgh", "abcd efgh"},
		"joined":                           {plain, "a b cd", "a|b|"},
		"separator ends a window":          {plain, "abc defg", "abc| defg"},
		"long":                             {plain, "abcdefghij klmn", "abcd efgh klmn"},
		"joined with a long one":           {plain, "ab cdefghijk lmno", "ab|c defg hijk lmno"},
		"tail joins nothing":               {plain, "abcde f ghi", "abcd f|gh"},
		"pieces":                           {plain, "ab +cd +efg +h ij", "abcd efgh"},
		"every token":                      {all, "abcde f ghi", "abcd e|f|"},
		"conversation":                     {whole, "abcdefgh ijkl", "abcd ijkl"},
		"conversations joined":             {whole, "abc defghi jklm", "abcd jklm"},
		"pieces of a conversation":         {whole, "abcd +efgh ijkl", "abcd ijkl"},
		"every token of conversations":     {wholeAll, "abcdefg hi", "abcd efgh"},
		"prefix":                           {prefixed, "abcdef gh i", "^abc ^def ^gh|"},
		"prefix of the template":           {prefixed, "^abcdef ^g ^h", "^abc ^def ^g|^"},
		"prefix of a document without any": {prefixed, "^ abc", "^^|a"},
	} {
		t.Run(name, func(t *testing.T) {
			var pieces []ids
			for _, d := range strings.Fields(tc.documents) {
				s, continues := strings.CutPrefix(d, "+")
				pieces = append(pieces, ids{!continues, letters(s)})
			}
			if d := cmp.Diff(strings.TrimSpace(tc.want), spell(tc.p.pack(pieces))); d != "" {
				t.Error(d)
			}
		})
	}
}
