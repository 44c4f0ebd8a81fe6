package forward

import (
	"cmp"
	"context"
	"fmt"
	"math"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/pipeline/effort"
	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// unitEpsilon is added to the sum of squares of a query or a key before division by its root. It belongs to the gated delta rule
// of Qwen3-Next and Qwen3.5 (l2norm in transformers).
const unitEpsilon = 1e-6

type delta struct{ *arch.DeltaNet }

func (d delta) keys() int   { return d.KeyHeads * d.KeyDim }
func (d delta) values() int { return d.ValueHeads * d.ValueDim }

// mixed is the width of queries, keys and values, which go through the convolution.
func (d delta) mixed() int { return 2*d.keys() + d.values() }

// shared is the number of value heads that share a key head.
func (d delta) shared() int { return d.ValueHeads / d.KeyHeads }

// rule is the recurrence of a head.
func (d delta) rule() rule { return rule{recurrence{d.KeyDim, d.ValueDim}} }

// unit is the memory of the recurrences of a key head: the keys of a chunk [chunkTokens, KeyDim], and the traces of value heads.
func (d delta) unit() int { return chunkTokens*d.KeyDim + d.shared()*d.rule().trace() }

func (d delta) check(m *Model) error {
	if d.KeyHeads < 1 || d.ValueHeads < 1 || d.ValueHeads%d.KeyHeads != 0 {
		return fmt.Errorf("%d value heads, %d key heads: %w", d.ValueHeads, d.KeyHeads, tensor.ErrCorrupt)
	}
	for _, dims := range [][]int{{d.KeyHeads, d.KeyDim}, {d.ValueHeads, d.ValueDim}, {d.KeyDim, d.ValueDim}} {
		if _, err := width("heads", dims...); err != nil {
			return err
		}
	}
	hidden, qkv := m.decoder.Hidden, d.mixed()
	return cmp.Or(
		m.checkTaps(d.Taps, arch.Weight{}, qkv),
		m.checkWeight("decay", d.Decay, d.ValueHeads, 0),
		m.checkWeight("time bias", d.DtBias, d.ValueHeads, 0),
		m.checkNorm("delta norm", &d.Norm, d.ValueDim),
		m.checkLinears(
			slot{"delta.qkv", &d.QKV, qkv, hidden}, slot{"delta.z", &d.Z, d.values(), hidden},
			slot{"delta.b", &d.B, d.ValueHeads, hidden}, slot{"delta.a", &d.A, d.ValueHeads, hidden},
			slot{"delta.out", &d.Out, hidden, d.values()},
		),
	)
}

func (d delta) cost() cost {
	return cost{token: d.mixed() + 2*d.values() + 2*d.ValueHeads, fixed: d.rule().floats() + d.unit()}
}

func (d delta) past() pastShape {
	return pastShape{inputs: (len(d.Taps) - 1) * d.mixed(), sums: d.KeyHeads * d.unit()}
}

func (d delta) last() *arch.Linear { return &d.Out }

func (d delta) inputs() [][]*arch.Linear {
	return [][]*arch.Linear{{&d.QKV, &d.Z, &d.B, &d.A}, {&d.Out}}
}

func (d delta) norms() []*arch.Norm { return []*arch.Norm{&d.Norm} }

func (d delta) run(ctx context.Context, s *space, x []float32) ([]float32, error) {
	return d.compute(ctx, s, x, nil)
}

// remembered holds the values that a delta net computes with.
type remembered struct {
	decay, bias []float32
	qkv         []float32 // after convolution and SiLU [tokens, mixed]
	beta, keep  []float32 // strengths and decays [tokens, ValueHeads]
	// For the backward pass: the input; queries, keys and values before SiLU; times before their bias; the gate before SiLU; and
	// the outputs of the recurrence, before and after the norm.
	x, plain, a, z, out, normed []float32
}

// compute is run; if w is not nil, it stores there the values that the backward pass needs.
func (d delta) compute(ctx context.Context, s *space, x []float32, w *remembered) ([]float32, error) {
	in, err := s.projections(ctx, x, &d.QKV, &d.Z, &d.B, &d.A)
	if err != nil {
		return nil, err
	}
	v, err := s.vectors(d.Decay, d.DtBias)
	if err != nil {
		return nil, err
	}
	r, z := remembered{decay: v[0], bias: v[1], qkv: in[0], beta: in[2], keep: in[3]}, in[1]
	if err := s.convolve(ctx, d, r.qkv, d.mixed(), d.Taps, arch.Weight{}); err != nil {
		return nil, err
	}
	if w != nil {
		r.x, r.plain, r.a, r.z = x, s.clone(r.qkv), s.clone(r.keep), s.clone(z)
	}
	s.siluAll(r.qkv)
	s.pointwise(r.beta, sigmoids)
	for i, a := range r.keep {
		h := i % d.ValueHeads
		r.keep[i] = float32(kernel.Exp(float64(r.decay[h]) * kernel.Softplus(float64(a)+float64(r.bias[h]))))
	}
	o := s.take(d.values())
	s.tally.Add(effort.Element, len(r.qkv)+len(z))
	s.tally.AddWork(d.rule().work(d.shared()).Times(float64(len(r.keep))))
	if err := s.each(ctx, len(s.lengths)*d.KeyHeads, func(u int, b *buffer) error {
		d.remember(s, o, &r, u/d.KeyHeads, u%d.KeyHeads, b)
		return nil
	}); err != nil {
		return nil, err
	}
	if w != nil {
		r.out = s.clone(o)
	}
	if err := s.norm(o, o, &d.Norm); err != nil {
		return nil, err
	}
	if w != nil {
		r.normed = s.clone(o)
		*w = r
	}
	s.siluAll(z)
	s.mulAll(o, z)
	return o, nil
}

// remember computes the outputs o of the value heads that share a key head, for the tokens of a window.
func (d delta) remember(s *space, o []float32, r *remembered, window, keyHead int, b *buffer) {
	c, rest := d.rule().chunk(grow(&b.floats, d.cost().fixed))
	_, tokens := s.past(d, window)
	keys, traces := cut(s.sums(d, window, keyHead*d.unit(), (keyHead+1)*d.unit(), rest), chunkTokens*d.KeyDim)
	c.k = keys
	start, size := s.starts[window]-tokens, d.rule().trace()
	for at, end := tokens, tokens+s.lengths[window]; at < end; at += c.n - c.first {
		c.first = at % chunkTokens
		c.n = min(chunkTokens, c.first+end-at)
		d.load(&c, r, keyHead, start+at-c.first)
		for i := range d.shared() {
			head, trace := keyHead*d.shared()+i, traces[i*size:(i+1)*size]
			d.solve(&c, r, head, start+at-c.first, trace)
			c.read(o[(start+at)*d.values()+head*d.ValueDim:], d.values(), trace)
			if c.n == chunkTokens {
				c.advance(trace, trace)
			}
		}
	}
}

// load adds the new tokens to a chunk whose first token would be at start.
func (d delta) load(c *chunk, r *remembered, keyHead, start int) {
	for i := c.first; i < c.n; i++ {
		row := r.qkv[(start+i)*d.mixed()+keyHead*d.KeyDim:]
		unit(c.query(i), row[:d.KeyDim], 1/math.Sqrt(float64(d.KeyDim)))
		unit(c.key(i), row[d.keys():][:d.KeyDim], 1)
	}
	c.multiply(c.qk, c.q)
	c.multiply(c.kk, c.k)
}

// solve completes the trace of a value head in a chunk whose first token would be at start.
func (d delta) solve(c *chunk, r *remembered, head, start int, trace []float32) {
	keep := d.rule().decays(trace)
	b, _, _ := d.rule().solution(trace)
	for i := c.first; i < c.n; i++ {
		at := (start+i)*d.ValueHeads + head
		keep[i], b[i] = r.keep[at], r.beta[at]
	}
	c.decay(keep)
	d.rule().solve(c, trace, r.qkv[(start+c.first)*d.mixed()+2*d.keys()+head*d.ValueDim:], d.mixed())
}

func (d delta) record(ctx context.Context, s *space, x []float32) ([]float32, gradient, error) {
	w := new(remembered)
	y, err := d.compute(ctx, s, x, w)
	return y, func(dy []float32, v Visitor) ([]float32, error) { return d.back(ctx, s, w, dy, v) }, err
}

// back turns dy, the gradient of the input of Out, into that of the input of the block. It changes dy.
func (d delta) back(ctx context.Context, s *space, w *remembered, dy []float32, v Visitor) ([]float32, error) {
	silu := &activation{Activation: arch.SiLU}
	s.pieces(len(dy), func(lo, hi int) { silu.back(dy[lo:hi], w.z[lo:hi], w.normed[lo:hi]) })
	do := w.normed
	s.held.norm(&d.Norm).back(w.out, do, d.values(), v)

	s.tally.Add(effort.Element, len(w.plain)+len(dy))
	s.tally.AddWork(d.rule().backWork(d.shared()).Times(float64(len(w.keep))))
	g := deltaGradient{remembered: w, delta: d, do: do}
	g.dqkv, g.dbeta, g.rates = s.take(d.mixed()), s.take(d.ValueHeads), s.take(d.ValueHeads)
	if err := s.each(ctx, len(s.lengths)*d.KeyHeads, func(u int, b *buffer) error {
		g.run(u%d.KeyHeads, s.starts[u/d.KeyHeads], s.lengths[u/d.KeyHeads], b)
		return nil
	}); err != nil {
		return nil, err
	}
	for i, a := range w.a {
		h, beta := i%d.ValueHeads, float64(w.beta[i])
		g.rates[i] = float32(float64(g.rates[i]) * float64(w.decay[h]) * sigmoid(float64(a)+float64(w.bias[h])))
		g.dbeta[i] = float32(float64(g.dbeta[i]) * beta * (1 - beta))
	}
	s.pieces(len(w.plain), func(lo, hi int) { silu.back(g.dqkv[lo:hi], w.plain[lo:hi], nil) })
	if err := s.convolveBack(w.plain, d.mixed(), d.Taps); err != nil {
		return nil, err
	}
	return s.gather(w.x, v, flow{&d.QKV, w.plain}, flow{&d.Z, w.z}, flow{&d.B, g.dbeta}, flow{&d.A, g.rates}), nil
}

// deltaGradient is the backward pass of recurrences.
type deltaGradient struct {
	*remembered
	delta              delta
	do                 []float32 // gradient of the outputs
	dqkv, dbeta, rates []float32 // results; rates are the gradients by the logarithms of the decays
}

// run computes the value heads that share a key head for the n tokens from start on: forward, for the states before the chunks,
// and then the chunks from the last to the first.
func (g *deltaGradient) run(keyHead, start, n int, b *buffer) {
	d, r, heads := g.delta, g.delta.rule(), g.delta.shared()
	chunks := (n + chunkTokens - 1) / chunkTokens
	c, f := r.gradient(grow(&b.floats, r.backFloats()+heads*(chunks*r.trace()+r.gradients())))
	c.keysRead = true
	clear(f)
	gradients, traces := cut(f, heads*r.gradients())
	trace := func(chunk, i int) []float32 { return traces[(chunk*heads+i)*r.trace():][:r.trace()] }
	load := func(chunk int) (at int) {
		at = chunk * chunkTokens
		c.resize(min(chunkTokens, n-at))
		d.load(&c.chunk, g.remembered, keyHead, start+at)
		return start + at
	}
	for chunk := range chunks {
		at := load(chunk)
		for i := range heads {
			d.solve(&c.chunk, g.remembered, keyHead*heads+i, at, trace(chunk, i))
			if chunk+1 < chunks {
				c.advance(trace(chunk+1, i), trace(chunk, i))
			}
		}
	}
	for chunk := chunks - 1; chunk >= 0; chunk-- {
		at := load(chunk)
		clear(c.total)
		for i := range heads {
			g.head(&c, keyHead*heads+i, at, gradients[i*r.gradients():], trace(chunk, i))
		}
		g.store(&c, keyHead, at)
	}
}

// head runs the chunk that begins at token start back for a value head.
func (g *deltaGradient) head(c *chunkGradient, head, start int, gradients, trace []float32) {
	d, at := g.delta, start*g.delta.ValueHeads+head
	c.decay(c.decays(trace))
	for i := range c.n {
		copy(gradients[c.state()+i*c.values:][:c.values], g.do[(start+i)*d.values()+head*d.ValueDim:])
	}
	c.backValues(gradients)
	dv := g.dqkv[start*d.mixed()+2*d.keys()+head*d.ValueDim:]
	d.rule().back(c, gradients, trace, dv, d.mixed(), g.dbeta[at:], d.ValueHeads)
	c.back(gradients, trace)
	c.rates(func(i int, rate float64) { g.rates[at+i*d.ValueHeads] = float32(rate) })
}

// store writes the gradients of the queries and keys of the chunk that begins at token start.
func (g *deltaGradient) store(c *chunkGradient, keyHead, start int) {
	queries, keys := cut(c.total, c.n*c.keys)
	for i := range c.n {
		at := (start+i)*g.delta.mixed() + keyHead*c.keys
		unitBack(g.dqkv[at:], queries[i*c.keys:][:c.keys], g.qkv[at:], 1/math.Sqrt(float64(c.keys)))
		at += g.delta.keys()
		unitBack(g.dqkv[at:], keys[i*c.keys:][:c.keys], g.qkv[at:], 1)
	}
}

// unit scales x to the length factor.
func unit(dst, x []float32, factor float64) {
	factor /= math.Sqrt(square(x))
	for i, v := range x {
		dst[i] = float32(float64(v) * factor)
	}
}

// unitBack turns d, the gradient of the result of unit, into that of its argument x.
func unitBack(dst, d, x []float32, factor float64) {
	x = x[:len(d)]
	sum := square(x)
	factor /= math.Sqrt(sum)
	dot := dotProduct(x, d) / sum
	for i, v := range d {
		dst[i] = float32(factor * (float64(v) - float64(float64(x[i])*dot)))
	}
}

// square is the sum of the squares of x, and a little.
func square(x []float32) float64 {
	sum := unitEpsilon
	for _, v := range x {
		sum += float64(float64(v) * float64(v))
	}
	return sum
}
