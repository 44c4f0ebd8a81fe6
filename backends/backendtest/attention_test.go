package backendtest

import (
	"fmt"
	"math"
	"testing"

	"github.com/llmexport/llmexport/quant"
	"github.com/llmexport/llmexport/runtime/backend"
	"github.com/llmexport/llmexport/runtime/mnn"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// heads is the shape of an attention op.
type heads struct{ queries, keys, dim int }

func (h heads) width() int { return (h.queries + 2*h.keys) * h.dim }

// attention builds softmax(q k)v of embeddings that hold queries, keys and values side by side.
func (b *builder) attention(x int32, h heads, packed bool) int32 {
	q, kv, d := int32(h.queries), int32(h.keys), int32(h.dim)
	x = b.reshape(x, 1, -1, int32(h.width()))
	part := func(lo, n int32) int32 { return b.reshape(b.cut(x, lo*d, (lo+n)*d, 2), 1, -1, n, d) }
	v := part(q+kv, kv)
	if packed {
		v = b.reshape(v, -1, kv*d, 1, 1)
	}
	return b.op(mnn.OpAttention, &mnn.Attention{KVCache: true, OutputC4: packed}, part(0, q), part(q, kv), v, b.input("attention_mask"))
}

// naiveAttention is the definition, over all tokens at once: token t sees the tokens up to t.
func naiveAttention(x []float32, h heads) []float64 {
	tokens := len(x) / h.width()
	at := func(t, head, d int) float64 { return float64(x[t*h.width()+head*h.dim+d]) }
	var out []float64
	for t := range tokens {
		for q := range h.queries {
			k := h.queries + q/(h.queries/h.keys)
			weights, sum := make([]float64, t+1), 0.
			for s := range weights {
				dot := 0.
				for d := range h.dim {
					dot += at(t, q, d) * at(s, k, d)
				}
				weights[s] = math.Exp(dot / math.Sqrt(float64(h.dim)))
				sum += weights[s]
			}
			for d := range h.dim {
				mix := 0.
				for s, w := range weights {
					mix += w / sum * at(s, k+h.keys, d)
				}
				out = append(out, mix)
			}
		}
	}
	return out
}

func testAttention(t *testing.T, be backend.Backend) {
	needs(t, be, mnn.OpAttention, mnn.OpStridedSlice, mnn.OpReshape)
	const tokens = 75 // more than two blocks of queries, whatever their size may be
	for _, h := range []heads{{1, 1, 8}, {4, 4, 16}, {4, 2, 16}, {6, 1, 10}} {
		for _, packed := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d of %d heads of %d/packed %t", h.queries, h.keys, h.dim, packed), func(t *testing.T) {
				x := random(7, tokens*h.width())
				want := naiveAttention(x, h)
				cuts := [][]int{{tokens}, {1, 74}, {64, 10, 1}, {33, 1, 1, 40}}
				first := make([][]float32, len(cuts))
				for _, threads := range []int{1, 2, 5} {
					b := &builder{}
					e, err := b.compile(be, b.attention(b.input("input_ids"), h, packed), backend.Options{Threads: threads})
					if err != nil {
						t.Fatal(err)
					}
					// Engines sum the last query of some calls in another order, so cuts may show in the last bits.
					for i, c := range cuts {
						got := pieces(t, e, e.NewState(), x, h.width(), c)
						near(t, got, want)
						if first[i] == nil {
							first[i] = got
						}
						same(t, got, first[i])
					}
				}
			})
		}
	}
}

// pieces runs the tokens x in calls of the given lengths and joins the results.
func pieces(t *testing.T, e backend.Executable, s backend.State, x []float32, width int, cuts []int) (out []float32) {
	t.Helper()
	for _, n := range cuts {
		got, err := e.Run(t.Context(), []backend.State{s}, backend.Call{Embeddings: x[:n*width], Tokens: n, All: true})
		if err != nil {
			t.Fatal(err)
		}
		out, x = append(out, got...), x[n*width:]
	}
	return out
}

// testRoPE compares the RoPE op with the definition and with the chain of elementary ops that stands for it in
// graphs of older engines.
func testRoPE(t *testing.T, be backend.Backend) {
	needs(t, be, mnn.OpRoPE)
	const tokens, heads, kv, dim, eps = 5, 4, 2, 12, 1e-6
	q, k := random(8, tokens*heads*dim), random(9, tokens*kv*dim)
	gammaQ, gammaK := random(10, dim), random(11, dim)
	norm := func(gamma []float32) *mnn.LayerNorm {
		return &mnn.LayerNorm{Axis: []int32{-1}, Epsilon: eps, Gamma: gamma, Group: 1, RMS: true}
	}
	for _, c := range []struct {
		cut    int
		normed bool
	}{{dim, false}, {dim, true}, {8, false}, {8, true}} {
		t.Run(fmt.Sprintf("%d of %d/norm %t", c.cut, dim, c.normed), func(t *testing.T) {
			cos, sin := make([]float32, tokens*c.cut), make([]float32, tokens*c.cut)
			for p := range tokens {
				for j := range c.cut {
					s, co := math.Sincos(float64(p) * math.Pow(100, -2*float64(j%(c.cut/2))/float64(c.cut)))
					cos[p*c.cut+j], sin[p*c.cut+j] = float32(co), float32(s)
				}
			}
			turn := func(x, gamma []float32, n int) []float64 {
				out := wide(x)
				for h := range tokens * n {
					v := out[h*dim:][:dim]
					if c.normed {
						sum := 0.
						for _, e := range v {
							sum += e * e
						}
						for i := range v {
							v[i] *= float64(gamma[i]) / math.Sqrt(sum/dim+eps)
						}
					}
					for j := range c.cut / 2 {
						co, s := float64(cos[h/n*c.cut+j]), float64(sin[h/n*c.cut+j])
						v[j], v[j+c.cut/2] = v[j]*co-v[j+c.cut/2]*s, v[j+c.cut/2]*co+v[j]*s
					}
				}
				return out
			}
			build := func(b *builder) int32 {
				p := &mnn.RoPE{CutHeadDim: int32(c.cut), Heads: heads, KVHeads: kv, HeadDim: dim}
				if c.normed {
					p.QNorm, p.KNorm = norm(gammaQ), norm(gammaK)
				}
				angles := []int32{1, tokens, 1, int32(c.cut)}
				return b.ops(2, mnn.OpRoPE, p, b.floats(q, tokens, heads*dim, 1, 1), b.floats(k, tokens, kv*dim, 1, 1),
					b.floats(cos, angles...), b.floats(sin, angles...))
			}
			for output, want := range [][]float64{turn(q, gammaQ, heads), turn(k, gammaK, kv)} {
				b := &builder{}
				v := build(b)
				shape, got := b.run(t, be, b.reshape(v+int32(output), 0, 0, 0, 0), one, 2)
				near(t, got, want)
				if len(shape) != 4 || shape[0] != 1 || shape[1] != tokens || shape[3] != dim {
					t.Errorf("output %d has shape %v", output, shape)
				}
			}
			if c.cut != dim {
				return
			}
			b := &builder{}
			x := b.floats(q, 1, tokens, heads, dim)
			if c.normed {
				x = b.op(mnn.OpLayerNorm, norm(gammaQ), x)
			}
			neg := b.op(mnn.OpUnaryOp, &mnn.Unary{Op: mnn.UnaryNeg, T: mnn.DTFloat}, b.cut(x, dim/2, dim, 3))
			turned := b.concat(3, neg, b.cut(x, 0, dim/2, 3))
			chain := b.binary(mnn.BinaryAdd, b.binary(mnn.BinaryMul, x, b.floats(cos, 1, tokens, 1, dim)),
				b.binary(mnn.BinaryMul, turned, b.floats(sin, 1, tokens, 1, dim)))
			_, got := b.run(t, be, chain, one, 1)
			near(t, got, turn(q, gammaQ, heads))
		})
	}
}

// testDecoder runs one layer of everything, quantized. Results must not depend on threads, on the cache of
// weights, or on what the state held before a reset, in float mode hardly on cuts either; a call that fails half way
// must leave no trace.
func testDecoder(t *testing.T, be backend.Backend) {
	needs(t, be, mnn.OpAttention, mnn.OpConvolution, mnn.OpLayerNorm)
	const hidden, tokens = 64, 70
	h := heads{4, 2, 16}
	spec := quant.Spec{Bits: 4, Block: 32, Scale: tensor.F16}
	build := func() (*builder, int32) {
		b := &builder{}
		x := b.reshape(b.input("input_ids"), 1, -1, hidden)
		norm := func(x int32, seed uint64) int32 {
			return b.op(mnn.OpLayerNorm, &mnn.LayerNorm{Axis: []int32{-1}, Epsilon: 1e-6, Gamma: random(seed, hidden), Group: 1, RMS: true}, x)
		}
		linear := func(x int32, rows, cols int, seed uint64, bias []float32) int32 {
			w := quant.Matrix{Rows: rows, Cols: cols, Data: random(seed, rows*cols)}
			y, _ := b.linear(t, b.reshape(x, -1, int32(cols), 1, 1), w, bias, spec)
			return b.reshape(y, 1, -1, int32(rows))
		}
		o := b.attention(linear(norm(x, 20), h.width(), hidden, 21, random(22, h.width())), h, false)
		x = b.binary(mnn.BinaryAdd, x, linear(o, hidden, hidden, 23, nil))
		y := norm(x, 24)
		silu := b.op(mnn.OpUnaryOp, &mnn.Unary{Op: mnn.UnarySilu, T: mnn.DTFloat}, linear(y, 96, hidden, 25, nil))
		x = b.binary(mnn.BinaryAdd, x, linear(b.binary(mnn.BinaryMul, silu, linear(y, 96, hidden, 26, nil)), hidden, 96, 27, nil))
		return b, linear(norm(x, 28), 99, hidden, 29, nil)
	}
	x := random(30, tokens*hidden)
	for _, mode := range be.Capabilities().Modes {
		t.Run(mode.String(), func(t *testing.T) {
			cuts := [][]int{{tokens}, {1, 1, 68}, {40, 30}, {69, 1}}
			want := make([][]float32, len(cuts))
			for _, threads := range []int{1, 2, 5} {
				for _, cache := range []int64{0, 20_000, 1 << 20} {
					b, y := build()
					e, err := b.compile(be, y, backend.Options{Mode: mode, Threads: threads, CacheBytes: cache})
					if err != nil {
						t.Fatal(err)
					}
					for i, c := range cuts {
						s := e.NewState()
						got := pieces(t, e, s, x, hidden, c)
						if want[i] == nil {
							want[i] = got
						}
						same(t, got, want[i])
						// Engines quantize the activations of a call together, so cuts show in int8 mode, and in the last
						// bits of float mode, see testAttention.
						if mode == backend.Float {
							near(t, got, wide(want[0]))
						}
						s.Reset()
						same(t, pieces(t, e, s, x, hidden, c[:1]), want[i][:c[0]*99])
					}
				}
			}
			t.Run("after a failure", func(t *testing.T) {
				testFailure(t, be, build, mode, x, hidden, mnn.OpReshape, mnn.OpAttention, mnn.OpUnaryOp)
			})
		})
	}
}
