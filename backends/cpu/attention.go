package cpu

import (
	"fmt"
	"sync"

	"github.com/llmexport/llmexport/backends/internal/ops"
	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/mnn"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// queryBlock is the number of queries that a worker takes at a time.
const queryBlock = 32

// attentionStep appends keys and values to the caches of the states and computes every new query over all keys up to its own
// position.
type attentionStep struct {
	prm                         *mnn.Attention
	layer                       int // index of the states' caches
	dst, q, k, v                []float32
	tokens, heads, kvHeads, dim int  // tokens of each state
	fresh                       bool // without a cache between calls
	states                      []*state
	pieces                      int // in which the heads are divided

	mask       *operand  // nil for the causal rule
	sinks      []float32 // or nil
	rows       []float32 // of the mask, for the queries of all states
	rowsLength int
}

// attention checks and plans an Attention.
func (p *planner) attention(n *node, prm *mnn.Attention) error {
	shapes := make([][]int, len(n.inputs))
	for k := range shapes {
		x := p.in(n, k)
		if shapes[k] = x.shape; x.dynamic { // the mask: see findDynamic
			shapes[k] = make([]int, 4)
		} else if !x.float() {
			return fmt.Errorf("attention on integers: %w", tensor.ErrCorrupt)
		}
	}
	if err := ops.CheckAttention(prm, shapes); err != nil {
		return err
	}
	explicit := len(shapes) > maskInput && len(shapes[maskInput]) > 0
	if len(shapes) > maskInput && !explicit {
		if mask := p.in(n, maskInput); mask.f == nil || mask.f[0] > 1e-6 {
			return ops.ErrMask
		}
	}
	q, k, v := p.in(n, 0), p.in(n, 1), p.in(n, 2)
	tokens, heads, dim := q.shape[1], q.shape[2], q.shape[3]
	if tokens != p.tokens {
		return fmt.Errorf("attention on %d of %d tokens: %w", tokens, p.tokens, tensor.ErrUnsupported)
	}
	p.flush()
	out := p.make(1, tokens, heads*dim)
	if prm.OutputC4 {
		out.shape = []int{tokens, heads * dim, 1, 1}
	}
	s := &attentionStep{
		prm: prm, layer: p.e.attention[n.op], dst: out.floats(), q: q.floats(), k: k.floats(), v: v.floats(),
		tokens: p.f.key.tokens, heads: heads, kvHeads: k.shape[2], dim: dim, fresh: !prm.KVCache,
	}
	if explicit {
		mask := p.operand(n, maskInput)
		s.mask = &mask
	}
	if len(shapes) > maskInput+1 {
		s.sinks = p.in(n, maskInput+1).floats()
	}
	p.step(s)
	return p.put(n, out)
}

func (s *attentionStep) run(f *frame) error {
	s.states = f.states
	defer func() {
		for _, st := range s.states {
			if s.fresh {
				st.Caches[s.layer] = nil
			}
		}
		s.states, s.rows = nil, nil
	}()
	if s.mask != nil {
		m, past, err := s.mask.get(f), f.states[0].Positions, error(nil)
		if m.Ints != nil {
			return fmt.Errorf("attention on integers: %w", tensor.ErrCorrupt)
		}
		if s.rows, s.rowsLength, err = ops.Mask(m.Shape, m.Floats, len(f.states)*s.tokens, past+s.tokens, f.call.Offset); err != nil {
			return err
		}
	}
	for _, st := range f.states {
		if err := ops.CheckHistory(s.prm, st.Positions); err != nil {
			return err
		}
		c := st.Caches[s.layer]
		if c == nil {
			c = kernel.NewKVCache(s.kvHeads, s.dim)
			st.Caches[s.layer] = c
		}
		if c.Len() != st.Positions || c.KVHeads() != s.kvHeads || c.Dim() != s.dim {
			return fmt.Errorf("attention cache of %d positions and %d heads of %d, want %d, %d and %d: %w",
				c.Len(), c.KVHeads(), c.Dim(), st.Positions, s.kvHeads, s.dim, tensor.ErrCorrupt)
		}
		c.Extend(s.tokens)
	}
	if s.tokens == 1 {
		s.write(0, len(s.states)*s.kvHeads)
	} else {
		kernel.ParallelTask(f.threads, len(s.states)*s.kvHeads, (*writeTask)(s))
	}
	// Heads that share keys stay together, unless that leaves a worker without work.
	s.pieces = s.kvHeads
	if s.tokens == 1 && s.kvHeads%f.threads != 0 {
		s.pieces = min(f.threads, s.heads)
	}
	kernel.ParallelTask(f.threads, len(s.states)*s.blocks()*s.pieces, s)
	return nil
}

func (s *attentionStep) blocks() int { return (s.tokens + queryBlock - 1) / queryBlock }

// writeTask fills the caches.
type writeTask attentionStep

// Do implements kernel.Task.
func (s *writeTask) Do(lo, hi int) { (*attentionStep)(s).write(lo, hi) }

func (s *attentionStep) write(lo, hi int) {
	size := s.tokens * s.kvHeads * s.dim
	for i := lo; i < hi; i++ {
		st, head := i/s.kvHeads, i%s.kvHeads
		c := s.states[st].Caches[s.layer]
		c.Write(s.k[st*size:][:size], s.v[st*size:][:size], s.tokens, head, head+1)
	}
}

// workspaces are scratch memory of attention.
var workspaces = sync.Pool{New: func() any { return new(kernel.EngineAttention) }}

// Do implements kernel.Task. A piece is some heads and queries of a state; the last queries have the most keys and come
// first.
func (s *attentionStep) Do(lo, hi int) {
	w := workspaces.Get().(*kernel.EngineAttention)
	defer workspaces.Put(w)
	w.Tokens, w.Heads, w.Sinks, w.MaskWidth = s.tokens, s.heads, s.sinks, s.rowsLength
	defer func() { w.Mask, w.Sinks = nil, nil }()
	blocks, size := s.blocks(), s.tokens*s.heads*s.dim
	for i := lo; i < hi; i++ {
		st, rest := i/(s.pieces*blocks), i%(s.pieces*blocks)
		from, piece := (blocks-1-rest/s.pieces)*queryBlock, rest%s.pieces
		if s.rows != nil {
			w.Mask = s.rows[st*s.tokens*s.rowsLength:]
		}
		w.Attend(s.dst[st*size:][:size], s.q[st*size:][:size], s.states[st].Caches[s.layer],
			piece*s.heads/s.pieces, (piece+1)*s.heads/s.pieces, from, min(from+queryBlock, s.tokens))
	}
}
