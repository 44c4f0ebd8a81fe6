package cuda

import (
	"sync/atomic"
	"time"

	"github.com/llmexport/llmexport/runtime/kernel"
)

// quiet is how long no other work has come when work that gives way may begin: the CPU may do something between two pieces of other work, and a
// piece of this is long.
const quiet = 20 * time.Millisecond

// order lets work that gives way wait for other work.
type order struct {
	others atomic.Int32 // pieces of work that do not give way and have not ended
	apart  atomic.Int32 // those of them that leave the card to others: while rows move
	last   atomic.Int64 // when one of them ended, in nanoseconds since the epoch
}

// begin returns when a piece of work may begin, and what to call at its end.
func (o *order) begin(w kernel.Work) (end func()) {
	if !givesWay(w) {
		o.others.Add(1)
		return func() {
			o.last.Store(time.Now().UnixNano())
			o.others.Add(-1)
		}
	}
	for !o.free() {
		time.Sleep(time.Millisecond)
	}
	return func() {}
}

// free reports whether work that gives way may begin.
func (o *order) free() bool {
	apart := o.apart.Load()
	if o.others.Load() > apart {
		return false
	}
	return apart > 0 || time.Since(time.Unix(0, o.last.Load())) > quiet
}

// leave counts work that leaves the card to others until the function is called that it returns.
func (o *order) leave() (end func()) {
	o.apart.Add(1)
	return func() { o.apart.Add(-1) }
}

func givesWay(w kernel.Work) bool {
	switch w := w.(type) {
	case *kernel.Product:
		return w.GivesWay
	case *kernel.Chain:
		return w.GivesWay
	}
	return false
}
