package cpu

import (
	"fmt"
	"sync"

	"github.com/llmexport/llmexport/backends/internal/ops"
	"github.com/llmexport/llmexport/runtime/backend"
	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/mnn"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// linear is a compiled 1x1 Convolution.
type linear struct {
	m *mnn.Matrix
	// quantized layers compute in int8, with activations in blocks of that many columns; int8 has their weights. Others hold
	// packed weights, or where the cache is too small read replace or decode m in every call.
	quantized bool
	block     int
	option    kernel.DynOption
	int8      *kernel.Int8Matrix
	packed    *kernel.Packed
	replace   *backend.Replacement
	// exact is set if float weights are multiplied in the engine's order; they are not packed.
	exact bool
	// pieces, if set, has the weights of a layer in int8 that are not kept.
	pieces *pieces
	// opened, if set, gives the layer with its weights in every call.
	opened func() (*linear, error)
}

// reading is how a layer reads its input; layers that agree can share it.
type reading struct {
	cols, block int
	option      kernel.DynOption
	int8        bool
}

func (l *linear) reading() reading {
	if !l.quantized {
		return reading{cols: l.m.Cols}
	}
	return reading{l.m.Cols, l.block, l.option, true}
}

// compileLinear packs the weights if o.CacheBytes has room for them as floats, or if they compute in int8.
func compileLinear(op *mnn.Op, c *mnn.Convolution, w mnn.Weights, o backend.Options) (*linear, error) {
	m, replace, err := ops.OpenLinear(op, c, w, &o)
	if err != nil {
		return nil, err
	}
	l := &linear{m: m, replace: replace}
	if l.setInt8(&o); l.quantized {
		l.int8, err = ops.Int8(m, l.option, o.RepackLowBits, o.Threads)
		return l, err
	}
	if l.exact = l.replace == nil && ops.Exact(m, o.Mode); l.exact {
		return l, nil
	}
	if o.CacheBytes >= 4*int64(m.Rows)*int64(m.Cols) {
		packed := new(kernel.Packed)
		packed.Resize(m.Rows, m.Cols)
		if replace != nil {
			err = l.slabs(o.Threads, func(slab []float32, first, from, to int) {
				packed.PackRows(slab[(from-first)*m.Cols:], from, to-from, m.Cols)
			})
			l.packed, l.replace = packed, nil
			return l, err
		}
		kernel.Parallel(o.Threads, (m.Rows+panel-1)/panel, func(lo, hi int) {
			s := scratches.Get().(*scratch)
			defer scratches.Put(s)
			for i := lo; i < hi; i++ {
				from, to := i*panel, min((i+1)*panel, m.Rows)
				packed.PackRows(l.rows(s, from, to), from, to-from, m.Cols)
			}
		})
		l.packed = packed
	}
	return l, nil
}

// slabBytes is how much of the weights of [backend.Replacement] is in memory at a time.
const slabBytes = 16 << 20

// slabs reads the replaced weights some rows at a time and calls visit, on several threads, for every panel of each: slab begins
// at row first, the panel is of rows from to to-1.
func (l *linear) slabs(threads int, visit func(slab []float32, first, from, to int)) error {
	s := scratches.Get().(*scratch)
	defer scratches.Put(s)
	rows, cols := l.m.Rows, l.m.Cols
	step := max(1, slabBytes/4/cols/panel) * panel
	slab := s.floats(min(step, rows) * cols)
	for first := 0; first < rows; first += step {
		n := min(step, rows-first)
		if err := l.replace.Read(slab[:n*cols], first*cols); err != nil {
			return err
		}
		kernel.Parallel(threads, (n+panel-1)/panel, func(lo, hi int) {
			for i := lo; i < hi; i++ {
				visit(slab, first, first+i*panel, first+min((i+1)*panel, n))
			}
		})
	}
	return nil
}

// setInt8 sets whether the layer computes in int8, and how activations are quantized then.
func (l *linear) setInt8(o *backend.Options) {
	if l.option, l.quantized = ops.Quantizes(l.m, l.replace, o); l.quantized {
		l.block = l.m.Cols / l.m.Blocks
	}
}

// panel is the number of weight rows that are decoded and multiplied at a time.
const panel = kernel.PanelRows

// scratch is the memory into which a worker decodes.
type scratch struct {
	rows   []float32
	codes  []uint8
	packed kernel.Packed
}

// floats returns n of them.
func (s *scratch) floats(n int) []float32 {
	if len(s.rows) < n {
		s.rows = make([]float32, n)
	}
	return s.rows[:n]
}

var scratches = sync.Pool{New: func() any { return new(scratch) }}

// rows decodes weight rows lo to hi-1, at most a panel.
func (l *linear) rows(s *scratch, lo, hi int) []float32 {
	n := panel * l.m.Cols
	if len(s.codes) < n {
		s.codes = make([]uint8, n)
	}
	rows := s.floats(n)[:(hi-lo)*l.m.Cols]
	l.m.Rows32(rows, s.codes, lo, hi)
	return rows
}

// linears plans a group of layers that read the same input.
func (p *planner) linears(n *node) error {
	x := p.in(n, 0)
	first := p.e.linears[n.members[0]]
	cols := first.m.Cols
	if !x.float() || len(x.shape) != 4 || x.shape[1] != cols || x.shape[2] != 1 || x.shape[3] != 1 {
		return fmt.Errorf("linear layer of %d inputs on shape %v: %w", cols, x.shape, tensor.ErrCorrupt)
	}
	if len(n.outputs) != len(n.members) {
		return fmt.Errorf("1 outputs, the graph wants %d: %w", len(n.outputs), tensor.ErrCorrupt)
	}
	tokens := x.shape[0]
	for _, op := range n.members {
		if err := ops.Limited([]int{tokens, p.e.linears[op].m.Rows}); err != nil {
			return err
		}
	}
	if p.deep(tokens, n) {
		p.begin(tokens)
		o := &linearRows{x: p.span(x)}
		for k, op := range n.members {
			v := p.make(tokens, p.e.linears[op].m.Rows, 1, 1)
			o.members = append(o.members, rowsMember{p.e.linears[op], p.span(&v)})
			p.set(n.outputs[k], v)
		}
		p.row(o)
		return nil
	}
	p.flush()
	s := &linearStep{x: x.floats(), tokens: tokens}
	if first.quantized {
		s.q = new(quantizeStep).reset(s, first)
	}
	for k, op := range n.members {
		l := p.e.linears[op]
		v := p.make(tokens, l.m.Rows, 1, 1)
		s.members = append(s.members, member{l, v.floats(), s.units})
		s.units += (l.m.Rows + panel - 1) / panel
		p.set(n.outputs[k], v)
	}
	p.step(s)
	return nil
}

// deep reports whether every worker takes tiles of tokens through whole layers, instead of all workers sharing the rows of
// each layer. That wants tokens enough, and weights that need no decoding.
func (p *planner) deep(tokens int, n *node) bool {
	if tokens != p.tokens && !p.e.tower || p.f.tiles(tokens).most() < leastTile || p.f.key.observed {
		return false
	}
	for _, op := range n.members {
		if l := p.e.linears[op]; l.opened != nil || l.int8 == nil && l.packed == nil {
			return false
		}
	}
	return true
}

// leastTile is the number of tokens from which multiplying with a matrix is worth reading it.
const leastTile = 16

// linearRows multiplies the rows of a tile with the weights of all members.
type linearRows struct {
	x       *span
	members []rowsMember
}

type rowsMember struct {
	*linear
	dst *span
}

func (o *linearRows) do(w *worker, lo, hi int) {
	x, tokens := o.x.rows(w, lo, hi), hi-lo
	first := o.members[0].linear
	if first.quantized {
		w.q.Reset(tokens, first.m.Cols, first.block, first.option)
		w.q.Set(x, 0, tokens)
	}
	for _, m := range o.members {
		m.multiply(m.dst.rows(w, lo, hi), x, &w.q, tokens, 0, m.m.Rows)
	}
}

// linearStep multiplies the input with the weights of all members.
type linearStep struct {
	members []member
	units   int // panels of all members
	x       []float32
	tokens  int
	q       *quantizeStep // of x in int8 mode
}

type member struct {
	*linear
	dst   []float32
	first int // unit
}

func (s *linearStep) run(f *frame) error {
	if s.tokens == 0 {
		return nil // a graph may cut a tensor down to nothing
	}
	for i := range s.members {
		m := &s.members[i]
		if m.opened == nil {
			continue
		}
		l, err := m.opened()
		if err != nil {
			return err
		}
		own := m.linear
		m.linear = l
		defer func() { m.linear = own }()
	}
	if s.q != nil {
		kernel.ParallelTask(f.threads, (s.tokens+kernel.QuantizeTile-1)/kernel.QuantizeTile, s.q)
	}
	kernel.ParallelTask(f.threads, s.units, s)
	for i := range s.members {
		m := &s.members[i]
		var err error
		switch {
		case m.pieces != nil:
			err = m.pieces.run(m.linear, f.threads, m.dst, &s.q.rows, s.tokens)
		case m.replace != nil:
			err = m.replaced(f.threads, m.dst, s.x, s.tokens)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// quantizeStep makes the int8 form of the input of a linearStep.
type quantizeStep struct {
	rows kernel.QuantizedRows
	x    []float32
}

func (q *quantizeStep) reset(s *linearStep, l *linear) *quantizeStep {
	q.x = s.x
	q.rows.Reset(s.tokens, l.m.Cols, l.block, l.option)
	return q
}

// Do implements kernel.Task.
func (q *quantizeStep) Do(lo, hi int) {
	q.rows.Set(q.x, lo*kernel.QuantizeTile, min(hi*kernel.QuantizeTile, q.rows.Rows))
}

// Do implements kernel.Task.
func (s *linearStep) Do(lo, hi int) {
	for i := range s.members {
		m := &s.members[i]
		rows := m.m.Rows
		from, to := max(0, (lo-m.first)*panel), min((hi-m.first)*panel, rows)
		if from < to && m.replace == nil && m.pieces == nil {
			var q *kernel.QuantizedRows
			if s.q != nil {
				q = &s.q.rows
			}
			m.multiply(m.dst, s.x, q, s.tokens, from, to)
		}
	}
}

// multiply computes outputs from to to-1 of x, or of its int8 form, for all tokens: dst is [tokens, rows].
func (l *linear) multiply(dst, x []float32, q *kernel.QuantizedRows, tokens, from, to int) {
	rows, cols := l.m.Rows, l.m.Cols
	switch {
	case l.int8 != nil:
		l.int8.Mul(dst, q, from, to)
		return
	case l.packed != nil:
		l.packed.MulT(dst, x, tokens, rows, cols, from, to)
	default:
		w := scratches.Get().(*scratch)
		defer scratches.Put(w)
		for r := from; r < to; r += panel {
			n := min(panel, to-r)
			if l.exact {
				var bias []float32
				if l.m.Bias != nil {
					bias = l.m.Bias[r : r+n]
				}
				kernel.EngineMatMulT(dst[r:], x, l.rows(w, r, r+n), bias, tokens, n, cols, rows)
				continue
			}
			w.packed.Pack(l.rows(w, r, r+n), n, cols, cols)
			w.packed.MulT(dst[r:], x, tokens, rows, cols, 0, n)
		}
	}
	if !l.exact {
		l.addBias(dst, tokens, from, to)
	}
}

// replaced is multiply for all outputs of weights that are read now.
func (l *linear) replaced(threads int, dst, x []float32, tokens int) error {
	rows, cols := l.m.Rows, l.m.Cols
	return l.slabs(threads, func(slab []float32, first, from, to int) {
		w := scratches.Get().(*scratch)
		defer scratches.Put(w)
		w.packed.Pack(slab[(from-first)*cols:], to-from, cols, cols)
		w.packed.MulT(dst[from:], x, tokens, rows, cols, 0, to-from)
		l.addBias(dst, tokens, from, to)
	})
}

// addBias adds the bias to outputs from to to-1 of all tokens.
func (l *linear) addBias(dst []float32, tokens, from, to int) {
	if l.m.Bias == nil {
		return
	}
	bias := l.m.Bias[from:to]
	for t := range tokens {
		y := dst[t*l.m.Rows+from : t*l.m.Rows+to]
		kernel.Add(y, y, bias)
	}
}
