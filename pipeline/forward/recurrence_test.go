package forward

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/runtime/kernel"
)

// deltaOf is a delta net with two value heads to a key head; mean is that of the time biases.
func deltaOf(m *maker, mean float64) *arch.DeltaNet {
	const hidden = randomHidden
	d := &arch.DeltaNet{
		KeyHeads: 2, ValueHeads: 4, KeyDim: 5, ValueDim: 7, Decay: m.vector("decay", 4, -1), DtBias: m.vector("time bias", 4, mean),
		QKV: m.linear("qkv", 48, hidden), Z: m.linear("z", 28, hidden), B: m.linear("b", 4, hidden), A: m.linear("a", 4, hidden),
		Norm: *m.norm("delta norm", 7), Out: m.linear("out", hidden, 28),
	}
	d.QKV.Bias = m.vector("qkv bias", 48, 1) // far from 0, where directions turn fast
	for j := range 4 {
		d.Taps = append(d.Taps, m.vector(fmt.Sprint("tap ", j), 48, 0.5))
	}
	return d
}

// mambaOf is Mamba 2 with six heads in two groups.
func mambaOf(m *maker) *arch.Mamba2 {
	const hidden = randomHidden
	a := &arch.Mamba2{
		Heads: 6, HeadDim: 4, Groups: 2, State: 5,
		Z: m.linear("z", 24, hidden), XBC: m.linear("xbc", 44, hidden), Dt: m.linear("dt", 6, hidden),
		ConvBias: m.vector("convolution bias", 44, 0.1), DtBias: m.vector("time bias", 6, -1), Decay: m.vector("decay", 6, -1),
		D: m.vector("direct", 6, 1), TimeMax: math.Inf(1), Norm: m.norm("mamba norm", 24), Out: m.linear("out", hidden, 24),
	}
	a.XBC.Bias, a.Z.Bias = m.vector("xbc bias", 44, 1), m.vector("z bias", 24, 1)
	for j := range 4 {
		a.Taps = append(a.Taps, m.vector(fmt.Sprint("tap ", j), 44, 0.5))
	}
	return a
}

// recurrent are the forms of blocks that replace the attention of the second layer.
var recurrent = []struct {
	name  string
	block func(m *maker) arch.Block
}{
	{"delta", func(m *maker) arch.Block { return deltaOf(m, 0) }},
	{"delta that keeps", func(m *maker) arch.Block { return deltaOf(m, -3) }},
	{"delta that forgets", func(m *maker) arch.Block { return deltaOf(m, 1) }},
	{"delta, one head", func(m *maker) arch.Block {
		d := deltaOf(m, -2)
		d.KeyHeads, d.ValueHeads, d.KeyDim, d.ValueDim = 1, 1, 10, 28
		d.Decay, d.DtBias = m.vector("one decay", 1, -1), m.vector("one bias", 1, 0)
		d.B, d.A = m.linear("one b", 1, randomHidden), m.linear("one a", 1, randomHidden)
		d.Norm = *m.norm("wide norm", 28)
		return d
	}},
	{"convolution", func(m *maker) arch.Block {
		c := &arch.ShortConv{In: m.linear("in", 3*randomHidden, randomHidden), Out: m.linear("out", randomHidden, randomHidden)}
		for j := range 3 {
			c.Taps = append(c.Taps, m.vector(fmt.Sprint("tap ", j), randomHidden, 0.5))
		}
		return c
	}},
	{"convolution with bias", func(m *maker) arch.Block {
		c := &arch.ShortConv{In: m.linear("in", 3*randomHidden, randomHidden), Out: m.linear("out", randomHidden, randomHidden)}
		c.Taps, c.Bias = []arch.Weight{m.vector("tap", randomHidden, 1)}, m.vector("convolution bias", randomHidden, 0.5)
		return c
	}},
	{"mamba", func(m *maker) arch.Block { return mambaOf(m) }},
	{"mamba that forgets", func(m *maker) arch.Block {
		a := mambaOf(m)
		a.DtBias = m.vector("large time bias", 6, 30)
		return a
	}},
	{"mamba, one group, factors, norm in parts", func(m *maker) arch.Block {
		a := mambaOf(m)
		a.Groups, a.State, a.Norm.Parts, a.Scales = 1, 10, 3, [5]float64{0.5, 0.8, 1.3, 0.7, 1.5}
		return a
	}},
	{"mamba without norm", func(m *maker) arch.Block {
		a := mambaOf(m)
		a.Norm, a.ConvBias = nil, arch.Weight{}
		return a
	}},
	{"mamba with clamped times", func(m *maker) arch.Block {
		a := mambaOf(m)
		a.TimeMin, a.TimeMax = 0.2, 0.4
		return a
	}},
}

func eachRecurrent(t *testing.T, f func(t *testing.T, d *arch.Decoder, src *memory)) {
	for _, c := range recurrent {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			d, m := makeModel(features{heads: 4, kvHeads: 2})
			m.biases = true
			d.Layers[1][0].Block = c.block(m)
			f(t, d, m.src)
		})
	}
}

// Windows of several chunks, and windows that are shorter than the taps of the convolution.
func TestRecurrentGradients(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	eachRecurrent(t, func(t *testing.T, d *arch.Decoder, src *memory) {
		w := randomTokens(d.Vocab, 4, 70)
		testGradientsOf(t, load(t, newModel(t, d, src, 2)), [][]int32{w[0], w[1][:1], w[2][:2], w[3][:33]})
	})
}

// The same bits for all numbers of threads, and for a window alone.
func TestRecurrentIndependence(t *testing.T) {
	eachRecurrent(t, func(t *testing.T, d *arch.Decoder, src *memory) {
		windows := [][]int32{randomTokens(d.Vocab, 1, 70)[0], {1, 2}, {}, randomTokens(d.Vocab, 1, 33)[0]}
		h, dh, weights := backward(t, load(t, newModel(t, d, src, 1)), windows)
		if kernel.NonFinite(dh) >= 0 {
			t.Fatal("a gradient is not finite")
		}
		p := load(t, newModel(t, d, src, 7))
		h2, dh2, weights2 := backward(t, p, windows)
		if !slices.Equal(h2, h) || !slices.Equal(dh2, dh) || !maps.EqualFunc(weights2, weights, slices.Equal) {
			t.Error("7 threads: states or gradients differ")
		}
		at := 0
		for i, w := range windows {
			if len(w) == 0 {
				continue
			}
			h1, dh1, _ := backward(t, p, windows[i:i+1])
			if !slices.Equal(h1, h[at:at+len(h1)]) || !slices.Equal(dh1, dh[at:at+len(h1)]) {
				t.Errorf("window %d differs", i)
			}
			at += len(h1)
		}
	})
}

// recurrenceBound is what outputs may differ by from those in float64, relative to their root mean square.
const recurrenceBound = 2e-6

// fixtures are the decays of a test: ordinary ones, none, complete ones, and those in between.
var fixtures = map[string]func(r *rand.Rand) float64{
	"ordinary": func(r *rand.Rand) float64 { return 0.8 + 0.2*r.Float64() },
	"none":     func(*rand.Rand) float64 { return 1 },
	"complete": func(*rand.Rand) float64 { return 0 },
	"tiny":     func(r *rand.Rand) float64 { return math.Exp(-100 * r.Float64()) },
	"at times": func(r *rand.Rand) float64 { return float64(r.IntN(5)+3) / 7 },
}

// Chunks have the outputs of the definition, token by token in float64, whatever is kept. Keys that agree are the worst case for
// the delta rule.
func TestRecurrence(t *testing.T) {
	const n, keys, values = 3*chunkTokens + 5, 12, 9
	for name, keep := range fixtures {
		for _, like := range []float32{0, 1, 5} {
			t.Run(fmt.Sprint(name, ", keys like ", like), func(t *testing.T) {
				r := rand.New(rand.NewPCG(5, 6))
				rows := func(width int, mean float32) [][]float32 {
					x := make([][]float32, n)
					for i := range x {
						for range width {
							x[i] = append(x[i], mean+float32(r.NormFloat64()))
						}
					}
					return x
				}
				q, k, v := rows(keys, 0), rows(keys, like), rows(values, 0)
				f, b := make([]float32, n), make([]float32, n)
				for i := range n {
					unit(k[i], k[i], 1)
					f[i], b[i] = float32(keep(r)), r.Float32()
				}
				for _, strengths := range [][]float32{nil, b, slices.Repeat([]float32{1}, n)} {
					got, want := chunked(q, k, v, f, strengths), stepped(q, k, v, f, strengths)
					var worst, size float64
					for i, x := range want {
						worst = max(worst, math.Abs(x-float64(got[i])))
						size += x * x
					}
					if size = math.Sqrt(size / float64(len(want))); !(worst <= recurrenceBound*size) {
						t.Errorf("off by %v of %v", worst, size)
					}
				}
			})
		}
	}
}

// stepped computes a recurrence with values v, or with strengths b the gated delta rule, by its definition.
func stepped(q, k, v [][]float32, f, b []float32) (out []float64) {
	state := make([][]float64, len(k[0]))
	for i := range state {
		state[i] = make([]float64, len(v[0]))
	}
	for t := range q {
		for j, u := range v[t] {
			change, read := float64(u), 0.0
			for i, x := range k[t] {
				state[i][j] *= float64(f[t])
				read += float64(x) * state[i][j]
			}
			if b != nil {
				change = float64(b[t]) * (change - read)
			}
			sum := 0.0
			for i, x := range k[t] {
				state[i][j] += float64(x) * change
				sum += float64(q[t][i]) * state[i][j]
			}
			out = append(out, sum)
		}
	}
	return out
}

// chunked computes the same in chunks.
func chunked(q, k, v [][]float32, f, b []float32) []float32 {
	r := rule{recurrence{len(k[0]), len(v[0])}}
	c, _ := r.chunk(make([]float32, r.floats()))
	trace, out := make([]float32, r.trace()), make([]float32, len(q)*r.values)
	c.k = make([]float32, chunkTokens*r.keys)
	for at := 0; at < len(q); at += chunkTokens {
		c.n = min(chunkTokens, len(q)-at)
		flat := slices.Concat(v[at : at+c.n]...)
		for i := range c.n {
			copy(c.query(i), q[at+i])
			copy(c.key(i), k[at+i])
		}
		copy(r.decays(trace), f[at:at+c.n])
		c.decay(r.decays(trace))
		c.multiply(c.qk, c.q)
		if b == nil {
			copy(trace[r.state():], flat)
		} else {
			strengths, _, _ := r.solution(trace)
			copy(strengths, b[at:at+c.n])
			c.multiply(c.kk, c.k)
			r.solve(&c, trace, flat, r.values)
		}
		c.read(out[at*r.values:], r.values, trace)
		c.advance(trace, trace)
	}
	return out
}

// After complete decays, tokens do not depend on each other, and neither do their gradients.
func TestForgotten(t *testing.T) {
	for name, block := range map[string]func(m *maker) arch.Block{
		"delta": func(m *maker) arch.Block {
			d := deltaOf(m, 1000)
			d.Taps = d.Taps[3:]
			return d
		},
		"mamba": func(m *maker) arch.Block {
			a := mambaOf(m)
			a.DtBias, a.Taps = m.vector("large time bias", 6, 1000), a.Taps[3:]
			return a
		},
	} {
		t.Run(name, func(t *testing.T) {
			d, m := makeModel(features{heads: 4, kvHeads: 2})
			d.Layers = []arch.Layer{{{Norm: d.Layers[1][0].Norm, Block: block(m)}}}
			p := load(t, newModel(t, d, m.src, 2))
			window := randomTokens(d.Vocab, 1, 40)[0]
			_, dh, _ := backward(t, p, [][]int32{window})
			for i := range window {
				_, want, _ := backward(t, p, [][]int32{window[i : i+1]})
				for j, x := range want {
					if got := dh[i*len(want)+j]; !(math.Abs(float64(got-x)) <= 1e-5) {
						t.Fatalf("token %d: gradient %v, alone %v", i, got, x)
					}
				}
			}
		})
	}
}
