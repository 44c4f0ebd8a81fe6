package backendtest

import (
	"fmt"
	"math"
	"testing"

	"github.com/llmexport/llmexport/runtime/backend"
	"github.com/llmexport/llmexport/runtime/mnn"
)

// masked builds softmax(q k + mask)v as builder.attention does, with sinks if there are any.
func (b *builder) masked(x int32, h heads, mask int32, sinks []float32) int32 {
	y := b.attention(x, h, false)
	op := &b.Ops[len(b.Ops)-1]
	op.Inputs[3] = mask
	if sinks != nil {
		s := b.floats(sinks, int32(len(sinks)))
		last := len(b.Ops) - 1 // after its reader so far
		b.Ops[last], b.Ops[last-1] = b.Ops[last-1], b.Ops[last]
		b.Ops[last].Inputs = append(b.Ops[last].Inputs, s)
	}
	return y
}

// positionMask hides what is more than window positions before a query, or in another chunk, in integers from positions.
func (b *builder) positionMask(window, chunk int32) int32 {
	p := b.reshape(b.input("position_ids"), -1)
	n := b.binary(mnn.BinaryAdd, b.cut(p, -1, 1<<30, 0), b.list(1))
	n = b.op(mnn.OpSqueeze, &mnn.Squeeze{Dims: []int32{0}}, n)
	keys := b.reshape(b.op(mnn.OpRange, &mnn.Range{T: mnn.DTInt32}, b.scalar(0), n, b.scalar(1)), 1, -1)
	queries := b.reshape(p, -1, 1)
	distance := b.binary(mnn.BinarySub, queries, keys)
	bad := b.binary(mnn.BinaryMinimum, distance, b.scalar(0))
	bad = b.binary(mnn.BinaryAdd, bad, b.binary(mnn.BinaryMinimum, b.binary(mnn.BinarySub, b.scalar(window-1), distance), b.scalar(0)))
	apart := b.binary(mnn.BinarySub, b.binary(mnn.BinaryRealDiv, keys, b.scalar(chunk)), b.binary(mnn.BinaryRealDiv, queries, b.scalar(chunk)))
	bad = b.binary(mnn.BinaryAdd, bad, b.binary(mnn.BinaryMinimum, apart, b.scalar(0)))
	bad = b.op(mnn.OpCast, &mnn.Cast{To: mnn.DTFloat}, b.binary(mnn.BinaryMaximum, bad, b.scalar(-1)))
	return b.op(mnn.OpUnsqueeze, &mnn.Squeeze{Dims: []int32{0, 1}}, b.binary(mnn.BinaryMul, bad, b.floats([]float32{30000})))
}

// naiveMasked is naiveAttention where a query sees what sees says.
func naiveMasked(x []float32, h heads, sinks []float32, sees func(query, key int) bool) []float64 {
	tokens := len(x) / h.width()
	at := func(t, head, d int) float64 { return float64(x[t*h.width()+head*h.dim+d]) }
	var out []float64
	for t := range tokens {
		for q := range h.queries {
			k := h.queries + q/(h.queries/h.keys)
			weights, sum := make([]float64, tokens), 0.
			if sinks != nil {
				sum = math.Exp(float64(sinks[q]))
			}
			for s := range weights {
				if s > t || !sees(t, s) {
					continue
				}
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

// testMasks: masks that the engine feeds and masks that the graph computes, with and without sinks, in calls of all
// lengths, with several states in a call, and for tokens that stand at other positions.
func testMasks(t *testing.T, be backend.Backend) {
	needs(t, be, mnn.OpAttention, mnn.OpRange, mnn.OpCast)
	const tokens, window, chunk = 75, 20, 32
	all := func(_, _ int) bool { return true }
	near20 := func(q, k int) bool { return k > q-window }
	both := func(q, k int) bool { return near20(q, k) && q/chunk == k/chunk }
	for _, c := range []struct {
		name   string
		window int
		mask   func(b *builder) int32
		sees   func(q, k int) bool
	}{
		{"fed, causal", window, func(b *builder) int32 { return b.gather(b.input("attention_mask"), b.scalar(0), 0) }, all},
		{"fed, window", window, func(b *builder) int32 { return b.gather(b.input("attention_mask"), b.scalar(1), 0) }, near20},
		{"computed", 0, func(b *builder) int32 { return b.positionMask(window, chunk) }, both},
	} {
		for i, h := range []heads{{1, 1, 8}, {4, 2, 16}, {6, 1, 10}} {
			t.Run(fmt.Sprintf("%s/%d of %d heads of %d", c.name, h.queries, h.keys, h.dim), func(t *testing.T) {
				var sinks []float32
				if i > 0 {
					sinks = random(50, h.queries)
				}
				x := random(51, tokens*h.width())
				want := naiveMasked(x, h, sinks, c.sees)
				cuts := [][]int{{tokens}, {1, 74}, {64, 10, 1}, {33, 1, 1, 40}}
				first := make([][]float32, len(cuts))
				for _, threads := range []int{1, 2, 5} {
					b := &builder{}
					// Two layers share a mask.
					mask, in := c.mask(b), b.input("input_ids")
					sum := b.binary(mnn.BinaryAdd, b.masked(in, h, mask, sinks), b.masked(in, h, mask, sinks))
					e, err := b.compile(be, b.binary(mnn.BinaryMul, sum, b.floats([]float32{.5})), backend.Options{Threads: threads, Window: c.window})
					if err != nil {
						t.Fatal(err)
					}
					for i, cut := range cuts {
						s := e.NewState()
						got := pieces(t, e, s, x, h.width(), cut)
						near(t, got, want)
						if first[i] == nil {
							first[i] = got
						}
						same(t, got, first[i])
						s.Reset()
						same(t, pieces(t, e, s, x, h.width(), cut), got)
					}
					testStates(t, e, x, h.width())
					// Distances are the same further on, but for chunks, of which this is a multiple.
					got, err := e.Run(t.Context(), []backend.State{e.NewState()}, backend.Call{Embeddings: x, Tokens: tokens, All: true, Offset: 10 * chunk})
					if err != nil {
						t.Fatal(err)
					}
					near(t, got, want)
				}
			})
		}
	}
	// What depends on the length of the cache may be more than a mask.
	t.Run("lengths", func(t *testing.T) {
		b := &builder{}
		p := b.reshape(b.input("position_ids"), -1)
		n := b.op(mnn.OpSqueeze, &mnn.Squeeze{}, b.binary(mnn.BinaryAdd, b.cut(p, -1, 1<<30, 0), b.list(1)))
		keys := b.op(mnn.OpRange, &mnn.Range{T: mnn.DTInt32}, b.scalar(0), n, b.scalar(1))
		e, err := b.compile(be, b.op(mnn.OpUnaryOp, &mnn.Unary{Op: mnn.UnarySqrt}, b.op(mnn.OpCast, &mnn.Cast{To: mnn.DTFloat}, keys)), backend.Options{})
		if err != nil {
			t.Fatal(err)
		}
		s := e.NewState()
		for _, want := range [][]float64{{0, 1, math.Sqrt2}, {0, 1, math.Sqrt2, math.Sqrt(3)}} {
			calls := backend.Call{Embeddings: make([]float32, 3), Tokens: 3}
			if len(want) == 4 {
				calls = backend.Call{Embeddings: make([]float32, 1), Tokens: 1}
			}
			got, err := e.Run(t.Context(), []backend.State{s}, calls)
			if err != nil {
				t.Fatal(err)
			}
			near(t, got, want)
		}
	})
}

// testStates runs several conversations in one call, of equal lengths and then of others.
func testStates(t *testing.T, e backend.Executable, x []float32, width int) {
	t.Helper()
	const n = 12
	call := func(states []backend.State, from ...int) []float32 {
		c := backend.Call{Tokens: n, All: true}
		for _, at := range from {
			c.Embeddings = append(c.Embeddings, x[at*width:(at+n)*width]...)
		}
		got, err := e.Run(t.Context(), states, c)
		if err != nil {
			t.Fatal(err)
		}
		return append([]float32{}, got...)
	}
	together, alone := []backend.State{e.NewState(), e.NewState()}, []backend.State{e.NewState(), e.NewState()}
	for range 3 {
		got := call(together, 0, 17)
		same(t, got, append(call(alone[:1], 0), call(alone[1:], 17)...))
	}
	call(together[1:], 30)
	call(alone[1:], 30)
	same(t, call(together, 40, 8), append(call(alone[:1], 40), call(alone[1:], 8)...))
}
