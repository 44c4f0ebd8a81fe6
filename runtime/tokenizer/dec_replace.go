package tokenizer

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// maxHeldPattern is the longest text that is replaced in a token before its end is known.
const maxHeldPattern = 64

func readReplaceDecoder(raw json.RawMessage, _ int) (decoder, error) {
	const what = `decoder "Replace"`
	var c struct {
		Type    string `json:"type"`
		Pattern struct {
			Regex  *string
			String *string
		} `json:"pattern"`
		Content string `json:"content"`
	}
	if err := setup("decoder", "Replace", raw, &c); err != nil {
		return nil, err
	}
	var find func(string) []span
	switch p := c.Pattern; {
	case p.Regex != nil && p.String == nil:
		var err error
		if find, err = compileRegex(*p.Regex); err != nil {
			return nil, fmt.Errorf("%s: %w", what, err)
		}
	case p.String == nil || p.Regex != nil:
		return nil, fmt.Errorf("%s has no pattern: %w", what, tensor.ErrCorrupt)
	case *p.String == "":
		return nil, unsupported(what, "with an empty pattern")
	case len(*p.String) <= maxHeldPattern:
		return replaceText{*p.String, c.Content}, nil
	default:
		find = findLiteral(*p.String)
	}
	return mapTokens(func() func(string) string {
		return func(token string) string {
			var b strings.Builder
			done := 0
			for _, m := range find(token) {
				b.WriteString(token[done:m.start])
				b.WriteString(c.Content)
				done = m.end
			}
			return b.String() + token[done:]
		}
	}), nil
}

// replaceText is the decoder Replace with a text as its pattern.
type replaceText struct{ old, new string }

func (d replaceText) stream(next sink) sink { return &replaceStream{replaceText: d, next: next} }

type replaceStream struct {
	replaceText
	next sink
	held string // the start of old, with which the token ends so far
}

func (s *replaceStream) write(part string, last bool) {
	part = s.held + part
	s.held = ""
	var b strings.Builder
	for {
		before, after, ok := strings.Cut(part, s.old)
		if !ok {
			break
		}
		b.WriteString(before)
		b.WriteString(s.new)
		part = after
	}
	if !last {
		for n := min(len(s.old)-1, len(part)); n > 0; n-- {
			if strings.HasSuffix(part, s.old[:n]) {
				part, s.held = part[:len(part)-n], s.old[:n]
				break
			}
		}
	}
	if b.Len() > 0 {
		part = b.String() + part
	}
	s.next.write(part, last)
}

func (s *replaceStream) close() { s.next.close() }
