package backendtest

import (
	"fmt"
	"math"
	"testing"

	"github.com/llmexport/llmexport/runtime/backend"
	"github.com/llmexport/llmexport/runtime/mnn"
)

func (b *builder) permute(x int32, dims ...int32) int32 {
	return b.op(mnn.OpPermute, &mnn.Permute{Dims: dims}, x)
}

// depthwise is a convolution of each of n channels alone that keeps the size if the stride is 1.
func depthwise(n, kernel, stride int32) *mnn.Depthwise {
	return &mnn.Depthwise{
		KernelX: kernel, KernelY: kernel, StrideX: stride, StrideY: stride, DilateX: 1, DilateY: 1, PadX: kernel / 2, PadY: kernel / 2,
		Group: n, Outputs: n, Inputs: n,
	}
}

func testSequences(t *testing.T, be backend.Backend) {
	needs(t, be, mnn.OpPermute, mnn.OpReduction, mnn.OpTopKV2, mnn.OpGatherElements, mnn.OpDepthwise)
	// Two channels of 3 x 4 places that count up, the kernels of both count up from 1, biases are 100 and 0.
	each := func(kernel, stride int32) func(b *builder) int32 {
		return func(b *builder) int32 {
			kernels := iota32(int(2 * kernel * kernel))
			for i := range kernels {
				kernels[i] = float32(i%int(kernel*kernel) + 1)
			}
			return b.op(mnn.OpDepthwise, depthwise(2, kernel, stride), b.floats(iota32(24), 1, 2, 3, 4),
				b.floats(kernels, 2, 1, kernel, kernel), b.floats([]float32{100, 0}, 2))
		}
	}
	reduce := func(op mnn.ReductionOp, keep bool, dims ...int32) func(b *builder) int32 {
		return func(b *builder) int32 {
			return b.op(mnn.OpReduction, &mnn.Reduction{Op: op, Dims: dims, Keep: keep, T: mnn.DTFloat}, cube(b))
		}
	}
	top := func(output, k int32, rows int32, v ...float32) func(b *builder) int32 {
		return func(b *builder) int32 {
			x := b.floats(v, rows, int32(len(v))/rows)
			y := b.ops(2, mnn.OpTopKV2, &mnn.TopK{T: mnn.DTFloat, Sorted: true, Largest: true}, x, b.scalar(k))
			if output == 1 {
				return b.asFloats(y + 1)
			}
			return b.reshape(y, 0, 0)
		}
	}
	pick := func(axis int32, shape []int32, index ...int32) func(b *builder) int32 {
		return func(b *builder) int32 {
			return b.op(mnn.OpGatherElements, nil, b.floats(iota32(12), 3, 4), b.ints(index, shape...), b.scalar(axis))
		}
	}
	runCases(t, be, []opCase{
		{"permute rows and columns", func(b *builder) int32 { return b.permute(b.floats(iota32(6), 2, 3), 1, 0) }, []int{3, 2}, []float32{0, 3, 1, 4, 2, 5}},
		{"permute the outer", func(b *builder) int32 { return b.permute(cube(b), 1, 0, 2) }, []int{3, 2, 4},
			[]float32{0, 1, 2, 3, 12, 13, 14, 15, 4, 5, 6, 7, 16, 17, 18, 19, 8, 9, 10, 11, 20, 21, 22, 23}},
		{"permute all", func(b *builder) int32 { return b.permute(b.floats(iota32(8), 2, 2, 2), 2, 0, 1) }, []int{2, 2, 2}, []float32{0, 2, 4, 6, 1, 3, 5, 7}},
		{"permute a row", func(b *builder) int32 { return b.permute(b.floats(iota32(4), 1, 1, 4), 0, 2, 1) }, []int{1, 4, 1}, iota32(4)},
		{"permute integers", func(b *builder) int32 { return b.asFloats(b.permute(b.ints([]int32{1, 2, 3, 4}, 2, 2), 1, 0)) }, []int{2, 2}, []float32{1, 3, 2, 4}},
		{"each channel by 3", each(3, 1), []int{1, 2, 3, 4}, []float32{
			183, 239, 278, 221, 298, 403, 448, 325, 217, 269, 290, 215, 419, 607, 646, 409, 594, 843, 888, 549, 309, 421, 442, 259,
		}},
		{"every other place of each channel by 3", each(3, 2), []int{1, 2, 2, 2}, []float32{183, 278, 217, 290, 419, 646, 309, 442}},
		{"every other place of each channel by 7", each(7, 2), []int{1, 2, 2, 2}, []float32{2550, 2418, 1626, 1494, 7274, 6854, 4334, 3914}},
		{"sum of the last", reduce(mnn.ReduceSum, true, -1), []int{2, 3, 1}, []float32{6, 22, 38, 54, 70, 86}},
		{"sum of the middle", reduce(mnn.ReduceSum, false, 1), []int{2, 4}, []float32{12, 15, 18, 21, 48, 51, 54, 57}},
		{"sum of two", reduce(mnn.ReduceSum, false, 0, 2), []int{3}, []float32{60, 92, 124}},
		{"sum of all", reduce(mnn.ReduceSum, false), []int{}, []float32{276}},
		{"mean of the first", reduce(mnn.ReduceMean, true, 0), []int{1, 3, 4}, []float32{6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17}},
		{"mean of the last two", reduce(mnn.ReduceMean, false, 1, 2), []int{2}, []float32{5.5, 17.5}},
		{"maximum", reduce(mnn.ReduceMaximum, true, 2), []int{2, 3, 1}, []float32{3, 7, 11, 15, 19, 23}},
		{"largest", top(0, 2, 2, 1, 5, 3, -7, -2, -9), []int{2, 2}, []float32{5, 3, -2, -7}},
		{"places of the largest", top(1, 2, 2, 1, 5, 3, -7, -2, -9), []int{2, 2}, []float32{1, 2, 1, 0}},
		{"the first of equals", top(1, 1, 1, 1, 4, 4, 2), []int{1, 1}, []float32{1}},
		// A stable order would be 1, 2, 3.
		{"equals as the engine leaves them", top(1, 3, 1, 1, 2, 2, 2, 2, 1), []int{1, 3}, []float32{3, 1, 2}},
		{"elements of rows", pick(1, []int32{3, 2}, 3, 0, 1, 1, 2, 0), []int{3, 2}, []float32{3, 0, 5, 5, 10, 8}},
		{"elements of columns", pick(0, []int32{1, 4}, 2, 0, 1, 2), []int{1, 4}, []float32{8, 1, 6, 11}},
	})
}

func testMatMul(t *testing.T, be backend.Backend) {
	needs(t, be, mnn.OpBatchMatMul)
	for _, c := range []struct {
		name    string
		a, b    []int32 // batch
		e, l, h int32
		ta, tb  bool
	}{
		{"plain", []int32{2}, []int32{2}, 5, 7, 9, false, false},
		{"both transposed", []int32{2}, []int32{2}, 5, 7, 9, true, true},
		{"one matrix for all", []int32{3}, []int32{1}, 4, 20, 8, false, true},
		{"lower rank", []int32{2, 3}, nil, 4, 20, 8, false, false},
		{"broadcast both", []int32{2, 1}, []int32{1, 3}, 6, 300, 17, false, true},
		{"a row", []int32{4}, []int32{4}, 1, 37, 20, false, false},
		{"a row by rows", []int32{4}, []int32{4}, 1, 37, 20, false, true},
		{"a column", []int32{2}, []int32{2}, 19, 37, 1, false, false},
		{"a column of columns", []int32{2}, []int32{2}, 19, 37, 1, true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			shape := func(batch []int32, rows, cols int32, swap bool) []int32 {
				if swap {
					rows, cols = cols, rows
				}
				return append(append([]int32{}, batch...), rows, cols)
			}
			sa, sb := shape(c.a, c.e, c.l, c.ta), shape(c.b, c.l, c.h, c.tb)
			x, y := random(1, product(sa)), random(2, product(sb))
			b := &builder{}
			_, got := b.run(t, be, b.op(mnn.OpBatchMatMul, &mnn.BatchMatMul{TransposeX: c.ta, TransposeY: c.tb}, b.floats(x, sa...), b.floats(y, sb...)), one, 2)
			// Batches of these cases have at most two dimensions.
			pad := func(d []int32) [2]int {
				out := [2]int{1, 1}
				for k, n := range d {
					out[2-len(d)+k] = int(n)
				}
				return out
			}
			ba, bb := pad(c.a), pad(c.b)
			e, l, h := int(c.e), int(c.l), int(c.h)
			var want []float64
			for i := range max(ba[0], bb[0]) {
				for j := range max(ba[1], bb[1]) {
					m := x[(i%ba[0]*ba[1]+j%ba[1])*e*l:]
					n := y[(i%bb[0]*bb[1]+j%bb[1])*l*h:]
					for r := range e {
						for k := range h {
							sum := 0.
							for p := range l {
								u, v := r*l+p, p*h+k
								if c.ta {
									u = p*e + r
								}
								if c.tb {
									v = k*l + p
								}
								sum += float64(m[u]) * float64(n[v])
							}
							want = append(want, sum)
						}
					}
				}
			}
			near(t, got, want)
		})
	}
}

func product(shape []int32) int {
	n := 1
	for _, d := range shape {
		n *= int(d)
	}
	return n
}

// recurrent is the shape of a LinearAttention.
type recurrent struct {
	kind                    string
	keys, values, dk, dv, k int
	norm                    bool
}

func (r recurrent) channels() int {
	if r.kind == mnn.ShortConv {
		return r.dv
	}
	return 2*r.keys*r.dk + r.values*r.dv
}

// width of a token: the channels, gates and betas side by side.
func (r recurrent) width() int {
	if r.kind == mnn.ShortConv {
		return 3 * r.dv
	}
	return r.channels() + 2*r.values
}

// recurrence builds the op on embeddings of width().
func (b *builder) recurrence(x int32, r recurrent, weights []float32) int32 {
	p := &mnn.LinearAttention{Type: r.kind, KeyHeads: int32(r.keys), ValueHeads: int32(r.values), KeyDim: int32(r.dk), ValueDim: int32(r.dv), QKNorm: r.norm}
	w := b.floats(weights, int32(r.channels()), 1, int32(r.k))
	x = b.reshape(x, 1, -1, int32(r.width()))
	if r.kind == mnn.ShortConv {
		none := b.floats([]float32{0}, 1, 1, 1)
		return b.op(mnn.OpLinearAttention, p, b.permute(x, 0, 2, 1), none, none, w)
	}
	d, v := int32(r.channels()), int32(r.values)
	return b.op(mnn.OpLinearAttention, p, b.permute(b.cut(x, 0, d, 2), 0, 2, 1), b.cut(x, d, d+v, 2), b.cut(x, d+v, d+2*v, 2), w)
}

// naive is the definition in float64, over all tokens.
func (r recurrent) naive(x, weights []float32) []float64 {
	width := r.width()
	tokens := len(x) / width
	at := func(t, c int) float64 {
		if t < 0 {
			return 0
		}
		return float64(x[t*width+c])
	}
	conv := func(f func(t, c int) float64, t, c int) (sum float64) {
		for k := range r.k {
			sum += float64(weights[c*r.k+k]) * f(t-r.k+1+k, c)
		}
		return sum
	}
	var out []float64
	if r.kind == mnn.ShortConv {
		for t := range tokens {
			for c := range r.dv {
				out = append(out, at(t, r.dv+c)*conv(func(t, c int) float64 { return at(t, c) * at(t, 2*r.dv+c) }, t, c))
			}
		}
		return out
	}
	state := make([]float64, r.values*r.dk*r.dv)
	for t := range tokens {
		mixed := make([]float64, r.channels())
		for c := range mixed {
			v := conv(at, t, c)
			mixed[c] = v / (1 + math.Exp(-v))
		}
		for h := range r.values {
			key := h / (r.values / r.keys) * r.dk
			q, k, v := mixed[key:][:r.dk], mixed[r.keys*r.dk+key:][:r.dk], mixed[2*r.keys*r.dk+h*r.dv:][:r.dv]
			unit := func(x []float64) []float64 {
				sum := 1e-6
				for _, v := range x {
					sum += v * v
				}
				y := make([]float64, len(x))
				for i := range x {
					if y[i] = x[i]; r.norm {
						y[i] /= math.Sqrt(sum)
					}
				}
				return y
			}
			q, k = unit(q), unit(k)
			s := state[h*r.dk*r.dv:][:r.dk*r.dv]
			decay, beta := math.Exp(at(t, r.channels()+h)), at(t, r.channels()+r.values+h)
			for j := range r.dv {
				had := 0.
				for i := range r.dk {
					s[i*r.dv+j] *= decay
					had += s[i*r.dv+j] * k[i]
				}
				sum := 0.
				for i := range r.dk {
					s[i*r.dv+j] += k[i] * beta * (v[j] - had)
					sum += s[i*r.dv+j] * q[i]
				}
				out = append(out, sum/math.Sqrt(float64(r.dk)))
			}
		}
	}
	return out
}

// gate makes the gates of tokens negative, and betas numbers from 0 to 1.
func (r recurrent) gate(x []float32) {
	if r.kind == mnn.ShortConv {
		return
	}
	for ; len(x) > 0; x = x[r.width():] {
		gates := x[r.channels():r.width()]
		for i, v := range gates {
			if gates[i] = min(max(v/4+0.5, 0), 1); i < r.values {
				gates[i] = -gates[i]
			}
		}
	}
}

// testRecurrence compares recurrences with the definition, for prompts cut in many ways. A reset state is a new one,
// and states of one call are as good as states of their own.
func testRecurrence(t *testing.T, be backend.Backend) {
	needs(t, be, mnn.OpLinearAttention, mnn.OpPermute)
	const tokens = 44
	for _, r := range []recurrent{
		{mnn.ShortConv, 1, 1, 24, 24, 3, false}, {mnn.ShortConv, 1, 1, 7, 7, 5, false},
		{mnn.GatedDeltaRule, 2, 4, 8, 12, 4, true}, {mnn.GatedDeltaRule, 3, 3, 5, 16, 2, false}, {mnn.GatedDeltaRule, 1, 3, 16, 16, 3, true},
	} {
		t.Run(fmt.Sprintf("%+v", r), func(t *testing.T) {
			x, weights := random(40, tokens*r.width()), random(41, r.channels()*r.k)
			r.gate(x)
			want := r.naive(x, weights)
			cuts := [][]int{{tokens}, {1, 43}, {24, 1, 1, 1, 17}, {40, 4}}
			first := make([][]float32, len(cuts))
			for _, threads := range []int{1, 2, 5} {
				b := &builder{}
				e, err := b.compile(be, b.recurrence(b.input("input_ids"), r, weights), backend.Options{Threads: threads})
				if err != nil {
					t.Fatal(err)
				}
				for i, c := range cuts {
					s := e.NewState()
					got := pieces(t, e, s, x, r.width(), c)
					near(t, got, want)
					if first[i] == nil {
						first[i] = got
					}
					same(t, got, first[i])
					s.Reset()
					same(t, pieces(t, e, s, x, r.width(), c), got)
				}
				testTogether(t, e, x, r.width(), []int{24, 20})
			}
		})
	}
}

// testTogether runs three conversations in calls of all of them, and demands what each gives alone.
func testTogether(t *testing.T, e backend.Executable, x []float32, width int, cuts []int) {
	t.Helper()
	const n = 3
	var states []backend.State
	var alone [n]backend.State
	for i := range n {
		states, alone[i] = append(states, e.NewState()), e.NewState()
	}
	at := 0
	for _, tokens := range cuts {
		var all, want []float32
		for i := range n {
			part := append([]float32{}, x[at*width:(at+tokens)*width]...)
			for k := range part {
				part[k] *= float32(i+1) / 2
			}
			all = append(all, part...)
			y, err := e.Run(t.Context(), alone[i:i+1], backend.Call{Embeddings: part, Tokens: tokens, All: true})
			if err != nil {
				t.Fatal(err)
			}
			want = append(want, y...)
		}
		got, err := e.Run(t.Context(), states, backend.Call{Embeddings: all, Tokens: tokens, All: true})
		if err != nil {
			t.Fatal(err)
		}
		same(t, got, want)
		at += tokens
	}
}
