package backendtest

import (
	"math"
	"slices"
	"testing"

	"github.com/llmexport/llmexport/runtime/backend"
	"github.com/llmexport/llmexport/runtime/mnn"
)

// testUnary compares functions of elements with their definitions, on tensors of which the rows of a call have no whole
// groups of eight.
func testUnary(t *testing.T, be backend.Backend) {
	sigmoid := func(x float64) float64 { return 1 / (1 + math.Exp(-x)) }
	for _, c := range []struct {
		name string
		typ  mnn.OpType
		prm  mnn.Param
		want func(x float64) float64
	}{
		{"abs", mnn.OpUnaryOp, &mnn.Unary{Op: mnn.UnaryAbs}, math.Abs},
		{"neg", mnn.OpUnaryOp, &mnn.Unary{Op: mnn.UnaryNeg}, func(x float64) float64 { return -x }},
		{"sqrt", mnn.OpUnaryOp, &mnn.Unary{Op: mnn.UnarySqrt}, math.Sqrt},
		{"exp", mnn.OpUnaryOp, &mnn.Unary{Op: mnn.UnaryExp}, math.Exp},
		{"expm1", mnn.OpUnaryOp, &mnn.Unary{Op: mnn.UnaryExpm1}, math.Expm1},
		{"log", mnn.OpUnaryOp, &mnn.Unary{Op: mnn.UnaryLog}, math.Log},
		{"sigmoid", mnn.OpUnaryOp, &mnn.Unary{Op: mnn.UnarySigmoid}, sigmoid},
		{"tanh", mnn.OpUnaryOp, &mnn.Unary{Op: mnn.UnaryTanh}, math.Tanh},
		{"gelu", mnn.OpUnaryOp, &mnn.Unary{Op: mnn.UnaryGelu}, func(x float64) float64 { return x * sigmoid(2*.79788458*(x+.044715*x*x*x)) }},
		{"gelu by erf", mnn.OpUnaryOp, &mnn.Unary{Op: mnn.UnaryGeluStandard}, func(x float64) float64 { return x / 2 * (1 + math.Erf(x/math.Sqrt2)) }},
		{"relu", mnn.OpReLU, &mnn.Relu{}, func(x float64) float64 { return max(x, 0) }},
		{"leaky relu", mnn.OpReLU, &mnn.Relu{Slope: .1}, func(x float64) float64 { return max(x, x/10) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			const tokens, width = 21, 13
			x := random(40, tokens*width)
			if slices.Contains([]string{"sqrt", "log"}, c.name) {
				for i, v := range x {
					x[i] = float32(math.Abs(float64(v))) + .01
				}
			}
			want := make([]float64, len(x))
			for i, v := range x {
				want[i] = c.want(float64(v))
			}
			for _, threads := range []int{1, 3} {
				b := &builder{}
				_, got := b.run(t, be, b.op(c.typ, c.prm, b.input("input_ids")), backend.Call{Embeddings: x, Tokens: tokens, All: true}, threads)
				near(t, got, want)
			}
		})
	}
	t.Run("softmax", func(t *testing.T) {
		const rows, width = 9, 21
		x := random(41, rows*width)
		want := wide(x)
		for r := 0; r < len(want); r += width {
			sum := 0.
			for i := r; i < r+width; i++ {
				want[i] = math.Exp(3 * want[i])
				sum += want[i]
			}
			for i := r; i < r+width; i++ {
				want[i] /= sum
			}
		}
		for i := range x {
			x[i] *= 3
		}
		b := &builder{}
		y := b.op(mnn.OpSoftmax, &mnn.Axis{Axis: 3}, b.reshape(b.input("input_ids"), 1, 3, 3, width))
		_, got := b.run(t, be, y, backend.Call{Embeddings: x, Tokens: 3}, 2)
		near(t, got, want)
	})
	t.Run("layer norm", func(t *testing.T) {
		const tokens, width, eps = 7, 19, 1e-5
		x, gamma, beta := random(42, tokens*width), random(43, width), random(44, width)
		for _, offset := range []bool{false, true} {
			for _, packed := range []bool{false, true} {
				p := &mnn.LayerNorm{Axis: []int32{-1}, Epsilon: eps, Gamma: gamma, Group: 1}
				if offset {
					p.Beta = beta
				}
				want := wide(x)
				for r := 0; r < len(want); r += width {
					row, mean, sum := want[r:r+width], 0., 0.
					for _, v := range row {
						mean += v / width
					}
					for _, v := range row {
						sum += (v - mean) * (v - mean)
					}
					for i, v := range row {
						row[i] = (v - mean) / math.Sqrt(sum/width+eps) * float64(gamma[i])
						if offset {
							row[i] += float64(beta[i])
						}
					}
				}
				b := &builder{}
				in := b.reshape(b.input("input_ids"), -1, width, 1, 1)
				if !packed {
					in = b.reshape(in, -1, width)
				}
				y := b.op(mnn.OpLayerNorm, p, in)
				if packed {
					b.Ops[len(b.Ops)-1].Format = mnn.DimNC4HW4
				}
				_, got := b.run(t, be, y, backend.Call{Embeddings: x, Tokens: tokens}, 2)
				near(t, got, want)
			}
		}
	})
	t.Run("replaced", func(t *testing.T) {
		b := &builder{}
		table := b.op(mnn.OpConst, &mnn.Blob{Dims: []int32{2, 2}, DType: mnn.DTFloat, External: []int64{b.append(iota32(4)), 16}})
		p := &mnn.LayerNorm{Axis: []int32{-1}, Epsilon: 0, Gamma: []float32{1, 1}, Group: 1}
		y := b.op(mnn.OpLayerNorm, p, b.binary(mnn.BinaryMul, table, b.floats([]float32{1, 2}, 2)))
		e, err := b.compile(be, y, backend.Options{Replace: func(op *mnn.Op) (weights *backend.Replacement, bias []float32, err error) {
			if op.Type == mnn.OpConst {
				return replacement([]float32{5, 7, 7, 5}), nil, nil // inline constants are not asked for
			}
			return replacement([]float32{2, 3}), []float32{10, 20}, nil
		}})
		if err != nil {
			t.Fatal(err)
		}
		got, err := e.Run(t.Context(), []backend.State{e.NewState()}, one)
		if err != nil {
			t.Fatal(err)
		}
		near(t, got, []float64{8, 23, 8, 23}) // rows 5, 14 and 7, 10
	})
}

// testTypes looks at casts, comparisons and ranges, of constants and of what a call brings.
func testTypes(t *testing.T, be backend.Backend) {
	cast := func(b *builder, to mnn.DataType, x int32) int32 { return b.op(mnn.OpCast, &mnn.Cast{To: to}, x) }
	compare := func(op mnn.BinaryOp, integers bool) func(b *builder) int32 {
		return func(b *builder) int32 {
			x, y := b.floats([]float32{1, 2, 3, -.5}, 4), b.floats([]float32{2, 2, 2, -.25}, 4)
			if integers {
				x, y = b.list(1, 2, 3, -5), b.list(2, 2, 2, -4)
			}
			return cast(b, mnn.DTFloat, b.binary(op, x, y))
		}
	}
	cases := []opCase{
		{"integers to floats", func(b *builder) int32 { return cast(b, mnn.DTFloat, b.list(1, -2, 1<<24)) }, []int{3}, []float32{1, -2, 1 << 24}},
		{"floats to integers", func(b *builder) int32 {
			return b.asFloats(cast(b, mnn.DTInt32, b.floats([]float32{1.9, -1.9, 0}, 3)))
		}, []int{3}, []float32{1, -1, 0}},
		{"integers to booleans", func(b *builder) int32 { return b.asFloats(cast(b, mnn.DTBool, b.list(-3, 0, 2))) }, []int{3}, []float32{1, 0, 1}},
		{"same type", func(b *builder) int32 { return cast(b, mnn.DTFloat, b.floats([]float32{1.5}, 1)) }, []int{1}, []float32{1.5}},
		{"abs of integers", func(b *builder) int32 {
			return b.asFloats(b.op(mnn.OpUnaryOp, &mnn.Unary{Op: mnn.UnaryAbs}, b.list(-3, 4)))
		}, []int{2}, []float32{3, 4}},
		{"range", func(b *builder) int32 {
			return b.asFloats(b.op(mnn.OpRange, &mnn.Range{T: mnn.DTInt32}, b.scalar(2), b.scalar(9), b.scalar(3)))
		}, []int{3}, []float32{2, 5, 8}},
		{"range downwards", func(b *builder) int32 {
			return b.asFloats(b.op(mnn.OpRange, &mnn.Range{T: mnn.DTInt32}, b.scalar(2), b.scalar(-2), b.scalar(-2)))
		}, []int{2}, []float32{2, 0}},
		{"range to a shape", func(b *builder) int32 {
			n := b.gather(b.op(mnn.OpShape, nil, cube(b)), b.scalar(1), 0)
			return b.asFloats(b.op(mnn.OpRange, &mnn.Range{T: mnn.DTInt32}, b.scalar(0), n, b.scalar(1)))
		}, []int{3}, []float32{0, 1, 2}},
	}
	for _, c := range []struct {
		name string
		op   mnn.BinaryOp
		want []float32
	}{
		{"greater", mnn.BinaryGreater, []float32{0, 0, 1, 0}}, {"greater or equal", mnn.BinaryGreaterEqual, []float32{0, 1, 1, 0}},
		{"less", mnn.BinaryLess, []float32{1, 0, 0, 1}}, {"less or equal", mnn.BinaryLessEqual, []float32{1, 1, 0, 1}},
		{"equal", mnn.BinaryEqual, []float32{0, 1, 0, 0}}, {"not equal", mnn.BinaryNotEqual, []float32{1, 0, 1, 1}},
	} {
		cases = append(cases, opCase{c.name, compare(c.op, false), []int{4}, c.want}, opCase{c.name + " of integers", compare(c.op, true), []int{4}, c.want})
	}
	runCases(t, be, cases)
	t.Run("of positions and embeddings", func(t *testing.T) {
		b := &builder{}
		p := cast(b, mnn.DTFloat, b.binary(mnn.BinaryRealDiv, b.input("position_ids"), b.scalar(2)))
		row := cast(b, mnn.DTFloat, b.gather(b.list(5, 7, 9, 11, 13, 15), b.input("position_ids"), 0))
		x := b.reshape(b.input("input_ids"), 1, -1)
		i := cast(b, mnn.DTFloat, cast(b, mnn.DTInt32, x))
		neg := b.op(mnn.OpUnaryOp, &mnn.Unary{Op: mnn.UnaryNeg}, b.input("position_ids"))
		g := cast(b, mnn.DTFloat, b.binary(mnn.BinaryGreaterEqual, x, b.floats([]float32{1})))
		y := b.concat(0, p, row, i, g, cast(b, mnn.DTFloat, neg))
		e, err := b.compile(be, y, backend.Options{Threads: 2})
		if err != nil {
			t.Fatal(err)
		}
		s := e.NewState()
		for _, want := range [][]float64{
			{0, 0, 1, 5, 7, 9, -1, 0, 2, 0, 0, 1, 0, -1, -2}, {1, 2, 2, 11, 13, 15, -1, 0, 2, 0, 0, 1, -3, -4, -5},
		} {
			got, err := e.Run(t.Context(), []backend.State{s}, backend.Call{Embeddings: []float32{-1.5, .75, 2.25}, Tokens: 3, All: true})
			if err != nil {
				t.Fatal(err)
			}
			near(t, got, want)
		}
	})
	t.Run("numbers and tensors", func(t *testing.T) {
		x := []float32{1, 2, -3, 4, 5, -6}
		for _, c := range []struct {
			op   mnn.BinaryOp
			want func(x, y float64) float64
		}{
			{mnn.BinaryAdd, func(x, y float64) float64 { return x + y }}, {mnn.BinarySub, func(x, y float64) float64 { return x - y }},
			{mnn.BinaryMul, func(x, y float64) float64 { return x * y }}, {mnn.BinaryRealDiv, func(x, y float64) float64 { return x / y }},
			{mnn.BinaryMaximum, math.Max}, {mnn.BinaryMinimum, math.Min},
		} {
			for _, first := range []bool{false, true} {
				for _, dims := range [][]int32{nil, {1}, {1, 1, 1, 1}} {
					b := &builder{}
					in, number := b.input("input_ids"), b.floats([]float32{1.5}, dims...)
					y := b.binary(c.op, in, number)
					if first {
						y = b.binary(c.op, number, in)
					}
					_, got := b.run(t, be, y, backend.Call{Embeddings: x, Tokens: 2}, 2)
					want := wide(x)
					for i, v := range want {
						if want[i] = c.want(v, 1.5); first {
							want[i] = c.want(1.5, v)
						}
					}
					near(t, got, want)
				}
			}
		}
	})
}
