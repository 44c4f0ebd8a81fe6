package cuda

import (
	"math/bits"

	"github.com/llmexport/llmexport/runtime/kernel"
)

// buffer is memory of the card.
type buffer struct{ at, size uint64 }

// staleWork is after how much other work a factor is hardly used again, and gives its memory to another one.
const staleWork = 2048

// sizeOf is the size of a buffer for n bytes: one of eight between powers of two, so that others find it of use, or of more for more than 512 MiB.
func sizeOf(n uint64) uint64 {
	n = max(n, 256)
	step := min(64<<20, uint64(1)<<(bits.Len64(n-1)-4))
	return (n + step - 1) / step * step
}

// held is a result that stays on the card.
type held struct {
	buffer
	dst []float32 // is not collected meanwhile
}

// scratch are the buffers that every product uses.
func (e *Engine) scratch() []*buffer { return []*buffer{&e.a, &e.b, &e.c, &e.raw, &e.part} }

// room makes the buffers at least so large. It reports false if the limit does not allow that.
func (e *Engine) room(sizes map[*buffer]uint64) bool {
	need, least := uint64(0), uint64(0)
	for _, b := range e.scratch() {
		if sizes[b] > 0 {
			least += sizeOf(sizes[b])
		}
		need += max(b.size, sizeOf(sizes[b]))
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

// within gives up memory that waits to be used again, and factors that other products used, those used least recently first, until so many
// bytes of other buffers are within the limit, and reports whether they are.
func (e *Engine) within(need uint64) bool {
	if need+e.used()+e.idleBytes() > e.limit {
		e.drain()
	}
	for need+e.used() > e.limit {
		oldest := e.kept.oldest(e.spent.Products, func(b buffer) bool { return !e.cuts.has(b.at) })
		if oldest == nil {
			return false
		}
		e.forget(oldest)
		e.drain()
	}
	return true
}

// used is the bytes of all buffers but those of the products at hand, and of what regions have besides.
func (e *Engine) used() (n uint64) {
	for _, h := range e.held {
		n += h.size
	}
	if e.resident != nil {
		n += e.resident.memory.size
	}
	return n + e.kept.size + e.passing.size + e.taken + e.turns.size + e.cuts.spare()
}

// idleBytes is the size of the memory that waits to be used again, and can be given to the driver.
func (e *Engine) idleBytes() (n uint64) {
	for size, list := range e.idle {
		n += size * uint64(len(list))
	}
	return n - e.cuts.idle
}

// drain gives memory that waits to be used again to the driver, but that of regions.
func (e *Engine) drain() {
	for size, list := range e.idle {
		var left []uint64
		for _, at := range list {
			if e.cuts.has(at) {
				left = append(left, at)
			} else if e.failed == nil {
				e.do("cuMemFree", e.driver.free(at))
				e.given -= size
			}
		}
		if e.idle[size] = left; len(left) == 0 {
			delete(e.idle, size)
		}
	}
}

// more makes a buffer besides those of all products, if the limit allows that.
func (e *Engine) more(n uint64) (b buffer, ok bool) {
	size := sizeOf(n)
	if len(e.idle[size]) == 0 {
		if k := e.kept.oldest(e.spent.Products-e.stale, func(b buffer) bool { return b.size == size }); k != nil {
			e.forget(k)
		}
	}
	if len(e.idle[size]) > 0 {
		return b, e.allocate(&b, n)
	}
	need := size
	for _, s := range e.scratch() {
		need += s.size
	}
	return b, e.within(need) && e.allocate(&b, n)
}

// meanwhile makes a buffer for work that goes on with other work, and buffers of other sizes for its beginning. The caller gives it up with giveUp.
func (e *Engine) meanwhile(n uint64, others map[*buffer]uint64) (b buffer, ok bool) {
	for range 2 {
		if b, ok = e.more(n); ok {
			if e.taken += b.size; e.room(others) {
				return b, true
			}
			e.giveUp(&b)
		}
		for _, s := range e.scratch() { // what this work needs may be less
			e.release(s)
		}
		e.inA = 0
	}
	return b, false
}

func (e *Engine) giveUp(b *buffer) {
	e.taken -= b.size
	e.release(b)
}

// allocate makes a buffer for n bytes: of memory that waits to be used again, as asking the driver takes longer than most products.
func (e *Engine) allocate(b *buffer, n uint64) bool {
	b.size = sizeOf(n)
	if list := e.idle[b.size]; len(list) > 0 {
		b.at, e.idle[b.size] = list[len(list)-1], list[:len(list)-1]
		if e.cuts.has(b.at) {
			e.cuts.idle -= b.size
		}
		return true
	}
	if e.cut(b) {
		return true
	}
	if e.failed != nil {
		*b = buffer{}
		return false
	}
	if e.given+b.size > e.limit { // what a larger buffer has replaced waits, too
		e.drain()
	}
	rc := e.driver.alloc(&b.at, b.size)
	if rc == outOfMemory {
		e.drain()
		rc = e.driver.alloc(&b.at, b.size)
	}
	if rc == outOfMemory || !e.do("cuMemAlloc", rc) { // another program took it
		*b = buffer{}
		return false
	}
	e.given += b.size
	return true
}

// release lets memory wait to be used again, when products that use it are finished. That of a card that failed is left to the end of the program.
func (e *Engine) release(b *buffer) {
	if b.at != 0 && e.failed == nil && e.do("cuEventSynchronize", e.driver.await(e.done)) {
		e.idle[b.size] = append(e.idle[b.size], b.at)
		if e.cuts.has(b.at) {
			e.cuts.idle += b.size
		}
	}
	*b = buffer{}
}

// keep finds a factor on the card, or brings it there if its content has a name. It reports false if it has to be brought for this
// product alone.
func (e *Engine) keep(f kernel.Factor, rows, k int) (buffer, bool) {
	if f.Version == 0 {
		return buffer{}, false
	}
	size := bytesOf(f, rows, k)
	if k := e.kept.use(f.Version, e.spent.Products); k != nil {
		return k.buffer, k.bytes == size
	}
	b, ok := e.more(size)
	if from := e.kept.of[f.Turned]; ok && from != nil && f.Layout == kernel.ByRow && from.bytes == 4*uint64(rows)*uint64(k) && k%4 == 0 {
		ok = e.pack(e.streams[0], b.at, from.at, rows, k) && e.fence(e.streams[0])
	} else {
		ok = ok && e.bring(b.at, f, rows, k)
	}
	if !ok {
		e.release(&b)
		return buffer{}, false
	}
	e.kept.add(f.Version, b, size, e.spent.Products)
	return b, true
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
	if !ok || !e.upload(e.streams[0], b.at, values(dst)) || !e.fence(e.streams[0]) {
		e.release(&b)
		return buffer{}, false
	}
	e.held[&dst[0]] = held{b, dst}
	return b, true
}
