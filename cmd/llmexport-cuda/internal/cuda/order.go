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
