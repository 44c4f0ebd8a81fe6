package kernel

import (
	"math"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
)

func TestParallel(t *testing.T) {
	for _, workers := range []int{-1, 0, 1, 2, 3, 8} {
		for _, n := range []int{0, 1, 2, 7, 33, 1000} {
			seen := make([]atomic.Int32, n)
			Parallel(workers, n, func(lo, hi int) {
				if lo >= hi {
					t.Errorf("empty range %d, %d", lo, hi)
				}
				for i := lo; i < hi; i++ {
					seen[i].Add(1)
				}
			})
			for i := range seen {
				if c := seen[i].Load(); c != 1 {
					t.Fatalf("%d workers, n %d: index %d was covered %d times", workers, n, i, c)
				}
			}
		}
	}
}

func TestSpan(t *testing.T) {
	for _, c := range []struct{ workers, n, most, lay, want int }{
		{1, 1000, 64, 12, 64}, {16, 49152, 64, 12, 64}, {2, 960, 64, 12, 60}, {16, 512, 64, 12, 32}, {16, 8, 64, 12, 4}, {4, 0, 64, 12, 4},
		{16, 576, 128, 16, 40}, {2, 576, 128, 16, 96}, {3, 5, 2, 0, 1},
	} {
		if got := Span(c.workers, c.n, c.most, c.lay); got != c.want {
			t.Errorf("%d workers, %d of up to %d: units of %d, want %d", c.workers, c.n, c.most, got, c.want)
		}
	}
}

func TestPasses(t *testing.T) {
	for _, n := range []int{0, 1, passSize, passSize + 1, 5*passSize - 3} {
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(i)
		}
		for _, workers := range []int{1, 2, 7} {
			y := make([]float32, n)
			Copy(workers, y, x)
			if !slices.Equal(x, y) || !Finite(workers, x) {
				t.Errorf("%d elements, %d workers: another copy, or not finite", n, workers)
			}
			for _, i := range []int{0, n / 2, n - 1} {
				if n > 0 {
					y[i] = float32(math.Inf(1))
					if Finite(workers, y) {
						t.Errorf("%d elements, %d workers: element %d is infinite", n, workers, i)
					}
					y[i] = 0
				}
			}
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	Copy(1, make([]float32, 2), make([]float32, 3))
}

// adder adds one to every element.
type adder []int

func (a adder) Do(lo, hi int) {
	for i := lo; i < hi; i++ {
		a[i]++
	}
}

// TestParallelMany has callers at once, nested ones among them, and pauses in which helpers fall asleep.
func TestParallelMany(t *testing.T) {
	before := runtime.NumGoroutine()
	const callers, rounds = 4, 300
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			sums := make(adder, 64)
			for round := range rounds {
				ParallelTask(3, len(sums), sums)
				if round%100 == 99 {
					for range 20 * spins {
						pause()
					}
				}
			}
			for i, s := range sums {
				if s != rounds {
					t.Errorf("index %d was covered %d times in %d rounds", i, s, rounds)
				}
			}
			var inner atomic.Int32
			Parallel(2, 8, func(lo, hi int) {
				for range hi - lo {
					Parallel(2, 5, func(lo, hi int) { inner.Add(int32(hi - lo)) })
				}
			})
			if inner.Load() != 40 {
				t.Errorf("nested calls covered %d of 40", inner.Load())
			}
		})
	}
	wg.Wait()
	// Helpers stay, one for each that ever was needed at the same time.
	if n := runtime.NumGoroutine() - before; n > callers*4+4 {
		t.Errorf("%d goroutines stayed", n)
	}
}

func TestParallelTaskAllocates(t *testing.T) {
	sums := make(adder, 64)
	task := Task(&sums)
	if n := testing.AllocsPerRun(100, func() { ParallelTask(2, 64, task) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkParallel(b *testing.B) {
	sums := make(adder, 64)
	task := Task(&sums)
	for b.Loop() {
		ParallelTask(2, 2, task)
	}
}
