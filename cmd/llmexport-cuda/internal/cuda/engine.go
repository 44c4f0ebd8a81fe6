// Package cuda computes large float32 products on a card of NVIDIA, with the bits of runtime/kernel. The driver is loaded when the
// program runs; nothing else of CUDA is needed.
package cuda

import (
	_ "embed"
	"fmt"
	"os"
	goruntime "runtime"
	"sync"
	"unsafe"

	"github.com/llmexport/llmexport/runtime/kernel"
)

//go:embed kernels/products.ptx
var ptx []byte

const (
	// leastMajor is the compute capability that the code is compiled for.
	leastMajor = 8
	// leastMemory is the least free memory of a card that is worth using.
	leastMemory = 2 << 30
	// reserve is memory of a card that is left to the driver and to other programs.
	reserve = 512 << 20
	// leastWork is the number of multiplications below which copying costs more than the product.
	leastWork = 1 << 26
	// pieceBytes bounds the results of a product that are on the card at a time, if its rows can be taken in pieces.
	pieceBytes = 1 << 30
)

// library is the file name of the driver.
func library() string {
	if name := os.Getenv("LLMEXPORT_CUDA_DRIVER"); name != "" {
		return name
	}
	return "libcuda.so.1"
}

// Engine is a card. It is a [kernel.Device].
type Engine struct {
	card    Card
	driver  *driver
	context uintptr
	kernels [4]uintptr // by kind
	least   int        // of multiplications

	mu     sync.Mutex
	failed error  // of the first call that failed; the card is not used afterwards
	limit  uint64 // of all buffers
	piece  int    // bytes, see pieceBytes
	a, b   buffer // factors
	c, d   buffer // results, and those of a part
	host   []float32

	// Calls and Work count products computed and their multiplications.
	calls, work int64
}

// kinds of kernels.
const (
	rowsPacked = iota
	rowsPositions
	positionsPositions
	sum
)

var names = [...]string{"rows_packed", "rows_positions", "positions_positions", "sum"}

// buffer is memory of the card.
type buffer struct{ at, size uint64 }

// Open prepares card n. Up to limit bytes of its memory are used, or what is free if limit is 0.
func Open(n int, limit uint64) (*Engine, error) {
	d, err := open(library())
	if err != nil {
		return nil, err
	}
	var count int32
	if rc := d.count(&count); rc != 0 {
		return nil, failure("cuDeviceGetCount", rc)
	}
	if n >= int(count) {
		return nil, fmt.Errorf("there is no card %d, the driver finds %d", n, count)
	}
	card, handle, err := d.card(n)
	if err != nil {
		return nil, err
	}
	if err := Usable(card); err != nil {
		return nil, err
	}
	goruntime.LockOSThread() // a context is current in one thread
	defer goruntime.UnlockOSThread()
	e := &Engine{card: card, driver: d, least: leastWork, piece: pieceBytes}
	if rc := d.retain(&e.context, handle); rc != 0 {
		return nil, failure("cuDevicePrimaryCtxRetain", rc)
	}
	if rc := d.setCurrent(e.context); rc != 0 {
		return nil, failure("cuCtxSetCurrent", rc)
	}
	var free, total uint64
	if rc := d.memory(&free, &total); rc != 0 {
		return nil, failure("cuMemGetInfo", rc)
	}
	if free < leastMemory {
		return nil, fmt.Errorf("%s has %d MiB of free memory, at least %d are needed", card.Name, free>>20, leastMemory>>20)
	}
	e.limit = free - reserve
	if limit > 0 {
		e.limit = min(e.limit, limit)
	}
	var module uintptr
	if rc := d.load(&module, &append(ptx, 0)[0]); rc != 0 {
		return nil, failure("cuModuleLoadData", rc)
	}
	for i, name := range names {
		if rc := d.function(&e.kernels[i], module, name); rc != 0 {
			return nil, failure("cuModuleGetFunction", rc)
		}
	}
	return e, nil
}

// Usable returns the reason that a card cannot be used, as far as that is known before it is.
func Usable(c Card) error {
	if c.Major < leastMajor {
		return fmt.Errorf("%s has compute capability %d.%d, at least %d.0 is needed", c.Name, c.Major, c.Minor, leastMajor)
	}
	if c.Memory < leastMemory {
		return fmt.Errorf("%s has %d MiB of memory, at least %d are needed", c.Name, c.Memory>>20, leastMemory>>20)
	}
	return nil
}

// Card describes the card.
func (e *Engine) Card() Card { return e.card }

// Err is the first failure of the card, after which the CPU computed everything.
func (e *Engine) Err() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.failed
}

// Work is the number of products that the card computed, and of their multiplications.
func (e *Engine) Work() (products, multiplications int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.calls, e.work
}

// Multiply implements [kernel.Device].
func (e *Engine) Multiply(p *kernel.Product) bool {
	work := 0
	for _, part := range p.Parts {
		if part.K == 0 {
			return false
		}
		work += p.Rows * p.Cols * part.K
	}
	if p.Rows == 0 || p.Cols == 0 || work == 0 || work < e.least {
		return false
	}
	kind := kindOf(p)
	e.mu.Lock()
	defer e.mu.Unlock()
	if kind < 0 || e.failed != nil {
		return false
	}
	goruntime.LockOSThread()
	defer goruntime.UnlockOSThread()
	if !e.do("cuCtxSetCurrent", e.driver.setCurrent(e.context)) {
		return false
	}
	if p.Sum == kernel.Write {
		if !e.write(p, kind) {
			return false
		}
	} else if !e.add(p, kind) {
		return false
	}
	e.calls++
	e.work += int64(work)
	return true
}

// kindOf is the kernel of a product, or -1.
func kindOf(p *kernel.Product) int {
	kind := -1
	for i, part := range p.Parts {
		k := -1
		switch [2]kernel.Layout{part.A.Layout, part.B.Layout} {
		case [2]kernel.Layout{kernel.ByRow, kernel.ByPanel}:
			k = rowsPacked
		case [2]kernel.Layout{kernel.ByRow, kernel.ByPosition}:
			k = rowsPositions
		case [2]kernel.Layout{kernel.ByPosition, kernel.ByPosition}:
			k = positionsPositions
		}
		if i > 0 && k != kind {
			return -1
		}
		kind = k
	}
	return kind
}

// do notes the failure of a call.
func (e *Engine) do(call string, rc int32) bool {
	if rc != 0 && e.failed == nil {
		e.failed = fmt.Errorf("%s: %w", e.card.Name, failure(call, rc))
		fmt.Fprintf(os.Stderr, "the card failed, the CPU goes on: %v\n", e.failed)
	}
	return rc == 0
}

// room makes the buffers at least so large. It reports false if the limit does not allow that.
func (e *Engine) room(sizes map[*buffer]uint64) bool {
	need := uint64(0)
	for _, b := range []*buffer{&e.a, &e.b, &e.c, &e.d} {
		need += max(b.size, sizes[b])
	}
	if need > e.limit { // only what this product needs
		need = 0
		for _, n := range sizes {
			need += n
		}
		if need > e.limit {
			return false
		}
		for _, b := range []*buffer{&e.a, &e.b, &e.c, &e.d} {
			e.release(b)
		}
	}
	for b, n := range sizes {
		if b.size >= n {
			continue
		}
		e.release(b)
		if rc := e.driver.alloc(&b.at, n); rc == 2 { // another program took the memory
			b.at = 0
			return false
		} else if !e.do("cuMemAlloc", rc) {
			return false
		}
		b.size = n
	}
	return true
}

func (e *Engine) release(b *buffer) {
	if b.at != 0 {
		e.do("cuMemFree", e.driver.free(b.at))
	}
	*b = buffer{}
}

// extent is the number of floats of a factor of so many rows.
func extent(f kernel.Factor, rows, k int) int {
	switch f.Layout {
	case kernel.ByRow:
		return (rows-1)*f.Stride + k
	case kernel.ByPosition:
		return (k-1)*f.Stride + rows
	}
	return (rows + kernel.PanelRows - 1) / kernel.PanelRows * kernel.PanelRows * f.Stride
}

// write computes a product whose rows are independent, in pieces.
func (e *Engine) write(p *kernel.Product, kind int) bool {
	if len(p.Parts) != 1 || p.Parts[0].A.Layout != kernel.ByRow {
		return false
	}
	part := p.Parts[0]
	step := min(p.Rows, max(1, e.piece/4/max(p.Cols, part.A.Stride)))
	nb := extent(part.B, p.Cols, part.K)
	if !e.room(map[*buffer]uint64{&e.a: 4 * uint64(step*part.A.Stride), &e.b: 4 * uint64(nb), &e.c: 4 * uint64(step*p.Cols)}) || !e.send(e.b, part.B.Data[:nb]) {
		return false
	}
	for i := 0; i < p.Rows; i += step {
		rows := min(step, p.Rows-i)
		from := part.A.Data[i*part.A.Stride:]
		if !e.send(e.a, from[:extent(part.A, rows, part.K)]) ||
			!e.run(kind, e.c, e.a, e.b, rows, p.Cols, part, p.Cols, 0) ||
			!e.receive(p.Dst[i*p.Stride:], e.c, rows, p.Cols, p.Stride) {
			return false
		}
	}
	return true
}

// add adds products of parts to a result, which stays on the card meanwhile.
func (e *Engine) add(p *kernel.Product, kind int) bool {
	n, na, nb := p.Rows*p.Cols, 0, 0
	if p.Stride != p.Cols {
		return false
	}
	for _, part := range p.Parts {
		na, nb = max(na, extent(part.A, p.Rows, part.K)), max(nb, extent(part.B, p.Cols, part.K))
	}
	sizes := map[*buffer]uint64{&e.a: 4 * uint64(na), &e.b: 4 * uint64(nb), &e.c: 4 * uint64(n)}
	if p.Sum == kernel.AddParts {
		sizes[&e.d] = sizes[&e.c]
	}
	if !e.room(sizes) || !e.send(e.c, p.Dst[:n]) {
		return false
	}
	for _, part := range p.Parts {
		a, b := part.A.Data[:extent(part.A, p.Rows, part.K)], part.B.Data[:extent(part.B, p.Cols, part.K)]
		if !e.send(e.a, a) {
			return false
		}
		at := e.a // of b
		if &a[0] != &b[0] || len(a) < len(b) {
			if at = e.b; !e.send(at, b) {
				return false
			}
		}
		if p.Sum == kernel.AddLower {
			if !e.run(kind, e.c, e.a, at, p.Rows, p.Cols, part, p.Cols, 2) {
				return false
			}
			continue
		}
		if !e.run(kind, e.d, e.a, at, p.Rows, p.Cols, part, p.Cols, 0) {
			return false
		}
		count := uint64(n)
		arguments := []unsafe.Pointer{unsafe.Pointer(&e.c.at), unsafe.Pointer(&e.d.at), unsafe.Pointer(&count)}
		if !e.do("cuLaunchKernel", e.driver.launch(e.kernels[sum], uint32((n+255)/256), 1, 1, 256, 1, 1, 0, 0, unsafe.Pointer(&arguments[0]), nil)) {
			return false
		}
	}
	return e.receive(p.Dst, e.c, p.Rows, p.Cols, p.Stride)
}

// send copies values to the card.
func (e *Engine) send(to buffer, x []float32) bool {
	return e.do("cuMemcpyHtoD", e.driver.toDevice(to.at, unsafe.Pointer(&x[0]), 4*uint64(len(x))))
}

// receive copies a result [rows, cols] from the card, when it is finished. dst is written only if everything before went well.
func (e *Engine) receive(dst []float32, from buffer, rows, cols, stride int) bool {
	if !e.do("cuCtxSynchronize", e.driver.synchronize()) {
		return false
	}
	n := rows * cols
	whole := dst
	if stride != cols {
		if cap(e.host) < n {
			e.host = make([]float32, n)
		}
		whole = e.host[:n]
	}
	if !e.do("cuMemcpyDtoH", e.driver.toHost(unsafe.Pointer(&whole[:n][0]), from.at, 4*uint64(n))) {
		return false
	}
	if stride != cols {
		for i := range rows {
			copy(dst[i*stride:][:cols], whole[i*cols:])
		}
	}
	return true
}

// run starts a kernel.
func (e *Engine) run(kind int, dst, a, b buffer, rows, cols int, part kernel.Part, stride, mode int) bool {
	var v [7]int32
	for i, x := range []int{rows, cols, part.K, stride, part.A.Stride, part.B.Stride, mode} {
		v[i] = int32(x)
	}
	arguments := []unsafe.Pointer{unsafe.Pointer(&dst.at), unsafe.Pointer(&a.at), unsafe.Pointer(&b.at)}
	for i := range v {
		arguments = append(arguments, unsafe.Pointer(&v[i]))
	}
	const tile = 128
	return e.do("cuLaunchKernel", e.driver.launch(e.kernels[kind], uint32((cols+tile-1)/tile), uint32((rows+tile-1)/tile), 1, 256, 1, 1, 0, 0,
		unsafe.Pointer(&arguments[0]), nil))
}
