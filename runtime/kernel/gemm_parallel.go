package kernel

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// chunksPerWorker lets a worker that was held up hand its share to the others.
const chunksPerWorker = 4

// Parallel covers [0, n) by calls of f with disjoint ranges, on at most workers goroutines, the caller's
// among them, and returns when all are done. workers < 1 means GOMAXPROCS. Which ranges come, and in
// which order, is not fixed: what f computes for an index must not depend on the range it came in.
func Parallel(workers, n int, f func(lo, hi int)) {
	if workers < 1 {
		workers = runtime.GOMAXPROCS(0)
	}
	workers = min(workers, n)
	if workers <= 1 {
		if n > 0 {
			f(0, n)
		}
		return
	}
	chunks := min(n, workers*chunksPerWorker)
	step, rest := n/chunks, n%chunks
	var next atomic.Int64
	work := func() {
		for {
			c := int(next.Add(1)) - 1
			if c >= chunks {
				return
			}
			lo := c*step + min(c, rest)
			hi := lo + step
			if c < rest {
				hi++
			}
			f(lo, hi)
		}
	}
	var wg sync.WaitGroup
	for range workers - 1 {
		wg.Go(work)
	}
	work()
	wg.Wait()
}
