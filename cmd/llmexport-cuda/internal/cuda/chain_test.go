package cuda

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// TestChains takes tokens through layers, and compares the states with those of the CPU, bit by bit. After some of them the device is told to forget.
func TestChains(t *testing.T) {
	e := engine(t)
	for s := range max(8, *shapes/10) {
		r := rand.New(rand.NewPCG(4, uint64(s)))
		past, tokens := r.IntN(300)*r.IntN(2), 3
		if s == 0 {
			past = 600 // more than two segments
		}
		got, want := chainOf(uint64(s), past, tokens), chainOf(uint64(s), past, tokens)
		few := *got // the first window alone
		few.Rows, few.States = 1, slices.Clone(got.States[:got.Widths[0]])
		if !e.Compute(&few) {
			t.Fatalf("chain %d of one row: not computed, %v", s, e.Err())
		}
		for range tokens {
			want.Do()
			if ok := e.Compute(got); !ok || differ(got.States, want.States) > 0 {
				t.Fatalf("chain %d of %d rows at %d, widths %v: computed %v, %d of %d elements differ", s, got.Rows, got.At, got.Widths, ok,
					differ(got.States, want.States), len(want.States))
			}
			if e.resident.rows != got.Rows {
				t.Fatalf("chain %d: room for %d rows of %d", s, e.resident.rows, got.Rows)
			}
			got.At++
			want.At++
			got.States = slices.Clone(want.States)
		}
		if s%2 == 0 {
			e.Forget(got.Pasts)
			if e.resident != nil {
				t.Fatal("memory is left")
			}
			if got.At--; e.Compute(got) {
				t.Error("tokens were followed by another one, and nobody has their keys and values")
			}
		}
	}
}
