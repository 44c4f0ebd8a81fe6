//go:build tokenizers

package tokenizerstest

import (
	"os"
	"testing"

	"github.com/llmexport/llmexport/runtime/tokenizer"
	"github.com/llmexport/llmexport/runtime/tokenizer/parity"
)

// TestRecorded holds every tokenizer to what was recorded of the library. It needs no library, and is what TestTokenizers
// finds, in much less time; only strings that differ are not told.
func TestRecorded(t *testing.T) {
	ref := readReference(t)
	if ref.Corpus != parity.SHA256 {
		t.Fatalf("%s is of another corpus: run make reference", referenceFile)
	}
	for _, e := range ref.Tokenizers {
		t.Run(e.Name, func(t *testing.T) {
			t.Parallel()
			b, err := os.ReadFile(e.path(t))
			if err != nil {
				t.Fatal(err)
			}
			tok, err := tokenizer.Load(b)
			if err != nil {
				t.Fatal(err)
			}
			if got := ours(tok).digests(); got != e.digests {
				t.Errorf("same ids %v, with special tokens %v, decoded %v, decoded without special tokens %v",
					got.IDs == e.IDs, got.Special == e.Special, got.Kept == e.Kept, got.Skipped == e.Skipped)
			}
		})
	}
}
