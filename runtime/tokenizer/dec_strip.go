package tokenizer

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// stripDecoder is the decoder Strip: it removes a character up to start and stop times from the ends of each token.
type stripDecoder struct {
	content     string
	start, stop uint64
}

func readStripDecoder(raw json.RawMessage, _ int) (decoder, error) {
	var c struct {
		Type    string `json:"type"`
		Content string `json:"content"`
		Start   uint64 `json:"start"`
		Stop    uint64 `json:"stop"`
	}
	if err := setup("decoder", "Strip", raw, &c); err != nil {
		return nil, err
	}
	if utf8.RuneCountInString(c.Content) != 1 {
		return nil, fmt.Errorf(`decoder "Strip": content %.40q is not one character: %w`, c.Content, tensor.ErrCorrupt)
	}
	return stripDecoder{c.Content, c.Start, c.Stop}, nil
}

func (d stripDecoder) stream(next sink) sink {
	return &stripStream{stripDecoder: d, sink: next, head: d.start}
}

type stripStream struct {
	stripDecoder
	sink        // the next one
	head uint64 // how many may still be taken from the start of the current token
	tail uint64 // how many are held back, because the token may end with them
}

func (s *stripStream) write(part string, last bool) {
	for ; s.head > 0 && strings.HasPrefix(part, s.content); s.head-- {
		part = part[len(s.content):]
	}
	if part != "" {
		s.head = 0
	}
	if s.stop > 0 {
		text := strings.TrimRight(part, s.content) // content is one character
		ends := uint64((len(part) - len(text)) / len(s.content))
		before := s.tail
		if text == "" {
			ends += before // they go on
			before = 0
		}
		s.tail = min(ends, s.stop)
		part = strings.Repeat(s.content, int(before)) + text + strings.Repeat(s.content, int(ends-s.tail))
	}
	if last {
		s.head, s.tail = s.start, 0
	}
	s.sink.write(part, last)
}
