package tokenizer

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// metaspaceDecoder is the decoder Metaspace: its character becomes a space, or nothing in the first token if the pre-tokenizer of
// the same name put one there.
type metaspaceDecoder struct {
	replacement string
	prepends    bool
}

func readMetaspaceDecoder(raw json.RawMessage, _ int) (decoder, error) {
	const what = `decoder "Metaspace"`
	var c struct {
		Type        string  `json:"type"`
		Replacement string  `json:"replacement"`
		PrefixSpace *bool   `json:"add_prefix_space"`
		Scheme      *string `json:"prepend_scheme"`
		// Without effect on a decoder.
		Split *bool   `json:"split"`
		Str   *string `json:"str_rep"`
	}
	if err := setup("decoder", "Metaspace", raw, &c); err != nil {
		return nil, err
	}
	if utf8.RuneCountInString(c.Replacement) != 1 {
		return nil, fmt.Errorf("%s: replacement %.40q is not one character: %w", what, c.Replacement, tensor.ErrCorrupt)
	}
	scheme := "always"
	if c.Scheme != nil {
		scheme = *c.Scheme
	}
	switch scheme {
	case "always", "first", "never":
	default:
		return nil, fmt.Errorf("%s: prepend_scheme %.40q: %w", what, scheme, tensor.ErrCorrupt)
	}
	if c.PrefixSpace != nil && !*c.PrefixSpace && scheme != "never" {
		return nil, fmt.Errorf("%s: add_prefix_space contradicts prepend_scheme: %w", what, tensor.ErrCorrupt)
	}
	return metaspaceDecoder{c.Replacement, scheme != "never"}, nil
}

func (d metaspaceDecoder) stream(next sink) sink {
	return &metaspaceStream{metaspaceDecoder: d, sink: next, first: true}
}

type metaspaceStream struct {
	metaspaceDecoder
	sink  // the next one
	first bool
}

func (s *metaspaceStream) write(part string, last bool) {
	with := " "
	if s.first && s.prepends {
		with = ""
	}
	s.sink.write(strings.ReplaceAll(part, s.replacement, with), last)
	s.first = s.first && !last
}
