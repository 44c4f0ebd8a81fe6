package tokenizer

import (
	"encoding/json"

	"github.com/llmexport/llmexport/runtime/tokenizer/internal/bytelevel"
)

func readByteLevelDecoder(raw json.RawMessage, _ int) (decoder, error) {
	// The settings belong to the pre-tokenizer of the same name.
	_, err := byteLevelSettings("decoder", raw)
	return growing{decoderFunc(byteLevelStream), 2}, err // two bytes that stand for half a character become the three of U+FFFD
}

// byteLevelStream is the decoder ByteLevel: stand-ins become bytes, and all of them one token. A token with other code points stays
// as it is.
func byteLevelStream(next sink) sink {
	var rest []byte // does not end a character yet
	return &wholeTokens{
		token: func(token string) {
			if text, ok := bytelevel.Decode(token); ok {
				token = text
			}
			rest = append(rest, token...)
			n := bytelevel.Whole(rest)
			next.write(lossy(string(rest[:n])), false)
			rest = append(rest[:0], rest[n:]...)
		},
		end: func() {
			next.write(lossy(string(rest)), true)
			next.close()
		},
	}
}
