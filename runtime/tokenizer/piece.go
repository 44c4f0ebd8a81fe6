package tokenizer

import (
	"slices"
	"strconv"
	"strings"

	"github.com/llmexport/llmexport/runtime/tokenizer/internal/bytelevel"
)

// Piece is the part of a text that a token stands for, to be looked at: the bytes of a byte-level token, which need not be
// UTF-8, and for others the token with spaces where SentencePiece has its mark. It is empty for an id that does not exist.
func (t *Tokenizer) Piece(id int32) string {
	token, ok := t.Token(id)
	if !ok {
		return ""
	}
	for _, a := range t.added {
		if a.ID == id {
			return token
		}
	}
	if b, err := strconv.ParseUint(strings.TrimSuffix(strings.TrimPrefix(token, "<0x"), ">"), 16, 8); err == nil && len(token) == len("<0x00>") {
		return string([]byte{byte(b)})
	}
	if t.spellsBytes() {
		if text, ok := bytelevel.Decode(token); ok {
			return text
		}
	}
	return strings.ReplaceAll(token, metaspace, " ")
}

// spellsBytes says that tokens are spelled with stand-ins for bytes.
func (t *Tokenizer) spellsBytes() bool {
	return slices.ContainsFunc(preTokenizerSequence{t.preTokenizer}.flat(), func(p preTokenizer) bool {
		_, ok := p.(*byteLevelStage)
		return ok
	})
}
