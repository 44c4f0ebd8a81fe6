package cuda

import (
	"unsafe"

	"github.com/llmexport/llmexport/runtime/kernel"
)

// wholeRows is the number of queries that a block of threads takes.
const wholeRows = 32

// wholeArgument is the argument of the kernel.
type wholeArgument struct {
	out, q, k, v, starts, lengths, from, first uint64
	heads, shared, key, value, together, line  int32
	scale                                      float32
}

// whole takes all tokens of some windows through the steps of a chain. Out is arbitrary if that fails.
func (e *Engine) whole(c *kernel.Chain) bool {
	for _, step := range c.Steps {
		switch x := step.(type) {
		case *kernel.AttendStep:
			if !e.attendable(c, x) {
				return false
			}
		case *kernel.LinearStep: // weights first: without room for them nothing else is worth bringing
			if _, ok := e.keep(x.Weights, c.Widths[x.Dst], c.Widths[x.Src]); !ok {
				return false
			}
		}
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
	for _, step := range c.Steps {
		if !e.step(s, c, p, step) {
			return false
		}
	}
	return e.download(s, values(c.Out), p.matrices[c.Result]) && e.do("cuEventRecord", e.driver.record(e.done, s)) && e.finishAll()
}

// attendable reports whether the kernel computes an attention of whole windows.
func (e *Engine) attendable(c *kernel.Chain, x *kernel.AttendStep) bool {
	key, _, value := dims(c, x)
	return key <= kernel.Segment && (x.Dst != x.Queries || key == value) && x.Together%wholeRows == 0 && 4*wholeRows*line(c, x) <= e.mostAdded
}

// dims are the widths of keys, the number of their heads, and the widths of values.
func dims(c *kernel.Chain, x *kernel.AttendStep) (key, kv, value int) {
	key = c.Widths[x.Queries] / x.Heads
	kv = c.Widths[x.Keys] / key
	return key, kv, c.Widths[x.Values] / kv
}

// line is the number of floats of a row of scores.
func line(c *kernel.Chain, x *kernel.AttendStep) (n int) {
	longest := c.Longest()
	for i := 0; i < longest; i += x.Together {
		from, _ := x.Span(i)
		n = max(n, min(i+x.Together, longest)-from)
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
	p.vectors, p.spans = map[*float32]uint64{}, map[*kernel.AttendStep]uint64{}
	vector := func(f kernel.Factor) {
		if len(f.Data) == 0 || f.Version != 0 {
			return
		}
		if _, ok := p.vectors[&f.Data[0]]; !ok {
			p.vectors[&f.Data[0]] = bring(f.Data)
		}
	}
	for _, step := range c.Steps {
		switch x := step.(type) {
		case *kernel.NormStep:
			vector(x.Gamma)
		case *kernel.LinearStep:
			vector(x.Bias)
		case *kernel.RotateStep:
			vector(x.Cos)
			vector(x.Sin)
		case *kernel.AttendStep:
			n := c.Longest()
			spans := make([]int, 2*n)
			for i := range n {
				spans[i], spans[n+i] = x.Span(i)
			}
			p.spans[x] = bring(integers(spans))
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
	key, kv, value := dims(c, x)
	n, m := c.Longest(), p.matrices
	a := wholeArgument{
		out: m[x.Dst], q: m[x.Queries], k: m[x.Keys], v: m[x.Values], starts: p.windows, lengths: p.windows + 4*uint64(len(c.Windows)),
		from: p.spans[x], first: p.spans[x] + 4*uint64(n), heads: int32(x.Heads), shared: int32(x.Heads / kv), key: int32(key), value: int32(value),
		together: int32(x.Together), line: int32(line(c, x)), scale: x.Scale,
	}
	e.added[wholes] = uint32(4 * wholeRows * line(c, x))
	return e.launch(s, wholes, x.Heads*((n+wholeRows-1)/wholeRows), len(c.Windows), unsafe.Pointer(&a))
}
