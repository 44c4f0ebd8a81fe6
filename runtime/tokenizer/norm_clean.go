package tokenizer

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/llmexport/llmexport/runtime/tensor"
	"github.com/llmexport/llmexport/runtime/tokenizer/internal/chars"
)

// nmt is the normalizer Nmt: control characters go, and what counts as white space becomes a space.
type nmt struct{}

func (nmt) normalize(a aligned) aligned {
	return a.mapped(func(s string) string {
		return strings.Map(func(r rune) rune {
			switch {
			case r == '\t', r == '\n', r == '\f', r == '\r', r == 0x1680, r >= 0x200B && r <= 0x200F, r == 0x2028, r == 0x2029,
				r == 0x2581, r == 0xFEFF, r == 0xFFFD:
				return ' '
			case r >= 0x01 && r <= 0x1F, r == 0x7F, r == 0x8F, r == 0x9F:
				return -1
			}
			return r
		}, s)
	})
}

// bert is the normalizer BertNormalizer.
type bert struct {
	clean, chinese, accents, lower bool
}

func readBert(raw json.RawMessage, _ int) (normalizer, error) {
	const kind, name = "normalizer", "BertNormalizer"
	var c struct {
		Type    string `json:"type"`
		Clean   *bool  `json:"clean_text"`
		Chinese *bool  `json:"handle_chinese_chars"`
		Accents *bool  `json:"strip_accents"`
		Lower   *bool  `json:"lowercase"`
	}
	if err := setup(kind, name, raw, &c); err != nil {
		return nil, err
	}
	if c.Clean == nil || c.Chinese == nil || c.Lower == nil {
		return nil, fmt.Errorf("%s %q lacks a setting: %w", kind, name, tensor.ErrCorrupt)
	}
	n := bert{clean: *c.Clean, chinese: *c.Chinese, accents: *c.Lower, lower: *c.Lower}
	if c.Accents != nil {
		n.accents = *c.Accents
	}
	return n, nil
}

func (n bert) normalize(a aligned) aligned {
	if n.clean {
		a = a.mapped(cleanText)
	}
	if n.chinese {
		a = a.mapped(spaceChinese)
	}
	if n.accents {
		a = formNFD.normalize(a).mapped(func(s string) string {
			return strings.Map(func(r rune) rune {
				if isOldNonspacing(r) {
					return -1
				}
				return r
			}, s)
		})
	}
	if n.lower {
		a = a.mapped(lower)
	}
	return a
}

// cleanText drops what is no text and makes one kind of space of all white space. Vertical tab, form feed and next
// line are control characters here, although they are white space too.
func cleanText(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\t', r == '\n', r == '\r':
			return ' '
		case r > ' ' && r < 0x7F:
			return r
		case r == 0, r == utf8.RuneError, unicode.In(r, unicode.Cc, unicode.Cf, unicode.Co) && !unicode.Is(laterFormats, r):
			return -1
		case unicode.IsSpace(r):
			return ' '
		}
		return r
	}, s)
}

// laterFormats are format characters of Unicode 15 that the library does not know as such.
var laterFormats = chars.Ranges(0x890, 0x891, 0x8E2, 0x8E2, 0x110CD, 0x110CD, 0x13430, 0x1343F)

// chinese are the code points that BertNormalizer takes for Chinese. The gaps in front of U+2B740 and U+2B920 are the
// library's.
var chinese = chars.Ranges(
	0x3400, 0x4DBF, 0x4E00, 0x9FFF, 0xF900, 0xFAFF, 0x20000, 0x2A6DF, 0x2A700, 0x2B73F, 0x2B740, 0x2B81F, 0x2B920, 0x2CEAF,
	0x2F800, 0x2FA1F)

// spaceChinese puts a space before and behind every Chinese character.
func spaceChinese(s string) string {
	var b strings.Builder
	done := 0
	for i, r := range s {
		if r >= 0x3400 && unicode.Is(chinese, r) {
			b.WriteString(s[done:i])
			b.WriteByte(' ')
			b.WriteRune(r)
			b.WriteByte(' ')
			done = i + utf8.RuneLen(r)
		}
	}
	if done == 0 {
		return s
	}
	b.WriteString(s[done:])
	return b.String()
}

// isOldNonspacing is the general category Mn as the library's BertNormalizer knows it (Unicode 8).
func isOldNonspacing(r rune) bool {
	const pamudpod = 0x1734 // nonspacing until Unicode 14
	return r >= utf8.RuneSelf && (unicode.Is(unicode.Mn, r) && !unicode.Is(laterNonspacing, r) || r == pamudpod)
}

// laterNonspacing are the nonspacing marks of Go 1.26 (Unicode 15) that isOldNonspacing lacks.
var laterNonspacing = chars.Ranges(
	0x7FD, 0x7FD, 0x898, 0x89F, 0x8CA, 0x8E1, 0x9FE, 0x9FE, 0xAFA, 0xAFF, 0xB55, 0xB55, 0xC04, 0xC04, 0xC3C, 0xC3C,
	0xD00, 0xD00, 0xD3B, 0xD3C, 0xD81, 0xD81, 0xEBA, 0xEBA, 0xECE, 0xECE, 0x180F, 0x180F, 0x1885, 0x1886, 0x1ABF, 0x1ACE,
	0x1DF6, 0x1DFB, 0xA82C, 0xA82C, 0xA8C5, 0xA8C5, 0xA8FF, 0xA8FF, 0xA9BD, 0xA9BD, 0x10D24, 0x10D27, 0x10EAB, 0x10EAC,
	0x10EFD, 0x10EFF, 0x10F46, 0x10F50, 0x10F82, 0x10F85, 0x11070, 0x11070, 0x11073, 0x11074, 0x110C2, 0x110C2,
	0x111C9, 0x111C9, 0x111CF, 0x111CF, 0x1123E, 0x1123E, 0x11241, 0x11241, 0x1133B, 0x1133B, 0x11438, 0x1143F,
	0x11442, 0x11444, 0x11446, 0x11446, 0x1145E, 0x1145E, 0x1182F, 0x11837, 0x11839, 0x1183A, 0x1193B, 0x1193C,
	0x1193E, 0x1193E, 0x11943, 0x11943, 0x119D4, 0x119D7, 0x119DA, 0x119DB, 0x119E0, 0x119E0, 0x11A01, 0x11A0A,
	0x11A33, 0x11A38, 0x11A3B, 0x11A3E, 0x11A47, 0x11A47, 0x11A51, 0x11A56, 0x11A59, 0x11A5B, 0x11A8A, 0x11A96,
	0x11A98, 0x11A99, 0x11C30, 0x11C36, 0x11C38, 0x11C3D, 0x11C3F, 0x11C3F, 0x11C92, 0x11CA7, 0x11CAA, 0x11CB0,
	0x11CB2, 0x11CB3, 0x11CB5, 0x11CB6, 0x11D31, 0x11D36, 0x11D3A, 0x11D3A, 0x11D3C, 0x11D3D, 0x11D3F, 0x11D45,
	0x11D47, 0x11D47, 0x11D90, 0x11D91, 0x11D95, 0x11D95, 0x11D97, 0x11D97, 0x11EF3, 0x11EF4, 0x11F00, 0x11F01,
	0x11F36, 0x11F3A, 0x11F40, 0x11F40, 0x11F42, 0x11F42, 0x13440, 0x13440, 0x13447, 0x13455, 0x16F4F, 0x16F4F,
	0x16FE4, 0x16FE4, 0x1CF00, 0x1CF2D, 0x1CF30, 0x1CF46, 0x1E000, 0x1E006, 0x1E008, 0x1E018, 0x1E01B, 0x1E021,
	0x1E023, 0x1E024, 0x1E026, 0x1E02A, 0x1E08F, 0x1E08F, 0x1E130, 0x1E136, 0x1E2AE, 0x1E2AE, 0x1E2EC, 0x1E2EF,
	0x1E4EC, 0x1E4EF, 0x1E944, 0x1E94A)
