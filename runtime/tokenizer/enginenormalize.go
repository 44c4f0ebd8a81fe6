package tokenizer

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// normalizeEngine runs a normalizer node.
func normalizeEngine(n *normNode, s string) string {
	switch n.Tag {
	case normPrepend:
		return n.Content + s
	case normReplace:
		if n.Pattern != "" {
			return strings.ReplaceAll(s, n.Pattern, n.Content)
		}
	case normBert, normBertTable:
		return normalizeBert(n, s)
	case normTable:
		if len(n.Table) > 0 {
			return substitute(n.Table, s)
		}
	case normStrip:
		// Right is without effect: the engine decodes behind the character that it wants to look at.
		if n.Left {
			return strings.TrimLeftFunc(s, isSpaceEngine)
		}
	case normSequence:
		for i := range n.Children {
			s = normalizeEngine(&n.Children[i], s)
		}
	}
	return s
}

// substitute replaces single code points by their texts in a sorted table, and by a space the control
// characters that the engine has a list of.
func substitute(table []substitution, s string) string {
	var b strings.Builder
	b.Grow(len(s))
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		if isControl(r) {
			b.WriteByte(' ')
		} else {
			b.WriteString(lookUp(table, r, s[i:i+n]))
		}
		i += n
	}
	return b.String()
}

// lookUp is the text of r in a sorted table, or text. A byte that is not UTF-8 is found as U+FFFD.
func lookUp(table []substitution, r rune, text string) string {
	if r < table[0].Char {
		return text
	}
	k, ok := slices.BinarySearchFunc(table, r, func(e substitution, r rune) int { return int(e.Char - r) })
	if !ok {
		return text
	}
	return table[k].Text
}

func isControl(r rune) bool {
	switch r {
	case 0, '\n', '\r', '\t':
		return false
	}
	return r < 0x20 || r >= 0x7F && r <= 0x9F || r >= 0x200B && r <= 0x200F || r == 0xFEFF ||
		r >= 0x202A && r <= 0x202E || r >= 0x2060 && r <= 0x2069 || r >= 0xFFF0 && r <= 0xFFF8
}

func isSpaceEngine(r rune) bool {
	return r < utf8.RuneSelf && isSpaceC(byte(r)) || r >= utf8.RuneSelf && foldRune(r) == foldSpaces
}

// normalizeBert is the nodes that stand for BertNormalizer, Lowercase and StripAccents.
func normalizeBert(n *normNode, s string) string {
	var b strings.Builder
	b.Grow(len(s))
	accents := n.Accents && len(n.Table) > 0
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		char := s[i : i+size]
		i += size
		switch {
		case n.Clean && (r == '\t' || r == '\n' || r == '\r' || r == ' ' || r >= utf8.RuneSelf && foldRune(r) == foldSpaces):
			b.WriteByte(' ')
		case n.Clean && (r == utf8.RuneError || unicode.IsControl(r)):
		case n.Chinese && isChinese(r):
			b.WriteByte(' ')
			b.WriteString(char)
			b.WriteByte(' ')
		case accents:
			char = lookUp(n.Table, r, char)
			for len(char) > 0 {
				r, size := utf8.DecodeRuneInString(char)
				if r < utf8.RuneSelf || foldRune(r) != foldMarks {
					b.WriteString(char[:size])
				}
				char = char[size:]
			}
		default:
			b.WriteString(char)
		}
	}
	if !n.Lower {
		return b.String()
	}
	// The table of lower case has single code points only. Bytes that are not UTF-8 become U+FFFD.
	return strings.Map(func(r rune) rune {
		if r == 'İ' {
			return r
		}
		return unicode.ToLower(r)
	}, b.String())
}

func isChinese(r rune) bool {
	return r >= 0x3400 && (r <= 0x4DBF || r >= 0x4E00 && r <= 0x9FFF || r >= 0xF900 && r <= 0xFAFF ||
		r >= 0x20000 && r <= 0x2A6DF || r >= 0x2A700 && r <= 0x2B73F || r >= 0x2B740 && r <= 0x2B81F ||
		r >= 0x2B820 && r <= 0x2CEAF || r >= 0x2F800 && r <= 0x2FA1F)
}

const (
	// maxGrowth is how many times longer the nodes of a file may make a text; what real files do is far below.
	maxGrowth = 256
	// maxNormalizers allows one for every composed character of Unicode.
	maxNormalizers = 1 << 14
	maxStages      = 64
)

// checkNormalizer refuses a chain of nodes that would make texts grow without bound, or take forever.
func checkNormalizer(n *normNode) error {
	growth, count := 1.0, 0
	var walk func(n *normNode)
	walk = func(n *normNode) {
		factor := 1.0
		switch count++; n.Tag {
		case normPrepend:
			factor = 1 + float64(len(n.Content))/64
		case normReplace:
			factor = float64(len(n.Content)) / float64(max(len(n.Pattern), 1))
		case normBert, normBertTable, normTable:
			for _, e := range n.Table {
				size := utf8.RuneLen(e.Char)
				if e.Char == utf8.RuneError {
					size = 1 // it stands for any byte that is not UTF-8
				}
				factor = max(factor, float64(len(e.Text))/float64(max(size, 1)))
			}
			if n.Chinese {
				factor *= 2
			}
		}
		growth *= max(factor, 1)
		for i := range n.Children {
			walk(&n.Children[i])
		}
	}
	walk(n)
	if growth > maxGrowth || count > maxNormalizers {
		return fmt.Errorf("%d normalizers that make a text %.3g times longer: %w", count, growth, tensor.ErrUnsupported)
	}
	return nil
}
