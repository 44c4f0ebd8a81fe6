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
	failed error             // of the first call that failed; the card is not used afterwards
	limit  uint64            // of all buffers
	piece  int               // bytes, see pieceBytes
	a, b   buffer            // factors that are not kept
	inA    uint64            // the version of what is in a, or 0
	c, d   buffer            // results, and those of a part
	kept   map[uint64]*kept  // factors by version
	held   map[*float32]held // results that stay, by their first element
	host   []float32

	spent Spent
}

// Spent is what a card has done: products, their multiplications, and bytes copied to it and from it.
type Spent struct{ Products, Multiplications, Sent, Received int64 }

// kept is a factor that is on the card for other products.
type kept struct {
	buffer
	used int64 // the product that used it last, see Spent
}

// held is a result that stays on the card.
type held struct {
	buffer
	dst []float32 // is not collected meanwhile
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
	e := &Engine{card: card, driver: d, least: leastWork, piece: pieceBytes, kept: map[uint64]*kept{}, held: map[*float32]held{}}
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

// Spent is what the card has done so far.
func (e *Engine) Spent() Spent {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.spent
}

// Multiply implements [kernel.Device].
func (e *Engine) Multiply(p *kernel.Product) bool {
	if p.Rows == 0 || p.Cols == 0 {
		return false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.multiply(p) {
		return true
	}
	_ = e.settle(p.Dst) // an error is that of the next Settle, too
	return false
}

func (e *Engine) multiply(p *kernel.Product) bool {
	work := 0
	for _, part := range p.Parts {
		if part.K == 0 {
			return false
		}
		work += p.Rows * p.Cols * part.K
	}
	kind := kindOf(p)
	if work == 0 || work < e.least || kind < 0 || e.failed != nil {
		return false
	}
	goruntime.LockOSThread()
	defer goruntime.UnlockOSThread()
	if !e.do("cuCtxSetCurrent", e.driver.setCurrent(e.context)) {
		return false
	}
	e.spent.Products++
	if done := p.Sum == kernel.Write && e.write(p, kind) || p.Sum != kernel.Write && e.add(p, kind); !done {
		e.spent.Products--
		return false
	}
	e.spent.Multiplications += int64(work)
	return true
}

// Settle implements [kernel.Device].
func (e *Engine) Settle(dst []float32) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.settle(dst)
}

func (e *Engine) settle(dst []float32) error {
	if len(dst) == 0 {
		return nil
	}
	h, ok := e.held[&dst[0]]
	if !ok {
		return nil
	}
	goruntime.LockOSThread()
	defer goruntime.UnlockOSThread()
	if e.failed == nil && e.do("cuCtxSetCurrent", e.driver.setCurrent(e.context)) && e.receive(h.dst, h.buffer, 1, len(h.dst), len(h.dst)) {
		delete(e.held, &dst[0])
		e.release(&h.buffer)
		return nil
	}
	return fmt.Errorf("sums that only the card had are lost, run again to go on after the last finished matrix: %w", e.failed)
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

// scratch are the buffers that every product uses.
func (e *Engine) scratch() []*buffer { return []*buffer{&e.a, &e.b, &e.c, &e.d} }

// room makes the buffers at least so large. It reports false if the limit does not allow that.
func (e *Engine) room(sizes map[*buffer]uint64) bool {
	need, least := uint64(0), uint64(0)
	for _, b := range e.scratch() {
		need += max(b.size, sizes[b])
		least += sizes[b]
	}
	if !e.within(need) { // only what this product needs
		if !e.within(least) {
			return false
		}
		for _, b := range e.scratch() {
			e.release(b)
		}
		e.inA = 0
	}
	for b, n := range sizes {
		if b.size >= n {
			continue
		}
		if b == &e.a {
			e.inA = 0
		}
		e.release(b)
		if !e.allocate(b, n) {
			return false
		}
	}
	return true
}

// within gives factors up that other products used, those used least recently first, until so many bytes of other buffers are within
// the limit, and reports whether they are.
func (e *Engine) within(need uint64) bool {
	for _, h := range e.held {
		need += h.size
	}
	for _, k := range e.kept {
		need += k.size
	}
	for need > e.limit {
		oldest := uint64(0)
		for version, k := range e.kept {
			if k.used != e.spent.Products && (oldest == 0 || k.used < e.kept[oldest].used) {
				oldest = version
			}
		}
		if oldest == 0 {
			return false
		}
		need -= e.kept[oldest].size
		e.release(&e.kept[oldest].buffer)
		delete(e.kept, oldest)
	}
	return true
}

// more makes a buffer besides those of all products, if the limit allows that.
func (e *Engine) more(n uint64) (b buffer, ok bool) {
	need := n
	for _, s := range e.scratch() {
		need += s.size
	}
	return b, e.within(need) && e.allocate(&b, n)
}

func (e *Engine) allocate(b *buffer, n uint64) bool {
	if rc := e.driver.alloc(&b.at, n); rc == 2 { // another program took the memory
		b.at = 0
		return false
	} else if !e.do("cuMemAlloc", rc) {
		return false
	}
	b.size = n
	return true
}

func (e *Engine) release(b *buffer) {
	if b.at != 0 {
		e.do("cuMemFree", e.driver.free(b.at))
	}
	*b = buffer{}
}

// keep finds a factor of n values on the card, or brings it there if its content has a name. It reports false if it has to be brought
// for this product alone.
func (e *Engine) keep(f kernel.Factor, n int) (buffer, bool) {
	size := 4 * uint64(n)
	if f.Version == 0 {
		return buffer{}, false
	}
	if k := e.kept[f.Version]; k != nil {
		k.used = e.spent.Products
		return k.buffer, k.size == size
	}
	b, ok := e.more(size)
	if !ok || !e.send(b, f.Data[:n]) {
		e.release(&b)
		return buffer{}, false
	}
	e.kept[f.Version] = &kept{b, e.spent.Products}
	return b, true
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
	sizes := map[*buffer]uint64{&e.a: 4 * uint64(extent(part.A, step, part.K)), &e.c: 4 * uint64(step*p.Cols)}
	b, ok := e.keep(part.B, nb)
	if !ok {
		sizes[&e.b] = 4 * uint64(nb)
	}
	if e.failed != nil || !e.room(sizes) {
		return false
	}
	if !ok {
		if b = e.b; !e.send(b, part.B.Data[:nb]) {
			return false
		}
	}
	for i := 0; i < p.Rows; i += step {
		rows, version := min(step, p.Rows-i), part.A.Version
		if rows < p.Rows {
			version = 0
		}
		if version == 0 || version != e.inA {
			e.inA = 0
			if !e.send(e.a, part.A.Data[i*part.A.Stride:][:extent(part.A, rows, part.K)]) {
				return false
			}
			e.inA = version
		}
		if !e.run(kind, e.c, e.a, b, rows, p.Cols, part, p.Cols, 0) || !e.receive(p.Dst[i*p.Stride:], e.c, rows, p.Cols, p.Stride) {
			return false
		}
	}
	return true
}

// stay finds the result of a product on the card, or brings it there if it may stay. It reports false if it has to be brought for
// this product alone.
func (e *Engine) stay(p *kernel.Product) (buffer, bool) {
	dst := p.Dst[:p.Rows*p.Cols]
	if h, ok := e.held[&dst[0]]; ok {
		return h.buffer, true
	}
	if !p.Stay {
		return buffer{}, false
	}
	b, ok := e.more(4 * uint64(len(dst)))
	if !ok || !e.send(b, dst) {
		e.release(&b)
		return buffer{}, false
	}
	e.held[&dst[0]] = held{b, dst}
	return b, true
}

// add adds products of parts to a result, which is on the card meanwhile.
func (e *Engine) add(p *kernel.Product, kind int) bool {
	if p.Stride != p.Cols {
		return false
	}
	n, c := p.Rows*p.Cols, buffer{}
	sizes := map[*buffer]uint64{&e.a: 0, &e.b: 0}
	for _, part := range p.Parts {
		sizes[&e.a] = max(sizes[&e.a], 4*uint64(extent(part.A, p.Rows, part.K)))
		sizes[&e.b] = max(sizes[&e.b], 4*uint64(extent(part.B, p.Cols, part.K)))
	}
	if p.Sum == kernel.AddParts {
		sizes[&e.d] = 4 * uint64(n)
	}
	c, stays := e.stay(p)
	if !stays {
		sizes[&e.c] = 4 * uint64(n)
	}
	if e.failed != nil || !e.room(sizes) {
		return false
	}
	if !stays {
		if c = e.c; !e.send(c, p.Dst[:n]) {
			return false
		}
	}
	e.inA = 0
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
			if !e.run(kind, c, e.a, at, p.Rows, p.Cols, part, p.Cols, 2) {
				return false
			}
			continue
		}
		if !e.run(kind, e.d, e.a, at, p.Rows, p.Cols, part, p.Cols, 0) {
			return false
		}
		count := uint64(n)
		arguments := []unsafe.Pointer{unsafe.Pointer(&c.at), unsafe.Pointer(&e.d.at), unsafe.Pointer(&count)}
		if !e.do("cuLaunchKernel", e.driver.launch(e.kernels[sum], uint32((n+255)/256), 1, 1, 256, 1, 1, 0, 0, unsafe.Pointer(&arguments[0]), nil)) {
			return false
		}
	}
	return stays || e.receive(p.Dst, c, p.Rows, p.Cols, p.Stride)
}

// send copies values to the card.
func (e *Engine) send(to buffer, x []float32) bool {
	e.spent.Sent += 4 * int64(len(x))
	return e.do("cuMemcpyHtoD", e.driver.toDevice(to.at, unsafe.Pointer(&x[0]), 4*uint64(len(x))))
}

// receive copies a result [rows, cols] from the card, when it is finished. dst is written only if everything before went well.
func (e *Engine) receive(dst []float32, from buffer, rows, cols, stride int) bool {
	if !e.do("cuCtxSynchronize", e.driver.synchronize()) {
		return false
	}
	n := rows * cols
	e.spent.Received += 4 * int64(n)
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
