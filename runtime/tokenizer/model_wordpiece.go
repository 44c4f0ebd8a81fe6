package tokenizer

import (
	"encoding/json"
	"fmt"
	"unicode/utf8"

	"github.com/llmexport/llmexport/runtime/tensor"
	"github.com/llmexport/llmexport/runtime/tokenizer/internal/trie"
)

// wordPiece is the model WordPiece: the longest token that a word begins with, then the longest for the rest. A word that
// cannot be cut so, or is too long, is one unknown token.
type wordPiece struct {
	pieces *trie.Trie
	// inner is the node after the prefix of tokens that do not begin a word, or -1.
	inner    int32
	prefix   string
	unk      int32
	maxChars uint64
}

func (m *wordPiece) encode(dst []int32, word string) []int32 {
	if uint64(utf8.RuneCountInString(word)) > m.maxChars {
		return append(dst, m.unk)
	}
	from := len(dst)
	for start, node := 0, int32(0); start < len(word); node = m.inner {
		id, next := int32(-1), start
		for end := start; node >= 0 && end < len(word); {
			if node = m.pieces.Child(node, word[end]); node < 0 {
				break
			}
			end++
			if found := m.pieces.Value(node); found >= 0 {
				id, next = found, end
			}
		}
		if id < 0 {
			return append(dst[:from], m.unk)
		}
		dst = append(dst, id)
		start = next
	}
	return dst
}

func readWordPiece(raw json.RawMessage, v *vocabulary) (model, error) {
	var f struct {
		Type     string  `json:"type"`
		Unk      *string `json:"unk_token"`
		Prefix   *string `json:"continuing_subword_prefix"`
		MaxChars *uint64 `json:"max_input_chars_per_word"`
	}
	var vocab vocabFile
	if err := readBulk("WordPiece", raw, &f, map[string]json.Unmarshaler{"vocab": &vocab}); err != nil {
		return nil, err
	}
	if vocab == nil || f.Unk == nil || f.Prefix == nil || f.MaxChars == nil {
		return nil, fmt.Errorf(`model "WordPiece" lacks a setting: %w`, tensor.ErrCorrupt)
	}
	unk, err := unkToken("WordPiece", *f.Unk, vocab)
	if err != nil {
		return nil, err
	}
	if err := v.defineModel(vocab); err != nil {
		return nil, err
	}
	pieces := make([]trie.Entry, 0, len(vocab))
	for text, id := range vocab {
		if len(text) > maxPieceBytes {
			return nil, unsupported(`model "WordPiece"`, fmt.Sprintf("with a token of %d bytes", len(text)))
		}
		pieces = append(pieces, trie.Entry{Text: text, Value: int32(id)})
	}
	m := &wordPiece{pieces: trie.New(pieces), prefix: *f.Prefix, unk: unk, maxChars: *f.MaxChars}
	m.inner = m.pieces.Walk(*f.Prefix)
	return m, nil
}

// unkToken is the id of an unknown token, which must exist: without it the library fails in the middle of a text.
func unkToken(name, token string, vocab vocabFile) (int32, error) {
	id, ok := vocab[token]
	if !ok {
		return 0, unsupported(fmt.Sprintf("model %q", name), fmt.Sprintf("with unk_token %.80q, which is not in the vocabulary", token))
	}
	return int32(id), nil
}
