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

// nmt is the normalizer Nmt: control characters are removed, and white space becomes a space.
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

// cleanText drops control characters and replaces white space by spaces. Vertical tab, form feed and next
// line are control characters here, although they are white space too.
func cleanText(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\t', r == '\n', r == '\r':
			return ' '
		case r > ' ' && r < 0x7F:
			return r
		case r == 0, r == utf8.RuneError, unicode.In(r, unicode.Cc, unicode.Co), unicode.Is(unicode.Cf, r) && unicode.Is(unicode8, r):
			return -1
		case unicode.IsSpace(r):
			return ' '
		}
		return r
	}, s)
}

// chinese are the code points that BertNormalizer takes for Chinese. The gaps in front of U+2B740 and U+2B920 are the
// library's.
var chinese = chars.Ranges(
	0x3400, 0x4DBF, 0x4E00, 0x9FFF, 0xF900, 0xFAFF, 0x20000, 0x2A6DF, 0x2A700, 0x2B73F, 0x2B740, 0x2B81F, 0x2B920, 0x2CEAF,
	0x2F800, 0x2FA1F)

// spaceChinese puts a space before and after every Chinese character.
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
	switch r {
	case 0x1734: // nonspacing until Unicode 14
		return true
	case 0x1885, 0x1886, 0xA9BD, 0x111C9: // since a later version
		return false
	}
	return r >= utf8.RuneSelf && unicode.Is(unicode.Mn, r) && unicode.Is(unicode8, r)
}
