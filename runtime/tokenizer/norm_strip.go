package tokenizer

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// strip is the normalizer Strip: white space goes at the start, at the end or at both.
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

func (n strip) normalize(p piece) piece {
	if n.left {
		s := strings.TrimLeftFunc(p.text, unicode.IsSpace)
		p.first = p.first && len(s) == len(p.text)
		p.text = s
	}
	if n.right {
		p.text = strings.TrimRightFunc(p.text, unicode.IsSpace)
	}
	return p
}

// stripAccents is the normalizer StripAccents: marks go, but no letter is taken apart.
type stripAccents struct{}

func (stripAccents) normalize(p piece) piece {
	return keep(p, func(r rune) bool { return !isOldMark(r) })
}

// keep leaves out the code points that pred does not hold for.
func keep(p piece, pred func(rune) bool) piece {
	if p.text == "" {
		return p
	}
	r, _ := utf8.DecodeRuneInString(p.text)
	p.first = p.first && pred(r)
	p.text = strings.Map(func(r rune) rune {
		if !pred(r) {
			return -1
		}
		return r
	}, p.text)
	return p
}

// isOldMark is the general category Mark in Unicode 9.
func isOldMark(r rune) bool {
	const vedicLo, vedicHi = 0x1CF2, 0x1CF3 // marks until Unicode 12
	return r >= utf8.RuneSelf && (unicode.Is(unicode.M, r) && !unicode.Is(laterMarks, r) || r == vedicLo || r == vedicHi)
}

// laterMarks are the marks of Go 1.26 (Unicode 15) that Unicode 9 lacks.
var laterMarks = table(
	0x7FD, 0x7FD, 0x898, 0x89F, 0x8CA, 0x8D3, 0x9FE, 0x9FE, 0xAFA, 0xAFF, 0xB55, 0xB55, 0xC04, 0xC04, 0xC3C, 0xC3C,
	0xCF3, 0xCF3, 0xD00, 0xD00, 0xD3B, 0xD3C, 0xD81, 0xD81, 0xEBA, 0xEBA, 0xECE, 0xECE, 0x1715, 0x1715, 0x180F, 0x180F,
	0x1ABF, 0x1ACE, 0x1CF7, 0x1CF7, 0x1DF6, 0x1DFA, 0xA82C, 0xA82C, 0xA8FF, 0xA8FF, 0x10D24, 0x10D27, 0x10EAB, 0x10EAC,
	0x10EFD, 0x10EFF, 0x10F46, 0x10F50, 0x10F82, 0x10F85, 0x11070, 0x11070, 0x11073, 0x11074, 0x110C2, 0x110C2,
	0x11145, 0x11146, 0x111C9, 0x111C9, 0x111CE, 0x111CF, 0x11241, 0x11241, 0x1133B, 0x1133B, 0x1145E, 0x1145E,
	0x1182C, 0x1183A, 0x11930, 0x11935, 0x11937, 0x11938, 0x1193B, 0x1193E, 0x11940, 0x11940, 0x11942, 0x11943,
	0x119D1, 0x119D7, 0x119DA, 0x119E0, 0x119E4, 0x119E4, 0x11A01, 0x11A0A, 0x11A33, 0x11A39, 0x11A3B, 0x11A3E,
	0x11A47, 0x11A47, 0x11A51, 0x11A5B, 0x11A8A, 0x11A99, 0x11D31, 0x11D36, 0x11D3A, 0x11D3A, 0x11D3C, 0x11D3D,
	0x11D3F, 0x11D45, 0x11D47, 0x11D47, 0x11D8A, 0x11D8E, 0x11D90, 0x11D91, 0x11D93, 0x11D97, 0x11EF3, 0x11EF6,
	0x11F00, 0x11F01, 0x11F03, 0x11F03, 0x11F34, 0x11F3A, 0x11F3E, 0x11F42, 0x13440, 0x13440, 0x13447, 0x13455,
	0x16F4F, 0x16F4F, 0x16F7F, 0x16F87, 0x16FE4, 0x16FE4, 0x16FF0, 0x16FF1, 0x1CF00, 0x1CF2D, 0x1CF30, 0x1CF46,
	0x1E08F, 0x1E08F, 0x1E130, 0x1E136, 0x1E2AE, 0x1E2AE, 0x1E2EC, 0x1E2EF, 0x1E4EC, 0x1E4EF)
