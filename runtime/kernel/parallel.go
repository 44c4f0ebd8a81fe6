package kernel

import (
	"fmt"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
)

// Task is work on indices that Parallel's variants divide. Do covers [lo, hi) with lo < hi; what it computes for an index
// must not depend on the range that the index came in.
type Task interface{ Do(lo, hi int) }

// Parallel covers [0, n) by calls of f with disjoint ranges, on at most workers goroutines, the caller's
// among them, and returns when all are done. workers < 1 means GOMAXPROCS. Which ranges come, and in
// which order, is not fixed: what f computes for an index must not depend on the range it came in.
func Parallel(workers, n int, f func(lo, hi int)) { ParallelTask(workers, n, funcTask(f)) }

type funcTask func(lo, hi int)

func (f funcTask) Do(lo, hi int) { f(lo, hi) }

// chunksPerWorker is more than one, so that other workers can take over from one that was delayed.
const chunksPerWorker = 4

// ParallelTask is Parallel for a Task; it allocates nothing once enough helpers exist.
//
// Helpers are goroutines of the process. After a job each spins for some microseconds, because between the ops of one
// token the next job comes sooner than a sleeping goroutine wakes up, and then sleeps until it is needed again.
func ParallelTask(workers, n int, t Task) {
	if workers < 1 {
		workers = runtime.GOMAXPROCS(0)
	}
	workers = min(workers, n)
	if workers <= 1 {
		if n > 0 {
			t.Do(0, n)
		}
		return
	}
	j := crew.job(workers - 1)
	j.task = t
	j.chunks = int64(min(n, workers*chunksPerWorker))
	j.step, j.rest = n/int(j.chunks), n%int(j.chunks)
	j.next.Store(0)
	for _, h := range j.helpers {
		h.give(j)
	}
	j.work()
	for _, h := range j.helpers {
		h.await(j)
	}
	crew.free(j)
}

// Span returns how many of n indices, at most most of them, a unit of work has so that workers finish soonest. What a unit
// lays out before it begins takes as long as lay indices. workers is at least 1.
func Span(workers, n, most, lay int) (best int) {
	const delay = 0.25 // of a unit, by which the last worker ends later than the others
	least := math.Inf(1)
	step := max(1, most/16)
	for size := most; size > 0; size -= step {
		rounds := ((n+size-1)/size + workers - 1) / workers
		if cost := (float64(rounds) + delay) * float64(size+lay); cost < least {
			least, best = cost, size
		}
	}
	return best
}

// passSize is how many elements of a pass over memory a worker takes at a time: fewer are not worth waking another worker.
const passSize = 1 << 14

// pass covers n elements.
func pass(workers, n int, f func(lo, hi int)) {
	Parallel(workers, (n+passSize-1)/passSize, func(lo, hi int) { f(lo*passSize, min(hi*passSize, n)) })
}

// Copy copies src to dst, which has the same length and does not overlap with it, on at most workers goroutines.
func Copy(workers int, dst, src []float32) {
	if len(dst) != len(src) {
		panic(fmt.Sprintf("internal error: kernel.Copy: %d elements for %d", len(dst), len(src)))
	}
	pass(workers, len(src), func(lo, hi int) { copy(dst[lo:hi], src[lo:hi]) })
}

// Finite reports whether all elements of x are numbers and not infinite; it uses at most workers goroutines.
func Finite(workers int, x []float32) bool {
	var broken atomic.Bool
	pass(workers, len(x), func(lo, hi int) {
		if NonFinite(x[lo:hi]) >= 0 {
			broken.Store(true)
		}
	})
	return !broken.Load()
}

// job is one call of ParallelTask. Its workers take chunks until none is left.
type job struct {
	task       Task
	chunks     int64
	step, rest int
	next       atomic.Int64
	helpers    []*helper
}

func (j *job) work() {
	for {
		c := int(j.next.Add(1)) - 1
		if c >= int(j.chunks) {
			return
		}
		lo := c*j.step + min(c, j.rest)
		hi := lo + j.step
		if c < j.rest {
			hi++
		}
		j.task.Do(lo, hi)
	}
}

// helper is a goroutine that works on the job in its box.
type helper struct {
	// box holds a job from give until the helper takes it, and claimed while it works.
	box atomic.Pointer[job]
	// asleep is set by a helper that is about to wait for a wake-up; a goroutine that clears it must send one.
	asleep atomic.Bool
	wake   chan struct{}
}

// claimed stands in the box of a helper at work.
var claimed = new(job)

// spins is the number of times that a helper polls for a job before it sleeps: about 100 microseconds. A waiting caller yields
// its processor after as many polls, in case the helper has none.
const spins = 2000

func (h *helper) give(j *job) {
	h.box.Store(j)
	if h.asleep.CompareAndSwap(true, false) {
		h.wake <- struct{}{}
	}
}

// await blocks until h has stopped working on j. A helper that has not started yet is cancelled: the caller has done all
// chunks.
func (h *helper) await(j *job) {
	if h.box.CompareAndSwap(j, nil) {
		return
	}
	for i := 0; h.box.Load() != nil; i++ {
		Pause(i)
	}
}

// Pause lets a goroutine wait that polls for the i-th time: for an instant, and after about 100 microseconds until others have run.
func Pause(i int) {
	pause()
	if i >= spins {
		runtime.Gosched()
	}
}

func (h *helper) loop() {
	for i := 0; ; i++ {
		if j := h.box.Load(); j != nil && h.box.CompareAndSwap(j, claimed) {
			j.work()
			h.box.Store(nil)
			i = 0
		}
		if i < spins {
			pause()
			continue
		}
		h.asleep.Store(true)
		// A job that was given meanwhile came without a wake-up, unless its giver has seen the flag.
		if h.box.Load() != nil && h.asleep.CompareAndSwap(true, false) {
			continue
		}
		<-h.wake
		i = 0
	}
}

// crew holds the idle helpers and unused jobs of the process.
var crew team

type team struct {
	mu   sync.Mutex
	idle []*helper
	jobs []*job
}

// job returns one with n helpers.
func (t *team) job(n int) *job {
	t.mu.Lock()
	defer t.mu.Unlock()
	var j *job
	if last := len(t.jobs) - 1; last >= 0 {
		j, t.jobs = t.jobs[last], t.jobs[:last]
	} else {
		j = new(job)
	}
	for range n {
		last := len(t.idle) - 1
		if last < 0 {
			h := &helper{wake: make(chan struct{}, 1)}
			go h.loop()
			j.helpers = append(j.helpers, h)
			continue
		}
		j.helpers = append(j.helpers, t.idle[last])
		t.idle = t.idle[:last]
	}
	return j
}

func (t *team) free(j *job) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.idle = append(t.idle, j.helpers...)
	j.task, j.helpers = nil, j.helpers[:0]
	t.jobs = append(t.jobs, j)
}
