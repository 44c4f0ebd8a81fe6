package forward

import (
	"sync"

	"github.com/llmexport/llmexport/runtime/kernel"
)

// arena is the memory of passes, which use it again: new memory would have to be cleared first. Its content is arbitrary.
type arena struct {
	floats []float32 // of a pass that needs a known amount

	kept [][]float32 // pieces, for a pass that keeps values for gradients
	next int         // index of the piece that follows the one in use
	rest []float32   // of the piece in use
	size int         // of all pieces
}

// stayingArenas is how many arenas of at most stayingFloats values stay while nothing uses them: 512 MiB each.
const stayingArenas, stayingFloats = 2, 1 << 27

// arenas is a pool of arenas, some of which stay: clearing new memory takes as long as a layer of a small model on a device.
type arenas struct {
	sync.Pool
	lock    sync.Mutex
	staying []*arena
}

// Get is that of [sync.Pool].
func (p *arenas) Get() any {
	p.lock.Lock()
	defer p.lock.Unlock()
	last := len(p.staying) - 1
	if last < 0 {
		return p.Pool.Get()
	}
	a := p.staying[last]
	p.staying = p.staying[:last]
	return a
}

// Put is that of [sync.Pool].
func (p *arenas) Put(a *arena) {
	p.lock.Lock()
	defer p.lock.Unlock()
	if len(p.staying) < stayingArenas && len(a.floats)+a.size <= stayingFloats {
		p.staying = append(p.staying, a)
		return
	}
	p.Pool.Put(a)
}

// Sizes of pieces: a piece is as large as all before it, within these bounds, or as large as what is taken.
const smallestPiece, largestPiece = 1 << 12, 1 << 22

// take returns n values that are valid until reset.
func (a *arena) take(n int) []float32 {
	for len(a.rest) < n {
		if a.next == len(a.kept) {
			piece := max(n, min(max(a.size, smallestPiece), largestPiece))
			a.kept, a.size = append(a.kept, kernel.Scratch(piece)), a.size+piece
		}
		a.rest = a.kept[a.next]
		a.next++
	}
	x := a.rest[:n:n]
	a.rest = a.rest[n:]
	return x
}

// reset lets take return the same memory again.
func (a *arena) reset() { a.next, a.rest = 0, nil }
