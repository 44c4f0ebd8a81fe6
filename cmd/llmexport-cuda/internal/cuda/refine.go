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
	pulled, gradient, kq, change, fits, code, scale, zero, outputs, moved uint64
	rows                                                                  int64
}

// layout gives out memory.
type layout uint64

// take returns the place of n floats.
func (l *layout) take(n int) uint64 {
	at := *l
	*l += layout(4*n+255) &^ 255
	return uint64(at)
}

// lay places runs.
func (l *layout) lay(w *kernel.Refinement, list []kernel.Run) []run {
	runs := make([]run, len(list))
	for i, x := range list {
		m := x.Rows
		runs[i] = run{pulled: l.take(m * w.Cols), gradient: l.take(m * w.Block), kq: l.take(m * w.Block), change: l.take(m * w.Block), fits: l.take(8 * m),
			code: l.take((m*w.Cols + 3) / 4), scale: l.take(len(x.Scale)), outputs: l.take(m * m), moved: l.take(w.Sweeps + 1), rows: int64(m)}
		if x.Zero != nil {
			runs[i].zero = l.take(len(x.Zero))
		}
	}
	return runs
}

// refined are results.
type refined struct{ codes, scale, zero []float32 }

// refine moves codes and scales of as many runs at a time as the card has memory for. What the caller has changes only when all of
// the results have come. The card does other work meanwhile.
func (e *Engine) refine(w *kernel.Refinement) bool {
	if w.Block > refineColumns {
		return false
	}
	h, ok := e.keep(w.Hessian, w.Cols, w.Cols)
	if ok {
		k := e.kept.of[w.Hessian.Version]
		k.uses++
		defer func() { k.uses-- }()
	}
	var results []refined
	for left := w.Runs; len(left) > 0; {
		n := len(left)
		var own buffer
		for ; n > 0 && e.failed == nil; n-- {
			var fits bool
			if own, fits = e.meanwhile(e.refinementSizes(w, left[:n], !ok)); fits {
				break
			}
		}
		if n == 0 || e.failed != nil {
			return false
		}
		some, done := e.refineRuns(w, left[:n], own.at, h.at, ok)
		e.giveUp(&own)
		if !done {
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

// refinementSizes are the memory of some runs, and the sizes of the buffers for their beginning: for one at a time its errors and, as rows
// and in panels, the moments of its outputs.
func (e *Engine) refinementSizes(w *kernel.Refinement, list []kernel.Run, hessian bool) (own uint64, sizes map[*buffer]uint64) {
	var l layout
	l.shared(w, list)
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

// shared places runs, what says where they are, and sums and totals.
func (l *layout) shared(w *kernel.Refinement, list []kernel.Run) (runs []run, table, sums, totals uint64) {
	runs = l.lay(w, list)
	return runs, l.take(len(runs) * int(unsafe.Sizeof(run{})) / 4), l.take(len(w.Sums)), l.take(2 * len(w.Totals))
}

// errorsOf are the errors of a run as a factor.
func errorsOf(w *kernel.Refinement, x kernel.Run) kernel.Factor {
	return kernel.Factor{Data: x.Errors, Layout: kernel.ByPosition, Stride: w.Cols}
}

// course is a stream of work that goes on with other work, and the event of its end.
type course struct{ stream, end uintptr }

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
	e.mu.Unlock()
	rc := e.driver.await(c.end)
	e.mu.Lock()
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
	e.inA = 0
	l, s := layout(own), e.streams[0]
	runs, table, sums, totals := l.shared(w, list)
	longest := 0
	for i, x := range list {
		r := &runs[i]
		longest = max(longest, x.Rows)
		errors := errorsOf(w, x)
		if !e.upload(s, r.code, values(floatsIn(x.Codes))) || !e.upload(s, r.scale, values(x.Scale)) || x.Zero != nil && !e.upload(s, r.zero, values(x.Zero)) ||
			!e.upload(s, r.outputs, values(x.Outputs)) || !e.upload(s, r.moved, values(make([]float32, w.Sweeps+1))) ||
			!e.bring(e.b.at, errors, w.Cols, x.Rows) || !e.pack(s, e.a.at, r.outputs, x.Rows, x.Rows) ||
			!e.multiply(s, r.pulled, panels(e.a.at, x.Rows), factorOf(errors, e.b.at, w.Cols, x.Rows), x.Rows, w.Cols, x.Rows, false, kernel.All) {
			return nil, false
		}
	}
	if !e.upload(s, table, values(floatsOf(runs))) ||
		!e.upload(s, sums, values(w.Sums)) || !e.upload(s, totals, values(floatsOf(w.Totals))) ||
		!e.fence(s) || !e.do("cuStreamWaitEvent", e.driver.after(c.stream, e.done, 0)) {
		return nil, false
	}
	k := refinement{runs: table, hessian: hessian, sums: sums, totals: totals, cols: int32(w.Cols), pitch: int32(factorOf(w.Hessian, 0, w.Cols, w.Cols).step),
		block: int32(w.Block), sweeps: int32(w.Sweeps), bits: int32(w.Bits), ridge: w.Ridge}
	if w.Half {
		k.halves = 1
	}
	if e.added[moves] > 0 {
		k.wide = 1
	}
	blocks := (longest + refineRows - 1) / refineRows
	for sweep := range int32(w.Sweeps) {
		for lo := int32(0); lo < k.cols; lo += k.block {
			at := []unsafe.Pointer{unsafe.Pointer(&k), unsafe.Pointer(&lo), unsafe.Pointer(&sweep)}
			if !e.launch(c.stream, slopes, blocks, len(runs), at...) || !e.launch(c.stream, moves, len(runs), 1, at...) ||
				!e.launch(c.stream, spread, blocks, len(runs), at...) {
				return nil, false
			}
		}
	}
	if !e.do("cuEventRecord", e.driver.record(c.end, c.stream)) || kept && !e.ends(c) {
		return nil, false
	}
	s = c.stream
	results := make([]refined, len(runs))
	for i, x := range list {
		r := &results[i]
		*r = refined{make([]float32, (len(x.Codes)+3)/4), make([]float32, len(x.Scale)), make([]float32, len(x.Zero))}
		if !e.download(s, values(r.codes), runs[i].code) || !e.download(s, values(r.scale), runs[i].scale) ||
			x.Zero != nil && !e.download(s, values(r.zero), runs[i].zero) {
			return nil, false
		}
	}
	return results, e.do("cuEventRecord", e.driver.record(e.done, s)) && e.finishAll()
}

// floatsIn are bytes as they lie in memory, in floats.
func floatsIn(b []uint8) []float32 {
	x := make([]float32, (len(b)+3)/4)
	copy(bytesIn(x), b)
	return x
}

// bytesIn is the memory of floats.
func bytesIn(x []float32) []uint8 { return unsafe.Slice((*uint8)(unsafe.Pointer(&x[0])), 4*len(x)) }
