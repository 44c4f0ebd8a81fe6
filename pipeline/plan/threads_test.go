package plan

import (
	"slices"
	"testing"
)

// The engine gives thread i the packs from i*step on, step = ceil(packs/T), and reads a maximum of each of the T
// threads; one that had no pack never wrote its own. With no more packs than threads it takes another way.
func unsafeByCounting(cols, pack, threads int) bool {
	packs := 0
	for c := 0; c < cols; c += pack {
		packs++
	}
	if packs <= threads {
		return false
	}
	step := 0
	for step*threads < packs {
		step++
	}
	for i := range threads {
		if i*step >= packs {
			return true
		}
	}
	return false
}

func TestUnsafeThreads(t *testing.T) {
	for _, pack := range PackWidths {
		for cols := 1; cols <= 2048; cols += 7 {
			for threads := 1; threads <= MaxThreads; threads++ {
				if got, want := UnsafeThreads(cols, pack, threads), unsafeByCounting(cols, pack, threads); got != want {
					t.Fatalf("%d columns, pack %d, %d threads: %t, want %t", cols, pack, threads, got, want)
				}
			}
		}
	}
	// Observed on engines.
	for threads := 1; threads <= 9; threads++ {
		if got := UnsafeThreads(256, 8, threads); got != (threads == 9) {
			t.Errorf("256 columns, pack 8, %d threads: %t", threads, got)
		}
	}
}

func TestPlanUnsafeThreadsIsTheUnion(t *testing.T) {
	p, _ := smallPlan(t)
	for _, pack := range PackWidths {
		var want []int
		for threads := 1; threads <= MaxThreads; threads++ {
			for it := range p.Items() {
				if l := it.Layout; l.Blocks > 0 && UnsafeThreads(l.Cols, pack, threads) {
					want = append(want, threads)
					break
				}
			}
		}
		if got := p.UnsafeThreads(pack); !slices.Equal(got, want) {
			t.Errorf("pack %d: %v, want %v", pack, got, want)
		}
	}
}
