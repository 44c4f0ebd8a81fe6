// Package cuda computes large float32 products, and what package quant does with them, on a card of NVIDIA, with the bits of the CPU. The
// driver is loaded when the program runs; nothing else of CUDA is needed.
package cuda

import (
	"cmp"
	_ "embed"
	"fmt"
	"os"
	goruntime "runtime"
	"sync"

	"github.com/llmexport/llmexport/runtime/kernel"
)

//go:embed kernels/kernels.ptx
var ptx []byte

const (
	// leastMajor is the compute capability that the code is compiled for.
	leastMajor = 8
	// leastMemory is the least free memory of a card that is worth using.
	leastMemory = 2 << 30
	// reserve is memory of a card that is left to the driver and to other programs.
	reserve = 512 << 20
	// DriverMemory is more than the driver and the kernels take on a card besides what a [Engine.Bound] holds: 545 MiB of an H200.
	DriverMemory = 576 << 20
	// leastWork is the number of multiplications below which copying costs more than the product.
	leastWork = 1 << 26
	// pieceBytes bounds the rows of a product that are on the card at a time.
	pieceBytes = 1 << 30
	// outOfMemory is what the driver says then.
	outOfMemory = 2
	// apart makes streams that wait for no other; blocks of a stream that is first begin before those of others. withoutTiming makes events that
	// only order, asleep those that a thread sleeps for.
	apart, first, withoutTiming, asleep = 1, -5, 2, 1
	// addedMemory is an attribute: how many bytes of shared memory launches of a kernel may add.
	addedMemory = 8
	// movesShared is the shared memory of the kernel that moves rows, with the square of a wide panel.
	movesShared = 48<<10 + 4*refineColumns*refineColumns
	// wholesShared is that of the attention of whole windows, and more than that of tokens, without scores, and of recurrences without a state.
	wholesShared = 20 << 10
)

// library is the file name of the driver.
func library() string {
	if name := os.Getenv("LLMEXPORT_CUDA_DRIVER"); name != "" {
		return name
	}
	return "libcuda.so.1"
}

// Engine is a card. It is a [kernel.Device].
type Engine struct {
	card    Card
	driver  *driver
	context uintptr
	kernels [len(names)]uintptr // by kind
	added   [len(names)]uint32  // bytes of shared memory that a launch adds
	least   int                 // of multiplications
	busy    int                 // see busyTiles
	crowded int                 // see crowdedRows

	mu     sync.Mutex
	failed error               // of the first call that failed; the card is not used afterwards
	limit  uint64              // of all buffers
	given  uint64              // bytes that the driver has given
	piece  int                 // bytes, see pieceBytes
	a, b   buffer              // factors that are not kept
	inA    uint64              // the version of what is in a, or 0
	raw    buffer              // rows as they come
	c      buffer              // results
	part   buffer              // the result of a part
	turns  buffer              // counters of turns, see mostTiles
	kept   stock               // factors for other products
	held   map[*float32]held   // results that stay, by their first element
	idle   map[uint64][]uint64 // memory that waits to be used again, by its size
	cuts   regions             // of memory that buffers are cut from
	wide   bool                // tiles have 256 rows

	resident  *resident  // of chains, or nil
	landed    [2]uintptr // events: the last step that used weights there is done, see resident.landing
	side      int        // the landing that was used last
	passing   buffer     // of a chain of whole windows
	mostAdded int        // bytes of shared memory that a launch of attends, wholes, queryBacks or recurrences may add

	streams  [lanes]uintptr
	feeds    []uintptr // of feedbacks that run at the same time
	courses  []course  // that are idle
	taken    uint64    // bytes of work that goes on with other work
	done     uintptr   // an event: results that stay are those of all products so far
	up, down []*slot
	pins     *pins
	traveled []uintptr // events: pieces from and to pinned memory have been copied
	unused   []uintptr // events for others
	slot     int       // bytes
	pinned   bool
	threads  int    // that copy, 0 is all
	waits    uint32 // flags of events
	stale    int64  // see staleWork
	moving   seat   // where rows move
	order    order

	spent  Spent
	proofs *proofs    // or nil
	naming *sync.Once // of the first failure
	team   *team      // nil in those of its engines that are not the card's own
}

func newEngine(card Card, d *driver) *Engine {
	return &Engine{card: card, driver: d, least: leastWork, busy: busyTiles, crowded: crowdedRows, piece: pieceBytes, slot: slotBytes,
		waits: withoutTiming, stale: staleWork, kept: newStock(), held: map[*float32]held{}, idle: map[uint64][]uint64{},
		cuts: regions{size: regionBytes}, naming: new(sync.Once), pins: new(pins)}
}

// Spent is what a card has done: products, their multiplications, and bytes copied to it and from it.
type Spent struct{ Products, Multiplications, Sent, Received int64 }

// kinds of kernels.
const (
	product128 = iota
	product256
	pack
	sum
	feed
	descend
	place
	slopes
	moves
	spread
	choose
	norms
	rotates
	attends
	gates
	wholes
	layers64
	layers128
	halves64
	halves128
	normBacks
	gammaBacks
	gateBacks
	queryBacks
	keyBacks
	divergences
	labels
	draws
	routes
	members
	inners
	outers
	innerHalves
	outerHalves
	crowds
	crowds128
	crowdHalves
	mixes
	weightBacks
	picks
	routeBacks
	sigmoids
	convolves
	recurrences
	convolveTokens
	recurrenceTokens
	aheads
)

var names = [...]string{"product128", "product256", "pack", "sum", "feed", "descend", "place", "slopes", "moves", "spread", "choose", "norms",
	"rotates", "attends", "gates", "wholes", "layers64", "layers128", "halves64", "halves128", "normBacks", "gammaBacks", "gateBacks", "queryBacks",
	"keyBacks", "divergences", "labels", "draws", "routes", "members", "inners", "outers", "innerHalves", "outerHalves", "crowds", "crowds128",
	"crowdHalves", "mixes", "weightBacks", "picks", "routeBacks", "sigmoids", "convolves", "recurrences",
	"convolveTokens", "recurrenceTokens", "aheads"}

// Open prepares card n. What is free of its memory is used, see [Engine.Bound].
func Open(n int) (*Engine, error) {
	d, err := open(library())
	if err != nil {
		return nil, err
	}
	var count int32
	if rc := d.count(&count); rc != 0 {
		return nil, failure("cuDeviceGetCount", rc)
	}
	if n >= int(count) {
		return nil, fmt.Errorf("there is no card %d, the driver finds %d", n, count)
	}
	card, handle, err := d.card(n)
	if err != nil {
		return nil, err
	}
	if err := Usable(card); err != nil {
		return nil, err
	}
	goruntime.LockOSThread() // a context is current in one thread
	defer goruntime.UnlockOSThread()
	e := newEngine(card, d)
	e.team = newTeam(e)
	if rc := d.retain(&e.context, handle); rc != 0 {
		return nil, failure("cuDevicePrimaryCtxRetain", rc)
	}
	if rc := d.setCurrent(e.context); rc != 0 {
		return nil, failure("cuCtxSetCurrent", rc)
	}
	var free, total uint64
	if rc := d.memory(&free, &total); rc != 0 {
		return nil, failure("cuMemGetInfo", rc)
	}
	if free < leastMemory {
		return nil, fmt.Errorf("%s has %d MiB of free memory, at least %d are needed", card.Name, free>>20, leastMemory>>20)
	}
	e.limit = free - reserve
	var module uintptr
	if rc := d.load(&module, &append(ptx, 0)[0]); rc != 0 {
		return nil, failure("cuModuleLoadData", rc)
	}
	for i, name := range names {
		if rc := d.function(&e.kernels[i], module, name); rc != 0 {
			return nil, failure("cuModuleGetFunction", rc)
		}
	}
	if card.Shared >= movesShared {
		e.added[moves] = 4 * refineColumns * refineColumns
		if rc := d.setFunction(e.kernels[moves], addedMemory, int32(e.added[moves])); rc != 0 {
			return nil, failure("cuFuncSetAttribute", rc)
		}
	}
	if e.mostAdded = card.Shared - wholesShared; e.mostAdded > 0 {
		for _, kind := range []int{attends, wholes, queryBacks, recurrences} {
			if rc := d.setFunction(e.kernels[kind], addedMemory, int32(e.mostAdded)); rc != 0 {
				return nil, failure("cuFuncSetAttribute", rc)
			}
		}
	}
	return e, e.open()
}

// open makes streams.
func (e *Engine) open() error {
	for i := range e.streams {
		if rc := e.driver.newStream(&e.streams[i], apart); rc != 0 {
			return failure("cuStreamCreate", rc)
		}
	}
	for _, event := range []*uintptr{&e.done, &e.landed[0], &e.landed[1]} {
		if rc := e.driver.newEvent(event, e.waits); rc != 0 {
			return failure("cuEventCreate", rc)
		}
	}
	return nil
}

// Bound makes limit bytes the most memory that is used, unless it is less already. What is on the card makes room when the next
// product needs it.
func (e *Engine) Bound(limit uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.limit = min(e.limit, limit)
}

// besides is the memory that products and chains need besides what stays.
const besides = 512 << 20

// Room implements [kernel.Device].
func (e *Engine) Room() int64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	room := int64(e.limit) - min(besides, int64(e.limit/4))
	for _, h := range e.held {
		room -= int64(h.size)
	}
	return max(0, room)
}

// Usable returns the reason that a card cannot be used, as far as that is known before it is.
func Usable(c Card) error {
	if c.Major < leastMajor {
		return fmt.Errorf("%s has compute capability %d.%d, at least %d.0 is needed", c.Name, c.Major, c.Minor, leastMajor)
	}
	if c.Memory < leastMemory {
		return fmt.Errorf("%s has %d MiB of memory, at least %d are needed", c.Name, c.Memory>>20, leastMemory>>20)
	}
	return nil
}

// Card describes the card.
func (e *Engine) Card() Card { return e.card }

// Err is the first failure of the card, after which the CPU computed everything.
func (e *Engine) Err() (err error) {
	for _, one := range e.team.engines() {
		one.mu.Lock()
		err = cmp.Or(err, one.failed)
		one.mu.Unlock()
	}
	return err
}

// Spent is what the card has done so far.
func (e *Engine) Spent() (s Spent) {
	for _, one := range e.team.engines() {
		one.mu.Lock()
		x := one.spent
		one.mu.Unlock()
		s = Spent{s.Products + x.Products, s.Multiplications + x.Multiplications, s.Sent + x.Sent, s.Received + x.Received}
	}
	return s
}

// Compute implements [kernel.Device].
func (e *Engine) Compute(w kernel.Work) bool {
	if r, ok := w.(*kernel.Refinement); ok && e.cheapest(r) == without { // known before the card is there
		return false
	}
	return e.share(w)
}

// share does work, or a part of work that cards share.
func (e *Engine) share(w kernel.Work) bool {
	if !e.proven(w) {
		return false
	}
	one := e.team.give(w)
	if one == nil {
		return false
	}
	defer e.team.taken(one)
	return one.work(w)
}

// work does work, or brings a result that stays here.
func (e *Engine) work(w kernel.Work) bool {
	defer e.order.begin(w)()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.compute(w, e.least) {
		return true
	}
	if p, ok := w.(*kernel.Product); ok {
		_ = e.settle(p.Dst) // an error is that of the next Settle, too
	}
	return false
}

// compute does work of at least so many multiplications.
func (e *Engine) compute(w kernel.Work, least int) (done bool) {
	work := w.Multiplications()
	if work == 0 || work < least || e.failed != nil {
		return false
	}
	defer goruntime.UnlockOSThread()
	if !e.enter() || !e.pin() {
		return false
	}
	e.spent.Products++
	switch w := w.(type) {
	case *kernel.Product:
		done = w.Sum == kernel.Write && e.write(w) || w.Sum != kernel.Write && e.add(w)
	case *kernel.Feedback:
		done = e.feed(w)
	case *kernel.Feedbacks:
		done = e.feedEach(w)
	case *kernel.Descent:
		done = e.descend(w)
	case *kernel.Factoring:
		done = e.factor(w)
	case *kernel.Choice:
		done = e.choose(w)
	case *kernel.Refinement:
		done = e.refine(w)
	case *kernel.Chain:
		done = w.Windows == nil && e.chain(w) || w.Windows != nil && e.whole(w)
	case *kernel.Divergences:
		done = e.divergences(w)
	case *kernel.Labels:
		done = e.labels(w)
	case *kernel.Draws:
		done = e.draws(w)
	}
	if !e.arrive() || !done { // what may be changed when this returns has been copied
		e.spent.Products--
		return false
	}
	e.spent.Multiplications += int64(work)
	return true
}

// Settle implements [kernel.Device].
func (e *Engine) Settle(dst []float32) error { return e.team.home(dst).bringHome(dst) }

func (e *Engine) bringHome(dst []float32) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.settle(dst)
}

func (e *Engine) settle(dst []float32) error {
	if len(dst) == 0 {
		return nil
	}
	h, ok := e.held[&dst[0]]
	if !ok {
		return nil
	}
	defer goruntime.UnlockOSThread()
	if e.enter() && e.failed == nil && e.download(e.streams[0], values(h.dst), h.at) && e.finishAll() {
		delete(e.held, &dst[0])
		e.release(&h.buffer)
		return nil
	}
	return fmt.Errorf("sums that only the card had are lost, run again to go on after the last finished matrix: %w", e.failed)
}

// enter makes the card that of this thread of the system, which is locked.
func (e *Engine) enter() bool {
	goruntime.LockOSThread()
	return e.do("cuCtxSetCurrent", e.driver.setCurrent(e.context))
}

// do notes the failure of a call.
func (e *Engine) do(call string, rc int32) bool {
	if rc != 0 && e.failed == nil {
		e.failed = fmt.Errorf("%s: %w", e.card.Name, failure(call, rc))
		e.naming.Do(func() { fmt.Fprintf(os.Stderr, "the card failed, the CPU goes on: %v\n", e.failed) })
	}
	return rc == 0
}
