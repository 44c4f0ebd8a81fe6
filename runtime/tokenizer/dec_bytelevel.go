package tokenizer

import (
	"encoding/json"
	"strings"
)

// byteLevelDecoder is the decoder ByteLevel: stand-ins become bytes. A token with other code points stays as it is.
type byteLevelDecoder struct{}

func readByteLevelDecoder(raw json.RawMessage, _ int) (decoder, error) {
	// The settings belong to the pre-tokenizer of the same name.
	var c struct {
		Type        string `json:"type"`
		PrefixSpace bool   `json:"add_prefix_space"`
		TrimOffsets bool   `json:"trim_offsets"`
		UseRegex    bool   `json:"use_regex"`
	}
	return byteLevelDecoder{}, setup("decoder", "ByteLevel", raw, &c)
}

func (byteLevelDecoder) decode(tokens []string) []string {
	var b strings.Builder
	for _, token := range tokens {
		if text, ok := fromStandIns(token); ok {
			token = text
		}
		b.WriteString(token)
	}
	return []string{lossy(b.String())}
}

// fuseDecoder is the decoder Fuse, which joins.
type fuseDecoder struct{}

func readFuse(raw json.RawMessage, _ int) (decoder, error) {
	var c struct {
		Type string `json:"type"`
	}
	return fuseDecoder{}, setup("decoder", "Fuse", raw, &c)
}

func (fuseDecoder) decode(tokens []string) []string { return []string{strings.Join(tokens, "")} }
