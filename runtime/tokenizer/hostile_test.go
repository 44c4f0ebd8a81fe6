package tokenizer

import (
	"strings"
	"testing"
	"time"

	"github.com/llmexport/llmexport/runtime/tokenizer/internal/tokenizertest"
)

// TestHostile: a megabyte of what is bad for simpler algorithms comes back as it was.
func TestHostile(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	const size, limit = 1 << 20, 30 * time.Second // far above the tenths of a second that it takes
	tok := mustLoad(t, tokenizertest.Fixture(t, "tiny-qwen3"))
	for _, unit := range []string{"a", "e\u0301", "a\u0301\u0323", "\u0301", " ", "\n", " \n", "'", "<", "<|im_end|", "1", "!"} {
		text := strings.Repeat(unit, size/len(unit))
		var ids []int32
		if took := tokenizertest.Took(func() { ids = tok.Encode(text, false) }); took > limit {
			t.Errorf("%q took %v", unit, took)
		}
		if got := tok.Decode(ids, false); got != nfc(text) {
			t.Errorf("%q: decoded text differs", unit)
		}
	}
}
