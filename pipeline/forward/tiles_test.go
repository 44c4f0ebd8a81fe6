package forward

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/llmexport/llmexport/runtime/kernel"
)

// TestTiles: every element of a product belongs to one unit, whatever the threads.
func TestTiles(t *testing.T) {
	for _, threads := range []int{1, 2, 3, 16, 70} {
		for _, shape := range [][2]int{{0, 5}, {1, 1}, {1, 700}, {33, 200}, {341, 577}, {700, 31}} {
			n, cols := shape[0], shape[1]
			seen := make([]atomic.Int32, n*cols)
			tiles(threads, n, cols, func(from, to, lo, hi int) {
				if from >= to || lo >= hi || lo%kernel.PanelRows != 0 {
					t.Errorf("%d threads, %d x %d: tokens %d to %d, columns %d to %d", threads, n, cols, from, to, lo, hi)
				}
				for i := from; i < to; i++ {
					for j := lo; j < hi; j++ {
						seen[i*cols+j].Add(1)
					}
				}
			})
			for i := range seen {
				if k := seen[i].Load(); k != 1 {
					t.Fatalf("%d threads, %d x %d: element %d is computed %d times", threads, n, cols, i, k)
				}
			}
		}
	}
}

// TestDivision: the products of small models keep 2 to 16 threads busy for three quarters of the time, if a unit takes as long as
// its elements.
func TestDivision(t *testing.T) {
	for _, shape := range [][2]int{{2048, 576}, {2048, 192}, {2048, 1536}, {2048, 49152}, {341, 576}, {341, 49152}, {512, 512}, {512, 256}, {32, 512}, {8, 1536}} {
		for _, threads := range []int{2, 4, 8, 16} {
			t.Run(fmt.Sprintf("%dx%d/%d", shape[0], shape[1], threads), func(t *testing.T) {
				n, cols := shape[0], shape[1]
				spans, part := division(threads, n, cols)
				units := spans * ((cols + part - 1) / part)
				rounds := (units + threads - 1) / threads
				if last := rounds * ((n + spans - 1) / spans) * part * threads; last*3 > n*cols*4 {
					t.Errorf("%d spans of tokens and parts of %d columns: the last of %d rounds ends at %.2f of the ideal time",
						spans, part, rounds, float64(last)/float64(n*cols))
				}
			})
		}
	}
}
