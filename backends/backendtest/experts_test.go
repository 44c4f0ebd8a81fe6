package backendtest

import (
	"context"
	"errors"
	"math"
	"testing"

	"github.com/llmexport/llmexport/quant"
	"github.com/llmexport/llmexport/runtime/backend"
	"github.com/llmexport/llmexport/runtime/mnn"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// mixture is the shape of a MoE with experts down(silu(gate x) * up x).
type mixture struct{ hidden, inner, experts, k int }

// stored are the weights of an expert as the file holds them.
type stored struct{ gate, up, down []float32 }

// expert appends the subgraph of an expert, with weights stored as s says.
func (b *builder) expert(t *testing.T, p *mnn.MoE, j int, m mixture, s quant.Spec) (w stored) {
	sub := &builder{file: b.file}
	x := sub.op(mnn.OpInput, &mnn.Input{DType: mnn.DTFloat, Format: mnn.NCHW, Dims: []int32{1, int32(m.hidden)}})
	linear := func(x int32, rows, cols int, seed uint64) (y int32, w []float32) {
		q := quant.Matrix{Rows: rows, Cols: cols, Data: random(seed+uint64(100*j), rows*cols)}
		for i := range q.Data {
			q.Data[i] /= 8
		}
		y, w = sub.linear(t, sub.reshape(x, -1, int32(cols), 1, 1), q, make([]float32, rows), s)
		return sub.reshape(y, -1, int32(rows)), w
	}
	var gate, up, y int32
	gate, w.gate = linear(x, m.inner, m.hidden, 50)
	up, w.up = linear(x, m.inner, m.hidden, 51)
	y, w.down = linear(sub.binary(mnn.BinaryMul, sub.op(mnn.OpUnaryOp, &mnn.Unary{Op: mnn.UnarySilu, T: mnn.DTFloat}, gate), up), m.hidden, m.inner, 52)
	name := p.Expert(int32(j))
	for i := range sub.Ops {
		sub.Ops[i].Name = name + "/" + sub.Ops[i].Name
	}
	b.file = sub.file
	b.Subgraphs = append(b.Subgraphs, mnn.Subgraph{Name: name, Inputs: []int32{x}, Outputs: []int32{y}, Tensors: sub.Tensors, Ops: sub.Ops})
	return w
}

// mixture appends a router [experts, hidden] and a MoE on x [tokens, hidden]; weights are the largest scores, divided by
// their sum.
func (b *builder) mixture(t *testing.T, x int32, layer int, m mixture, router []float32, s quant.Spec) (y int32, experts []stored) {
	p := &mnn.MoE{Layer: int32(layer), Experts: int32(m.experts), TopK: int32(m.k)}
	h, n := int32(m.hidden), int32(m.experts)
	scores, _ := b.linear(t, b.reshape(x, -1, h, 1, 1), quant.Matrix{Rows: m.experts, Cols: m.hidden, Data: router}, make([]float32, m.experts), float32Spec)
	scores = b.reshape(scores, -1, n)
	positive := b.binary(mnn.BinaryAdd, b.binary(mnn.BinaryMul, scores, scores), b.floats([]float32{0.1}))
	top := b.ops(2, mnn.OpTopKV2, &mnn.TopK{T: mnn.DTFloat, Sorted: true, Largest: true}, positive, b.scalar(int32(m.k)))
	sum := b.op(mnn.OpReduction, &mnn.Reduction{Op: mnn.ReduceSum, Dims: []int32{-1}, Keep: true, T: mnn.DTFloat}, top)
	y = b.op(mnn.OpMoE, p, b.reshape(x, -1, h), b.binary(mnn.BinaryRealDiv, top, sum), top+1)
	for j := range m.experts {
		experts = append(experts, b.expert(t, p, j, m, s))
	}
	return y, experts
}

func product64(x []float64, w []float32, rows int) []float64 {
	y := make([]float64, rows)
	for r := range y {
		for i, v := range x {
			y[r] += v * float64(w[r*len(x)+i])
		}
	}
	return y
}

// naive is the definition for one token.
func (m mixture) naive(x []float64, router []float32, experts []stored) []float64 {
	scores := product64(x, router, m.experts)
	for i, v := range scores {
		scores[i] = v*v + float64(float32(0.1))
	}
	out, sum := make([]float64, m.hidden), 0.
	var chosen []int
	for range m.k {
		best := -1
		for i, v := range scores {
			taken := false
			for _, c := range chosen {
				taken = taken || c == i
			}
			if !taken && (best < 0 || v > scores[best]) {
				best = i
			}
		}
		chosen, sum = append(chosen, best), sum+scores[best]
	}
	for _, c := range chosen {
		g, u := product64(x, experts[c].gate, m.inner), product64(x, experts[c].up, m.inner)
		for i := range g {
			g[i] *= u[i] / (1 + math.Exp(-g[i]))
		}
		for i, v := range product64(g, experts[c].down, m.hidden) {
			out[i] += scores[c] / sum * v
		}
	}
	return out
}

// testExperts compares a MoE with the definition, as a prompt and token by token; observers see what experts compute.
func testExperts(t *testing.T, be backend.Backend) {
	needs(t, be, mnn.OpMoE, mnn.OpTopKV2, mnn.OpReduction)
	m := mixture{32, 64, 6, 2}
	const tokens = 40
	x, router := random(60, tokens*m.hidden), random(61, m.experts*m.hidden)
	for _, s := range []quant.Spec{float32Spec, {Bits: 4, Block: 32, Scale: tensor.F16}} {
		t.Run(s.String(), func(t *testing.T) {
			cuts := [][]int{{tokens}, {1, 1, 37, 1}, {20, 20}}
			first := make([][]float32, len(cuts))
			for _, o := range []backend.Options{
				{Threads: 1}, {Threads: 2, CacheBytes: 1 << 20}, {Threads: 5, CacheBytes: 10_000}, {Threads: 2, ExpertBytes: 1}, {Threads: 3,
					CacheBytes: 10_000, ExpertBytes: 6000},
			} {
				b := &builder{}
				y, experts := b.mixture(t, b.input("input_ids"), 3, m, router, s)
				e, err := b.compile(be, y, o)
				if err != nil {
					t.Fatal(err)
				}
				var want []float64
				for k := range tokens {
					want = append(want, m.naive(wide(x[k*m.hidden:][:m.hidden]), router, experts)...)
				}
				for i, c := range cuts {
					got := pieces(t, e, e.NewState(), x, m.hidden, c)
					near(t, got, want)
					if first[i] == nil {
						first[i] = got
					}
					same(t, got, first[i])
				}
				testTogether(t, e, x, m.hidden, []int{16, 24})
				testReplaced(t, be, b, o, m, x, want)
				rows, peaks := 0, map[string]float32{}
				_, err = e.Run(t.Context(), []backend.State{e.NewState()}, backend.Call{
					Embeddings: x, Tokens: tokens,
					Observe: func(op *mnn.Op, _ int, shape []int, _ []float32) {
						if op.Type == mnn.OpUnaryOp {
							rows += shape[0]
						}
					},
					Peaks: func(op *mnn.Op, v float32) { peaks[op.Name] = max(peaks[op.Name], v) },
				})
				if err != nil {
					t.Fatal(err)
				}
				if rows != tokens*m.k {
					t.Errorf("experts were seen on %d rows, want %d", rows, tokens*m.k)
				}
				ctx, cancel := context.WithCancel(t.Context())
				behind := 0 // ops that ran although the call was cancelled in the middle of an expert
				_, err = e.Run(ctx, []backend.State{e.NewState()}, backend.Call{
					Embeddings: x, Tokens: tokens,
					Observe: func(op *mnn.Op, _ int, _ []int, _ []float32) {
						if ctx.Err() != nil {
							behind++
						}
						if op.Type == mnn.OpUnaryOp {
							cancel()
						}
					},
				})
				if !errors.Is(err, context.Canceled) || behind > 0 {
					t.Errorf("cancelled in an expert: %v, %d more ops were seen", err, behind)
				}
				last := &b.Subgraphs[0].Ops[len(b.Subgraphs[0].Ops)-2]
				if last.Type != mnn.OpConvolution || peaks[last.Name] == 0 {
					t.Errorf("%s has no peak: %v", last.Name, peaks)
				}
			}
		})
	}
}

// replacement gives floats that are there.
func replacement(v []float32) *backend.Replacement {
	return &backend.Replacement{Len: len(v), Read: func(dst []float32, from int) error {
		copy(dst, v[from:])
		return nil
	}}
}

// testReplaced replaces the weights of down by their doubles. Where the cache has no room they are read in every call.
func testReplaced(t *testing.T, be backend.Backend, b *builder, o backend.Options, m mixture, x []float32, want []float64) {
	t.Helper()
	o.Replace = func(op *mnn.Op) (*backend.Replacement, []float32, error) {
		p, ok := op.Param.(*mnn.Convolution)
		if !ok || int(p.Inputs) != m.inner {
			return nil, nil, nil
		}
		w, err := p.Open(b.file)
		if err != nil {
			return nil, nil, err
		}
		weights := make([]float32, w.Rows*w.Cols)
		w.Rows32(weights, make([]uint8, len(weights)), 0, w.Rows)
		for i := range weights {
			weights[i] *= 2
		}
		return replacement(weights), nil, nil
	}
	e, err := be.Compile(&b.Graph, b.file, o)
	if err != nil {
		t.Fatal(err)
	}
	got, err := e.Run(t.Context(), []backend.State{e.NewState()}, backend.Call{Embeddings: x, Tokens: len(x) / m.hidden, All: true})
	if err != nil {
		t.Fatal(err)
	}
	twice := make([]float64, len(want))
	for i, v := range want {
		twice[i] = 2 * v
	}
	near(t, got, twice)
}

// hybrid builds a graph of everything that sequences go through: a recurrence, a short convolution, attention, and experts
// quantized to 4 bits, between norms and residual sums. Embeddings are [tokens, width].
func hybrid(t *testing.T) (g *mnn.Graph, w mnn.Weights, width int) {
	t.Helper()
	const hidden = 32
	b := &builder{}
	spec := quant.Spec{Bits: 4, Block: 32, Scale: tensor.F16}
	x := b.reshape(b.input("input_ids"), 1, -1, hidden)
	norm := func(x int32, seed uint64) int32 {
		return b.op(mnn.OpLayerNorm, &mnn.LayerNorm{Axis: []int32{-1}, Epsilon: 1e-6, Gamma: random(seed, hidden), Group: 1, RMS: true}, x)
	}
	linear := func(x int32, rows, cols int, seed uint64) int32 {
		m := quant.Matrix{Rows: rows, Cols: cols, Data: random(seed, rows*cols)}
		for i := range m.Data {
			m.Data[i] /= 8
		}
		y, _ := b.linear(t, b.reshape(x, -1, int32(cols), 1, 1), m, nil, spec)
		return b.reshape(y, 1, -1, int32(rows))
	}
	add := func(x, y int32) int32 { return b.binary(mnn.BinaryAdd, x, b.reshape(y, 1, -1, hidden)) }
	delta := recurrent{mnn.GatedDeltaRule, 2, 4, 8, 8, 4, true}
	in := linear(norm(x, 70), delta.width(), hidden, 71)
	x = add(x, linear(b.reshape(b.recurrence(in, delta, random(72, delta.channels()*delta.k)), 1, -1, hidden), hidden, hidden, 73))
	short := recurrent{mnn.ShortConv, 1, 1, hidden, hidden, 3, false}
	in = linear(norm(x, 74), short.width(), hidden, 75)
	x = add(x, linear(b.reshape(b.recurrence(in, short, random(76, short.channels()*short.k)), 1, -1, hidden), hidden, hidden, 77))
	h := heads{4, 2, 8}
	x = add(x, linear(b.attention(linear(norm(x, 78), h.width(), hidden, 79), h, false), hidden, hidden, 80))
	m := mixture{hidden, 64, 8, 3}
	for layer := range 2 {
		y, _ := b.mixture(t, norm(x, 81+uint64(layer)), layer, m, random(83+uint64(layer), m.experts*m.hidden), spec)
		x = add(x, y)
	}
	y := linear(norm(x, 85), 40, hidden, 86)
	b.Tensors[y], b.Outputs = "logits", []string{"logits"}
	return &b.Graph, b.file, hidden
}

// testHybrid: results of such a graph depend neither on threads nor on the cache of weights, a call that fails half way
// leaves no trace in any state, and states may share a call.
func testHybrid(t *testing.T, be backend.Backend) {
	needs(t, be, mnn.OpMoE, mnn.OpLinearAttention, mnn.OpAttention)
	g, w, width := hybrid(t)
	const tokens = 52
	x := random(90, tokens*width)
	for _, mode := range be.Capabilities().Modes {
		t.Run(mode.String(), func(t *testing.T) {
			cuts := [][]int{{tokens}, {1, 1, 50}, {32, 20}}
			first := make([][]float32, len(cuts))
			for _, o := range []backend.Options{
				{Threads: 1}, {Threads: 2, CacheBytes: 1 << 20}, {Threads: 5, CacheBytes: 20_000}, {Threads: 2, ExpertBytes: 1}, {Threads: 3,
					CacheBytes: 20_000, ExpertBytes: 6000},
			} {
				o.Mode = mode
				e, err := be.Compile(g, w, o)
				if err != nil {
					t.Fatal(err)
				}
				for i, c := range cuts {
					s := e.NewState()
					got := pieces(t, e, s, x, width, c)
					if first[i] == nil {
						first[i] = got
					}
					same(t, got, first[i])
					s.Reset()
					same(t, pieces(t, e, s, x, width, c), got)
				}
				testTogether(t, e, x, width, []int{24, 4, 1, 23})
			}
			t.Run("after a failure", func(t *testing.T) {
				build := func() (*builder, int32) {
					b := &builder{Graph: *g, file: w.(file)}
					for i, name := range g.Tensors {
						if name == "logits" {
							return b, int32(i)
						}
					}
					return b, -1
				}
				testFailure(t, be, build, mode, x, width, mnn.OpReshape, mnn.OpLinearAttention, mnn.OpAttention, mnn.OpMoE, mnn.OpUnaryOp)
			})
		})
	}
}
