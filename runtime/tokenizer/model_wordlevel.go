package tokenizer

import (
	"encoding/json"
	"fmt"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// wordLevel is the model WordLevel: a word is a token or unknown.
type wordLevel struct {
	words vocabFile
	unk   int32
}

func (m *wordLevel) encode(dst []int32, word string) []int32 {
	if id, ok := m.words[word]; ok {
		return append(dst, int32(id))
	}
	return append(dst, m.unk)
}

func readWordLevel(raw json.RawMessage, v *vocabulary) (model, error) {
	var f struct {
		Type string  `json:"type"`
		Unk  *string `json:"unk_token"`
	}
	m := &wordLevel{}
	if err := readBulk("WordLevel", raw, &f, map[string]json.Unmarshaler{"vocab": &m.words}); err != nil {
		return nil, err
	}
	if m.words == nil || f.Unk == nil {
		return nil, fmt.Errorf(`model "WordLevel" lacks a setting: %w`, tensor.ErrCorrupt)
	}
	var err error
	if m.unk, err = unkToken("WordLevel", *f.Unk, m.words); err != nil {
		return nil, err
	}
	return m, v.defineModel(m.words)
}
