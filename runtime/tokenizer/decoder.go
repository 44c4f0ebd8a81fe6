package tokenizer

import "encoding/json"

// decoder turns tokens, as they are spelled in the vocabulary, into parts of a text, which are joined in the end.
type decoder interface {
	decode(tokens []string) []string
}

// decoders are the types of the key "decoder".
var decoders components[decoder]

func init() {
	decoders = components[decoder]{"decoder", map[string]func(json.RawMessage, int) (decoder, error){
		"ByteLevel": readByteLevelDecoder,
		"Fuse":      readFuse,
		"Sequence":  readDecoderSequence,
	}}
}

// decoderSequence is the decoder Sequence.
type decoderSequence []decoder

func readDecoderSequence(raw json.RawMessage, depth int) (decoder, error) {
	list, err := decoders.sequence("decoders", raw, depth)
	return decoderSequence(list), err
}

func (l decoderSequence) decode(tokens []string) []string {
	for _, d := range l {
		tokens = d.decode(tokens)
	}
	return tokens
}
