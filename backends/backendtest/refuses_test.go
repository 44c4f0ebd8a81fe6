package backendtest

import (
	"context"
	"errors"
	"testing"

	"github.com/llmexport/llmexport/quant"
	"github.com/llmexport/llmexport/runtime/backend"
	"github.com/llmexport/llmexport/runtime/mnn"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// testFailure cancels a call at several ops and demands that the state is as it was before it.
func testFailure(t *testing.T, be backend.Backend, build func() (*builder, int32), mode backend.Mode, x []float32, width int, stops ...mnn.OpType) {
	b, y := build()
	e, err := b.compile(be, y, backend.Options{Mode: mode, Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	want := pieces(t, e, e.NewState(), x, width, []int{3, len(x)/width - 3})
	s := e.NewState()
	head := pieces(t, e, s, x, width, []int{3})
	for _, stop := range stops {
		ctx, cancel := context.WithCancelCause(t.Context())
		cause := errors.New("interrupted")
		_, err := e.Run(ctx, []backend.State{s}, backend.Call{Embeddings: x[3*width : 8*width], Tokens: 5, Observe: func(op *mnn.Op, _ int, _ []int, _ []float32) {
			if op.Type == stop {
				cancel(cause)
			}
		}})
		cancel(nil)
		if !errors.Is(err, cause) {
			t.Errorf("cancelled at %v: %v", stop, err)
		}
		if s.Len() != 3 {
			t.Errorf("cancelled at %v: %d cached positions, 3 before", stop, s.Len())
		}
	}
	rest := pieces(t, e, s, x[3*width:], width, []int{len(x)/width - 3})
	same(t, append(head, rest...), want)
}

// Nonsense is tensor.ErrCorrupt or tensor.ErrUnsupported, from Compile or from Run, and never a panic.
func testRefuses(t *testing.T, be backend.Backend) {
	gamma := func(n int) *mnn.LayerNorm {
		return &mnn.LayerNorm{Axis: []int32{-1}, Epsilon: 1e-6, Gamma: make([]float32, n), Group: 1, RMS: true}
	}
	slice := func(from int32, args ...[]int32) func(b *builder) int32 {
		return func(b *builder) int32 {
			in := []int32{cube(b)}
			for _, a := range args {
				in = append(in, b.list(a...))
			}
			return b.op(mnn.OpStridedSlice, &mnn.StridedSlice{FromType: from}, in...)
		}
	}
	linear := func(change func(c *mnn.Convolution, b *builder)) func(b *builder) int32 {
		return func(b *builder) int32 {
			w := quant.Matrix{Rows: 4, Cols: 32, Data: random(1, 128)}
			y, _ := b.linear(t, b.floats(random(2, 64), 2, 32, 1, 1), w, random(3, 4), quant.Spec{Bits: 4, Block: 32, Scale: tensor.F16})
			change(b.Ops[len(b.Ops)-1].Param.(*mnn.Convolution), b)
			return y
		}
	}
	attend := func(change func(p *mnn.Attention, in []int32, b *builder) []int32) func(b *builder) int32 {
		return func(b *builder) int32 {
			p := &mnn.Attention{KVCache: true}
			in := []int32{b.floats(random(1, 32), 1, 1, 4, 8), b.floats(random(2, 16), 1, 1, 2, 8), b.floats(random(3, 16), 1, 1, 2, 8), b.input("attention_mask")}
			return b.op(mnn.OpAttention, p, change(p, in, b)...)
		}
	}
	turn := func(change func(p *mnn.RoPE, in []int32, b *builder)) func(b *builder) int32 {
		return func(b *builder) int32 {
			p := &mnn.RoPE{CutHeadDim: 8, Heads: 2, KVHeads: 1, HeadDim: 8}
			in := []int32{b.floats(random(1, 16), 1, 16, 1, 1), b.floats(random(2, 8), 1, 8, 1, 1), b.floats(random(3, 8), 1, 8), b.floats(random(4, 8), 1, 8)}
			change(p, in, b)
			return b.ops(2, mnn.OpRoPE, p, in...)
		}
	}
	for _, c := range []struct {
		name  string
		build func(b *builder) int32
	}{
		{"reshape to another count", func(b *builder) int32 { return b.reshape(cube(b), 5, 5) }},
		{"reshape that does not divide", func(b *builder) int32 { return b.reshape(cube(b), 7, -1) }},
		{"reshape infers twice", func(b *builder) int32 { return b.reshape(cube(b), -1, -1) }},
		{"reshape copies what is not there", func(b *builder) int32 { return b.reshape(cube(b), 24, 1, 1, 0) }},
		{"reshape to a negative length", func(b *builder) int32 { return b.reshape(cube(b), -2, -12) }},
		{"reshape overflows", func(b *builder) int32 { return b.reshape(cube(b), 1<<30, 1<<30, 1<<30, 1<<30) }},
		{"reshape by floats", func(b *builder) int32 {
			return b.op(mnn.OpReshape, &mnn.Reshape{}, cube(b), b.floats([]float32{24}, 1))
		}},
		{"squeeze of a long dimension", func(b *builder) int32 { return b.op(mnn.OpSqueeze, &mnn.Squeeze{Dims: []int32{1}}, cube(b)) }},
		{"squeeze out of range", func(b *builder) int32 { return b.op(mnn.OpSqueeze, &mnn.Squeeze{Dims: []int32{3}}, cube(b)) }},
		{"unsqueeze out of range", func(b *builder) int32 { return b.op(mnn.OpUnsqueeze, &mnn.Squeeze{Dims: []int32{9}}, cube(b)) }},
		{"concat of other shapes", func(b *builder) int32 { return b.concat(0, cube(b), b.floats(iota32(4), 1, 2, 2)) }},
		{"concat of other ranks", func(b *builder) int32 { return b.concat(0, cube(b), b.floats(iota32(4), 4)) }},
		{"concat of floats and integers", func(b *builder) int32 { return b.concat(0, b.floats(iota32(2), 2), b.list(1, 2)) }},
		{"concat out of range", func(b *builder) int32 { return b.concat(3, cube(b), cube(b)) }},
		{"gather beyond the table", func(b *builder) int32 { return b.gather(cube(b), b.list(2), 0) }},
		{"gather before the table", func(b *builder) int32 { return b.gather(cube(b), b.list(-1), 0) }},
		{"gather by floats", func(b *builder) int32 { return b.gather(cube(b), b.floats([]float32{0}, 1), 0) }},
		{"gather out of range", func(b *builder) int32 { return b.gather(cube(b), b.list(0), 3) }},
		{"slice with few steps", slice(1, []int32{0, 0}, []int32{1, 1}, []int32{0, 1}, []int32{1})},
		{"slice with few ends", slice(1, []int32{0, 0}, []int32{1}, []int32{0, 1}, []int32{1, 1})},
		{"slice without a step", slice(1, []int32{0}, []int32{1}, []int32{0}, []int32{0})},
		{"slice out of range", slice(1, []int32{0}, []int32{1}, []int32{3}, []int32{1})},
		{"slice of too many axes", slice(0, []int32{0, 0, 0, 0}, []int32{1, 1, 1, 1}, []int32{1, 1, 1, 1})},
		{"shapes that do not broadcast", func(b *builder) int32 { return b.binary(mnn.BinaryAdd, cube(b), b.floats(iota32(3), 3)) }},
		{"floats and integers", func(b *builder) int32 { return b.binary(mnn.BinaryAdd, b.floats(iota32(2), 2), b.list(1, 2)) }},
		{"integers into a unary op", func(b *builder) int32 {
			return b.op(mnn.OpUnaryOp, &mnn.Unary{Op: mnn.UnarySilu}, b.list(1, 2))
		}},
		{"norm of another width", func(b *builder) int32 { return b.op(mnn.OpLayerNorm, gamma(5), cube(b)) }},
		{"norm of integers", func(b *builder) int32 { return b.op(mnn.OpLayerNorm, gamma(2), b.list(1, 2)) }},
		{"norm of a scalar", func(b *builder) int32 { return b.op(mnn.OpLayerNorm, gamma(1), b.floats([]float32{1})) }},
		{"norm of another number of offsets", func(b *builder) int32 {
			p := gamma(4)
			p.RMS, p.Beta = false, []float32{1}
			return b.op(mnn.OpLayerNorm, p, cube(b))
		}},
		{"RMSNorm with offsets", func(b *builder) int32 {
			p := gamma(4)
			p.Beta = []float32{1, 0, 0, 0}
			return b.op(mnn.OpLayerNorm, p, cube(b))
		}},
		{"norm over other axes", func(b *builder) int32 {
			p := gamma(4)
			p.Axis = []int32{1, 2}
			return b.op(mnn.OpLayerNorm, p, cube(b))
		}},
		{"power", func(b *builder) int32 { return b.binary(mnn.BinaryPow, cube(b), cube(b)) }},
		{"binary op with an activation", func(b *builder) int32 {
			return b.op(mnn.OpBinaryOp, &mnn.Binary{Op: mnn.BinaryAdd, Activation: 1}, cube(b), cube(b))
		}},
		{"tangent", func(b *builder) int32 { return b.op(mnn.OpUnaryOp, &mnn.Unary{Op: mnn.UnarySin}, cube(b)) }},
		{"ReLU of integers", func(b *builder) int32 { return b.op(mnn.OpReLU, &mnn.Relu{}, b.list(1, 2)) }},
		{"softmax of integers", func(b *builder) int32 { return b.op(mnn.OpSoftmax, &mnn.Axis{Axis: -1}, b.list(1, 2)) }},
		{"softmax out of range", func(b *builder) int32 { return b.op(mnn.OpSoftmax, &mnn.Axis{Axis: 3}, cube(b)) }},
		{"softmax along another axis", func(b *builder) int32 { return b.op(mnn.OpSoftmax, &mnn.Axis{Axis: 1}, cube(b)) }},
		{"softmax of a scalar", func(b *builder) int32 { return b.op(mnn.OpSoftmax, &mnn.Axis{Axis: -1}, b.floats([]float32{1})) }},
		{"cast to bytes", func(b *builder) int32 { return b.op(mnn.OpCast, &mnn.Cast{To: mnn.DTUint8}, cube(b)) }},
		{"cast of floats to booleans", func(b *builder) int32 { return b.op(mnn.OpCast, &mnn.Cast{To: mnn.DTBool}, cube(b)) }},
		{"range of floats", func(b *builder) int32 {
			x := b.floats([]float32{1})
			return b.op(mnn.OpRange, &mnn.Range{T: mnn.DTFloat}, x, x, x)
		}},
		{"range by lists", func(b *builder) int32 {
			return b.op(mnn.OpRange, &mnn.Range{T: mnn.DTInt32}, b.scalar(0), b.list(1, 2), b.scalar(1))
		}},
		{"range without a step", func(b *builder) int32 {
			return b.op(mnn.OpRange, &mnn.Range{T: mnn.DTInt32}, b.scalar(0), b.scalar(5), b.scalar(0))
		}},
		{"endless range", func(b *builder) int32 {
			return b.op(mnn.OpRange, &mnn.Range{T: mnn.DTInt32}, b.scalar(0), b.scalar(1<<30), b.scalar(1))
		}},
		{"attention with a mask of other keys", attend(func(_ *mnn.Attention, in []int32, b *builder) []int32 {
			in[3] = b.floats(make([]float32, 2), 1, 1, 1, 2)
			return in
		})},
		{"attention with a mask of another rank", attend(func(_ *mnn.Attention, in []int32, b *builder) []int32 {
			in[3] = b.floats(make([]float32, 1), 1, 1)
			return in
		})},
		{"attention with a mask for each head", attend(func(_ *mnn.Attention, in []int32, b *builder) []int32 {
			in[3] = b.floats(make([]float32, 4), 1, 4, 1, 1)
			return in
		})},
		{"attention with another number without dimensions", attend(func(_ *mnn.Attention, in []int32, b *builder) []int32 {
			in[3] = b.floats([]float32{1})
			return in
		})},
		{"attention with sinks that is not causal", attend(func(_ *mnn.Attention, in []int32, b *builder) []int32 {
			return append(in, b.floats(make([]float32, 4), 4))
		})},
		{"attention with sinks of other heads", attend(func(_ *mnn.Attention, in []int32, b *builder) []int32 {
			in[3] = b.floats(make([]float32, 1), 1, 1, 1, 1)
			return append(in, b.floats(make([]float32, 3), 3))
		})},
		{"attention with integer sinks", attend(func(_ *mnn.Attention, in []int32, b *builder) []int32 {
			in[3] = b.floats(make([]float32, 1), 1, 1, 1, 1)
			return append(in, b.list(0, 0, 0, 0))
		})},
		{"norm out of the file", func(b *builder) int32 {
			p := gamma(0)
			p.External = []int64{8, 16, 0}
			return b.op(mnn.OpLayerNorm, p, cube(b))
		}},
		{"constant of another count", func(b *builder) int32 { return b.reshape(b.floats(iota32(3), 2, 2), 4) }},
		{"constant of a negative shape", func(b *builder) int32 { return b.floats(iota32(3), -3) }},
		{"constant of bytes", func(b *builder) int32 {
			return b.op(mnn.OpConst, &mnn.Blob{Dims: []int32{1}, DType: mnn.DTUint8, Uint8s: []byte{1}})
		}},
		{"indices of learned positions", func(b *builder) int32 { return b.op(mnn.OpCast, &mnn.Cast{}, b.input(mnn.CornersInput)) }},
		{"unknown input", func(b *builder) int32 { return b.input("pixels") }},
		{"linear of another width", linear(func(_ *mnn.Convolution, b *builder) { b.Ops[0].Param.(*mnn.Blob).Dims = []int32{4, 16, 1, 1} })},
		{"linear of another rank", linear(func(_ *mnn.Convolution, b *builder) { b.Ops[0].Param.(*mnn.Blob).Dims = []int32{2, 32} })},
		{"linear of other rows", linear(func(c *mnn.Convolution, _ *builder) { c.Outputs = 5 })},
		{"linear out of the file", linear(func(c *mnn.Convolution, _ *builder) { c.External[0] = 1 << 40 })},
		{"linear with a cut bias", linear(func(c *mnn.Convolution, _ *builder) { c.External[3]-- })},
		{"linear of integers", func(b *builder) int32 {
			y := linear(func(*mnn.Convolution, *builder) {})(b)
			b.Ops[0].Param = &mnn.Blob{Dims: []int32{1, 32, 1, 1}, DType: mnn.DTInt32, Int32s: make([]int32, 32)}
			return y
		}},
		{"convolution", linear(func(c *mnn.Convolution, _ *builder) { c.KernelX = 3 })},
		{"convolution with an activation", linear(func(c *mnn.Convolution, _ *builder) { c.Relu = true })},
		{"attention that shares a cache", attend(func(p *mnn.Attention, in []int32, _ *builder) []int32 { p.KVShared = true; return in })},
		{"attention of two inputs", attend(func(_ *mnn.Attention, in []int32, _ *builder) []int32 { return in[:2] })},
		{"attention of heads that do not divide", attend(func(_ *mnn.Attention, in []int32, b *builder) []int32 {
			in[0] = b.floats(random(1, 24), 1, 1, 3, 8)
			return in
		})},
		{"attention of other values", attend(func(_ *mnn.Attention, in []int32, b *builder) []int32 {
			in[2] = b.floats(random(1, 8), 1, 1, 1, 8)
			return in
		})},
		{"attention of another rank", attend(func(_ *mnn.Attention, in []int32, b *builder) []int32 {
			in[1] = b.floats(random(1, 16), 1, 2, 8)
			return in
		})},
		{"attention of integer queries", attend(func(_ *mnn.Attention, in []int32, b *builder) []int32 {
			in[0] = b.ints(make([]int32, 32), 1, 1, 4, 8)
			return in
		})},
		{"attention of integer keys", attend(func(_ *mnn.Attention, in []int32, b *builder) []int32 {
			in[1] = b.ints(make([]int32, 16), 1, 1, 2, 8)
			return in
		})},
		{"attention of integer values", attend(func(_ *mnn.Attention, in []int32, b *builder) []int32 {
			in[2] = b.ints(make([]int32, 16), 1, 1, 2, 8)
			return in
		})},
		{"attention with an integer mask", attend(func(_ *mnn.Attention, in []int32, b *builder) []int32 {
			in[3] = b.scalar(0)
			return in
		})},
		{"RoPE of other angles", turn(func(_ *mnn.RoPE, in []int32, b *builder) { in[2] = b.floats(random(1, 6), 1, 6) })},
		{"RoPE of other heads", turn(func(p *mnn.RoPE, _ []int32, _ *builder) { p.Heads = 3 })},
		{"RoPE of an odd cut", turn(func(p *mnn.RoPE, _ []int32, _ *builder) { p.CutHeadDim = 7 })},
		{"RoPE of a long cut", turn(func(p *mnn.RoPE, _ []int32, _ *builder) { p.CutHeadDim = 10 })},
		{"RoPE with another norm", turn(func(p *mnn.RoPE, _ []int32, _ *builder) { p.QNorm = gamma(6) })},
		{"RoPE of integers", turn(func(_ *mnn.RoPE, in []int32, b *builder) { in[0] = b.ints(make([]int32, 16), 1, 16, 1, 1) })},
		{"RoPE by integers", turn(func(_ *mnn.RoPE, in []int32, b *builder) { in[3] = b.ints(make([]int32, 8), 1, 8) })},
	} {
		testRefused(t, be, c.name, c.build)
	}
	for _, c := range sequenceNonsense() {
		testRefused(t, be, c.name, c.build)
	}
	t.Run("no logits", func(t *testing.T) {
		b := &builder{}
		cube(b)
		if _, err := be.Compile(&b.Graph, b.file, backend.Options{}); !errors.Is(err, tensor.ErrCorrupt) {
			t.Errorf("error %v", err)
		}
	})
	t.Run("embeddings that do not divide", func(t *testing.T) {
		b := &builder{}
		e, err := b.compile(be, b.reshape(b.input("input_ids"), -1), backend.Options{})
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range []backend.Call{{}, {Embeddings: iota32(3), Tokens: 2}, {Embeddings: iota32(3), Tokens: -1}} {
			if _, err := e.Run(t.Context(), []backend.State{e.NewState()}, c); err == nil {
				t.Errorf("%d values for %d tokens", len(c.Embeddings), c.Tokens)
			}
		}
	})
}

// testRefused demands that a graph is refused.
func testRefused(t *testing.T, be backend.Backend, name string, build func(b *builder) int32) {
	t.Run(name, func(t *testing.T) {
		defer func() {
			if p := recover(); p != nil {
				t.Errorf("panic: %v", p)
			}
		}()
		b := &builder{}
		e, err := b.compile(be, build(b), backend.Options{Threads: 1})
		if err == nil {
			var got []float32
			if got, err = e.Run(t.Context(), []backend.State{e.NewState()}, one); err != nil && got != nil {
				t.Error("results with an error")
			}
		}
		if !errors.Is(err, tensor.ErrCorrupt) && !errors.Is(err, tensor.ErrUnsupported) {
			t.Errorf("error %v", err)
		}
	})
}
