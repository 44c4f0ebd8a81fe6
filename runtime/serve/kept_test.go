package serve

import (
	"testing"

	"github.com/llmexport/llmexport/runtime"
)

// TestKept: the rows of pictures and clips that are kept are bounded, those that were used last stay, and one that is larger than the
// bound is not kept.
func TestKept(t *testing.T) {
	t.Parallel()
	e := newSenses(nil, &Options{Sessions: 1, Queue: 1, Context: 10})
	key := func(i int) readingKey { return readingKey{pixels: i} }
	seen := func(i, bytes int) *reading {
		return &reading{key(i), &runtime.Prompt{Pictures: []runtime.Picture{{Rows: make([]float32, bytes/4)}}}}
	}
	for i := range 4 {
		e.keep(seen(i, maxKeptBytes/4))
	}
	if e.find(key(0)) == nil || e.bytes != maxKeptBytes {
		t.Fatalf("the first of four is gone, or %d bytes are kept", e.bytes)
	}
	e.keep(seen(4, maxKeptBytes/2)) // in place of 1 and 2
	e.keep(seen(5, maxKeptBytes+4))
	for i, want := range []bool{true, false, false, true, true, false} {
		if got := e.find(key(i)) != nil; got != want {
			t.Errorf("picture %d is kept: %v", i, got)
		}
	}
	if e.bytes != maxKeptBytes || len(e.kept) != 3 || e.order.Len() != 3 {
		t.Errorf("%d bytes, %d and %d pictures", e.bytes, len(e.kept), e.order.Len())
	}
}
