package cpu

import (
	"github.com/llmexport/llmexport/runtime/kernel"
)

// full reports whether a node is attention to all keys.
func full(n node) bool { return n.kind == nodeFull }

// fullStep is attention to all keys.
type fullStep struct {
	dst, q, k, v                               []float32
	batch, queries, keys, heads, dim, valueDim int
	attention                                  *kernel.EngineFullAttention
}

// fullAttention plans attention to all keys of q, k and v, [batch, rows, heads, dim].
func (p *planner) fullAttention(n *node) error {
	q, k, v := p.in(n, 0), p.in(n, 1), p.in(n, 2)
	a, b, c := q.shape, k.shape, v.shape
	if !q.float() || !k.float() || !v.float() || len(a) != 4 || len(b) != 4 || len(c) != 4 ||
		a[0] != b[0] || a[0] != c[0] || a[2] != b[2] || a[2] != c[2] || b[1] != c[1] || a[3] != b[3] ||
		min(a[0], a[2], a[3]) < 1 || min(a[1], b[1], c[3]) < 2 {
		return errUnfused
	}
	p.flush()
	out := p.make(a[0], a[1], a[2], c[3])
	s := &fullStep{
		dst: out.floats(), q: q.floats(), k: k.floats(), v: v.floats(),
		batch: a[0], queries: a[1], keys: b[1], heads: a[2], dim: a[3], valueDim: c[3], attention: &p.f.full,
	}
	before := p.f.full.Bytes()
	s.reset()
	p.f.bytes += p.f.full.Bytes() - before
	p.step(s)
	return p.put(n, out)
}

func (s *fullStep) reset() {
	s.attention.Reset(s.batch, s.queries, s.keys, s.heads, s.dim, s.valueDim)
}

func (s *fullStep) run(f *frame) error {
	s.reset()
	kernel.ParallelTask(f.threads, s.batch*s.heads, (*packTask)(s))
	kernel.ParallelTask(f.threads, s.batch*s.heads*s.blocks(), s)
	return nil
}

func (s *fullStep) blocks() int {
	return (s.queries + kernel.FullAttentionRows - 1) / kernel.FullAttentionRows
}

// packTask lays out keys and values.
type packTask fullStep

// Do implements kernel.Task.
func (s *packTask) Do(lo, hi int) { s.attention.Pack(s.k, s.v, lo, hi) }

// Do implements kernel.Task. A piece is some queries of a head.
func (s *fullStep) Do(lo, hi int) {
	blocks := s.blocks()
	for lo < hi {
		head, first := lo/blocks, lo%blocks
		n := min(blocks-first, hi-lo)
		s.attention.Attend(s.dst, s.q, head, first*kernel.FullAttentionRows, min((first+n)*kernel.FullAttentionRows, s.queries))
		lo += n
	}
}
