package cuda

import (
	"unsafe"

	"github.com/llmexport/llmexport/runtime/kernel"
)

// descentRows is the number of rows that a block of threads takes.
const descentRows = 32

// descent is the argument of the kernel.
type descent struct {
	code, work, scale, zero, target, hessian, sums, totals uint64
	rows, cols, pitch, block, sweeps, bits, half           int32
	ridge                                                  float32
}

// descend moves codes and scales. What the caller has changes only when all of the results have come.
func (e *Engine) descend(d *kernel.Descent) bool {
	n := d.Rows * d.Cols
	terms := [][]float32{floatsOf(d.Totals), d.Sums, d.Scale, d.Zero}
	var at [4]uint64 // of terms
	size := uint64(0)
	for i, x := range terms {
		at[i] = size
		size += 4 * uint64(len(x))
	}
	sizes := map[*buffer]uint64{&e.a: 4 * uint64(n), &e.b: 4 * uint64(n), &e.c: 4 * uint64(n), &e.part: size}
	h, ok := e.keep(d.Hessian, d.Cols, d.Cols)
	if !ok {
		sizes[&e.raw] = bytesOf(d.Hessian, d.Cols, d.Cols)
	}
	if e.failed != nil || !e.room(sizes) {
		return false
	}
	if !ok {
		if h = e.raw; !e.bring(h.at, d.Hessian, d.Cols, d.Cols) {
			return false
		}
	}
	e.inA = 0
	s := e.streams[0]
	if !e.upload(s, e.a.at, values(d.Codes)) || !e.upload(s, e.b.at, values(d.Target)) {
		return false
	}
	for i, x := range terms {
		at[i] += e.part.at
		if len(x) > 0 && !e.upload(s, at[i], values(x)) {
			return false
		}
	}
	k := descent{code: e.a.at, work: e.c.at, scale: at[2], target: e.b.at, hessian: h.at, sums: at[1], totals: at[0], rows: int32(d.Rows), cols: int32(d.Cols),
		pitch: int32(factorOf(d.Hessian, 0, d.Cols, d.Cols).step), block: int32(d.Block), sweeps: int32(d.Sweeps), bits: int32(d.Bits), ridge: d.Ridge}
	if d.Zero != nil {
		k.zero = at[3]
	}
	if d.Half {
		k.half = 1
	}
	results := [][]float32{make([]float32, n), make([]float32, len(d.Scale)), make([]float32, len(d.Zero))}
	if !e.launch(s, descend, (d.Rows+descentRows-1)/descentRows, 1, unsafe.Pointer(&k)) || !e.download(s, values(results[0]), k.code) ||
		!e.download(s, values(results[1]), k.scale) || d.Zero != nil && !e.download(s, values(results[2]), k.zero) ||
		!e.do("cuEventRecord", e.driver.record(e.done, s)) || !e.finishAll() {
		return false
	}
	kernel.Copy(e.threads, d.Codes, results[0])
	copy(d.Scale, results[1])
	copy(d.Zero, results[2])
	return true
}
