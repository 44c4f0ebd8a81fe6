//go:build !hf_tokenizers || !cgo

package hftokenizers

import (
	"fmt"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// Linked reports whether the library is part of this program.
const Linked = false

// Tokenizer is a tokenizer.json in the library. This program has no library, and so no Tokenizer.
type Tokenizer struct{}

// Open always fails.
func Open([]byte) (*Tokenizer, error) {
	return nil, fmt.Errorf("library tokenizers: this program was built without the tag hf_tokenizers: %w", tensor.ErrUnsupported)
}

// Encode is never called: there is no Tokenizer.
func (*Tokenizer) Encode(string, bool) []int32 { panic("internal error: no library tokenizers") }
