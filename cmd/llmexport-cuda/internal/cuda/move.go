package cuda

import (
	"slices"
	"sync"
	"unsafe"

	"github.com/llmexport/llmexport/runtime/kernel"
)

// seat is where rows move.
type seat int

const (
	anywhere seat = iota // where it takes the least time
	here                 // on the CPU, which leaves products to the card
	there                // on the card
	without              // on the CPU, which does all of it
)

// Seconds of a row with 64 columns, by which the next one waits for it; of a multiplication of products between rows; and of what begins and
// ends with a block of columns. The first two were measured, on an H200 and on a core of an AMD EPYC with AVX-512; those of a block, and of a
// float that travels, are estimates.
const (
	rowThere, rowHere           = 2.6e-6, 0.4e-6
	multiplyThere, multiplyHere = 1e-13, 3.3e-11
	blockThere, blockHere       = 5e-5, 1.5e-4
	floatThere                  = 4 / 25e9 // that travels
)

// cheapest is where the rows of a refinement move in the least time.
func (e *Engine) cheapest(w *kernel.Refinement) seat {
	longest, rows, all, below := 0., 0., 0., 0.
	for _, x := range w.Runs {
		if x.Moves == nil {
			return there
		}
		m := float64(x.Rows)
		longest, rows = max(longest, m), rows+m
		all += m * (float64(w.Cols) + m) // products for all rows
		below += m * m / 2               // for those below others
	}
	if e.moving != anywhere {
		return e.moving
	}
	block, threads := float64(w.Block), float64(max(1, w.Threads))
	products := all * block * multiplyThere
	onCores := func(multiplications float64) float64 {
		return max(longest*rowHere, (rows*rowHere+multiplications*block*multiplyHere)/threads)
	}
	card := products + longest*rowThere + blockThere
	both := products + onCores(below) + 2*rows*block*floatThere + blockHere
	alone := onCores(all + below)
	switch min(card, both, alone) {
	case alone:
		return without
	case both:
		return here
	}
	return there
}

// moveRuns refines some runs whose rows move on the CPU, while the card may do other work; the memory that is taken and the Hessian are theirs
// until it returns. If it returns false, codes and scales are arbitrary.
func (e *Engine) moveRuns(w *kernel.Refinement, list []kernel.Run, own, hessian uint64) (done bool) {
	c, ok := e.course()
	if !ok {
		return false
	}
	defer func() { e.courses = append(e.courses, c) }()
	l := layout(own)
	x := l.lay(w, list, here)
	n := x.rows * w.Block
	if !e.widen(&c, 3*n+2*len(list)) || !e.pull(w, list, &x, c) {
		return false
	}
	k := argument(w, &x, hessian)
	var call string
	var rc int32
	e.aside(func() { call, rc = e.moveAll(w, list, c, &x, &k) })
	return e.do(call, rc) && e.failed == nil
}

// widen lets a course have so many floats of pinned memory.
func (e *Engine) widen(c *course, n int) bool {
	if n <= len(c.host) {
		return true
	}
	var p unsafe.Pointer
	if len(c.host) > 0 && !e.do("cuMemFreeHost", e.driver.freeHost(unsafe.Pointer(&c.host[0]))) || !e.do("cuMemAllocHost", e.driver.allocHost(&p, 4*uint64(n))) {
		return false
	}
	c.host = unsafe.Slice((*float32)(p), n)
	return true
}

// ahead reports whether the card computes sums of gradients of a block while rows move: those of all segments but one, which has the columns that
// move.
func ahead(w *kernel.Refinement) bool { return w.Cols > kernel.Segment && kernel.Segment%w.Block == 0 }

// moveAll does all sweeps. It returns the call of the driver that failed. Nothing of the engine changes, so that others may use it meanwhile.
func (e *Engine) moveAll(w *kernel.Refinement, list []kernel.Run, c course, x *laid, k *refinement) (failed string, rc int32) {
	do := func(call string, code int32) bool {
		if code != 0 {
			failed, rc = call, code
		}
		return code == 0
	}
	launch := func(kind, lo, but int) bool {
		at, sweep, segment, runs := int32(lo), int32(0), int32(but), len(list)
		arguments := []unsafe.Pointer{unsafe.Pointer(k), unsafe.Pointer(&at), unsafe.Pointer(&sweep), unsafe.Pointer(&segment)}
		if kind == aheads {
			arguments, runs = []unsafe.Pointer{unsafe.Pointer(k), unsafe.Pointer(&at), unsafe.Pointer(&segment)}, runs*kernel.Segments(w.Cols)
		}
		return do(launches, e.start(c.stream, kind, (x.longest+refineRows-1)/refineRows, runs, arguments...))
	}
	n := x.rows * w.Block
	gradients, both := c.host[:n], [2][]float32{c.host[n:][:n+len(list)], c.host[2*n+len(list):][:n+len(list)]}
	over := make([]bool, len(list)) // runs of which nothing moved in a sweep
	each := func(f func(i, from, to int)) {
		var wait sync.WaitGroup
		from := 0
		for i, run := range list {
			to := from + run.Rows*w.Block
			if from, to := from, to; !over[i] {
				wait.Go(func() { f(i, from, to) })
			}
			from = to
		}
		wait.Wait()
	}
	turn, but := 0, -1 // the segment of the sums of gradients that is not there yet, or -1 if none is
	for sweep := range w.Sweeps {
		moved := make([]bool, len(list))
		for lo := 0; lo < w.Cols; lo += w.Block {
			changes := both[turn] // those before may still travel until gradients have come
			turn = 1 - turn
			clear(changes[n:])
			next := (lo + w.Block) % w.Cols
			if next == 0 && sweep+1 == w.Sweeps {
				next = -1
			}
			if !launch(slopes, lo, but) || !do("cuMemcpyDtoHAsync", e.driver.toHost(unsafe.Pointer(&gradients[0]), x.gradients, 4*uint64(n), c.stream)) ||
				!do("cuEventRecord", e.driver.record(c.end, c.stream)) {
				return
			}
			if but = -1; next >= 0 && ahead(w) {
				if but = lo / kernel.Segment; !launch(aheads, next, but) {
					return
				}
			}
			each(func(i, from, to int) { list[i].Moves.Begin(lo, changes[from:to]) })
			if !do("cuEventSynchronize", e.driver.await(c.end)) {
				return
			}
			each(func(i, from, to int) {
				if list[i].Moves.Move(gradients[from:to], next, both[turn][from:to]) {
					changes[n+i], moved[i] = 1, true // any number but 0, as the card reads it
				}
			})
			if slices.Max(changes[n:]) == 0 {
				continue
			}
			if !do("cuMemcpyHtoDAsync", e.driver.toDevice(x.changes, unsafe.Pointer(&changes[0]), 4*uint64(n+len(list)), c.stream)) || !launch(spread, lo, 0) {
				return
			}
		}
		for i := range over {
			over[i] = !moved[i]
		}
		if !slices.Contains(moved, true) {
			break
		}
	}
	do("cuEventRecord", e.driver.record(c.end, c.stream))
	do("cuEventSynchronize", e.driver.await(c.end))
	return
}
