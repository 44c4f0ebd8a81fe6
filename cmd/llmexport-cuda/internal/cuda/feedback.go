package cuda

import (
	"unsafe"

	"github.com/llmexport/llmexport/runtime/kernel"
)

const (
	// feedbackRows is the number of rows that a block of threads takes.
	feedbackRows = 16
	// longestBlock is the longest block of the kernel, mostCandidates the most candidates of a search.
	longestBlock, mostCandidates = 128, 42
)

// feedback is the argument of the kernel.
type feedback struct {
	work, code, scale, zero, factor, importance, order, failed uint64
	rows, cols, pitch, block, candidates, bits, half           int32
}

// feed chooses grids and codes. What the caller has changes only when all of the results have come.
func (e *Engine) feed(f *kernel.Feedback) bool {
	if f.Block > longestBlock || f.Candidates > mostCandidates {
		return false
	}
	n := f.Rows * f.Cols
	order := make([]int32, len(f.Order), len(f.Order)+1) // and whether numbers outgrew float32
	for i, c := range f.Order {
		order[i] = int32(c)
	}
	order = append(order, 0)
	terms := [][]float32{unsafe.Slice((*float32)(unsafe.Pointer(&order[0])), len(order)), f.Importance, f.Scale, f.Zero}
	var at [4]uint64 // of terms
	size := uint64(0)
	for i, x := range terms {
		at[i] = size
		size += 4 * uint64(len(x))
	}
	sizes := map[*buffer]uint64{&e.a: 4 * uint64(n), &e.c: 4 * uint64(n), &e.part: size}
	m, ok := e.keep(f.Factor, f.Cols, f.Cols)
	if !ok {
		sizes[&e.raw] = bytesOf(f.Factor, f.Cols, f.Cols)
	}
	if e.failed != nil || !e.room(sizes) {
		return false
	}
	if !ok {
		if m = e.raw; !e.bring(m.at, f.Factor, f.Cols, f.Cols) {
			return false
		}
	}
	e.inA = 0
	s := e.streams[0]
	if !e.upload(s, e.a.at, values(f.Work)) {
		return false
	}
	for i, x := range terms {
		at[i] += e.part.at
		if len(x) > 0 && !e.upload(s, at[i], values(x)) {
			return false
		}
	}
	k := feedback{work: e.a.at, code: e.c.at, scale: at[2], factor: m.at, importance: at[1], order: at[0], failed: at[0] + 4*uint64(len(f.Order)),
		rows: int32(f.Rows), cols: int32(f.Cols), pitch: int32(factorOf(f.Factor, 0, f.Cols, f.Cols).step), block: int32(f.Block),
		candidates: int32(f.Candidates), bits: int32(f.Bits)}
	if f.Zero != nil {
		k.zero = at[3]
	}
	if f.Half {
		k.half = 1
	}
	results := [][]float32{make([]float32, n), make([]float32, len(f.Scale)), make([]float32, len(f.Zero)), make([]float32, 1)}
	if !e.launch(s, feed, (f.Rows+feedbackRows-1)/feedbackRows, 1, unsafe.Pointer(&k)) || !e.download(s, values(results[0]), k.code) ||
		!e.download(s, values(results[1]), k.scale) || f.Zero != nil && !e.download(s, values(results[2]), k.zero) ||
		!e.download(s, values(results[3]), k.failed) || !e.do("cuEventRecord", e.driver.record(e.done, s)) || !e.finishAll() || results[3][0] != 0 {
		return false
	}
	kernel.Copy(0, f.Codes, results[0])
	copy(f.Scale, results[1])
	copy(f.Zero, results[2])
	return true
}
