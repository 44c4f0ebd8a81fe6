package tokenizer

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// strip is the normalizer Strip: it removes white space at the start, at the end or at both.
type strip struct{ left, right bool }

func readStrip(raw json.RawMessage, _ int) (normalizer, error) {
	var c struct {
		Type  string `json:"type"`
		Left  *bool  `json:"strip_left"`
		Right *bool  `json:"strip_right"`
	}
	if err := setup("normalizer", "Strip", raw, &c); err != nil {
		return nil, err
	}
	if c.Left == nil || c.Right == nil {
		return nil, fmt.Errorf(`normalizer "Strip" without its sides: %w`, tensor.ErrCorrupt)
	}
	return strip{*c.Left, *c.Right}, nil
}

func (n strip) normalize(a aligned) aligned {
	if n.left {
		s := strings.TrimLeftFunc(a.text, unicode.IsSpace)
		a = aligned{s, max(0, a.head-(len(a.text)-len(s)))}
	}
	if n.right {
		a.text = strings.TrimRightFunc(a.text, unicode.IsSpace)
		a.head = min(a.head, len(a.text))
	}
	return a
}

// stripAccents is the normalizer StripAccents: it removes marks, but does not decompose letters.
type stripAccents struct{}

func (stripAccents) normalize(a aligned) aligned {
	return a.mapped(func(s string) string {
		return strings.Map(func(r rune) rune {
			if isOldMark(r) {
				return -1
			}
			return r
		}, s)
	})
}

// isOldMark is the general category M in Unicode 9.
func isOldMark(r rune) bool {
	switch r {
	case 0x1CF2, 0x1CF3: // marks until Unicode 12
		return true
	case 0x111C9: // since Unicode 11
		return false
	}
	return r >= utf8.RuneSelf && unicode.Is(unicode.M, r) && unicode.Is(unicode9, r)
}
