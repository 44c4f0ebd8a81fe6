// Package cpu is the fast backend: it compiles the graph once into a list of fused steps over packed weights and planned
// buffers, with the results of backends/generic bit by bit.
//
// [Backend.Compile] opens the weights and finds what can be fused (nodes.go). For every number of tokens that a call
// may have, a plan (plan.go) turns the nodes into steps on fixed memory; a frame is one such list and runs one call at
// a time. What depends on the length of the cache in its shape is left to the interpreter (dynamic.go), and so is a graph
// in which that is more than masks. Steps are of two kinds: a stage (rows.go) takes a few tokens at a time through all ops that treat tokens
// apart, and everything else is a step of its own, most of them a group of linear layers or an attention.
package cpu

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/llmexport/llmexport/backends/generic"
	"github.com/llmexport/llmexport/backends/internal/ops"
	"github.com/llmexport/llmexport/runtime/backend"
	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/mnn"
)

// Backend implements backend.Backend.
type Backend struct{}

// Name implements backend.Backend.
func (Backend) Name() string { return "cpu" }

// Capabilities implements backend.Backend.
func (Backend) Capabilities() backend.Capabilities { return generic.Backend{}.Capabilities() }

// executable is a compiled graph.
type executable struct {
	g       *mnn.Graph
	options backend.Options
	logits  int32
	deep    int32 // a second output, or -1
	// One entry per op; nil where the op has no weights.
	linears []*linear
	norms   []*ops.Norm
	consts  []mnn.Constant
	dynamic []bool // ops that every call evaluates
	// attentions counts the Attention ops; attention numbers them by op.
	attentions int
	attention  map[int]int
	// recurrences counts the LinearAttention ops; recurrence numbers them by op.
	recurrences int
	recurrence  map[int]int
	// counts is set if the graph counts positions itself, from the tokens next to each other.
	counts bool
	// experts of the MoE ops; expert is set if the graph is one of another.
	experts map[int][]*executable
	expert  bool
	// tower is set if the graph reads pictures or sound: its tensors have other rows than tokens, mostly as many as their first dimension
	// that is not 1.
	tower   bool
	fused   []node // run by a call
	watched []node // run by a call that wants to know peaks: with all outputs that have some
	plain   []node // run by a call with an observer: every op on its own

	mu   sync.Mutex
	idle []*frame // least recently used first
}

// Compile implements backend.Backend.
func (Backend) Compile(g *mnn.Graph, w mnn.Weights, o backend.Options) (backend.Executable, error) {
	if o.Half || o.Arm != 0 {
		return generic.Backend{}.Compile(g, w, o)
	}
	o.Threads = max(o.Threads, 1)
	logits, err := ops.Logits(g)
	if err != nil {
		return nil, err
	}
	e := newExecutable(g, logits, o)
	e.attention, e.recurrence = make(map[int]int), make(map[int]int)
	live := g.Live()
	var ok bool
	if e.dynamic, ok = findDynamic(g, live, e.logits, o.Window); !ok {
		return generic.Backend{}.Compile(g, w, o)
	}
	left := &room{cache: o.CacheBytes, experts: o.ExpertBytes, bounded: o.ExpertBytes > 0, codes: o.CodeBytes, limited: o.CodeBytes > 0}
	if err := e.compile(live, w, left); err != nil {
		return nil, err
	}
	// The layers of every token come first.
	e.experts, err = ops.CompileExperts(g, live, func(s *mnn.Subgraph) (*executable, error) {
		x := newExecutable(&mnn.Graph{Ops: s.Ops, Tensors: s.Tensors}, s.Outputs[0], o)
		x.expert = true
		return x, x.compile(s.Live(), w, left)
	})
	if err != nil {
		return nil, err
	}
	return e, nil
}

// newExecutable is one that is nothing but ops: an expert has no states and no experts.
func newExecutable(g *mnn.Graph, output int32, o backend.Options) *executable {
	return &executable{
		g: g, options: o, logits: output, deep: ops.DeepRows(g),
		linears: make([]*linear, len(g.Ops)), norms: make([]*ops.Norm, len(g.Ops)), dynamic: make([]bool, len(g.Ops)), consts: make([]mnn.Constant, len(g.Ops)),
	}
}

// large is how many weights a layer has that all threads compile together; smaller ones go to one thread each.
const large = 1 << 22

// compile opens the weights of the live ops. Layers are the bulk of it and independent of each other.
func (e *executable) compile(live []bool, w mnn.Weights, left *room) error {
	g := e.g
	var layers []func(threads int) // one for each Convolution, smaller ones after larger ones
	var small []func(threads int)
	errs := make([]error, len(g.Ops))
	for i := range g.Ops {
		if !live[i] {
			continue
		}
		op := &g.Ops[i]
		p, ok := op.Param.(*mnn.Convolution)
		if !ok {
			errs[i] = e.open(i, op, w)
			continue
		}
		o := e.options
		size := int64(p.Outputs) * int64(p.Inputs)
		if o.CacheBytes = 0; left.cache >= 4*size && (o.Mode == backend.Float || p.Quan == nil || p.Quan.Type == 3) {
			o.CacheBytes = 4 * size
			left.cache -= 4 * size
		}
		opened := e.expert && o.Replace == nil && o.CacheBytes == 0 && !left.keeps(p)
		pieced := !e.expert && o.Mode == backend.Int8 && !left.keepsCodes(p)
		layer := func(threads int) {
			if opened {
				e.linears[i], errs[i] = openedLinear(op, p, w, o)
				return
			}
			o.Threads = threads
			if pieced {
				e.linears[i], errs[i] = piecedLinear(op, p, w, o)
				return
			}
			e.linears[i], errs[i] = compileLinear(op, p, w, o)
		}
		if size >= large {
			layers = append(layers, layer)
		} else {
			small = append(small, layer)
		}
	}
	for _, layer := range layers {
		layer(e.options.Threads)
	}
	kernel.Parallel(e.options.Threads, len(small), func(lo, hi int) {
		for _, layer := range small[lo:hi] {
			layer(1)
		}
	})
	for i, err := range errs {
		if err != nil {
			return fmt.Errorf("op %s (%v): %w", g.Ops[i].Name, g.Ops[i].Type, err)
		}
	}
	e.plain = plainNodes(g, live)
	e.fused = e.fuse(e.plain, true)
	if e.watched = e.fused; slices.ContainsFunc(e.fused, full) {
		e.watched = e.fuse(e.plain, false)
	}
	return nil
}

// open is compile for an op that is not a layer.
func (e *executable) open(i int, op *mnn.Op, w mnn.Weights) (err error) {
	switch p := op.Param.(type) {
	case *mnn.LayerNorm:
		e.norms[i], err = ops.OpenNorm(op, p, w, &e.options)
	case *mnn.Blob:
		e.consts[i], err = ops.OpenConst(op, p, w, &e.options)
	case *mnn.Attention:
		e.attention[i] = e.attentions
		e.attentions++
	case *mnn.LinearAttention:
		e.recurrence[i] = e.recurrences
		e.recurrences++
	case *mnn.Input:
		if !e.expert {
			err = ops.CheckInput(e.g, op)
			switch op.Name {
			case mnn.PicturesInput, mnn.TilesInput, mnn.PatchesInput, mnn.PaddedInput, mnn.FeaturesInput:
				e.tower = true
			}
			e.counts = e.counts || (op.Name == "position_ids" && ops.Axes(p) > 1 || op.Name == mnn.PlacesInput || op.Name == mnn.SizesInput)
		}
	}
	return err
}

// state implements backend.State; the caches and linear states are those of the ops that have one.
type state struct {
	ops.Memory
	// frame holds the logits that the last call gave out.
	frame *frame
}

// NewState implements backend.Executable.
func (e *executable) NewState() backend.State {
	return &state{Memory: ops.Memory{Caches: make([]*kernel.KVCache, e.attentions), Linear: make([]*kernel.LinearState, e.recurrences)}}
}

// Run implements backend.Executable.
func (e *executable) Run(ctx context.Context, states []backend.State, c backend.Call) ([]float32, error) {
	if c.Tokens <= 0 || len(states) == 0 || len(c.Embeddings) == 0 || len(c.Embeddings)%(c.Tokens*len(states)) != 0 {
		return nil, fmt.Errorf("internal error: %d embeddings for %d tokens of %d states", len(c.Embeddings), c.Tokens, len(states))
	}
	if len(states) > 1 && !(e.batches(&c) && e.aligned(states)) {
		return backend.OneByOne(ctx, e, states, c)
	}
	first := states[0].(*state)
	e.release(first)
	f, err := e.lease(frameKey{
		tokens: c.Tokens, states: len(states), width: len(c.Embeddings) / (c.Tokens * len(states)),
		all: c.All || c.Defer, deferred: c.Defer, observed: c.Observe != nil, peaks: c.Peaks != nil,
	})
	if err != nil {
		return nil, err
	}
	first.frame = f
	for i, s := range states {
		f.states[i] = s.(*state)
	}
	if err := f.run(ctx, c); err != nil {
		for _, s := range f.states {
			s.Truncate() // a call that failed half way leaves no trace
		}
		return nil, err
	}
	for _, s := range f.states {
		s.Commit(c.Tokens)
	}
	if c.Defer {
		return nil, nil
	}
	if f.further != nil {
		return slices.Concat(f.logits, f.further), nil
	}
	return f.logits, nil
}

// Logits implements backend.Executable.
func (e *executable) Logits(ctx context.Context, states []backend.State, from, to int) ([]float32, error) {
	var out []float32
	at := 0
	for i := range states {
		f := states[i].(*state).frame
		if f == nil || !f.key.deferred {
			return nil, fmt.Errorf("internal error: no deferred logits")
		}
		rows := f.key.tokens * f.key.states
		lo, hi := max(from-at, 0), min(to-at, rows)
		if lo < hi {
			l, err := f.rows(ctx, lo, hi)
			if err != nil || f.key.states == len(states) {
				return l, err
			}
			out = append(out, l...)
		}
		if at += rows; f.key.states == len(states) {
			break
		}
	}
	return out, nil
}

// TokenBytes implements backend.Executable.
func (e *executable) TokenBytes() int64 {
	const tokens = 64 // enough to make the parts that do not grow small
	f := e.newFrame(frameKey{tokens: tokens, states: 1, width: e.width(), all: true, deferred: true})
	if err := e.plan(f, e.fused); err != nil {
		return 0 // a call will report the error
	}
	return f.bytes/tokens + e.expertBytes()
}

// layerBytes is about the size of the weights between two attentions, with a share of the head.
func (e *executable) layerBytes() int64 {
	var sum int64
	for _, l := range e.linears {
		switch {
		case l == nil:
		case l.packed != nil:
			sum += int64(l.packed.Bytes())
		default:
			sum += int64(len(l.m.Codes))
		}
	}
	attentions := e.attentions
	for _, n := range e.fused {
		if full(n) {
			attentions++
		}
	}
	return sum / int64(max(1, attentions))
}

// width of an embedding: what the first layer reads.
func (e *executable) width() int {
	for _, l := range e.linears {
		if l != nil {
			return l.m.Cols
		}
	}
	return 1
}

// aligned reports whether masks of one state are those of all.
func (e *executable) aligned(states []backend.State) bool {
	return !slices.Contains(e.dynamic, true) || !slices.ContainsFunc(states, func(s backend.State) bool { return s.Len() != states[0].Len() })
}

// batches reports whether states can share the rows of one call with the same results. A single token, and in int8 mode the
// tokens after the last group of four, are computed in another order; some elementwise ops compute the elements after the
// last group of eight in another way, and a tensor may have one for each token; sums with a bias that are exact begin
// otherwise after the last group of 24. A graph that counts positions would take the states for one conversation.
func (e *executable) batches(c *backend.Call) bool {
	group := 8
	if slices.ContainsFunc(e.linears, func(l *linear) bool { return l != nil && l.exact && l.m.Bias != nil }) {
		group = 24
	}
	return (c.All || c.Defer) && c.Tokens%group == 0 && !e.counts
}
