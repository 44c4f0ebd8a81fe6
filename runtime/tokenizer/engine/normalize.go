package engine

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/llmexport/llmexport/runtime/tensor"
	"github.com/llmexport/llmexport/runtime/tokenizer/internal/dialect"
	"github.com/llmexport/llmexport/runtime/tokenizer/internal/mtok"
)

// normalizer is a normalizer node.
type normalizer struct {
	*mtok.Normalizer
	children []normalizer
	// keys has for each child, of which there may be thousands, a byte without which it does not change a text: the last of
	// its pattern.
	keys []byte
}

func newNormalizer(n *mtok.Normalizer) normalizer {
	e := normalizer{Normalizer: n}
	for i := range n.Children {
		c := &n.Children[i]
		key := byte(always)
		if c.Tag == mtok.NormReplace && c.Pattern != "" {
			key = c.Pattern[len(c.Pattern)-1]
		}
		e.keys = append(e.keys, key)
		e.children = append(e.children, newNormalizer(c))
	}
	return e
}

// normalize runs the node. It is an error when the text grows out of proportion.
func (n *normalizer) normalize(s string) (string, error) {
	return n.run(s, maxGrowth*len(s)+1<<16)
}

// run is normalize with a bound for the length of the text.
func (n *normalizer) run(s string, limit int) (string, error) {
	if n.Tag == mtok.NormSequence {
		return n.sequence(s, limit)
	}
	if more := len(n.Content) - len(n.Pattern); n.Tag == mtok.NormReplace && n.Pattern != "" && more > 0 && strings.Count(s, n.Pattern)*more > limit-len(s) {
		return s, tooLong(limit)
	}
	after := normalizeLeaf(n.Normalizer, s)
	if len(after) > limit {
		return s, tooLong(limit)
	}
	return after, nil
}

func tooLong(limit int) error {
	return fmt.Errorf("a text that becomes longer than %d bytes: %w", limit, tensor.ErrUnsupported)
}

func (n *normalizer) sequence(s string, limit int) (string, error) {
	has := bytesOf(s)
	for i := range n.children {
		if !has[n.keys[i]] {
			continue
		}
		c := &n.children[i]
		if c.Tag == mtok.NormReplace && !has.all(c.Pattern) {
			continue
		}
		after, err := c.run(s, limit)
		if err != nil {
			return s, err
		}
		if after != s {
			s, has = after, bytesOf(after)
		}
	}
	return s, nil
}

// always is the key of a node that always runs: a byte that is in no UTF-8, and in every textBytes.
const always = 0xC0

// textBytes is the set of the bytes of a text.
type textBytes [256]bool

func bytesOf(s string) *textBytes {
	set := &textBytes{always: true}
	for i := range len(s) {
		set[s[i]] = true
	}
	return set
}

func (set *textBytes) all(s string) bool {
	for i := range len(s) {
		if !set[s[i]] {
			return false
		}
	}
	return true
}

func normalizeLeaf(n *mtok.Normalizer, s string) string {
	switch n.Tag {
	case mtok.NormPrepend:
		return n.Content + s
	case mtok.NormReplace:
		if n.Pattern != "" {
			return strings.ReplaceAll(s, n.Pattern, n.Content)
		}
	case mtok.NormBert, mtok.NormBertTable:
		return normalizeBert(n, s)
	case mtok.NormTable:
		if len(n.Table) > 0 {
			return substitute(n.Table, s)
		}
	case mtok.NormStrip:
		// Right has no effect: the engine decodes after the character to test.
		if n.Left {
			return strings.TrimLeftFunc(s, isSpace)
		}
	}
	return s
}

// substitute replaces single code points by their texts in a sorted table, and by a space the control
// characters that the engine has a list of.
func substitute(table []mtok.Substitution, s string) string {
	var b strings.Builder
	b.Grow(len(s))
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		if IsControl(r) {
			b.WriteByte(' ')
		} else {
			b.WriteString(lookUp(table, r, s[i:i+n]))
		}
		i += n
	}
	return b.String()
}

// lookUp is the text of r in a sorted table, or text. A byte that is not UTF-8 is found as U+FFFD.
func lookUp(table []mtok.Substitution, r rune, text string) string {
	if r < table[0].Char {
		return text
	}
	k, ok := slices.BinarySearchFunc(table, r, func(e mtok.Substitution, r rune) int { return int(e.Char - r) })
	if !ok {
		return text
	}
	return table[k].Text
}

// IsControl reports whether a node table makes a space of r, whatever the table.
func IsControl(r rune) bool {
	switch r {
	case 0, '\n', '\r', '\t':
		return false
	}
	return r < 0x20 || r >= 0x7F && r <= 0x9F || r >= 0x200B && r <= 0x200F || r == 0xFEFF ||
		r >= 0x202A && r <= 0x202E || r >= 0x2060 && r <= 0x2069 || r >= 0xFFF0 && r <= 0xFFF8
}

func isSpace(r rune) bool {
	return r < utf8.RuneSelf && isSpaceC(byte(r)) || r >= utf8.RuneSelf && dialect.Fold(r) == dialect.FoldSpaces
}

// normalizeBert is the nodes that stand for BertNormalizer, Lowercase and StripAccents.
func normalizeBert(n *mtok.Normalizer, s string) string {
	var b strings.Builder
	b.Grow(len(s))
	accents := n.Accents && len(n.Table) > 0
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		char := s[i : i+size]
		i += size
		switch {
		case n.Clean && (r == '\t' || r == '\n' || r == '\r' || r == ' ' || r >= utf8.RuneSelf && dialect.Fold(r) == dialect.FoldSpaces):
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
				if r < utf8.RuneSelf || dialect.Fold(r) != dialect.FoldMarks {
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
	// maxNormalizers allows for every composed character of Unicode, and for putting them together in several ways.
	maxNormalizers = 1 << 14
	maxStages      = 64
	// maxGrowth bounds the bytes that nodes together make of one.
	maxGrowth = 256
)

// CheckNormalizer rejects nodes that grow a text or take time without bound.
func CheckNormalizer(n *mtok.Normalizer) error {
	count := 0
	var walk func(n *mtok.Normalizer) error
	walk = func(n *mtok.Normalizer) error {
		count++
		for _, e := range n.Table {
			size := utf8.RuneLen(e.Char)
			if e.Char == utf8.RuneError {
				size = 1 // it stands for any byte that is not UTF-8
			}
			if len(e.Text) > maxGrowth*max(size, 1) {
				return fmt.Errorf("a table that makes %d bytes of %q: %w", len(e.Text), e.Char, tensor.ErrUnsupported)
			}
		}
		for i := range n.Children {
			if err := walk(&n.Children[i]); err != nil {
				return err
			}
		}
		return nil
	}
	if err := walk(n); err != nil {
		return err
	}
	if count > maxNormalizers {
		return fmt.Errorf("%d normalizers: %w", count, tensor.ErrUnsupported)
	}
	return nil
}
