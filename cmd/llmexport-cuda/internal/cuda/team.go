package cuda

import (
	goruntime "runtime"
	"sync"

	"github.com/llmexport/llmexport/runtime/kernel"
)

const (
	// teamMost is the most engines that share a card in addition to its own, teamMemory the least memory of the card that is worth another one.
	teamMost, teamMemory = 8, 512 << 20
	// teamSlot is the size of a slot of such an engine after the first, see slotBytes; teamStale is less than staleWork, as each has few factors in use.
	teamSlot, teamStale = 4 << 20, 128
)

// team shares a card among goroutines whose work has nothing in common, see [kernel.Apart]: each of its engines has streams and memory of its own,
// so that the card computes for one while others copy, or wait for this CPU.
type team struct {
	mu       sync.Mutex
	all      []*Engine          // the first is the card's own
	working  int                // how many of them are used
	sharers  int                // calls of Apart in progress
	given    map[*Engine]int    // pieces of work
	versions map[uint64]*Engine // that have factors, while more than one works
	sums     map[*float32]*Engine
}

func newTeam(own *Engine) *team {
	return &team{all: []*Engine{own}, working: 1, given: map[*Engine]int{}, versions: map[uint64]*Engine{}, sums: map[*float32]*Engine{}}
}

// Apart implements [kernel.Shared].
func (e *Engine) Apart(n int) {
	t := e.team
	t.mu.Lock()
	defer t.mu.Unlock()
	if n > 1 {
		if t.sharers++; t.sharers == 1 {
			t.part(n - 1)
		}
	} else if t.sharers--; t.sharers == 0 && t.working > 1 {
		t.join()
	}
}

// part makes up to n engines work in addition to the card's own, which gives them half of its memory. What they have while they do not work,
// regions and sums, is not the own engine's.
func (t *team) part(n int) {
	own := t.all[0]
	own.mu.Lock()
	defer own.mu.Unlock()
	defer goruntime.UnlockOSThread()
	if n = min(n, teamMost, int(own.limit/2/teamMemory)); n == 0 || !own.enter() || own.failed != nil {
		return
	}
	for len(t.all) <= n {
		other, err := own.another()
		if err != nil {
			n = len(t.all) - 1
			break
		}
		t.all = append(t.all, other)
	}
	if n == 0 {
		return
	}
	for _, other := range t.all[1 : n+1] {
		own.limit += other.given
	}
	memory := own.limit / 2 / uint64(n)
	own.limit -= uint64(n) * memory
	own.shrink()
	threads := own.threads
	if n > 1 {
		threads = max(1, goruntime.GOMAXPROCS(0)/(n+1))
	}
	for _, other := range t.all[1 : n+1] {
		other.limit, other.least, other.threads = memory, own.least, threads
	}
	t.working = n + 1
}

// join lets the card's own engine work alone. Sums that others have stay there, as regions do.
func (t *team) join() {
	back := uint64(0)
	for _, other := range t.all[1:t.working] {
		func() {
			other.mu.Lock()
			defer other.mu.Unlock()
			defer goruntime.UnlockOSThread()
			if other.enter() {
				other.empty()
			}
			back += other.limit - min(other.given, other.limit)
		}()
	}
	own := t.all[0]
	own.mu.Lock()
	defer own.mu.Unlock()
	own.limit += back
	t.working = 1
	clear(t.versions)
}

// shrink gives the driver what is beyond the limit.
func (e *Engine) shrink() {
	need := uint64(0)
	for _, b := range e.scratch() {
		need += b.size
	}
	if !e.within(need) {
		e.empty()
	}
}

// empty gives the driver all memory but that of results that stay, and of work that goes on.
func (e *Engine) empty() {
	for _, k := range e.kept.of {
		if k.uses == 0 {
			e.forget(k)
		}
	}
	for _, b := range e.scratch() {
		e.release(b)
	}
	e.inA = 0
	e.drain()
}

// another is an engine on the same card.
func (e *Engine) another() (*Engine, error) {
	a := newEngine(e.card, e.driver)
	a.context, a.kernels, a.added, a.mostAdded, a.naming = e.context, e.kernels, e.added, e.mostAdded, e.naming
	a.busy, a.piece, a.slot, a.wide, a.stale, a.pins, a.moving = e.busy, e.piece, e.slot, e.wide, teamStale, e.pins, e.moving
	if a.waits = e.waits; len(e.team.all) > 1 { // those after the first, which are many
		a.slot, a.waits = min(e.slot, teamSlot), withoutTiming|asleep
	}
	return a, a.open()
}

// give chooses an engine for work: the one that has what it needs, or the one with the least to do; nil if no engine has all of that.
func (t *team) give(w kernel.Work) *Engine {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.find(w)
	if e != nil {
		t.given[e]++
	}
	return e
}

// taken counts work that is done.
func (t *team) taken(e *Engine) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.given[e]--
}

// find is the engine that give chooses.
func (t *team) find(w kernel.Work) *Engine {
	var version uint64
	switch w := w.(type) {
	case *kernel.Product:
		if w.Sum != kernel.Write {
			return t.sum(w)
		}
		version = w.Parts[0].B.Version
	case *kernel.Feedback:
		version = w.Factor.Version
	case *kernel.Feedbacks:
		if len(w.Of) > 0 {
			version = w.Of[0].Factor.Version
		}
	case *kernel.Descent:
		version = w.Hessian.Version
	case *kernel.Factoring:
		version = w.Version
	case *kernel.Chain:
		for _, x := range w.Moments { // are added to where the rest is done
			if e := t.sums[&x.Dst[0]]; e != nil && e != t.all[0] {
				return nil
			}
		}
		for _, x := range w.Moments {
			t.sums[&x.Dst[0]] = t.all[0]
		}
		return t.all[0]
	default: // needs all of the card, or what its own engine has
		return t.all[0]
	}
	if t.working == 1 {
		return t.all[0]
	}
	e := t.versions[version]
	if e == nil {
		e = t.idlest()
	}
	if version != 0 {
		t.versions[version] = e
	}
	return e
}

// sum is the engine for a product that is added to a result.
func (t *team) sum(p *kernel.Product) *Engine {
	dst := &p.Dst[0]
	e := t.sums[dst]
	if e == nil {
		e = t.idlest()
	}
	if p.Stay {
		t.sums[dst] = e
	}
	return e
}

// idlest is the engine with the least to do, the card's own last of all: it has other work, too.
func (t *team) idlest() *Engine {
	e := t.all[t.working-1]
	for _, other := range t.all[:t.working-1] {
		if t.given[other] < t.given[e] {
			e = other
		}
	}
	return e
}

// home takes a result that stays from the engine that has it.
func (t *team) home(dst []float32) *Engine {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(dst) == 0 || t.sums[&dst[0]] == nil {
		return t.all[0]
	}
	e := t.sums[&dst[0]]
	delete(t.sums, &dst[0])
	return e
}

// engines are all, also those that do not work now.
func (t *team) engines() []*Engine {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.all[:len(t.all):len(t.all)]
}
