package cpu

import (
	"sync"

	"github.com/llmexport/llmexport/backends/internal/ops"
	"github.com/llmexport/llmexport/runtime/kernel"
)

// stage takes rows through ops that treat each row apart, a tile of rows at a time, so that the output of one op is still in
// the cache when the next one reads it. A row is what belongs to one token.
type stage struct {
	tiling
	ops []rowOp
	// made are the buffers that ops of the stage write, spans what they read and write.
	made  []*buffer
	spans []*span
	// slots are the lengths of the buffers that each worker has for itself, in rows of a tile.
	slots []int
}

// rowOp computes rows lo to hi-1, at most a tile.
type rowOp interface {
	do(w *worker, lo, hi int)
}

func (s *stage) run(f *frame) error {
	kernel.ParallelTask(f.threads, s.count, s)
	return nil
}

// Do implements kernel.Task.
func (s *stage) Do(lo, hi int) {
	w := workers.Get().(*worker)
	defer workers.Put(w)
	w.fit(s.slots, s.most())
	for i := lo; i < hi; i++ {
		from, to := s.begin(i), s.begin(i+1)
		for _, op := range s.ops {
			op.do(w, from, to)
		}
	}
}

// worker holds what nobody but the worker needs: rows between two ops of a stage, and their int8 form.
type worker struct {
	slots [][]float32
	q     kernel.QuantizedRows
}

var workers = sync.Pool{New: func() any { return new(worker) }}

func (w *worker) fit(widths []int, rows int) {
	for len(w.slots) < len(widths) {
		w.slots = append(w.slots, nil)
	}
	for i, width := range widths {
		if len(w.slots[i]) < width*rows {
			w.slots[i] = make([]float32, width*rows)
		}
	}
}

// span is an operand of a rowOp: all rows in memory of the frame, or those of a tile in a slot of the worker.
type span struct {
	f     []float32
	width int
	slot  int // -1 for f

	buffer  *buffer
	off, to int // in the buffer
}

// rows gives rows lo to hi-1.
func (s *span) rows(w *worker, lo, hi int) []float32 {
	if s.slot >= 0 {
		return w.slots[s.slot][:(hi-lo)*s.width]
	}
	return s.f[lo*s.width : hi*s.width]
}

// rowsOf is how many rows a tensor of this shape can be divided into: as many as there are tokens, or one. A row may be
// less than what belongs to a token, where another dimension happens to be as long. Those of towers have a row for each
// element of their first dimension that is not 1.
func (p *planner) rowsOf(shape []int) int {
	for _, d := range shape {
		if d == 1 {
			continue
		}
		if d == p.tokens || p.e.tower && d > 0 {
			return d
		}
		break
	}
	return 1
}

// begin opens a stage of that many rows, if it is not the one in use.
func (p *planner) begin(rows int) {
	if p.stage != nil && p.stage.rows != rows {
		p.flush()
	}
	if p.stage == nil {
		p.stage = &stage{tiling: p.f.tiles(rows)}
	}
}

// span makes v an operand of the next op of the stage.
func (p *planner) span(v *place) *span {
	s := &span{f: v.f, slot: -1, width: v.count() / p.stage.rows, buffer: v.buffer, off: v.off, to: v.off + v.count()}
	if b := v.buffer; b != nil {
		if b.stage != p.stage {
			s.f = b.mem[s.off:s.to]
		} else {
			b.last = len(p.stage.ops)
			b.pinned = b.pinned || s.to-s.off != b.size
			p.stage.spans = append(p.stage.spans, s)
		}
	}
	return s
}

func (p *planner) row(op rowOp) { p.stage.ops = append(p.stage.ops, op) }

// flush ends the stage, because the next steps need all of its rows. Buffers that are not read any longer get slots, the
// others memory.
func (p *planner) flush() {
	s := p.stage
	if s == nil {
		return
	}
	p.stage = nil
	ends := []int{} // by slot: the last op that uses it so far
	for _, b := range s.made {
		if b.uses > 0 || b.pinned {
			p.allocate(b)
			continue
		}
		width := b.size / s.rows
		b.slot = -1
		for k, end := range ends {
			if end < b.first {
				b.slot = k
				break
			}
		}
		if b.slot < 0 {
			b.slot = len(ends)
			ends, s.slots = append(ends, 0), append(s.slots, 0)
		}
		ends[b.slot], s.slots[b.slot] = b.last, max(s.slots[b.slot], width)
	}
	for _, x := range s.spans {
		if x.buffer.mem == nil {
			x.slot = x.buffer.slot
		} else {
			x.f = x.buffer.mem[x.off:x.to]
		}
	}
	p.free = append(p.free, p.done...)
	p.done = p.done[:0]
	p.f.steps = append(p.f.steps, s)
}

// scalarRows is dst = f(x, y), where one of the two is the same number for all elements.
type scalarRows struct {
	dst, x *span
	scalar []float32
	first  bool // the number is x
	f      func(dst, x, y []float32, sx, sy int)
}

func (o *scalarRows) do(w *worker, lo, hi int) {
	dst, x := o.dst.rows(w, lo, hi), o.x.rows(w, lo, hi)
	if o.first {
		o.f(dst, o.scalar, x, 0, 1)
		return
	}
	o.f(dst, x, o.scalar, 1, 0)
}

// binaryRows is dst = f(x, y).
type binaryRows struct {
	dst, x, y *span
	f         func(dst, x, y []float32)
}

func (o *binaryRows) do(w *worker, lo, hi int) {
	o.f(o.dst.rows(w, lo, hi), o.x.rows(w, lo, hi), o.y.rows(w, lo, hi))
}

// unaryRows is dst = f(x).
type unaryRows struct {
	dst, x *span
	f      func(dst, x []float32)
}

func (o *unaryRows) do(w *worker, lo, hi int) { o.f(o.dst.rows(w, lo, hi), o.x.rows(w, lo, hi)) }

// normRows normalises all rows of a tensor.
type normRows struct {
	dst, x *span
	norm   *ops.Norm
	all    int
}

func (o *normRows) do(w *worker, lo, hi int) {
	o.norm.Rows(o.dst.rows(w, lo, hi), o.x.rows(w, lo, hi), o.all)
}

// rotateRows turns all heads of a token by the angles of a row of cos and sin. gamma, if any, is of the norm before.
type rotateRows struct {
	dst, x, cos, sin *span
	heads, dim       int
	gamma            []float32
	eps              float32
}

func (o *rotateRows) do(w *worker, lo, hi int) {
	for t := lo; t < hi; t++ {
		// A slot begins with row lo of the tile.
		row := func(s *span) []float32 {
			all := s.rows(w, lo, hi)
			return all[(t-lo)*s.width : (t-lo+1)*s.width]
		}
		dst, x, cos, sin := row(o.dst), row(o.x), row(o.cos), row(o.sin)
		if o.gamma != nil {
			kernel.EngineNormRotateHeads(dst, x, o.gamma, cos, sin, o.heads, o.dim, o.eps)
			continue
		}
		kernel.RotateHeads(dst, x, cos, sin, o.heads, o.dim)
	}
}
