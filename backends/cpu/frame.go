package cpu

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/llmexport/llmexport/backends/internal/ops"
	"github.com/llmexport/llmexport/runtime/backend"
	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/mnn"
)

// frameKey holds everything that a list of steps depends on.
type frameKey struct {
	tokens, states int // tokens of each state
	width          int // of an embedding
	all, deferred  bool
	observed       bool
	peaks          bool
}

// frame is a list of steps and the memory they work on.
type frame struct {
	key     frameKey
	threads int
	share   int // rows that a worker takes through a stage at a time, at most
	steps   []step

	// Set by every call.
	states []*state
	call   backend.Call
	ctx    context.Context // of the call, for the graphs that its steps run

	embeddings [][]float32 // memory of the inputs
	positions  [][]int32
	logits     []float32
	further    []float32    // the second output, or nil
	deep       [][]float32  // memory of values that are added after layers
	values     []ops.Tensor // dynamic ones, by tensor, during a call
	head       *head        // makes deferred logits, unless they are in logits already
	peaks      []*peak
	bytes      int64 // of buffers
	// slab is memory that others use when this frame does not run.
	slab *slab
	// experts is the slab of the frames that MoE ops run.
	experts slab
	// full is the memory of attention to all keys.
	full kernel.EngineFullAttention
}

// step is a part of a plan.
type step interface{ run(f *frame) error }

// maxIdle is how many frames wait for the next call. Prompts differ in length, decodes do not.
const maxIdle = 4

// lease takes a frame for the key, or plans a new one.
func (e *executable) lease(k frameKey) (*frame, error) {
	e.mu.Lock()
	for i, f := range slices.Backward(e.idle) {
		if f.key == k {
			e.idle = slices.Delete(e.idle, i, i+1)
			e.mu.Unlock()
			return f, nil
		}
	}
	e.mu.Unlock()
	return e.planned(k, nil)
}

// planned plans a frame, in the memory of a slab if there is one.
func (e *executable) planned(k frameKey, memory *slab) (*frame, error) {
	f := e.newFrame(k)
	f.slab = memory
	f.slab.reset()
	nodes := e.fused
	switch {
	case k.observed:
		nodes = e.plain
	case k.peaks:
		nodes = e.watched
	}
	err := e.plan(f, nodes)
	if errors.Is(err, errUnfused) {
		f = e.newFrame(k)
		f.slab = memory
		f.slab.reset()
		err = e.plan(f, e.plain)
	}
	if err != nil {
		return nil, err
	}
	return f, nil
}

func (e *executable) newFrame(k frameKey) *frame {
	f := &frame{key: k, threads: e.options.Threads, share: e.share(), states: make([]*state, k.states)}
	if slices.Contains(e.dynamic, true) {
		f.values = make([]ops.Tensor, len(e.g.Tensors))
	}
	return f
}

// share is how many rows a worker should take through a stage at a time. Few stay in its cache between the layers; many make up for reading
// the weights of a layer from memory.
func (e *executable) share() int {
	const least, most = 32, 256
	weights := int64(1 << 18) // bytes of a layer's weights for each row
	if e.options.Mode == backend.Float || e.tower {
		weights = 1 << 16
	}
	return int(min(most, max(least, e.layerBytes()/weights)))
}

// tiling divides rows into tiles that differ by a group at most. A tile begins at a multiple of four rows, because the engine takes tokens
// in groups of four, and the last one is not a single row, which counts as a decode.
type tiling struct{ rows, count int }

// tileGroup divides where tiles begin.
const tileGroup = 4

// tiles divides rows so that workers get the same number of tiles, each of a worker's share or less.
func (f *frame) tiles(rows int) tiling {
	rounds := (rows + f.threads*f.share - 1) / (f.threads * f.share)
	t := tiling{rows, 1}
	t.count = max(1, min(f.threads*rounds, t.groups()))
	if t.count == t.groups() && t.count > 1 && rows%tileGroup == 1 {
		t.count--
	}
	return t
}

func (t tiling) groups() int { return (t.rows + tileGroup - 1) / tileGroup }

// begin is the first row of tile i, or where tile i-1 ends.
func (t tiling) begin(i int) int { return min(t.rows, i*t.groups()/t.count*tileGroup) }

// most bounds the rows of a tile.
func (t tiling) most() int { return min(t.rows, (t.groups()+t.count-1)/t.count*tileGroup) }

// release takes back the frame that a state holds because of its logits.
func (e *executable) release(s *state) {
	f := s.frame
	if f == nil {
		return
	}
	s.frame = nil
	clear(f.states)
	f.call, f.ctx = backend.Call{}, nil
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.idle) == maxIdle {
		e.idle = slices.Delete(e.idle, 0, 1)
	}
	e.idle = append(e.idle, f)
}

func (f *frame) run(ctx context.Context, c backend.Call) error {
	f.call = c
	for _, x := range f.embeddings {
		copy(x, c.Embeddings)
	}
	for _, x := range f.deep {
		if clear(x); c.Deep != nil && copy(x, c.Deep) != len(c.Deep) {
			return fmt.Errorf("internal error: %d values to add after layers, the graph wants %d", len(c.Deep), len(x))
		}
	}
	for _, ids := range f.positions {
		for i, s := range f.states {
			if err := c.Place(ids, i, len(f.states), s.Positions); err != nil {
				return err
			}
		}
	}
	return f.execute(ctx)
}

// execute runs the steps on inputs that are there.
func (f *frame) execute(ctx context.Context) error {
	f.ctx = ctx
	for _, p := range f.peaks {
		p.bits.Store(0) // a call before this one may have failed
	}
	defer clear(f.values)
	for _, s := range f.steps {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := s.run(f); err != nil {
			return err
		}
	}
	for _, p := range f.peaks {
		f.call.Peaks(p.op, p.value())
	}
	return nil
}

// rows returns deferred logits of rows lo to hi-1.
func (f *frame) rows(ctx context.Context, lo, hi int) ([]float32, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if f.head == nil {
		vocab := len(f.logits) / (f.key.tokens * f.key.states)
		return f.logits[lo*vocab : hi*vocab], nil
	}
	return f.head.rows(f, lo, hi)
}

// observeStep shows a float output.
type observeStep struct {
	op     *mnn.Op
	output int
	shape  []int
	values []float32
}

func (s *observeStep) run(f *frame) error {
	f.call.Observe(s.op, s.output, s.shape, s.values)
	return nil
}
