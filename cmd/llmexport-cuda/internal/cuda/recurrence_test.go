package cuda

import (
	"math"
	"testing"

	"github.com/llmexport/llmexport/runtime/kernel"
)

// TestRecurrences takes windows through recurrences, convolutions and gates, and compares every matrix with the CPU's, bit by bit, also where states
// are infinite.
func TestRecurrences(t *testing.T) {
	e := engine(t)
	for s := range max(12, *shapes/8) {
		got, want := recurrenceOf(uint64(s)), recurrenceOf(uint64(s))
		for _, c := range []*kernel.Chain{got, want} {
			if s%6 == 5 {
				c.States[len(c.States)/2] = float32(math.Inf(1))
			}
			for i, width := range c.Widths {
				c.Taken = append(c.Taken, kernel.Carried{Matrix: i, Data: make([]float32, c.Rows*width)})
			}
		}
		want.Do()
		if !e.Compute(got) {
			t.Fatalf("recurrence %d: not computed, %v", s, e.Err())
		}
		for i := range got.Taken {
			if n := differ(got.Taken[i].Data, want.Taken[i].Data); n > 0 {
				t.Fatalf("recurrence %d of %v tokens, widths %v: %d elements of matrix %d differ", s, got.Windows, got.Widths, n, i)
			}
		}
	}
	big := recurrenceOf(3)
	if e.mostAdded = recurrenceMemory(big.Steps[5].(*kernel.RecurrenceStep)) - 1; e.Compute(big) || e.Err() != nil {
		t.Errorf("states too large for the shared memory were computed, or failed: %v", e.Err())
	}
}

// TestRecurrenceTokens takes tokens through recurrences. After some of them the device is told to forget what they left, which nobody else has.
func TestRecurrenceTokens(t *testing.T) {
	e := engine(t)
	for s := range uint64(max(8, *shapes/20)) {
		if m := e.compareRecurrenceTokens(s); m.Differ > 0 {
			t.Fatalf("recurrence %d: %d elements differ, %v", s, m.Differ, e.Err())
		}
		c := recurrenceTokensOf(s)
		for range 2 { // again from the first token on
			c.At, c.Pasts.Version = 0, kernel.NewVersion()
			for c.At < 2 {
				if !e.Compute(c) {
					t.Fatal(e.Err())
				}
				c.At++
			}
		}
		if e.Forget(c.Pasts); e.resident != nil || e.Compute(c) || e.Err() != nil {
			t.Errorf("a token after lost ones was computed, or failed: %v", e.Err())
		}
		if c.Pasts.Filled = c.At; e.Compute(c) {
			t.Error("a token after those of the CPU was computed")
		}
	}
}
