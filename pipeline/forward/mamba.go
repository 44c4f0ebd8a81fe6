package forward

import (
	"cmp"
	"context"
	"fmt"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/pipeline/effort"
	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/tensor"
)

type mamba struct{ *arch.Mamba2 }

func (a mamba) inner() int { return a.Heads * a.HeadDim }
func (a mamba) xbc() int   { return a.inner() + 2*a.Groups*a.State }

func (a mamba) check(m *Model) error {
	if a.Heads < 1 || a.Groups < 1 || a.Heads%a.Groups != 0 {
		return fmt.Errorf("%d heads in %d groups: %w", a.Heads, a.Groups, tensor.ErrCorrupt)
	}
	for _, dims := range [][]int{{a.Heads, a.HeadDim}, {a.Groups, a.State}, {a.State, a.HeadDim}} {
		if _, err := width("heads", dims...); err != nil {
			return err
		}
	}
	if !(a.TimeMin >= 0 && a.TimeMax > a.TimeMin) {
		return fmt.Errorf("times from %v to %v: %w", a.TimeMin, a.TimeMax, tensor.ErrCorrupt)
	}
	hidden := m.decoder.Hidden
	return cmp.Or(
		m.checkNorm("mamba norm", a.Norm, a.inner()),
		m.checkTaps(a.Taps, a.ConvBias, a.xbc()),
		m.checkWeight("time bias", a.DtBias, a.Heads, 0),
		m.checkWeight("decay", a.Decay, a.Heads, 0),
		m.checkWeight("direct factor", a.D, a.Heads, 0),
		m.checkLinears(
			slot{"mamba.z", &a.Z, a.inner(), hidden}, slot{"mamba.xbc", &a.XBC, a.xbc(), hidden},
			slot{"mamba.dt", &a.Dt, a.Heads, hidden}, slot{"mamba.out", &a.Out, hidden, a.inner()},
		),
	)
}

func (a mamba) cost() cost {
	return cost{token: 2*a.inner() + a.xbc() + 2*a.Heads, fixed: a.recurrence().floats() + a.unit()}
}

func (a mamba) past() pastShape {
	return pastShape{inputs: (len(a.Taps) - 1) * a.xbc(), sums: a.slices() * a.unit()}
}

// recurrence is that of a head: queries are c, keys b, values x times the time.
func (a mamba) recurrence() recurrence { return recurrence{a.State, a.HeadDim} }

// headSlice is how many heads of a group a thread computes together, at most. It affects bits of gradients.
const headSlice = 4

// slices is the number of slices of heads.
func (a mamba) slices() int { return a.Groups * ((a.Heads/a.Groups + headSlice - 1) / headSlice) }

// slice returns the heads from first to end-1 and their group.
func (a mamba) slice(i int) (group, first, end int) {
	each, size := a.slices()/a.Groups, a.Heads/a.Groups
	group = i / each
	first = group*size + i%each*headSlice
	return group, first, min(first+headSlice, (group+1)*size)
}

// unitHeads is the number of heads of a slice, at most.
func (a mamba) unitHeads() int { return min(headSlice, a.Heads/a.Groups) }

// unit is the memory of the recurrences of a slice: the keys of a chunk [chunkTokens, State], and the traces of the heads.
func (a mamba) unit() int { return chunkTokens*a.State + a.unitHeads()*a.recurrence().trace() }

// scaleParts multiplies x, b and c of every row by their factors.
func (a mamba) scaleParts(rows []float32) {
	at := 0
	for k, n := range []int{a.inner(), a.Groups * a.State, a.Groups * a.State} {
		if f := float32(a.Scales[1+k]); f != 0 && f != 1 {
			for lo := at; lo < len(rows); lo += a.xbc() {
				kernel.Scale(rows[lo:lo+n], rows[lo:lo+n], f)
			}
		}
		at += n
	}
}

func (a mamba) last() *arch.Linear { return &a.Out }

func (a mamba) inputs() [][]*arch.Linear { return [][]*arch.Linear{{&a.Z, &a.XBC, &a.Dt}, {&a.Out}} }

func (a mamba) norms() []*arch.Norm { return []*arch.Norm{a.Norm} }

func (a mamba) run(ctx context.Context, s *space, x []float32) ([]float32, error) {
	return a.compute(ctx, s, x, nil)
}

// scanned holds the values that Mamba 2 computes with.
type scanned struct {
	bias, decay, direct []float32
	xbc                 []float32 // after convolution and SiLU [tokens, xbc]
	time, keep          []float32 // times and decays [tokens, Heads]
	// For the backward pass: the input; xbc before SiLU; times before their bias; the gate before SiLU; and the outputs of the
	// recurrence, before and after the gate.
	x, plain, dt, z, out, gated []float32
}

// compute is run; if w is not nil, it stores there the values that the backward pass needs.
func (a mamba) compute(ctx context.Context, s *space, x []float32, w *scanned) ([]float32, error) {
	in, err := s.projections(ctx, x, &a.Z, &a.XBC, &a.Dt)
	if err != nil {
		return nil, err
	}
	v, err := s.vectors(a.DtBias, a.Decay, a.D)
	if err != nil {
		return nil, err
	}
	z, r := in[0], scanned{bias: v[0], decay: v[1], direct: v[2], xbc: in[1], time: in[2], keep: s.take(a.Heads)}
	s.scaleAll(z, a.Scales[0])
	s.scaleAll(r.time, a.Scales[4])
	a.scaleParts(r.xbc)
	if err := s.convolve(ctx, a, r.xbc, a.xbc(), a.Taps, a.ConvBias); err != nil {
		return nil, err
	}
	if w != nil {
		r.x, r.plain, r.dt, r.z = x, s.clone(r.xbc), s.clone(r.time), s.clone(z)
	}
	s.siluAll(r.xbc)
	for i, t := range r.time {
		h := i % a.Heads
		r.time[i] = float32(min(max(kernel.Softplus(float64(t)+float64(r.bias[h])), a.TimeMin), a.TimeMax))
		r.keep[i] = float32(kernel.Exp(float64(r.time[i]) * float64(r.decay[h])))
	}
	o := s.take(a.inner())
	s.tally.Add(effort.Element, len(r.xbc)+len(z))
	s.tally.AddWork(a.recurrence().work(a.unitHeads()).Times(float64(len(r.keep))))
	if err := s.each(ctx, len(s.lengths)*a.slices(), func(u int, b *buffer) error {
		a.scan(s, o, &r, u/a.slices(), u%a.slices(), b)
		return nil
	}); err != nil {
		return nil, err
	}
	if w != nil {
		r.out = s.clone(o)
	}
	s.siluAll(z)
	s.mulAll(o, z)
	if w != nil {
		r.gated = s.clone(o)
		*w = r
	}
	return o, s.norm(o, o, a.Norm)
}

// scan computes the outputs o of a slice of heads for the tokens of a window.
func (a mamba) scan(s *space, o []float32, r *scanned, window, slice int, b *buffer) {
	group, first, end := a.slice(slice)
	c, rest := a.recurrence().chunk(grow(&b.floats, a.cost().fixed))
	_, tokens := s.past(a, window)
	keys, traces := cut(s.sums(a, window, slice*a.unit(), (slice+1)*a.unit(), rest), chunkTokens*a.State)
	c.k = keys
	start, size := s.starts[window]-tokens, c.trace()
	for at, last := tokens, tokens+s.lengths[window]; at < last; at += c.n - c.first {
		c.first = at % chunkTokens
		c.n = min(chunkTokens, c.first+last-at)
		a.load(&c, r, group, start+at-c.first)
		for head := first; head < end; head++ {
			trace := traces[(head-first)*size:][:size]
			a.write(&c, r, head, start+at-c.first, trace)
			c.read(o[(start+at)*a.inner()+head*a.HeadDim:], a.inner(), trace)
			if c.n == chunkTokens {
				c.advance(trace, trace)
			}
		}
	}
	for t := range s.lengths[window] {
		row, y := r.xbc[(s.starts[window]+t)*a.xbc():], o[(s.starts[window]+t)*a.inner():]
		for head := first; head < end; head++ {
			y := y[head*a.HeadDim:][:a.HeadDim]
			for j, x := range row[head*a.HeadDim:][:a.HeadDim] {
				y[j] += float32(r.direct[head] * x)
			}
		}
	}
}

// load adds the new tokens to a chunk whose first token would be at start, for the heads of a group.
func (a mamba) load(c *chunk, r *scanned, group, start int) {
	for i := c.first; i < c.n; i++ {
		row := r.xbc[(start+i)*a.xbc()+a.inner()+group*a.State:]
		copy(c.key(i), row)
		copy(c.query(i), row[a.Groups*a.State:])
	}
	c.multiply(c.qk, c.q)
}

// write completes the trace of a head in a chunk whose first token would be at start.
func (a mamba) write(c *chunk, r *scanned, head, start int, trace []float32) {
	keep, u := c.decays(trace), trace[c.state():]
	for i := c.first; i < c.n; i++ {
		at := (start+i)*a.Heads + head
		keep[i] = r.keep[at]
		kernel.Scale(u[i*a.HeadDim:][:a.HeadDim], r.xbc[(start+i)*a.xbc()+head*a.HeadDim:][:a.HeadDim], r.time[at])
	}
	c.decay(keep)
}

func (a mamba) record(ctx context.Context, s *space, x []float32) ([]float32, gradient, error) {
	w := new(scanned)
	y, err := a.compute(ctx, s, x, w)
	return y, func(dy []float32, v Visitor) ([]float32, error) { return a.back(ctx, s, w, dy, v) }, err
}

// back turns dy, the gradient of the input of Out, into that of the input of the block. It changes dy.
func (a mamba) back(ctx context.Context, s *space, w *scanned, dy []float32, v Visitor) ([]float32, error) {
	if a.Norm != nil {
		s.held.norm(a.Norm).back(w.gated, dy, a.inner(), v)
	}
	silu := &activation{Activation: arch.SiLU}
	s.pieces(len(dy), func(lo, hi int) { silu.back(dy[lo:hi], w.z[lo:hi], w.out[lo:hi]) })

	s.tally.Add(effort.Element, len(w.plain)+len(dy))
	s.tally.AddWork(a.recurrence().backWork(a.unitHeads()).Times(float64(len(w.keep))))
	g := mambaGradient{scanned: w, mamba: a, do: w.out}
	g.dxbc, g.dtime, g.dcb = s.take(a.xbc()), s.take(a.Heads), s.take(2*a.slices()*a.State)
	if err := s.each(ctx, len(s.lengths)*a.slices(), func(u int, b *buffer) error {
		g.run(u%a.slices(), s.starts[u/a.slices()], s.lengths[u/a.slices()], b)
		return nil
	}); err != nil {
		return nil, err
	}
	s.eachToken(g.collect)
	for i, t := range w.dt {
		raw := float64(t) + float64(w.bias[i%a.Heads])
		if time := kernel.Softplus(raw); time < a.TimeMin || time > a.TimeMax {
			g.dtime[i] = 0
		}
		g.dtime[i] = float32(float64(g.dtime[i]) * sigmoid(raw))
	}
	s.pieces(len(w.plain), func(lo, hi int) { silu.back(g.dxbc[lo:hi], w.plain[lo:hi], nil) })
	if err := s.convolveBack(w.plain, a.xbc(), a.Taps); err != nil {
		return nil, err
	}
	a.scaleParts(w.plain)
	s.scaleAll(g.dtime, a.Scales[4])
	s.scaleAll(w.z, a.Scales[0])
	return s.gather(w.x, v, flow{&a.Z, w.z}, flow{&a.XBC, w.plain}, flow{&a.Dt, g.dtime}), nil
}

// mambaGradient is the backward pass of recurrences.
type mambaGradient struct {
	*scanned
	mamba mamba
	do    []float32 // gradient of the outputs
	// Results: dxbc [tokens, xbc], which run completes for x and collect for b and c, dtime [tokens, Heads], and the parts dcb
	// [tokens, slices, 2, State] of the gradients of c and b.
	dxbc, dtime, dcb []float32
}

// run computes a slice of heads for the n tokens from start on: forward, for the states before the chunks, and then the chunks
// from the last to the first.
func (g *mambaGradient) run(slice, start, n int, b *buffer) {
	a, r := g.mamba, g.mamba.recurrence()
	group, first, end := a.slice(slice)
	chunks, heads := (n+chunkTokens-1)/chunkTokens, end-first
	c, f := r.gradient(grow(&b.floats, r.backFloats()+heads*(chunks*r.trace()+r.gradients())))
	clear(f)
	gradients, traces := cut(f, heads*r.gradients())
	trace := func(chunk, head int) []float32 { return traces[(chunk*heads+head-first)*r.trace():][:r.trace()] }
	load := func(chunk int) (at int) {
		at = chunk * chunkTokens
		c.resize(min(chunkTokens, n-at))
		a.load(&c.chunk, g.scanned, group, start+at)
		return start + at
	}
	for chunk := range chunks {
		at := load(chunk)
		for head := first; head < end; head++ {
			a.write(&c.chunk, g.scanned, head, at, trace(chunk, head))
			if chunk+1 < chunks {
				c.advance(trace(chunk+1, head), trace(chunk, head))
			}
		}
	}
	for chunk := chunks - 1; chunk >= 0; chunk-- {
		at := load(chunk)
		clear(c.total)
		for head := first; head < end; head++ {
			g.head(&c, head, at, gradients[(head-first)*r.gradients():], trace(chunk, head))
		}
		for i := range c.n {
			part := g.dcb[((at+i)*a.slices()+slice)*2*a.State:]
			copy(part, c.total[i*a.State:][:a.State])
			copy(part[a.State:], c.total[(c.n+i)*a.State:][:a.State])
		}
	}
}

// head runs the chunk that begins at token start back for a head.
func (g *mambaGradient) head(c *chunkGradient, head, start int, gradients, trace []float32) {
	a, at := g.mamba, start*g.mamba.Heads+head
	c.decay(c.decays(trace))
	for i := range c.n {
		copy(gradients[c.state()+i*c.values:][:c.values], g.do[(start+i)*a.inner()+head*a.HeadDim:])
	}
	c.backValues(gradients)
	c.back(gradients, trace)
	c.rates(func(i int, rate float64) { g.dtime[at+i*a.Heads] = float32(rate * float64(g.decay[head])) })
	for i := range c.n {
		token, du := start+i, c.du[i*a.HeadDim:][:a.HeadDim]
		from := token*a.xbc() + head*a.HeadDim
		g.dtime[at+i*a.Heads] += float32(dotProduct(g.xbc[from:][:a.HeadDim], du))
		time, direct := g.time[at+i*a.Heads], g.direct[head]
		dx, do := g.dxbc[from:][:a.HeadDim], g.do[token*a.inner()+head*a.HeadDim:][:a.HeadDim]
		for j, d := range du {
			dx[j] = float32(time*d) + float32(direct*do[j])
		}
	}
}

// collect sums the parts of the gradients of c and b of a token over the slices of each group.
func (g *mambaGradient) collect(token int) {
	a := g.mamba
	b, c := cut(g.dxbc[token*a.xbc()+a.inner():][:2*a.Groups*a.State], a.Groups*a.State)
	clear(b)
	clear(c)
	for slice := range a.slices() {
		group, _, _ := a.slice(slice)
		part := g.dcb[(token*a.slices()+slice)*2*a.State:]
		sum := c[group*a.State:][:a.State]
		kernel.Add(sum, sum, part[:a.State])
		sum = b[group*a.State:][:a.State]
		kernel.Add(sum, sum, part[a.State:2*a.State])
	}
}
