package cuda

import (
	"github.com/llmexport/llmexport/runtime/kernel"
)

// buffer is memory of the card.
type buffer struct{ at, size uint64 }

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

// scratch are the buffers that every product uses.
func (e *Engine) scratch() []*buffer { return []*buffer{&e.a, &e.b, &e.c, &e.raw, &e.part} }

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
	if e.resident != nil {
		need += e.resident.memory.size
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
	if rc := e.driver.alloc(&b.at, n); rc == outOfMemory { // another program took it
		b.at = 0
		return false
	} else if !e.do("cuMemAlloc", rc) {
		return false
	}
	b.size = n
	return true
}

// release gives memory back, when products that use it are finished. That of a card that failed is left to the end of the program.
func (e *Engine) release(b *buffer) {
	if b.at != 0 && e.failed == nil && e.do("cuEventSynchronize", e.driver.await(e.done)) {
		e.do("cuMemFree", e.driver.free(b.at))
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
	if at := e.kept[f.Version]; at != nil {
		at.used = e.spent.Products
		return at.buffer, at.size == size
	}
	b, ok := e.more(size)
	if !ok || !e.bring(b.at, f, rows, k) {
		e.release(&b)
		return buffer{}, false
	}
	e.kept[f.Version] = &kept{b, e.spent.Products}
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
