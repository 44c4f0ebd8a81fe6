package cpu

import (
	"slices"

	"github.com/llmexport/llmexport/backends/internal/ops"
)

// place describes a tensor of a plan. Floats lie in f or, from off on, in a buffer; integers are known, or computed by
// every call in ints; of a dynamic tensor the plan knows nothing.
type place struct {
	shape  []int
	f      []float32
	buffer *buffer
	off    int
	known  []int32
	ints   []int32

	dynamic bool
}

func (p *place) float() bool { return p.known == nil && p.ints == nil && !p.dynamic }

func (p *place) count() int { return ops.Count(p.shape) }

// floats is the memory of p, which has to be there: see planner.flush.
func (p *place) floats() []float32 {
	if p.buffer == nil {
		return p.f
	}
	return p.buffer.mem[p.off : p.off+p.count()]
}

// buffer is the memory of a tensor and its views: of the frame, or a slot of the workers of a stage.
type buffer struct {
	size int
	mem  []float32 // nil for a slot
	uses int       // reads that are still to come
	// Of a buffer that an op of a stage makes: its first and last op, and whether it has to be in memory.
	stage       *stage
	first, last int
	pinned      bool
	slot        int
}

// make is a place for an output of the next op of the stage or, without one, of a step.
func (p *planner) make(shape ...int) place {
	b := &buffer{size: ops.Count(shape), stage: p.stage}
	if p.stage == nil {
		p.allocate(b)
	} else {
		b.first, b.last = len(p.stage.ops), len(p.stage.ops)
		p.stage.made = append(p.stage.made, b)
	}
	return place{shape: shape, buffer: b}
}

// allocate gives b the memory that fits best.
func (p *planner) allocate(b *buffer) {
	best := -1
	for i, m := range p.free {
		if cap(m) >= b.size && (best < 0 || cap(m) < cap(p.free[best])) {
			best = i
		}
	}
	if best >= 0 && cap(p.free[best]) <= 2*b.size+1024 {
		b.mem = p.free[best][:b.size]
		p.free = slices.Delete(p.free, best, best+1)
		return
	}
	b.mem = p.f.slab.take(b.size)
	p.f.bytes += 4 * int64(b.size)
}

// read notes that one reader of t is through.
func (p *planner) read(t int32) {
	if b := p.places[t].buffer; b != nil {
		p.release(b)
	}
}

func (p *planner) release(b *buffer) {
	if b.uses--; b.uses > 0 || b.mem == nil {
		return
	}
	if p.stage != nil {
		p.done = append(p.done, b.mem[:0])
		return
	}
	p.free = append(p.free, b.mem[:0])
}

// slab is memory of frames that run one after the other. A nil one is none: everything gets memory of its own.
type slab struct {
	mem []float32
	at  int
}

// reset begins the plan of another frame.
func (s *slab) reset() {
	if s != nil {
		s.at = 0
	}
}

// take is memory for n values that overlaps with nothing taken since reset.
func (s *slab) take(n int) []float32 {
	if s == nil {
		return make([]float32, n)
	}
	if n > len(s.mem)-s.at {
		s.mem, s.at = make([]float32, max(n, 2*len(s.mem))), 0 // what was taken stays where it is
	}
	s.at += n
	return s.mem[s.at-n : s.at : s.at]
}
