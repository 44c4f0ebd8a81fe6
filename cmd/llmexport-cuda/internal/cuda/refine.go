package cuda

import (
	"unsafe"

	"github.com/llmexport/llmexport/runtime/kernel"
)

// refineRows is the number of rows that a block of threads takes, refineColumns the most columns of a panel.
const refineRows, refineColumns = 32, 128

// refinement is the argument of the kernels.
type refinement struct {
	runs, hessian, sums, totals              uint64
	cols, pitch, block, sweeps, bits, halves int32
	ridge                                    float32
	wide                                     int32
}

// run is a run of rows on the card.
type run struct {
	pulled, gradient, kq, change, ahead, fits, code, scale, zero, outputs, moved uint64
	rows                                                                         int64
}

// layout gives out memory.
type layout uint64

// take returns the place of n floats.
func (l *layout) take(n int) uint64 {
	at := *l
	*l += layout(4*n+255) &^ 255
	return uint64(at)
}

// laid are runs on the card, what says where they are there, and what they share. Gradients of all runs follow one another, and so do changes,
// after which comes for each run whether it has moved.
type laid struct {
	runs                                    []run
	table, sums, totals, gradients, changes uint64
	rows, longest                           int // of all runs
}

// lay places runs that move somewhere.
func (l *layout) lay(w *kernel.Refinement, list []kernel.Run, where seat) (x laid) {
	for _, one := range list {
		x.rows, x.longest = x.rows+one.Rows, max(x.longest, one.Rows)
	}
	x.gradients, x.changes = l.take(x.rows*w.Block), l.take(x.rows*w.Block+len(list))
	from := 0
	for i, one := range list {
		m, at := one.Rows, 4*uint64(from*w.Block)
		r := run{pulled: l.take(m * w.Cols), gradient: x.gradients + at, change: x.changes + at, outputs: l.take(m * m), rows: int64(m)}
		if from += m; where == here {
			if r.moved = x.changes + 4*uint64(x.rows*w.Block+i); ahead(w) {
				r.ahead = l.take(kernel.Segments(w.Cols) * m * w.Block)
			}
		} else {
			r.kq, r.fits, r.code, r.scale = l.take(m*w.Block), l.take(8*m), l.take((m*w.Cols+3)/4), l.take(len(one.Scale))
			if r.moved = l.take(w.Sweeps + 1); one.Zero != nil {
				r.zero = l.take(len(one.Zero))
			}
		}
		x.runs = append(x.runs, r)
	}
	x.table = l.take(len(list) * int(unsafe.Sizeof(run{})) / 4)
	if where != here {
		x.sums, x.totals = l.take(len(w.Sums)), l.take(2*len(w.Totals))
	}
	return x
}

// refined are results.
type refined struct{ codes, scale, zero []float32 }

// refine moves codes and scales of as many runs at a time as the card has memory for. If it does not do all of them, what the caller has is as
// before. The card does other work meanwhile.
func (e *Engine) refine(w *kernel.Refinement) bool {
	if w.Block > refineColumns {
		return false
	}
	where := e.cheapest(w)
	if where == without { // by itself, but this is a part of what cards share
		where = here
	}
	h, ok := e.keep(w.Hessian, w.Cols, w.Cols)
	if ok {
		k := e.kept.of[w.Hessian.Version]
		k.uses++
		defer func() { k.uses-- }()
	} else {
		where = there // others may need the place of the Hessian
	}
	var results []refined
	var restores []func()
	if where == here { // codes and scales change as rows move
		for _, run := range w.Runs {
			restores = append(restores, changeOf(run.Codes)(), changeOf(run.Scale)(), changeOf(run.Zero)())
		}
	}
	for left := w.Runs; len(left) > 0; {
		some, n := e.refineSome(w, left, where, h.at, ok)
		if n == 0 {
			for _, restore := range restores {
				restore()
			}
			return false
		}
		results, left = append(results, some...), left[n:]
	}
	for i, r := range results {
		run := &w.Runs[i]
		copy(run.Codes, bytesIn(r.codes))
		copy(run.Scale, r.scale)
		copy(run.Zero, r.zero)
	}
	return true
}

// refineSome refines as many of the first runs as the card has memory for, and returns their number, and what they are then unless they move on
// the CPU. The Hessian may be kept.
func (e *Engine) refineSome(w *kernel.Refinement, list []kernel.Run, where seat, hessian uint64, kept bool) (some []refined, n int) {
	var own buffer
	for n = len(list); n > 0 && e.failed == nil; n-- {
		var fits bool
		if own, fits = e.meanwhile(e.refinementSizes(w, list[:n], where, !kept)); fits {
			break
		}
	}
	if n == 0 || e.failed != nil {
		return nil, 0
	}
	defer e.giveUp(&own)
	var done bool
	if where == here {
		done = e.moveRuns(w, list[:n], own.at, hessian)
	} else {
		some, done = e.refineRuns(w, list[:n], own.at, hessian, kept)
	}
	if !done {
		return nil, 0
	}
	return some, n
}

// refinementSizes are the memory of some runs, and the sizes of the buffers for their beginning: for one at a time its errors and, as rows
// and in panels, the moments of its outputs.
func (e *Engine) refinementSizes(w *kernel.Refinement, list []kernel.Run, where seat, hessian bool) (own uint64, sizes map[*buffer]uint64) {
	var l layout
	l.lay(w, list, where)
	sizes = map[*buffer]uint64{}
	for _, x := range list {
		sizes[&e.a] = max(sizes[&e.a], panelBytes(x.Rows, x.Rows))
		sizes[&e.b] = max(sizes[&e.b], bytesOf(errorsOf(w, x), w.Cols, x.Rows))
	}
	if hessian {
		sizes[&e.part] = bytesOf(w.Hessian, w.Cols, w.Cols)
	}
	return uint64(l), sizes
}

// errorsOf are the errors of a run as a factor.
func errorsOf(w *kernel.Refinement, x kernel.Run) kernel.Factor {
	return kernel.Factor{Data: x.Errors, Layout: kernel.ByPosition, Stride: w.Cols}
}

// course is a stream of work that goes on with other work, the event of its end, and pinned memory.
type course struct {
	stream, end uintptr
	host        []float32
}

// course takes one, which the caller gives back.
func (e *Engine) course() (c course, ok bool) {
	if last := len(e.courses) - 1; last >= 0 {
		c, e.courses = e.courses[last], e.courses[:last]
		return c, true
	}
	return c, e.do("cuStreamCreateWithPriority", e.driver.firstStream(&c.stream, apart, first)) &&
		e.do("cuEventCreate", e.driver.newEvent(&c.end, withoutTiming))
}

// ends waits for the end of a course. Others may use the card meanwhile.
func (e *Engine) ends(c course) bool {
	var rc int32
	e.aside(func() { rc = e.driver.await(c.end) })
	return e.do("cuEventSynchronize", rc) && e.failed == nil
}

// refineRuns refines some runs, in their own memory, and returns what they are then. The Hessian may be kept; otherwise it is brought for them.
func (e *Engine) refineRuns(w *kernel.Refinement, list []kernel.Run, own, hessian uint64, kept bool) ([]refined, bool) {
	c, ok := e.course()
	if !ok {
		return nil, false
	}
	defer func() { e.courses = append(e.courses, c) }()
	if !kept {
		if hessian = e.part.at; !e.bring(hessian, w.Hessian, w.Cols, w.Cols) {
			return nil, false
		}
	}
	l, s := layout(own), e.streams[0]
	x := l.lay(w, list, there)
	for i, one := range list {
		r := &x.runs[i]
		if !e.upload(s, r.code, values(floatsIn(one.Codes))) || !e.upload(s, r.scale, values(one.Scale)) ||
			one.Zero != nil && !e.upload(s, r.zero, values(one.Zero)) || !e.upload(s, r.moved, values(make([]float32, w.Sweeps+1))) {
			return nil, false
		}
	}
	if !e.upload(s, x.sums, values(w.Sums)) || !e.upload(s, x.totals, values(floatsOf(w.Totals))) || !e.pull(w, list, &x, c) {
		return nil, false
	}
	k := argument(w, &x, hessian)
	k.sums, k.totals, k.sweeps = x.sums, x.totals, int32(w.Sweeps)
	if w.Half {
		k.halves = 1
	}
	if e.added[moves] > 0 {
		k.wide = 1
	}
	blocks, all := (x.longest+refineRows-1)/refineRows, int32(-1)
	for sweep := range int32(w.Sweeps) {
		for lo := int32(0); lo < k.cols; lo += k.block {
			at := []unsafe.Pointer{unsafe.Pointer(&k), unsafe.Pointer(&lo), unsafe.Pointer(&sweep)}
			if !e.launch(c.stream, slopes, blocks, len(list), append(at, unsafe.Pointer(&all))...) || !e.launch(c.stream, moves, len(list), 1, at...) ||
				!e.launch(c.stream, spread, blocks, len(list), at...) {
				return nil, false
			}
		}
	}
	if !e.do("cuEventRecord", e.driver.record(c.end, c.stream)) || kept && !e.ends(c) {
		return nil, false
	}
	s = c.stream
	results := make([]refined, len(list))
	for i, one := range list {
		r, at := &results[i], &x.runs[i]
		*r = refined{make([]float32, (len(one.Codes)+3)/4), make([]float32, len(one.Scale)), make([]float32, len(one.Zero))}
		if !e.download(s, values(r.codes), at.code) || !e.download(s, values(r.scale), at.scale) ||
			one.Zero != nil && !e.download(s, values(r.zero), at.zero) {
			return nil, false
		}
	}
	return results, e.do("cuEventRecord", e.driver.record(e.done, s)) && e.finishAll()
}

// argument is that of the kernels for all runs, with what all of them need.
func argument(w *kernel.Refinement, x *laid, hessian uint64) refinement {
	return refinement{runs: x.table, hessian: hessian, cols: int32(w.Cols), pitch: int32(factorOf(w.Hessian, 0, w.Cols, w.Cols).step),
		block: int32(w.Block), bits: int32(w.Bits), ridge: w.Ridge}
}

// pull brings runs to the card, where their errors are multiplied by the moments of outputs before work of a course begins.
func (e *Engine) pull(w *kernel.Refinement, list []kernel.Run, x *laid, c course) bool {
	e.inA = 0
	s := e.streams[0]
	for i, one := range list {
		r, errors := &x.runs[i], errorsOf(w, one)
		if !e.upload(s, r.outputs, values(one.Outputs)) || !e.bring(e.b.at, errors, w.Cols, one.Rows) || !e.pack(s, e.a.at, r.outputs, one.Rows, one.Rows) ||
			!e.multiply(s, r.pulled, panels(e.a.at, one.Rows), factorOf(errors, e.b.at, w.Cols, one.Rows), one.Rows, w.Cols, one.Rows, false, kernel.All) {
			return false
		}
	}
	return e.upload(s, x.table, values(floatsOf(x.runs))) && e.fence(s) && e.do("cuStreamWaitEvent", e.driver.after(c.stream, e.done, 0))
}

// floatsIn are bytes as they lie in memory, in floats.
func floatsIn(b []uint8) []float32 {
	x := make([]float32, (len(b)+3)/4)
	copy(bytesIn(x), b)
	return x
}

// bytesIn is the memory of floats.
func bytesIn(x []float32) []uint8 { return unsafe.Slice((*uint8)(unsafe.Pointer(&x[0])), 4*len(x)) }
