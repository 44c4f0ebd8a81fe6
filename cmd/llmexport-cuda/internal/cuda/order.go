package cuda

import (
	"sync/atomic"
	"time"

	"github.com/llmexport/llmexport/runtime/kernel"
)

// quietPerMultiplication times the multiplications of work that gives way is how long no other work has come when it may begin, about half of the time
// that it takes: between two pieces of other work the CPU may do something.
const quietPerMultiplication = 25e-15 * float64(time.Second)

// order lets work that gives way wait for other work.
type order struct {
	others atomic.Int32 // unfinished work that does not give way
	apart  atomic.Int32 // what of that leaves the card to others: while rows move
	last   atomic.Int64 // when some of it ended, in nanoseconds since the epoch
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
	for quiet := time.Duration(float64(w.Multiplications()) * quietPerMultiplication); !o.free(quiet); {
		time.Sleep(min(time.Millisecond, max(quiet/8, 20*time.Microsecond)))
	}
	return func() {}
}

// free reports whether work that gives way may begin: other work leaves the card to it, or none has come for a while.
func (o *order) free(quiet time.Duration) bool {
	apart := o.apart.Load()
	if o.others.Load() > apart {
		return false
	}
	return apart > 0 || time.Since(time.Unix(0, o.last.Load())) > quiet
}

// leave calls f, while work leaves the card to others.
func (o *order) leave(f func()) {
	o.apart.Add(1)
	defer o.apart.Add(-1)
	f()
}

// aside calls f, which changes nothing of the engine, while others use it.
func (e *Engine) aside(f func()) {
	e.mu.Unlock()
	defer e.mu.Lock()
	e.order.leave(f)
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
