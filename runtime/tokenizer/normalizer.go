package tokenizer

import (
	"encoding/json"
	"fmt"
	"unicode/utf8"
)

// normalizer changes a text before it is cut into words. Texts are UTF-8.
type normalizer interface {
	normalize(a aligned) aligned
}

// aligned is a text between normalizers.
type aligned struct {
	text string
	// head is how many bytes at the start, whole characters, the library `tokenizers` counts to the place where the
	// original text begins: those that came of its first character. A piece that begins after them is not the first
	// one of the text, even if all before it was stripped.
	head int
}

// align is s before any normalizer.
func align(s string) aligned {
	_, w := utf8.DecodeRuneInString(s)
	return aligned{s, w}
}

// mapped is a after a change that makes f(s) of each part s by itself.
func (a aligned) mapped(f func(string) string) aligned {
	return aligned{f(a.text), len(f(a.text[:a.head]))}
}

// These bound the growth of a text by all normalizers together, in bytes for one, and their number. Published files reach
// 44, with a table of SentencePiece and two replacements.
const (
	maxGrowth = 256
	maxSteps  = 64
)

// normalizers are the types of the key "normalizer".
var normalizers components[normalizer]

func init() {
	normalizers = components[normalizer]{"normalizer", map[string]func(json.RawMessage, int) (normalizer, error){
		"Bert":           readBert,
		"BertNormalizer": readBert,
		"ByteLevel":      constant[normalizer]("normalizer", "ByteLevel", byteLevelNormalizer{}),
		"Lowercase":      constant[normalizer]("normalizer", "Lowercase", lowercase{}),
		"NFC":            constant[normalizer]("normalizer", "NFC", formNFC),
		"NFD":            constant[normalizer]("normalizer", "NFD", formNFD),
		"NFKC":           constant[normalizer]("normalizer", "NFKC", formNFKC),
		"NFKD":           constant[normalizer]("normalizer", "NFKD", formNFKD),
		"Nmt":            constant[normalizer]("normalizer", "Nmt", nmt{}),
		"Precompiled":    readPrecompiled,
		"Prepend":        readPrepend,
		"Replace":        readReplace,
		"Sequence":       readNormalizerSequence,
		"Strip":          readStrip,
		"StripAccents":   constant[normalizer]("normalizer", "StripAccents", stripAccents{}),
	}}
}

// normalizerSequence is the normalizer Sequence.
type normalizerSequence []normalizer

func readNormalizerSequence(raw json.RawMessage, depth int) (normalizer, error) {
	list, err := normalizers.sequence("normalizers", raw, depth)
	if err != nil {
		return nil, err
	}
	return newNormalizerSequence(list)
}

// newNormalizerSequence rejects sequences that take too much memory or time, and an order on which the library `tokenizers`
// crashes: once a text was put before the first character, only Replace and Prepend may follow.
func newNormalizerSequence(list []normalizer) (normalizer, error) {
	const kind = `normalizer "Sequence"`
	l := normalizerSequence(list).flat()
	if len(l) > maxSteps {
		return nil, unsupported(kind, fmt.Sprintf("of %d normalizers", len(l)))
	}
	if growth(l) > maxGrowth {
		return nil, unsupported(kind, fmt.Sprintf("that makes more than %d bytes of one", maxGrowth))
	}
	inserted := false
	for _, n := range l {
		switch n := n.(type) {
		case replace:
			inserted = inserted || n.empty
		case prepend:
		default:
			if inserted {
				return nil, unsupported(kind, `with a "Replace" of the empty text before another normalizer`)
			}
		}
	}
	return l, nil
}

// flat unfolds sequences within a sequence, which are flat themselves.
func (l normalizerSequence) flat() normalizerSequence {
	var out normalizerSequence
	for _, n := range l {
		if inner, ok := n.(normalizerSequence); ok {
			out = append(out, inner...)
		} else {
			out = append(out, n)
		}
	}
	return out
}

// growth bounds the bytes that replace one; it exceeds maxGrowth if there is no bound. The forms of Unicode and of case
// grow a text at most by 11, once.
func growth(n normalizer) int {
	switch n := n.(type) {
	case normalizerSequence:
		total := 1
		for _, inner := range n {
			total = min(total*growth(inner), maxGrowth+1)
		}
		return total
	case replace:
		return n.growth()
	case *precompiled:
		return n.growth
	case prepend:
		return min(len(n), maxGrowth) + 1
	case byteLevelNormalizer:
		return 2
	}
	return 1
}

func (l normalizerSequence) normalize(a aligned) aligned {
	for _, n := range l {
		a = n.normalize(a)
	}
	return a
}
