package cuda

import (
	goruntime "runtime"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/llmexport/llmexport/runtime/kernel"
)

// pinnedLeast is the size of memory, in bytes, below which pinning it costs more than it saves.
const pinnedLeast = 1 << 20

// everyCard is a flag: memory is pinned for all cards of this program.
const everyCard = 1

// pins is memory of this program that the driver has pinned, so that pieces travel from and to it without a copy between. Engines share it.
type pins struct {
	mu      sync.RWMutex
	list    [][]float32
	refused bool           // the driver would not pin some
	going   sync.WaitGroup // memory that is being pinned
}

// has reports whether all of x is pinned.
func (p *pins) has(x []float32) bool {
	if 4*len(x) < pinnedLeast/16 { // a copy costs less than looking
		return false
	}
	p.mu.RLock()
	defer p.mu.RUnlock()
	return slices.ContainsFunc(p.list, func(of []float32) bool {
		first, at := uintptr(unsafe.Pointer(&of[0])), uintptr(unsafe.Pointer(&x[0]))
		return first <= at && at+4*uintptr(len(x)) <= first+4*uintptr(len(of))
	})
}

// Pin implements [kernel.Pinner]. Pinning takes long, so it goes on after the return: until it is done, and where the
// driver does not pin memory, pieces are copied.
func (e *Engine) Pin(x []float32) (unpin func()) {
	if 4*len(x) < pinnedLeast {
		return func() {}
	}
	// New memory has no pages yet: the system makes them when they are written, here by all threads, and by a single one where the driver pins them.
	const page = 1 << 10
	kernel.Parallel(0, (len(x)+page-1)/page, func(i, end int) {
		for ; i < end; i++ {
			atomic.AddUint32((*uint32)(unsafe.Pointer(&x[i*page])), 0)
		}
	})
	p, pinned := e.pins, make(chan bool, 1)
	p.going.Go(func() { pinned <- p.pin(e, x) })
	return func() {
		if <-pinned {
			p.unpin(e, x)
		}
	}
}

// pin lets the driver pin memory, and reports whether it did.
func (p *pins) pin(e *Engine, x []float32) bool {
	p.mu.RLock()
	refused := p.refused
	p.mu.RUnlock()
	if refused {
		return false
	}
	goruntime.LockOSThread()
	defer goruntime.UnlockOSThread()
	done := e.driver.setCurrent(e.context) == 0 && e.driver.pinHost(unsafe.Pointer(&x[0]), 4*uint64(len(x)), everyCard) == 0
	p.mu.Lock()
	defer p.mu.Unlock()
	if !done {
		p.refused = true
		return false
	}
	p.list = append(p.list, x)
	return true
}

// unpin ends that.
func (p *pins) unpin(e *Engine, x []float32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.list = slices.DeleteFunc(p.list, func(of []float32) bool { return &of[0] == &x[0] })
	goruntime.LockOSThread()
	defer goruntime.UnlockOSThread()
	if e.driver.setCurrent(e.context) == 0 {
		e.driver.unpinHost(unsafe.Pointer(&x[0]))
	}
}

// Pin implements [kernel.Pinner].
func (g *Group) Pin(x []float32) (unpin func()) { return g.cards[0].Pin(x) }
