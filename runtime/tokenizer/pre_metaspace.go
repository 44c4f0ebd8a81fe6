package tokenizer

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// metaspace stands for a space in tokens of SentencePiece.
const metaspace = "▁"

// metaspaceStage is the pre-tokenizer Metaspace: spaces become a visible character, which then begins a piece.
type metaspaceStage struct {
	replacement string
	prepend     prependScheme
	whole       bool // the pieces are not cut
}

// prependScheme selects the pieces that get a leading space if they lack one.
type prependScheme string

const (
	prependAlways prependScheme = "always"
	prependFirst  prependScheme = "first"
	prependNever  prependScheme = "never"
)

func (p *metaspaceStage) split(in piece, yield func(piece)) {
	a := aligned(in).mapped(func(s string) string { return strings.ReplaceAll(s, " ", p.replacement) })
	if p.prepend == prependAlways || p.prepend == prependFirst && a.head > 0 {
		if !strings.HasPrefix(a.text, p.replacement) {
			a = prepend(p.replacement).normalize(a)
		}
	}
	in, s := piece(a), a.text
	if p.whole {
		yield(in)
		return
	}
	for i := 0; i < len(s); {
		// The replacement belongs to the piece that it begins.
		from := i
		if strings.HasPrefix(s[i:], p.replacement) {
			from += len(p.replacement)
		}
		end := len(s)
		if k := strings.Index(s[from:], p.replacement); k >= 0 {
			end = from + k
		}
		yield(in.part(i, end))
		i = end
	}
}

func readMetaspace(raw json.RawMessage, _ int) (preTokenizer, error) {
	const kind, name = "pre-tokenizer", "Metaspace"
	var c struct {
		Type        string          `json:"type"`
		Replacement string          `json:"replacement"`
		PrefixSpace *bool           `json:"add_prefix_space"`
		Prepend     prependScheme   `json:"prepend_scheme"`
		Split       *bool           `json:"split"`
		StrRep      json.RawMessage `json:"str_rep"` // written by old versions, and not read
	}
	c.Prepend = prependAlways
	if err := setup(kind, name, raw, &c); err != nil {
		return nil, err
	}
	if len([]rune(c.Replacement)) != 1 {
		return nil, fmt.Errorf("%s %q: replacement %q is not one character: %w", kind, name, c.Replacement, tensor.ErrCorrupt)
	}
	switch c.Prepend {
	case prependAlways, prependFirst, prependNever:
	default:
		return nil, fmt.Errorf("%s %q: prepend_scheme %q: %w", kind, name, c.Prepend, tensor.ErrCorrupt)
	}
	if c.PrefixSpace != nil && !*c.PrefixSpace && c.Prepend != prependNever {
		return nil, fmt.Errorf("%s %q: add_prefix_space contradicts prepend_scheme: %w", kind, name, tensor.ErrCorrupt)
	}
	return &metaspaceStage{c.Replacement, c.Prepend, c.Split != nil && !*c.Split}, nil
}
