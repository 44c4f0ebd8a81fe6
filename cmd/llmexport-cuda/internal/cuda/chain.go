package cuda

import (
	goruntime "runtime"
	"unsafe"

	"github.com/llmexport/llmexport/runtime/kernel"
)

// longest is the most positions that sums of attention may have in a chain, widest the most elements of a key or a value.
const longest, widest = 4096, 256

// busyTiles is the number of blocks of a product of large tiles that keeps a card busy.
const busyTiles = 96

// thinRows is the number of rows below which tiles of 128 rows waste more than they are faster.
const thinRows = 64

// resident is what chains leave on the card: matrices, and the keys and values of the tokens of all windows so far.
type resident struct {
	of      *kernel.Pasts
	version uint64
	rows    int // windows that there is room for
	at      int // tokens of every window
	memory  buffer
	spot    spot
	past    []pastAt
}

// spot is where the matrices of a chain are, and of whole windows what else it needs.
type spot struct {
	matrices []uint64
	vectors  map[*float32]uint64 // those without a version, by their first element
	places   uint64              // of rows in their windows
	windows  uint64              // starts and lengths
	spans    map[kernel.Step]uint64
	gammas   map[kernel.Step][2]uint64 // roots of runs, and sums of gradients
	mixture  mixture
	tables   map[*kernel.ExpertsStep]*table
}

// pastAt is where keys and values of an attention are.
type pastAt struct{ keys, values uint64 }

// attend is the argument of the kernels.
type attend struct {
	out, keys, values, q, k, v                                uint64
	rows, heads, shared, key, value, longest, from, first, at int32
	scale                                                     float32
}

// pastFloats are those of the keys and of the values of a head in a window.
func pastFloats(p *kernel.Past, length int) (keys, values int) {
	panels := func(n int) int { return (n + kernel.PanelRows - 1) / kernel.PanelRows * kernel.PanelRows }
	return panels(length) * p.Key, panels(p.Value) * length
}

// Forget implements [kernel.Device].
func (e *Engine) Forget(p *kernel.Pasts) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.resident != nil && e.resident.of == p {
		e.leave()
	}
}

// leave gives the memory of chains back.
func (e *Engine) leave() {
	defer goruntime.UnlockOSThread()
	e.enter()
	e.release(&e.resident.memory)
	e.resident = nil
}

// chain takes tokens through a model.
func (e *Engine) chain(c *kernel.Chain) bool {
	s := e.streams[0]
	if !fits(c) || !e.inside(c) || !e.upload(s, e.resident.spot.matrices[0], values(c.States)) {
		return false
	}
	for _, step := range c.Steps {
		if !e.step(s, c, &e.resident.spot, step) {
			return false
		}
	}
	e.resident.at = -1 // until the result is there
	if !e.download(s, values(c.States), e.resident.spot.matrices[0]) || !e.do("cuEventRecord", e.driver.record(e.done, s)) || !e.finishAll() {
		return false
	}
	e.resident.at = c.At + 1
	return true
}

// fits reports whether the kernels have room for the attentions and mixtures of a chain.
func fits(c *kernel.Chain) bool {
	for _, step := range c.Steps {
		switch x := step.(type) {
		case *kernel.AttendStep:
			p := c.Pasts.Of[x.Past]
			from, _ := x.Span(c.At)
			if c.At+1-from > longest || p.Key > widest || p.Value > widest {
				return false
			}
		case *kernel.ExpertsStep:
			if !routable(c, x) {
				return false
			}
		}
	}
	return true
}

// inside brings the keys and values of earlier tokens to the card, unless it has them. It reports false if nobody has them.
func (e *Engine) inside(c *kernel.Chain) bool {
	if e.resident != nil && (e.resident.of != c.Pasts || e.resident.rows < c.Rows) {
		e.leave()
	}
	if e.resident == nil {
		var l layout
		r := &resident{of: c.Pasts, rows: c.Rows, at: -1}
		r.lay(&l, c)
		if !e.room(nil) {
			return false
		}
		var ok bool
		if r.memory, ok = e.more(uint64(l)); !ok {
			return false
		}
		l = layout(r.memory.at)
		r.lay(&l, c)
		e.resident = r
	}
	r := e.resident
	if r.version == c.Pasts.Version && r.at == c.At {
		return true
	}
	if c.At != c.Pasts.Filled { // of later tokens the caller has none
		return false
	}
	for i := range c.Pasts.Of {
		if !e.past(c, i) {
			return false
		}
	}
	r.version = c.Pasts.Version
	return true
}

// lay gives out the memory of matrices.
func (p *spot) lay(l *layout, c *kernel.Chain) {
	p.matrices = nil
	for _, width := range c.Widths {
		p.matrices = append(p.matrices, l.take(c.Rows*width))
	}
	p.layExperts(l, c)
}

// lay gives out the memory of what stays.
func (r *resident) lay(l *layout, c *kernel.Chain) {
	r.spot.lay(l, c)
	r.past = nil
	for i := range c.Pasts.Of {
		p := &c.Pasts.Of[i]
		keys, values := pastFloats(p, c.Pasts.Length)
		n := c.Rows * p.Heads
		r.past = append(r.past, pastAt{l.take(n * keys), l.take(n * values)})
	}
}

// past brings the keys and values of an attention.
func (e *Engine) past(c *kernel.Chain, i int) bool {
	p, at, s := &c.Pasts.Of[i], e.resident.past[i], e.streams[0]
	nKeys, nValues := pastFloats(p, c.Pasts.Length)
	used := (c.At + kernel.PanelRows - 1) / kernel.PanelRows * kernel.PanelRows * p.Key
	for j := range c.Rows * p.Heads {
		if c.At == 0 {
			break
		}
		keys, vals := p.Of(j/p.Heads, j%p.Heads)
		if !e.upload(s, at.keys+4*uint64(j*nKeys), values(keys.Factor().Data[:used])) {
			return false
		}
		for d := 0; d < p.Value; d += kernel.PanelRows {
			from := d * c.Pasts.Length
			if !e.upload(s, at.values+4*uint64(j*nValues+from), values(vals.Factor().Data[from:from+c.At*kernel.PanelRows])) {
				return false
			}
		}
	}
	return true
}

// vector finds a vector on the card or brings it.
func (e *Engine) vector(p *spot, f kernel.Factor) (uint64, bool) {
	if len(f.Data) == 0 {
		return 0, true
	}
	if at, ok := p.vectors[&f.Data[0]]; ok {
		return at, true
	}
	b, ok := e.keep(f, len(f.Data), 1)
	return b.at, ok
}

// step puts a step into a stream.
func (e *Engine) step(s uintptr, c *kernel.Chain, p *spot, step kernel.Step) bool {
	m := p.matrices
	switch x := step.(type) {
	case *kernel.NormStep:
		gamma, ok := e.vector(p, x.Gamma)
		width := int32(len(x.Gamma.Data))
		runs, eps := int32(c.Rows*c.Widths[x.Src])/width, x.Eps
		return ok && e.launch(s, norms, (int(runs)+7)/8, 1, unsafe.Pointer(&m[x.Dst]), unsafe.Pointer(&m[x.Src]), unsafe.Pointer(&gamma), unsafe.Pointer(&runs),
			unsafe.Pointer(&width), unsafe.Pointer(&eps))
	case *kernel.NormBackStep:
		return e.normBack(s, c, p, x)
	case *kernel.LinearStep:
		return e.linear(s, c, p, x)
	case *kernel.RotateStep:
		cos, ok := e.vector(p, x.Cos)
		sin, both := e.vector(p, x.Sin)
		if c.Windows == nil {
			cos, sin = cos+4*uint64(c.At*x.Turned), sin+4*uint64(c.At*x.Turned)
		}
		heads, dim, turned, of := int32(c.Rows*x.Heads), int32(x.Dim), int32(x.Turned), int32(x.Heads)
		return ok && both && e.launch(s, rotates, (int(heads*turned/2)+255)/256, 1, unsafe.Pointer(&m[x.Matrix]), unsafe.Pointer(&cos), unsafe.Pointer(&sin),
			unsafe.Pointer(&heads), unsafe.Pointer(&dim), unsafe.Pointer(&turned), unsafe.Pointer(&of), unsafe.Pointer(&p.places))
	case *kernel.AttendStep:
		if c.Windows != nil {
			return e.attendWhole(s, c, p, x)
		}
		return e.attend(s, c, x)
	case *kernel.AttendBackStep:
		return e.attendBack(s, c, p, x)
	case *kernel.GateStep:
		n := uint64(c.Rows * c.Widths[x.Matrix])
		return e.launch(s, gates, int(n+255)/256, 1, unsafe.Pointer(&m[x.Dst]), unsafe.Pointer(&m[x.Matrix]), unsafe.Pointer(&m[x.By]), unsafe.Pointer(&n))
	case *kernel.GateBackStep:
		n := uint64(c.Rows * c.Widths[x.Matrix])
		return e.launch(s, gateBacks, int(n+255)/256, 1, unsafe.Pointer(&m[x.Matrix]), unsafe.Pointer(&m[x.By]), unsafe.Pointer(&m[x.D]),
			unsafe.Pointer(&n))
	case *kernel.ExpertsStep:
		return e.experts(s, c, p, x)
	case *kernel.AddStep:
		return e.sum(s, m[x.Dst], m[x.Src], c.Rows*c.Widths[x.Dst])
	}
	return false
}

// linear multiplies rows by a matrix that stays on the card.
func (e *Engine) linear(s uintptr, c *kernel.Chain, p *spot, x *kernel.LinearStep) bool {
	m, n, k := int32(c.Rows), int32(c.Widths[x.Dst]), int32(c.Widths[x.Src])
	dst, src := p.matrices[x.Dst], p.matrices[x.Src]
	w, ok := e.keep(x.Weights, int(n), int(k))
	bias, both := e.vector(p, x.Bias)
	byPosition := x.Weights.Layout == kernel.ByPosition
	if !ok || !both {
		return false
	}
	b := factorOf(x.Weights, w.at, int(n), int(k))
	all, rows, tiles := uint64(m)*uint64(n), map[*buffer]uint64{&e.a: panelBytes(int(m), int(k))}, (m+127)/128
	join := func(sums uint64, segments int32) bool {
		return e.launch(s, joins, int(all+255)/256, 1, unsafe.Pointer(&dst), unsafe.Pointer(&sums), unsafe.Pointer(&bias), unsafe.Pointer(&all),
			unsafe.Pointer(&segments), unsafe.Pointer(&n))
	}
	if int(tiles*((n+127)/128)) >= e.busy {
		return e.room(rows) && e.pack(s, e.a.at, src, int(m), int(k)) &&
			e.multiply(s, dst, panels(e.a.at, int(k)), b, int(m), int(n), int(k), false, kernel.All) && (bias == 0 || join(dst, 1))
	}
	segments := (k + kernel.Segment - 1) / kernel.Segment
	rows[&e.part] = 4 * all * uint64(segments)
	if (int(m) >= e.thin || byPosition) && e.room(rows) {
		a := panels(e.a.at, int(k))
		return e.pack(s, e.a.at, src, int(m), int(k)) && e.launch(s, parts, (int(n)+127)/128, int(segments*tiles), unsafe.Pointer(&e.part.at),
			unsafe.Pointer(&a), unsafe.Pointer(&b), unsafe.Pointer(&m), unsafe.Pointer(&n), unsafe.Pointer(&k)) && join(e.part.at, segments)
	}
	if e.failed != nil || byPosition { // thin takes panels
		return false
	}
	return e.launch(s, thin, (int(m)+31)/32, (int(n)+31)/32, unsafe.Pointer(&dst), unsafe.Pointer(&src), unsafe.Pointer(&b), unsafe.Pointer(&bias),
		unsafe.Pointer(&m), unsafe.Pointer(&n), unsafe.Pointer(&k))
}

// attend stores keys and values, and lets the queries attend to them.
func (e *Engine) attend(s uintptr, c *kernel.Chain, x *kernel.AttendStep) bool {
	p, at, m := &c.Pasts.Of[x.Past], e.resident.past[x.Past], e.resident.spot.matrices
	from, first := x.Span(c.At)
	a := attend{
		out: m[x.Dst], keys: at.keys, values: at.values, q: m[x.Queries], k: m[x.Keys], v: m[x.Values],
		rows: int32(c.Rows), heads: int32(x.Heads), shared: int32(x.Heads / p.Heads), key: int32(p.Key), value: int32(p.Value),
		longest: int32(c.Pasts.Length), from: int32(from), first: int32(first), at: int32(c.At), scale: x.Scale,
	}
	n := c.Rows * p.Heads * (p.Key + p.Value)
	return e.launch(s, keeps, (n+255)/256, 1, unsafe.Pointer(&a)) && e.launch(s, attends, x.Heads, c.Rows, unsafe.Pointer(&a))
}
