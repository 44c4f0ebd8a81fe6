package cuda

import (
	goruntime "runtime"
	"slices"
	"unsafe"

	"github.com/llmexport/llmexport/runtime/kernel"
)

// longest is the most positions that sums of attention may have in a chain, widest the most elements of a key or a value, and mostHeads the most
// heads of a block of threads.
const longest, widest, mostHeads = 4096, 256, 4

// busyTiles is the number of tiles of 128 rows of a product from which on a block has a whole one: fewer would leave a part of a card idle at the end.
const busyTiles = 1024

// resident is what chains leave on the card: matrices, and the keys and values of the tokens of all windows so far.
type resident struct {
	of      *kernel.Pasts
	version uint64
	rows    int // windows that there is room for
	at      int // tokens of every window
	memory  buffer
	spot    spot
	past    []pastAt
	states  []uint64  // of steps, see kernel.Pasts
	landing [2]uint64 // of weights that have no room
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
	tables   map[kernel.Step]*table
}

// pastAt is where keys and values of an attention are.
type pastAt struct{ keys, values uint64 }

// attend is the argument of the kernels.
type attend struct {
	out, keys, values, q, k, v                          uint64
	heads, shared, key, value, longest, from, first, at int32
	together, line                                      int32
	scale                                               float32
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
	if !e.fits(c) || !e.inside(c) || !e.use(c) || !e.upload(s, e.resident.spot.matrices[0], values(c.States)) {
		return false
	}
	e.resident.at = -1 // until the result is there
	if !e.steps(s, c, &e.resident.spot) || !e.download(s, values(c.States), e.resident.spot.matrices[0]) ||
		!e.do("cuEventRecord", e.driver.record(e.done, s)) || !e.finishAll() {
		return false
	}
	e.resident.at = c.At + 1
	return true
}

// fits reports whether the kernels have room for the attentions and mixtures of a chain.
func (e *Engine) fits(c *kernel.Chain) bool {
	for _, step := range c.Steps {
		switch x := step.(type) {
		case *kernel.AttendStep:
			p := c.Pasts.Of[x.Past]
			from, _ := x.Span(c.At)
			if heads, _ := e.headsOf(c, x); heads == 0 || c.At+1-from > longest || p.Key > widest || p.Value > widest {
				return false
			}
		case *kernel.ExpertsStep:
			if !routable(c, x) {
				return false
			}
		case *kernel.RecurrenceStep:
			if !recurrent(x) {
				return false
			}
		}
	}
	return true
}

// headsOf is the number of heads of a block of threads, which share keys and values, and the shared memory that they add. It is 0 if there is not so much.
func (e *Engine) headsOf(c *kernel.Chain, x *kernel.AttendStep) (heads, bytes int) {
	p := &c.Pasts.Of[x.Past]
	from, _ := x.Span(c.At)
	n, shared := c.At+1-from, x.Heads/p.Heads
	segments := kernel.Segments(n)
	for heads = min(mostHeads, shared); heads > 0; heads-- {
		if bytes = (4*heads*(n+segments*p.Value) + 15) &^ 15; shared%heads == 0 && bytes <= e.mostAdded {
			break
		}
	}
	return heads, bytes
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
	// Of later tokens the caller has no keys and values, and never what recurrences left.
	if c.At != c.Pasts.Filled || c.At > 0 && c.Pasts.States > 0 {
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
	r.states = make([]uint64, c.Pasts.States)
	largest := uint64(0)
	for _, step := range c.Steps {
		switch x := step.(type) {
		case *kernel.ConvolveStep:
			r.states[x.State] = l.take(c.Rows * (len(x.Taps.Data) - c.Widths[x.Dst]))
		case *kernel.RecurrenceStep:
			r.states[x.State] = l.take(c.Rows * stateFloats(x))
		case *kernel.LinearStep:
			if x.Weights.Layout == kernel.ByPanel {
				largest = max(largest, bytesOf(x.Weights, c.Widths[x.Dst], c.Widths[x.Src]))
			}
		}
	}
	r.landing = [2]uint64{l.take(int(largest / 4)), l.take(int(largest / 4))}
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

// use lets the weights that are on the card stay, and those that the work before used, such as a head, which is used again after the chain; and makes
// room for what the steps need besides. Other weights come when they are used, and stay if there is room left.
func (e *Engine) use(c *kernel.Chain) bool {
	now, widest := e.spent.Products, 0
	e.kept.stay(now)
	var vectors []kernel.Factor
	for _, step := range c.Steps {
		vectors = append(vectors, vectorsOf(step)...)
		switch x := step.(type) {
		case *kernel.LinearStep:
			widest = max(widest, c.Widths[x.Src])
			e.kept.use(x.Weights.Version, now)
		case *kernel.ExpertsStep:
			for _, w := range slices.Concat(x.Gate, x.Up, x.Down) {
				e.kept.use(w.Version, now)
			}
		}
	}
	for _, v := range vectors {
		if _, ok := e.vector(&e.resident.spot, v); !ok {
			return false
		}
	}
	return e.counters() && (e.a.size >= panelBytes(c.Rows, widest) || e.room(map[*buffer]uint64{&e.a: panelBytes(c.Rows, widest)}))
}

// vectorsOf are the vectors that a step reads.
func vectorsOf(step kernel.Step) []kernel.Factor {
	switch x := step.(type) {
	case *kernel.NormStep:
		return []kernel.Factor{x.Gamma}
	case *kernel.NormBackStep:
		return []kernel.Factor{x.Gamma}
	case *kernel.LinearStep:
		return []kernel.Factor{x.Bias}
	case *kernel.RotateStep:
		return []kernel.Factor{x.Cos, x.Sin}
	case *kernel.ConvolveStep:
		return []kernel.Factor{x.Taps, x.Bias}
	case *kernel.RecurrenceStep:
		return []kernel.Factor{x.Decay, x.Bias, x.Direct}
	case *kernel.ExpertsStep:
		return []kernel.Factor{x.Correction, x.Gains}
	case *kernel.ExpertsBackStep:
		return vectorsOf(x.Of)
	}
	return nil
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

// steps puts the steps of a chain into a stream.
func (e *Engine) steps(s uintptr, c *kernel.Chain, p *spot) bool {
	for i := 0; i < len(c.Steps); {
		n := 1
		if all := together(c.Steps[i:]); len(all) > 0 {
			n = len(all)
			if !e.linears(s, c, p, all) {
				return false
			}
		} else if !e.step(s, c, p, c.Steps[i]) {
			return false
		}
		i += n
	}
	return true
}

// together are linear steps that a launch computes: the first ones of the list that read the same matrix.
func together(steps []kernel.Step) (all []*kernel.LinearStep) {
	for _, step := range steps {
		x, ok := step.(*kernel.LinearStep)
		if !ok || len(all) > 0 && (x.Src != all[0].Src || x.Dst == x.Src || all[0].Dst == x.Src) || len(all) == len(layersArgument{}.of) {
			break
		}
		all = append(all, x)
	}
	return all
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
	case *kernel.ExpertsBackStep:
		return e.expertsBack(s, c, p, x)
	case *kernel.SigmoidStep, *kernel.ConvolveStep, *kernel.RecurrenceStep:
		return e.recurrenceStep(s, c, p, step)
	case *kernel.AddStep:
		return e.sum(s, m[x.Dst], m[x.Src], c.Rows*c.Widths[x.Dst])
	}
	return false
}

// linears multiplies rows by matrices: those on the card at the same time, and others one after the other as they come.
func (e *Engine) linears(s uintptr, c *kernel.Chain, p *spot, all []*kernel.LinearStep) bool {
	m, k := c.Rows, c.Widths[all[0].Src]
	if n := panelBytes(m, k); e.a.size < n && // steps before may use what there is
		!(e.do("cuEventRecord", e.driver.record(e.done, s)) && e.room(map[*buffer]uint64{&e.a: n})) {
		return false
	}
	if !e.pack(s, e.a.at, p.matrices[all[0].Src], m, k) {
		return false
	}
	e.inA = 0
	a, tiles := panels(e.a.at, k), (m+127)/128
	var narrowed, others []layer
	for _, x := range all {
		n := c.Widths[x.Dst]
		bias, ok := e.vector(p, x.Bias)
		turned := x.Weights.Layout == kernel.ByPosition // layers have panels
		if !ok || turned && bias != 0 {
			return false
		}
		l := layer{dst: p.matrices[x.Dst], bias: bias, n: n}
		w, stays := e.keep(x.Weights, n, k)
		if l.b = factorOf(x.Weights, w.at, n, k); !stays {
			if c.Windows != nil || x.Weights.Layout != kernel.ByPanel || !e.passes(s, x.Weights, l, a, m, k) {
				return false
			}
			continue
		}
		switch {
		case l.b.narrow != 0:
			narrowed = append(narrowed, l)
		case turned || bias == 0 && tiles*((n+127)/128) >= e.busy:
			if !e.multiply(s, l.dst, a, l.b, m, n, k, false, kernel.All) {
				return false
			}
		default:
			others = append(others, l)
		}
	}
	return (narrowed == nil || e.layers(s, a, m, k, narrowed)) && (others == nil || e.layers(s, a, m, k, others))
}

// passes multiplies rows by a matrix that has no room, which comes while the steps before are computed.
func (e *Engine) passes(s uintptr, f kernel.Factor, l layer, a factor, m, k int) bool {
	if e.failed != nil {
		return false
	}
	e.side = 1 - e.side
	l.b.at = e.resident.landing[e.side]
	up, free := e.streams[1], e.landed[e.side]
	return e.do("cuStreamWaitEvent", e.driver.after(up, free, 0)) && e.send(up, l.b.at, f, l.n, k) && e.do("cuEventRecord", e.driver.record(e.done, up)) &&
		e.do("cuStreamWaitEvent", e.driver.after(s, e.done, 0)) && e.layers(s, a, m, k, []layer{l}) && e.do("cuEventRecord", e.driver.record(free, s))
}

// attend stores keys and values, and lets the queries attend to them.
func (e *Engine) attend(s uintptr, c *kernel.Chain, x *kernel.AttendStep) bool {
	p, at, m := &c.Pasts.Of[x.Past], e.resident.past[x.Past], e.resident.spot.matrices
	from, first := x.Span(c.At)
	a := attend{
		out: m[x.Dst], keys: at.keys, values: at.values, q: m[x.Queries], k: m[x.Keys], v: m[x.Values],
		heads: int32(x.Heads), shared: int32(x.Heads / p.Heads), key: int32(p.Key), value: int32(p.Value),
		longest: int32(c.Pasts.Length), from: int32(from), first: int32(first), at: int32(c.At), scale: x.Scale,
	}
	together, bytes := e.headsOf(c, x)
	a.together, a.line = int32(together), int32(c.At+1-from)
	e.added[attends] = uint32(bytes)
	return e.launch(s, attends, x.Heads/together, c.Rows, unsafe.Pointer(&a))
}
