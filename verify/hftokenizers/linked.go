//go:build hf_tokenizers && cgo

package hftokenizers

import (
	"fmt"
	"math"
	"runtime"

	"github.com/daulet/tokenizers"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// Linked reports whether the library is part of this program.
const Linked = true

// Tokenizer is a tokenizer.json in the library. It is safe for concurrent use.
type Tokenizer struct{ t *tokenizers.Tokenizer }

// Open reads a tokenizer.json. A file that the library rejects is tensor.ErrUnsupported. The memory is freed
// when the Tokenizer becomes unreachable.
func Open(b []byte) (*Tokenizer, error) {
	if len(b) == 0 || uint64(len(b)) > math.MaxUint32 {
		return nil, fmt.Errorf("tokenizer.json: %d bytes: %w", len(b), tensor.ErrCorrupt)
	}
	lib, err := tokenizers.FromBytes(b)
	if err != nil {
		return nil, fmt.Errorf("library tokenizers: %w: %w", err, tensor.ErrUnsupported)
	}
	t := &Tokenizer{lib}
	runtime.AddCleanup(t, func(lib *tokenizers.Tokenizer) { _ = lib.Close() }, lib)
	return t, nil
}

// Encode returns the library's ids of a text, for which Takes must be true, with the ids of the post-processor
// if addSpecial is set.
func (t *Tokenizer) Encode(text string, addSpecial bool) []int32 {
	list, _ := t.t.Encode(text, addSpecial)
	runtime.KeepAlive(t)
	ids := make([]int32, len(list))
	for i, id := range list {
		ids[i] = int32(id)
	}
	return ids
}
