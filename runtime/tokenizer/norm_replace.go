package tokenizer

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/llmexport/llmexport/runtime/tensor"
	"github.com/llmexport/llmexport/runtime/tokenizer/internal/bytelevel"
	"github.com/llmexport/llmexport/runtime/tokenizer/internal/regex"
)

// replace is the normalizer Replace. Its content is inserted as it is, without groups.
type replace struct {
	// pattern is a text to look for, unless find is set.
	pattern, content string
	// regex is the pattern in the file's dialect, and find its matches.
	regex string
	find  func(string) []regex.Span
	// empty is set if find returns empty matches.
	empty bool
}

func readReplace(raw json.RawMessage, _ int) (normalizer, error) {
	n, err := readReplacement("normalizer", raw)
	if err != nil {
		return nil, err
	}
	return n, nil
}

// readReplacement reads a normalizer or a decoder Replace.
func readReplacement(kind string, raw json.RawMessage) (n replace, err error) {
	const name = "Replace"
	var c struct {
		Type    string      `json:"type"`
		Pattern patternFile `json:"pattern"`
		Content *string     `json:"content"`
	}
	if err := setup(kind, name, raw, &c); err != nil {
		return n, err
	}
	switch {
	case c.Content == nil:
		return n, fmt.Errorf("%s %q has no content: %w", kind, name, tensor.ErrCorrupt)
	case c.Pattern.Regex != nil && c.Pattern.String == nil:
		find, err := regex.Compile(*c.Pattern.Regex)
		if err != nil {
			return n, fmt.Errorf("%s %q: %w", kind, name, err)
		}
		n.regex, n.find = *c.Pattern.Regex, find
		for _, s := range []string{"", "a", "A ", " ", "\n", "1", "▁"} {
			for _, m := range find(s) {
				n.empty = n.empty || m.Start == m.End
			}
		}
	case c.Pattern.String != nil && c.Pattern.Regex == nil:
		if n.pattern = *c.Pattern.String; n.pattern == "" {
			return n, unsupported(kind, fmt.Sprintf("%q of the empty text", name))
		}
	default:
		return n, fmt.Errorf("%s %q has no pattern: %w", kind, name, tensor.ErrCorrupt)
	}
	n.content = *c.Content
	if n.growth() > maxGrowth {
		return n, unsupported(kind, fmt.Sprintf("%q with a content of %d bytes", name, len(n.content)))
	}
	return n, nil
}

func (n replace) normalize(a aligned) aligned {
	s := a.text
	if s == "" {
		return a
	}
	find := n.find
	if find == nil {
		find = findLiteral(n.pattern)
	}
	matches := find(s)
	if len(matches) == 0 {
		return a
	}
	var b strings.Builder
	b.Grow(len(s) + len(matches)*len(n.content))
	done, head := 0, 0
	for _, m := range matches {
		b.WriteString(s[done:m.Start])
		head += max(0, min(m.Start, a.head)-done)
		b.WriteString(n.content)
		// The content belongs to the last character that it replaces, or else to the one before it.
		if m.End <= a.head {
			head += len(n.content)
		}
		done = m.End
	}
	b.WriteString(s[done:])
	return aligned{b.String(), head + max(0, a.head-done)}
}

// growth bounds the bytes that replace one.
func (n replace) growth() int {
	switch {
	case n.find == nil:
		return max(1, (len(n.content)+len(n.pattern)-1)/len(n.pattern))
	case n.empty:
		return 1 + len(n.content)
	}
	return max(1, len(n.content))
}

// prepend is the normalizer Prepend. It leaves an empty text alone.
type prepend string

func readPrepend(raw json.RawMessage, _ int) (normalizer, error) {
	const kind, name = "normalizer", "Prepend"
	var c struct {
		Type    string  `json:"type"`
		Prepend *string `json:"prepend"`
	}
	if err := setup(kind, name, raw, &c); err != nil {
		return nil, err
	}
	switch {
	case c.Prepend == nil:
		return nil, fmt.Errorf("%s %q without its text: %w", kind, name, tensor.ErrCorrupt)
	case *c.Prepend == "":
		return nil, unsupported(kind, `"Prepend" of the empty text`)
	case len(*c.Prepend) >= maxGrowth:
		return nil, unsupported(kind, fmt.Sprintf("%q of %d bytes", name, len(*c.Prepend)))
	}
	return prepend(*c.Prepend), nil
}

func (n prepend) normalize(a aligned) aligned {
	if a.text == "" {
		return a
	}
	if a.head > 0 {
		a.head += len(n)
	}
	return aligned{string(n) + a.text, a.head}
}

// byteLevelNormalizer is the normalizer ByteLevel: each byte becomes its stand-in.
type byteLevelNormalizer struct{}

func (byteLevelNormalizer) normalize(a aligned) aligned { return a.mapped(bytelevel.Encode) }
