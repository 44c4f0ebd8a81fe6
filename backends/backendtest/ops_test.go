package backendtest

import (
	"math"
	"slices"
	"testing"

	"github.com/llmexport/llmexport/runtime/backend"
	"github.com/llmexport/llmexport/runtime/mnn"
)

// opCase builds an op over constants and says what it gives.
type opCase struct {
	name  string
	build func(b *builder) int32
	shape []int
	want  []float32
}

// one is a call of one token, which graphs of constants do not look at.
var one = backend.Call{Embeddings: []float32{0}, Tokens: 1}

func runCases(t *testing.T, be backend.Backend, cases []opCase) {
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			b := &builder{}
			shape, got := b.run(t, be, c.build(b), one, 2)
			if !slices.Equal(shape, c.shape) {
				t.Errorf("shape %v, want %v", shape, c.shape)
			}
			if len(got) != len(c.want) {
				t.Fatalf("%d values, want %d", len(got), len(c.want))
			}
			near(t, got, wide(c.want))
		})
	}
}

// cube is 0..23 as [2, 3, 4].
func cube(b *builder) int32 { return b.floats(iota32(24), 2, 3, 4) }

func testShapes(t *testing.T, be backend.Backend) {
	slice := func(from int32, x int32, in ...int32) func(b *builder) int32 {
		return func(b *builder) int32 {
			args := []int32{cube(b)}
			for k := 0; k < len(in); k += int(x) {
				args = append(args, b.list(in[k:k+int(x)]...))
			}
			return b.op(mnn.OpStridedSlice, &mnn.StridedSlice{FromType: from}, args...)
		}
	}
	runCases(t, be, []opCase{
		{"reshape", func(b *builder) int32 { return b.reshape(cube(b), 4, 6) }, []int{4, 6}, iota32(24)},
		{"reshape infers", func(b *builder) int32 { return b.reshape(cube(b), -1, 8) }, []int{3, 8}, iota32(24)},
		{"reshape copies", func(b *builder) int32 { return b.reshape(cube(b), 0, 0, 2, -1) }, []int{2, 3, 2, 2}, iota32(24)},
		{"reshape by input", func(b *builder) int32 {
			return b.op(mnn.OpReshape, &mnn.Reshape{Dims: []int32{1}}, cube(b), b.list(3, -1))
		}, []int{3, 8}, iota32(24)},
		{"reshape to a scalar", func(b *builder) int32 {
			return b.op(mnn.OpReshape, &mnn.Reshape{}, b.floats([]float32{5}, 1), b.list())
		}, []int{}, []float32{5}},
		{"convert", func(b *builder) int32 {
			return b.op(mnn.OpConvertTensor, &mnn.Convert{Source: mnn.NCHW, Dest: mnn.NC4HW4}, b.reshape(cube(b), 2, 12, 1, 1))
		}, []int{2, 12, 1, 1}, iota32(24)},
		{"squeeze", func(b *builder) int32 {
			return b.op(mnn.OpSqueeze, &mnn.Squeeze{Dims: []int32{0, -2}}, b.reshape(cube(b), 1, 24, 1, 1))
		}, []int{24, 1}, iota32(24)},
		{"squeeze all", func(b *builder) int32 {
			return b.op(mnn.OpSqueeze, &mnn.Squeeze{}, b.reshape(cube(b), 1, 24, 1, 1))
		}, []int{24}, iota32(24)},
		{"squeeze by input", func(b *builder) int32 {
			return b.op(mnn.OpSqueeze, &mnn.Squeeze{}, b.reshape(cube(b), 1, 24, 1), b.list(2))
		}, []int{1, 24}, iota32(24)},
		{"unsqueeze", func(b *builder) int32 {
			return b.op(mnn.OpUnsqueeze, &mnn.Squeeze{Dims: []int32{0, -1}}, cube(b))
		}, []int{1, 2, 3, 4, 1}, iota32(24)},
		{"unsqueeze by input", func(b *builder) int32 {
			return b.op(mnn.OpUnsqueeze, &mnn.Squeeze{}, cube(b), b.list(1))
		}, []int{2, 1, 3, 4}, iota32(24)},
		{"concat first axis", func(b *builder) int32 {
			return b.concat(0, b.floats([]float32{1, 2}, 1, 2), b.floats([]float32{3, 4, 5, 6}, 2, 2))
		}, []int{3, 2}, []float32{1, 2, 3, 4, 5, 6}},
		{"concat last axis", func(b *builder) int32 {
			x := b.floats([]float32{1, 2, 3, 4}, 2, 2)
			return b.concat(-1, x, b.floats([]float32{8, 9}, 2, 1), x)
		}, []int{2, 5}, []float32{1, 2, 8, 1, 2, 3, 4, 9, 3, 4}},
		{"gather rows", func(b *builder) int32 {
			return b.gather(b.floats(iota32(6), 3, 2), b.ints([]int32{2, 0, 0, 1}, 2, 2), 0)
		}, []int{2, 2, 2}, []float32{4, 5, 0, 1, 0, 1, 2, 3}},
		{"gather columns", func(b *builder) int32 {
			return b.gather(b.floats(iota32(6), 2, 3), b.list(2, 1), -1)
		}, []int{2, 2}, []float32{2, 1, 5, 4}},
		{"gather by a scalar", func(b *builder) int32 {
			return b.gather(b.floats(iota32(6), 3, 2), b.scalar(1), 0)
		}, []int{2}, []float32{2, 3}},
		{"slice", slice(1, 1, 1, 1<<30, 2, 1), []int{2, 3, 3}, []float32{1, 2, 3, 5, 6, 7, 9, 10, 11, 13, 14, 15, 17, 18, 19, 21, 22, 23}},
		{"slice from the end", slice(1, 1, -1, 1<<30, 1, 1), []int{2, 1, 4}, []float32{8, 9, 10, 11, 20, 21, 22, 23}},
		{"slice of several axes", slice(1, 3, 0, 1, 0, 1, 3, -1, 0, 1, 2, 1, 1, 2), []int{1, 2, 2}, []float32{4, 6, 8, 10}},
		{"slice in TensorFlow's form", slice(0, 3, 0, 1, 1, 2, 3, 4, 1, 1, 2), []int{2, 2, 2}, []float32{5, 7, 9, 11, 17, 19, 21, 23}},
		{"shape", func(b *builder) int32 { return b.asFloats(b.op(mnn.OpShape, nil, cube(b))) }, []int{3}, []float32{2, 3, 4}},
		{"rank", func(b *builder) int32 { return b.asFloats(b.op(mnn.OpRank, nil, cube(b))) }, []int{}, []float32{3}},
	})
}

func testElementwise(t *testing.T, be backend.Backend) {
	op := func(o mnn.BinaryOp) func(b *builder) int32 {
		return func(b *builder) int32 {
			return b.binary(o, b.floats([]float32{6, -3, 0.5}, 3), b.floats([]float32{2, 4, -8}, 3))
		}
	}
	silu := func(x float64) float32 { return float32(x / (1 + math.Exp(-x))) }
	runCases(t, be, []opCase{
		{"add", op(mnn.BinaryAdd), []int{3}, []float32{8, 1, -7.5}},
		{"sub", op(mnn.BinarySub), []int{3}, []float32{4, -7, 8.5}},
		{"mul", op(mnn.BinaryMul), []int{3}, []float32{12, -12, -4}},
		{"div", op(mnn.BinaryRealDiv), []int{3}, []float32{3, -0.75, -0.0625}},
		{"max", op(mnn.BinaryMaximum), []int{3}, []float32{6, 4, 0.5}},
		{"min", op(mnn.BinaryMinimum), []int{3}, []float32{2, -3, -8}},
		{"mul_silu", op(mnn.BinaryMulSilu), []int{3}, []float32{6 * silu(2), -3 * silu(4), 0.5 * silu(-8)}},
		{"neg", func(b *builder) int32 {
			return b.op(mnn.OpUnaryOp, &mnn.Unary{Op: mnn.UnaryNeg}, b.floats([]float32{1, -2}, 2))
		}, []int{2}, []float32{-1, 2}},
		{"silu", func(b *builder) int32 {
			return b.op(mnn.OpUnaryOp, &mnn.Unary{Op: mnn.UnarySilu}, b.floats([]float32{0, 3, -3, 90, -90}, 5))
		}, []int{5}, []float32{0, silu(3), silu(-3), 90, 0}},
		{"broadcast both", func(b *builder) int32 {
			return b.binary(mnn.BinarySub, b.floats([]float32{10, 20}, 2, 1), b.floats([]float32{1, 2, 3}, 1, 3))
		}, []int{2, 3}, []float32{9, 8, 7, 19, 18, 17}},
		{"broadcast a lower rank", func(b *builder) int32 {
			return b.binary(mnn.BinaryAdd, b.floats([]float32{100, 200, 300, 400}, 4), cube(b))
		}, []int{2, 3, 4}, func() []float32 {
			v := iota32(24)
			for i := range v {
				v[i] += 100 * float32(i%4+1)
			}
			return v
		}()},
		{"broadcast the middle", func(b *builder) int32 {
			return b.binary(mnn.BinaryMul, cube(b), b.floats([]float32{1, 2}, 2, 1, 1))
		}, []int{2, 3, 4}, func() []float32 {
			v := iota32(24)
			for i := range v[12:] {
				v[12+i] *= 2
			}
			return v
		}()},
		{"broadcast a scalar", func(b *builder) int32 {
			return b.binary(mnn.BinaryMul, b.floats([]float32{3}), b.floats([]float32{1, 2}, 2))
		}, []int{2}, []float32{3, 6}},
	})
}

// Positions are computed in integers: quotients truncate, remainders take the sign of the divisor.
func testIntegers(t *testing.T, be backend.Backend) {
	needs(t, be, mnn.OpGatherV2)
	op := func(o mnn.BinaryOp) func(b *builder) int32 {
		return func(b *builder) int32 {
			return b.asFloats(b.binary(o, b.list(7, -7, 7, -7, 8, 3), b.list(3, 3, -3, -3, 4, 5)))
		}
	}
	runCases(t, be, []opCase{
		{"add", op(mnn.BinaryAdd), []int{6}, []float32{10, -4, 4, -10, 12, 8}},
		{"sub", op(mnn.BinarySub), []int{6}, []float32{4, -10, 10, -4, 4, -2}},
		{"mul", op(mnn.BinaryMul), []int{6}, []float32{21, -21, -21, 21, 32, 15}},
		{"real_div", op(mnn.BinaryRealDiv), []int{6}, []float32{2, -2, -2, 2, 2, 0}},
		{"max", op(mnn.BinaryMaximum), []int{6}, []float32{7, 3, 7, -3, 8, 5}},
		{"min", op(mnn.BinaryMinimum), []int{6}, []float32{3, -7, -3, -7, 4, 3}},
		{"mod", op(mnn.BinaryMod), []int{6}, []float32{1, 2, -2, -1, 0, 3}},
		{"broadcast", func(b *builder) int32 {
			return b.asFloats(b.binary(mnn.BinarySub, b.ints([]int32{10, 20}, 2, 1), b.list(1, 2, 3)))
		}, []int{2, 3}, []float32{9, 8, 7, 19, 18, 17}},
		{"shape ops keep them", func(b *builder) int32 {
			x := b.concat(0, b.reshape(b.list(1, 2, 3, 4), 2, 2), b.ints([]int32{5, 6}, 1, 2))
			return b.asFloats(b.gather(x, b.list(2, 0), 0))
		}, []int{2, 2}, []float32{5, 6, 1, 2}},
	})
}

func testNorm(t *testing.T, be backend.Backend) {
	const rows, width, eps = 5, 48, 1e-5
	x, y, gamma := random(1, rows*width), random(2, rows*width), random(3, width)
	norm := func(x []float64) []float64 {
		out := make([]float64, len(x))
		for r := 0; r < len(x); r += width {
			sum := 0.
			for _, v := range x[r : r+width] {
				sum += v * v
			}
			for i, v := range x[r : r+width] {
				out[r+i] = v / math.Sqrt(sum/width+eps) * float64(gamma[i])
			}
		}
		return out
	}
	sum := wide(x)
	for i, v := range y {
		sum[i] += float64(v)
	}
	param := func() *mnn.LayerNorm {
		return &mnn.LayerNorm{Axis: []int32{-1}, Epsilon: eps, Gamma: gamma, Group: 1, RMS: true}
	}
	t.Run("one output", func(t *testing.T) {
		b := &builder{}
		_, got := b.run(t, be, b.op(mnn.OpLayerNorm, param(), b.floats(x, 1, rows, width)), one, 2)
		near(t, got, norm(wide(x)))
	})
	t.Run("gamma in the file", func(t *testing.T) {
		b := &builder{}
		p := param()
		p.Gamma, p.External = nil, []int64{b.append(gamma), 4 * width, 0}
		_, got := b.run(t, be, b.op(mnn.OpLayerNorm, p, b.floats(x, rows, width)), one, 1)
		near(t, got, norm(wide(x)))
	})
	t.Run("packed", func(t *testing.T) {
		b := &builder{}
		v := b.op(mnn.OpLayerNorm, param(), b.floats(x, rows, width, 1, 1))
		b.Ops[len(b.Ops)-1].Format = mnn.DimNC4HW4
		_, got := b.run(t, be, v, one, 1)
		near(t, got, norm(wide(x)))
	})
	t.Run("two outputs", func(t *testing.T) {
		for output, want := range [][]float64{sum, norm(sum)} {
			b := &builder{}
			v := b.ops(2, mnn.OpLayerNorm, param(), b.floats(x, rows, width), b.floats(y, rows, width))
			_, got := b.run(t, be, b.reshape(v+int32(output), -1), one, 2)
			near(t, got, want)
		}
	})
}

// testInputs looks at what is fed: embeddings [tokens, 1, hidden], positions from the cache on, and the index of
// the first position whose logits are wanted.
func testInputs(t *testing.T, be backend.Backend) {
	t.Run("embeddings", func(t *testing.T) {
		b := &builder{}
		shape, got := b.run(t, be, b.reshape(b.input("input_ids"), 0, 0, 0), backend.Call{Embeddings: iota32(6), Tokens: 3}, 1)
		if !slices.Equal(shape, []int{3, 1, 2}) || !slices.Equal(got, iota32(6)) {
			t.Errorf("%v %v", shape, got)
		}
	})
	t.Run("positions", func(t *testing.T) {
		b := &builder{}
		e, err := b.compile(be, b.asFloats(b.input("position_ids")), backend.Options{})
		if err != nil {
			t.Fatal(err)
		}
		s := e.NewState()
		at := 0
		for _, n := range []int{3, 1, 2} {
			got, err := e.Run(t.Context(), []backend.State{s}, backend.Call{Embeddings: make([]float32, n), Tokens: n, Offset: 10})
			if err != nil {
				t.Fatal(err)
			}
			for i := range n {
				if len(got) != n || got[i] != float32(10+at+i) {
					t.Fatalf("%d tokens behind %d: positions %v", n, at, got)
				}
			}
			at += n
			if s.Len() != at {
				t.Errorf("%d cached positions, want %d", s.Len(), at)
			}
		}
		s.Reset()
		if s.Len() != 0 {
			t.Errorf("%d cached positions after a reset", s.Len())
		}
	})
	t.Run("logits index", func(t *testing.T) {
		for _, all := range []bool{false, true} {
			b := &builder{}
			x := b.input("input_ids")
			v := b.op(mnn.OpStridedSlice, &mnn.StridedSlice{FromType: 1}, x, b.input("logits_index"), b.list(1<<30), b.list(0), b.list(1))
			_, got := b.run(t, be, v, backend.Call{Embeddings: iota32(8), Tokens: 4, All: all}, 1)
			want := []float32{6, 7}
			if all {
				want = iota32(8)
			}
			if !slices.Equal(got, want) {
				t.Errorf("all %t: %v", all, got)
			}
		}
	})
}
