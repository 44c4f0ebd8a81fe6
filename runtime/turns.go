package runtime

import (
	"context"
	"sync/atomic"

	"golang.org/x/sync/semaphore"
)

// Turns makes sessions compute one after another, a token or a piece of a prompt at a time, in the order in which they ask.
// Sessions that compute at once would divide the processors' caches and wait for each other's threads.
type Turns struct {
	one     *semaphore.Weighted
	waiting atomic.Int64
}

// NewTurns returns turns that nobody has.
func NewTurns() *Turns { return &Turns{one: semaphore.NewWeighted(1)} }

// Pieces of a prompt, in tokens. A session alone takes large ones, because matrix products of many rows are faster; while
// others wait, small ones, so that their answers keep flowing. Multiples of pieceGroup have the results of the whole
// prompt: see the groups of backends/cpu.
const (
	pieceGroup  = 24
	pieceAlone  = 20 * pieceGroup
	pieceShared = 2 * pieceGroup
)

// piece is how many tokens of a prompt the next turn takes.
func (t *Turns) piece() int {
	if t.waiting.Load() > 0 {
		return pieceShared
	}
	return pieceAlone
}

// take waits for a turn.
func (t *Turns) take(ctx context.Context) error {
	t.waiting.Add(1)
	defer t.waiting.Add(-1)
	if t.one.Acquire(ctx, 1) != nil {
		return context.Cause(ctx)
	}
	return nil
}

// give ends the turn.
func (t *Turns) give() { t.one.Release(1) }
