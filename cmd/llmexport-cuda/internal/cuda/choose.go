package cuda

import (
	"unsafe"

	"github.com/llmexport/llmexport/runtime/kernel"
)

// choiceRows is the number of rows that a block of threads takes, with at most refineColumns columns.
const choiceRows = 8

// choice is the argument of the kernel.
type choice struct {
	runs, factor, importance, order                     uint64
	cols, pitch, block, width, candidates, bits, halves int32
}

// mixed is a run of rows on the card.
type mixed struct {
	target, errors, mix, order, code, scale, zero, left uint64
	rows                                                int64
}

// layChoice places runs, what says where they are, and what they share.
func (l *layout) layChoice(w *kernel.Choice, list []kernel.Mixed) (runs []mixed, table, importance, order uint64) {
	runs = make([]mixed, len(list))
	for i, x := range list {
		m := x.Rows
		runs[i] = mixed{target: l.take(m * w.Cols), errors: l.take(m * w.Cols), mix: l.take(m * m), order: l.take(m), code: l.take((m*w.Cols + 3) / 4),
			scale: l.take(len(x.Scale)), left: l.take(1), rows: int64(m)}
		if x.Zero != nil {
			runs[i].zero = l.take(len(x.Zero))
		}
	}
	return runs, l.take(len(runs) * int(unsafe.Sizeof(mixed{})) / 4), l.take(w.Cols), l.take(w.Cols)
}

// choiceSizes are those of the buffers for some runs.
func (e *Engine) choiceSizes(w *kernel.Choice, list []kernel.Mixed, factor bool) map[*buffer]uint64 {
	var l layout
	l.layChoice(w, list)
	sizes := map[*buffer]uint64{&e.c: uint64(l)}
	if factor {
		sizes[&e.raw] = bytesOf(w.Factor, w.Cols, w.Cols)
	}
	return sizes
}

// chosen are results.
type chosen struct{ codes, scale, zero, left []float32 }

// choose chooses codes and grids of as many runs at a time as the card has memory for. What the caller has changes only when all of the
// results have come.
func (e *Engine) choose(w *kernel.Choice) bool {
	if w.Block <= refineColumns && w.Candidates > mostCandidates {
		return false
	}
	m, ok := e.keep(w.Factor, w.Cols, w.Cols)
	var results []chosen
	for left := w.Runs; len(left) > 0; {
		n := len(left)
		for ; n > 0 && e.failed == nil; n-- {
			if e.room(e.choiceSizes(w, left[:n], !ok)) {
				break
			}
		}
		if n == 0 || e.failed != nil {
			return false
		}
		at := m
		if !ok {
			if at = e.raw; !e.bring(at.at, w.Factor, w.Cols, w.Cols) {
				return false
			}
		}
		some, done := e.chooseRuns(w, left[:n], at.at)
		if !done {
			return false
		}
		results, left = append(results, some...), left[n:]
	}
	for i, r := range results {
		run := &w.Runs[i]
		if run.Left = r.left[0] != 0; run.Left {
			continue
		}
		copy(run.Codes, bytesIn(r.codes))
		copy(run.Scale, r.scale)
		copy(run.Zero, r.zero)
	}
	return true
}

// chooseRuns chooses for some runs and returns what they are then.
func (e *Engine) chooseRuns(w *kernel.Choice, list []kernel.Mixed, factor uint64) ([]chosen, bool) {
	l, s := layout(e.c.at), e.streams[0]
	runs, table, importance, order := l.layChoice(w, list)
	width, longest := min(w.Block, refineColumns), 0
	for i, x := range list {
		r := &runs[i]
		longest = max(longest, x.Rows)
		if !e.upload(s, r.target, values(x.Target)) || !e.upload(s, r.mix, values(x.Mix)) || !e.upload(s, r.order, values(integers(x.Order))) ||
			!e.upload(s, r.scale, values(x.Scale)) || x.Zero != nil && !e.upload(s, r.zero, values(x.Zero)) || !e.upload(s, r.left, values(make([]float32, 1))) {
			return nil, false
		}
	}
	if !e.upload(s, table, values(floatsOf(runs))) ||
		!e.upload(s, importance, values(w.Importance)) || !e.upload(s, order, values(integers(w.Order))) {
		return nil, false
	}
	k := choice{runs: table, factor: factor, importance: importance, order: order, cols: int32(w.Cols),
		pitch: int32(factorOf(w.Factor, 0, w.Cols, w.Cols).step), block: int32(w.Block), width: int32(width), candidates: int32(w.Candidates), bits: int32(w.Bits)}
	if w.Half {
		k.halves = 1
	}
	// In a turn, blocks of columns from `from` on are at rows before those of the turn before.
	groups, blocks := (longest+choiceRows-1)/choiceRows, (w.Cols+width-1)/width
	for turn := range int32(groups + blocks - 1) {
		from := max(0, turn-int32(groups-1))
		many := min(turn, int32(blocks-1)) - from + 1
		if !e.launch(s, choose, int(many), len(runs), unsafe.Pointer(&k), unsafe.Pointer(&turn), unsafe.Pointer(&from)) {
			return nil, false
		}
	}
	results := make([]chosen, len(runs))
	for i, x := range list {
		r := &results[i]
		*r = chosen{make([]float32, (len(x.Codes)+3)/4), make([]float32, len(x.Scale)), make([]float32, len(x.Zero)), make([]float32, 1)}
		if !e.download(s, values(r.codes), runs[i].code) || !e.download(s, values(r.scale), runs[i].scale) ||
			x.Zero != nil && !e.download(s, values(r.zero), runs[i].zero) || !e.download(s, values(r.left), runs[i].left) {
			return nil, false
		}
	}
	return results, e.do("cuEventRecord", e.driver.record(e.done, s)) && e.finishAll()
}

// integers are numbers as the kernels take them, in floats.
func integers(x []int) []float32 {
	y := make([]int32, len(x))
	for i, v := range x {
		y[i] = int32(v)
	}
	return floatsOf(y)
}
