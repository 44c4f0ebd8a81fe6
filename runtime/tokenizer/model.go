package tokenizer

import "encoding/json"

// model converts a word, a piece of the pre-tokenizer, to ids.
type model interface {
	// encode appends the ids of a word, which is not empty.
	encode(dst []int32, word string) []int32
}

// models are the types of the key "model". A reader defines the tokens in v.
var models = map[string]func(raw json.RawMessage, v *vocabulary) (model, error){
	"BPE":       readBPE,
	"Unigram":   readUnigram,
	"WordLevel": readWordLevel,
	"WordPiece": readWordPiece,
}
