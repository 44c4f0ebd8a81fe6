package tokenizer

import (
	"encoding/json"
	"strings"
)

// maxHeldPattern is the longest pattern that is replaced before the token ends.
const maxHeldPattern = 64

func readReplaceDecoder(raw json.RawMessage, _ int) (decoder, error) {
	n, err := readReplacement("decoder", raw)
	if err != nil {
		return nil, err
	}
	if n.find == nil && len(n.pattern) <= maxHeldPattern {
		return growing{replaceText{n.pattern, n.content}, n.growth()}, nil
	}
	return growing{mapTokens(func() func(string) string {
		return func(token string) string { return n.normalize(align(token)).text }
	}), n.growth()}, nil
}

// replaceText is the decoder Replace with a text as its pattern.
type replaceText struct{ old, new string }

func (d replaceText) stream(next sink) sink { return &replaceStream{replaceText: d, sink: next} }

type replaceStream struct {
	replaceText
	sink        // the next one
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
	s.sink.write(part, last)
}
