package cuda

import (
	"slices"
	"unsafe"

	"github.com/llmexport/llmexport/runtime/kernel"
)

// wholeRows is the number of queries that a block of threads takes.
const wholeRows = 32

// backKeys is the number of keys that a block of threads takes on the way back.
const backKeys = 64

// wholeArgument is the argument of the kernel.
type wholeArgument struct {
	out, q, k, v, starts, lengths, from, first, weights uint64
	heads, shared, key, value, together, line, longest  int32
	scale                                               float32
}

// backArgument is that of the way back.
type backArgument struct {
	dq, dk, dv, ds, q, k, v, o, d, p, starts, lengths, from, first uint64
	heads, shared, key, value, together, line, longest             int32
	scale                                                          float32
}

// whole takes all tokens of some windows through the steps of a chain. Out is arbitrary if that fails.
func (e *Engine) whole(c *kernel.Chain) bool {
	for _, step := range c.Steps {
		switch x := step.(type) {
		case *kernel.AttendStep:
			if key, _, value := dims(c, x.Queries, x.Keys, x.Values, x.Heads); !e.attendable(c, key, x.Together, x.Span) || x.Dst == x.Queries && key != value ||
				x.Together%wholeRows != 0 {
				return false
			}
		case *kernel.AttendBackStep:
			key, kv, value := dims(c, x.Queries, x.Keys, x.Values, x.Heads)
			if !e.attendable(c, max(key, value), x.Together, x.Span) || x.Heads/kv*x.Together > kernel.Segment {
				return false
			}
		case *kernel.RecurrenceStep:
			if !recurrent(x) || recurrenceMemory(x) > e.mostAdded {
				return false
			}
		}
	}
	// Weights first: without room for them nothing else is worth bringing. Those of the way back are turned into those of the way forth.
	for _, step := range slices.Backward(c.Steps) {
		switch x := step.(type) {
		case *kernel.LinearStep:
			if _, ok := e.keep(x.Weights, c.Widths[x.Dst], c.Widths[x.Src]); !ok {
				return false
			}
		case *kernel.ExpertsStep:
			if _, ok := e.expertWeights(c, x); !ok || !routable(c, x) {
				return false
			}
		case *kernel.ExpertsBackStep:
			if _, ok := e.expertBackWeights(c, x); !ok || !routable(c, x.Of) {
				return false
			}
		}
	}
	sums := make([]uint64, len(c.Moments))
	for i, x := range c.Moments { // all of them, before anything is added to one
		b, ok := e.stay(&kernel.Product{Dst: x.Dst, Rows: x.N, Cols: x.N, Stay: true})
		if !ok {
			return false
		}
		sums[i] = b.at
	}
	var l layout
	new(spot).layWhole(&l, c)
	var ok bool
	if !e.room(nil) {
		return false
	}
	if e.passing, ok = e.more(uint64(l)); !ok {
		return false
	}
	defer e.release(&e.passing)
	l = layout(e.passing.at)
	p, s := new(spot), e.streams[0]
	if !e.bringWhole(s, p.layWhole(&l, c)) || !e.upload(s, p.matrices[0], values(c.States)) {
		return false
	}
	for _, x := range c.Given {
		if !e.upload(s, p.matrices[x.Matrix], values(x.Data)) {
			return false
		}
	}
	if !e.steps(s, c, p) {
		return false
	}
	for _, x := range c.Taken {
		if !e.download(s, values(x.Data), p.matrices[x.Matrix]) {
			return false
		}
	}
	if !e.download(s, values(c.Out), p.matrices[c.Result]) || !e.do("cuEventRecord", e.driver.record(e.done, s)) || !e.finishAll() {
		return false
	}
	return len(sums) == 0 || !kernel.Finite(0, c.Out) || e.addMoments(c, p, sums)
}

// addMoments adds windows to sums that stay, several at the same time.
func (e *Engine) addMoments(c *kernel.Chain, p *spot, sums []uint64) bool {
	if !e.fence(e.streams[0]) {
		return false
	}
	for i, x := range c.Moments {
		width, at := c.Widths[x.Matrix], p.matrices[x.Matrix]+4*uint64(x.From)
		for _, n := range c.Windows {
			f := factor{at + 4*uint64(x.Skip*width), kernel.PanelRows, int64(width), 0}
			if n > x.Skip && !e.multiply(e.streams[i%lanes], sums[i], f, f, x.N, x.N, n-x.Skip, true, kernel.All) {
				return false
			}
			at += 4 * uint64(n*width)
		}
	}
	for _, s := range e.streams[1:] {
		if !e.do("cuEventRecord", e.driver.record(e.done, s)) || !e.do("cuStreamWaitEvent", e.driver.after(e.streams[0], e.done, 0)) {
			return false
		}
	}
	return e.fence(e.streams[0])
}

// attendable reports whether the kernels compute attention of whole windows: sums of scores are a segment, and a row of them fits.
func (e *Engine) attendable(c *kernel.Chain, dim, together int, span func(int) (from, first int)) bool {
	return dim <= kernel.Segment && 4*wholeRows*line(c, together, span) <= e.mostAdded
}

// dims are the widths of keys, the number of their heads, and the widths of values.
func dims(c *kernel.Chain, queries, keys, values, heads int) (key, kv, value int) {
	key = c.Widths[queries] / heads
	kv = c.Widths[keys] / key
	return key, kv, c.Widths[values] / kv
}

// line is the number of floats of a row of scores.
func line(c *kernel.Chain, together int, span func(int) (from, first int)) (n int) {
	longest := c.Longest()
	for i := 0; i < longest; i += together {
		from, _ := span(i)
		n = max(n, min(i+together, longest)-from)
	}
	return (n + 3) &^ 3
}

// small is what a chain of whole windows brings besides states and weights.
type small struct {
	at uint64
	of []float32
}

// layWhole gives out memory, and lists what has to be brought.
func (p *spot) layWhole(l *layout, c *kernel.Chain) (list []small) {
	p.lay(l, c)
	bring := func(x []float32) uint64 {
		at := l.take(len(x))
		list = append(list, small{at, x})
		return at
	}
	places, starts, lengths := make([]int, 0, c.Rows), make([]int, 0, len(c.Windows)), c.Windows
	for _, n := range lengths {
		starts = append(starts, len(places))
		for i := range n {
			places = append(places, i)
		}
	}
	p.places = bring(integers(places))
	p.windows = bring(integers(append(starts, lengths...)))
	p.vectors, p.spans, p.gammas = map[*float32]uint64{}, map[kernel.Step]uint64{}, map[kernel.Step][2]uint64{}
	vector := func(f kernel.Factor) {
		if len(f.Data) == 0 || f.Version != 0 {
			return
		}
		if _, ok := p.vectors[&f.Data[0]]; !ok {
			p.vectors[&f.Data[0]] = bring(f.Data)
		}
	}
	span := func(step kernel.Step, f func(int) (from, first int)) {
		n := c.Longest()
		spans := make([]int, 2*n)
		for i := range n {
			spans[i], spans[n+i] = f(i)
		}
		p.spans[step] = bring(integers(spans))
	}
	for _, step := range c.Steps {
		for _, f := range vectorsOf(step) {
			vector(f)
		}
		switch x := step.(type) {
		case *kernel.NormBackStep:
			if x.Sums != nil {
				p.gammas[x] = [2]uint64{l.take(2 * c.Rows * c.Widths[x.X] / len(x.Gamma.Data)), l.take(2 * len(x.Sums))}
			}
		case *kernel.AttendStep:
			span(x, x.Span)
		case *kernel.AttendBackStep:
			span(x, x.Span)
		}
	}
	return list
}

func (e *Engine) bringWhole(s uintptr, list []small) bool {
	for _, x := range list {
		if !e.upload(s, x.at, values(x.of)) {
			return false
		}
	}
	return true
}

// attendWhole lets the queries of whole windows attend to their keys.
func (e *Engine) attendWhole(s uintptr, c *kernel.Chain, p *spot, x *kernel.AttendStep) bool {
	key, kv, value := dims(c, x.Queries, x.Keys, x.Values, x.Heads)
	n, m, width := c.Longest(), p.matrices, line(c, x.Together, x.Span)
	a := wholeArgument{
		out: m[x.Dst], q: m[x.Queries], k: m[x.Keys], v: m[x.Values], starts: p.windows, lengths: p.windows + 4*uint64(len(c.Windows)),
		from: p.spans[x], first: p.spans[x] + 4*uint64(n), heads: int32(x.Heads), shared: int32(x.Heads / kv), key: int32(key), value: int32(value),
		together: int32(x.Together), line: int32(width), longest: int32(n), scale: x.Scale,
	}
	if x.Weights != 0 {
		a.weights = m[x.Weights]
	}
	e.added[wholes] = uint32(4 * wholeRows * width)
	return e.launch(s, wholes, x.Heads*((n+wholeRows-1)/wholeRows), len(c.Windows), unsafe.Pointer(&a))
}

// normBack is the way back through a norm, and brings sums of the gradients of its factors.
func (e *Engine) normBack(s uintptr, c *kernel.Chain, p *spot, x *kernel.NormBackStep) bool {
	gamma, ok := e.vector(p, x.Gamma)
	width, m := int32(len(x.Gamma.Data)), p.matrices
	runs, eps, at := int32(c.Rows*c.Widths[x.X])/width, x.Eps, p.gammas[x]
	if !ok || !e.launch(s, normBacks, (int(runs)+7)/8, 1, unsafe.Pointer(&m[x.Dst]), unsafe.Pointer(&m[x.Src]), unsafe.Pointer(&m[x.X]),
		unsafe.Pointer(&gamma), unsafe.Pointer(&at[0]), unsafe.Pointer(&runs), unsafe.Pointer(&width), unsafe.Pointer(&eps)) {
		return false
	}
	if x.Sums == nil {
		return true
	}
	span, spans := int32(x.Span), len(x.Sums)/int(width)
	return e.launch(s, gammaBacks, (int(width)+255)/256, spans, unsafe.Pointer(&at[1]), unsafe.Pointer(&m[x.Src]), unsafe.Pointer(&m[x.X]),
		unsafe.Pointer(&at[0]), unsafe.Pointer(&runs), unsafe.Pointer(&width), unsafe.Pointer(&span)) &&
		e.download(s, values(unsafe.Slice((*float32)(unsafe.Pointer(&x.Sums[0])), 2*len(x.Sums))), at[1])
}

// attendBack is the way back.
func (e *Engine) attendBack(s uintptr, c *kernel.Chain, p *spot, x *kernel.AttendBackStep) bool {
	key, kv, value := dims(c, x.Queries, x.Keys, x.Values, x.Heads)
	n, m, width := c.Longest(), p.matrices, line(c, x.Together, x.Span)
	a := backArgument{
		dq: m[x.DQueries], dk: m[x.DKeys], dv: m[x.DValues], ds: m[x.Scores], q: m[x.Queries], k: m[x.Keys], v: m[x.Values], o: m[x.Out],
		d: m[x.DOut], p: m[x.Weights], starts: p.windows, lengths: p.windows + 4*uint64(len(c.Windows)), from: p.spans[x], first: p.spans[x] + 4*uint64(n),
		heads: int32(x.Heads), shared: int32(x.Heads / kv), key: int32(key), value: int32(value), together: int32(x.Together), line: int32(width),
		longest: int32(n), scale: x.Scale,
	}
	e.added[queryBacks] = uint32(4 * wholeRows * width)
	blocks, tiles := (n+x.Together-1)/x.Together, (x.Together+wholeRows-1)/wholeRows
	return e.launch(s, queryBacks, x.Heads*blocks*tiles, len(c.Windows), unsafe.Pointer(&a)) &&
		e.launch(s, keyBacks, 2*kv*((n+backKeys-1)/backKeys), len(c.Windows), unsafe.Pointer(&a))
}
