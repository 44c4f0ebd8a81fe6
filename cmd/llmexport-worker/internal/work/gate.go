package work

import (
	"context"
	"sync"
	"time"

	"go.temporal.io/sdk/worker"
)

// gate keeps a machine whose disk is full away from new tasks for a while, so that others take them. It stays closed longer each
// time; a task that ends well opens it for good. The zero value is open.
type gate struct {
	mu     sync.Mutex
	until  time.Time
	streak int
	opened chan struct{} // closed when the gate opens before its time; nil while it is open
}

// firstClosed and mostClosed are how long the gate stays closed at first and at most.
const firstClosed, mostClosed = 30 * time.Second, 16 * time.Minute

// shut closes the gate and returns for how long.
func (g *gate) shut(now time.Time) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	d := mostClosed
	if shift := g.streak; shift < 5 {
		d = firstClosed << shift
	}
	g.streak++
	g.until = now.Add(d)
	if g.opened == nil {
		g.opened = make(chan struct{})
	}
	return d
}

// open opens the gate.
func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.opened != nil {
		close(g.opened)
	}
	g.until, g.streak, g.opened = time.Time{}, 0, nil
}

// closed returns for how long the gate will stay closed, 0 if it is open, and a channel that ends the wait.
func (g *gate) closed(now time.Time) (time.Duration, <-chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return max(0, g.until.Sub(now)), g.opened
}

// gated is a supplier of slots for tasks behind a gate.
type gated struct {
	worker.SlotSupplier
	gate *gate
}

// ReserveSlot implements worker.SlotSupplier.
func (s gated) ReserveSlot(ctx context.Context, info worker.SlotReservationInfo) (*worker.SlotPermit, error) {
	for {
		d, opened := s.gate.closed(time.Now())
		if d == 0 {
			return s.SlotSupplier.ReserveSlot(ctx, info)
		}
		t := time.NewTimer(d)
		select {
		case <-t.C:
		case <-opened:
			t.Stop()
		case <-ctx.Done():
			t.Stop()
			return nil, ctx.Err()
		}
	}
}

// TryReserveSlot implements worker.SlotSupplier.
func (s gated) TryReserveSlot(info worker.SlotReservationInfo) *worker.SlotPermit {
	if d, _ := s.gate.closed(time.Now()); d > 0 {
		return nil
	}
	return s.SlotSupplier.TryReserveSlot(info)
}

// slots supplies n slots behind a gate. The worker runs nothing but tasks, so the other kinds get one each.
func slots(n int, g *gate) (worker.WorkerTuner, error) {
	supplier, err := worker.NewFixedSizeSlotSupplier(n)
	if err != nil {
		return nil, err
	}
	o := worker.CompositeTunerOptions{ActivitySlotSupplier: gated{supplier, g}}
	others := []*worker.SlotSupplier{&o.WorkflowSlotSupplier, &o.LocalActivitySlotSupplier, &o.NexusSlotSupplier, &o.SessionActivitySlotSupplier}
	for _, s := range others {
		if *s, err = worker.NewFixedSizeSlotSupplier(1); err != nil {
			return nil, err
		}
	}
	return worker.NewCompositeTuner(o)
}
