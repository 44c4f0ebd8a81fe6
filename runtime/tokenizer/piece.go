package tokenizer

import (
	"slices"
	"strconv"
	"strings"

	"github.com/llmexport/llmexport/runtime/tokenizer/internal/bytelevel"
)

// Piece returns the text of a token for display: the bytes of a byte-level token, which may be invalid UTF-8, or the token
// with spaces for the marks of SentencePiece. It is empty for an unknown id.
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

// spellsBytes reports whether tokens are spelled with stand-ins for bytes.
func (t *Tokenizer) spellsBytes() bool {
	return slices.ContainsFunc(preTokenizerSequence{t.preTokenizer}.flat(), func(p preTokenizer) bool {
		_, ok := p.(*byteLevelStage)
		return ok
	})
}
