package mnn

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// graphBuilder appends ops that read each other's results.
type graphBuilder struct{ *Graph }

// op appends an op with one output of the op's name.
func (b graphBuilder) op(name string, t OpType, p Param, in ...int32) int32 {
	b.Tensors = append(b.Tensors, name)
	out := int32(len(b.Tensors) - 1)
	b.Ops = append(b.Ops, Op{Name: name, Type: t, Inputs: in, Outputs: []int32{out}, Param: p})
	return out
}

// last is the op appended last.
func (b graphBuilder) last() *Op { return &b.Ops[len(b.Ops)-1] }

// smallGraph is a linear layer of 3 inputs and 2 outputs, in the chain that the engine wants.
func smallGraph() *Graph {
	b := graphBuilder{&Graph{Outputs: []string{"logits"}}}
	x := b.op("input_ids", OpInput, &Input{Dims: []int32{1, 1, 3}, DType: DTFloat, Format: NCHW})
	x = b.op("/pre_reshape", OpReshape, &Reshape{Dims: []int32{-1, 3, 1, 1}, DimType: NCHW}, x)
	x = b.op("/pre_convert", OpConvertTensor, &Convert{Source: NCHW, Dest: NC4HW4}, x)
	x = b.op("/Linear", OpConvolution, &Convolution{
		KernelX: 1, KernelY: 1, StrideX: 1, StrideY: 1, DilateX: 1, DilateY: 1, Group: 1, Outputs: 2, Inputs: 3,
		Quan:     &Quan{Type: 1, MaxOrBits: 4, Min: 1, ReadType: 2, QuantScale: 1},
		External: []int64{128, 25, 16, 0, 0},
	}, x)
	x = b.op("/post_convert", OpConvertTensor, &Convert{Source: NC4HW4, Dest: NCHW}, x)
	b.op("logits", OpReshape, &Reshape{Dims: []int32{1, -1, 2}, DimType: NCHW}, x)
	return b.Graph
}

// expertGraph is two experts that double and negate.
func expertGraph() *Graph {
	b := graphBuilder{&Graph{Outputs: []string{"y"}}}
	x := b.op("x", OpInput, &Input{Dims: []int32{-1, 2}, DType: DTFloat, Format: NCHW})
	k := b.op("k", OpConst, &Blob{DType: DTInt32, Format: NCHW, Int32s: []int32{1}})
	w := b.op("top", OpTopKV2, &TopK{T: DTFloat, Sorted: true, Largest: true}, x, k)
	b.Tensors = append(b.Tensors, "chosen")
	b.last().Outputs = append(b.last().Outputs, w+1)
	b.op("y", OpMoE, &MoE{Layer: 5, Experts: 2, TopK: 1}, x, w, w+1)
	for j, op := range []UnaryOp{UnaryAbs, UnaryNeg} {
		b.Subgraphs = append(b.Subgraphs, Subgraph{
			Name: (&MoE{Layer: 5}).Expert(int32(j)), Inputs: []int32{0}, Outputs: []int32{1}, Tensors: []string{"x", "y"},
			Ops: []Op{
				{Name: "/x", Type: OpInput, Outputs: []int32{0}, Param: &Input{Dims: []int32{1, 2}, DType: DTFloat, Format: NCHW}},
				{Name: "/y", Type: OpUnaryOp, Inputs: []int32{0}, Outputs: []int32{1}, Param: &Unary{Op: op, T: DTFloat}},
			},
		})
	}
	return b.Graph
}

// fullGraph uses every op type and, at least once, every field with a value that is not its default.
func fullGraph() *Graph {
	b := graphBuilder{&Graph{Outputs: []string{"out", "scalar"}, Version: "3.6.1", UUID: "id"}}
	x := b.op("x", OpInput, &Input{Dims: []int32{1, -1}, DType: DTInt32, Format: NHWC})
	i := b.op("scalar", OpConst, &Blob{Format: NCHW, DType: DTInt32, Int32s: []int32{7}})
	table := b.op("table", OpConst, &Blob{Dims: []int32{2, 2}, Format: NC4HW4, DType: DTFloat, Float32s: []float32{1, -2.5, float32(math.Inf(1)), 0}})
	b.op("bytes", OpConst, &Blob{Dims: []int32{3}, DType: DTUint8, Uint8s: []byte{1, 2, 255}})
	b.op("signed", OpConst, &Blob{Dims: []int32{2}, DType: DTInt8, Int8s: []int8{-128, 127}})
	b.op("none", OpConst, &Blob{Dims: []int32{0, 4}, DType: DTFloat})
	b.op("far", OpConst, &Blob{Dims: []int32{5}, DType: DTHalf, External: []int64{1 << 40, 10}})
	b.op("convert", OpConvertTensor, &Convert{Source: NHWC, Dest: NHWC4}, x)
	b.op("shape", OpShape, nil, x)
	b.last().Format = DimNCHW
	b.op("rank", OpRank, nil, x)
	b.op("size", OpSize, nil, x)
	b.op("reshape2", OpReshape, &Reshape{DimType: NHWC}, x, i)
	b.op("inline", OpConvolution, &Convolution{
		KernelX: 2, KernelY: 3, StrideX: 4, StrideY: 5, DilateX: 6, DilateY: 7, PadX: 8, PadY: 9, Group: 2, PadMode: 2,
		Outputs: 2, Inputs: 4, Relu: true, Relu6: true, Weight: []float32{1, 2}, Bias: []float32{3, 4},
	}, x)
	b.op("quantized", OpConvolution, &Convolution{
		KernelX: 1, KernelY: 1, StrideX: 1, StrideY: 1, DilateX: 1, DilateY: 1, Group: 1, Outputs: 70000, Inputs: 1,
		Quan: &Quan{
			Type: 4, MaxOrBits: 8, Min: -128, ReadType: 70000, QuantScale: .5, ScaleIn: 2, ScaleOut: 3,
			ScaleInt: true, UseInt32: true, ShapeInt32: true, WeightSize: math.MaxUint32, ScaleFP16: true,
			Buffer: []int8{-1, 1}, Alpha: []float32{1}, AlphaFP16: []uint16{0x3c00, 0xffff}, Index: []uint32{math.MaxUint32},
		},
	}, x)
	b.op("each channel", OpDepthwise, &Depthwise{
		KernelX: 3, KernelY: 3, StrideX: 2, StrideY: 2, DilateX: 1, DilateY: 1, PadX: 1, PadY: 1, Group: 2, Outputs: 2, Inputs: 2,
	}, x, table, table)
	b.op("norm", OpLayerNorm, &LayerNorm{Axis: []int32{-1}, Epsilon: 1e-6, Gamma: []float32{1, 2}, Beta: []float32{3, 4}, Group: 2}, x)
	b.op("sum", OpLayerNorm, &LayerNorm{Axis: []int32{-1}, Epsilon: 1e-6, Group: 1, External: []int64{0, 8, 0}, RMS: true}, x, table)
	b.Tensors = append(b.Tensors, "normed")
	b.last().Outputs = append(b.last().Outputs, int32(len(b.Tensors)-1))
	b.last().Format = DimNC4HW4
	b.op("silu", OpBinaryOp, &Binary{Op: BinaryMulSilu, T: DTInvalid, Activation: 1}, x, table)
	b.op("neg", OpUnaryOp, &Unary{Op: UnaryNeg, T: DTFloat}, x)
	b.op("concat", OpConcat, &Axis{Axis: -1}, x, x, x)
	b.op("softmax", OpSoftmax, &Axis{Axis: 1}, x)
	b.op("slice", OpStridedSlice, &StridedSlice{
		Index: DTInt32, T: DTFloat, BeginMask: 1, EndMask: 2, EllipsisMask: 3, NewAxisMask: 4, ShrinkAxisMask: 5, FromType: 1,
	}, x, i, i, i, i)
	b.op("squeeze", OpSqueeze, &Squeeze{}, x)
	b.op("unsqueeze", OpUnsqueeze, &Squeeze{Dims: []int32{0, -1}}, x)
	b.op("gather", OpGatherV2, &GatherV2{Axis: DTInt32, Indices: DTInt32, Params: DTFloat}, table, i, i)
	b.op("q", OpRoPE, &RoPE{CutHeadDim: 2, Heads: 4, KVHeads: 2, HeadDim: 4,
		QNorm: &LayerNorm{Gamma: []float32{1, 2, 3, 4}, Group: 1, RMS: true},
		KNorm: &LayerNorm{Gamma: []float32{5, 6, 7, 8}, Group: 1, RMS: true}}, x, x, table, table)
	b.Tensors = append(b.Tensors, "k")
	k := int32(len(b.Tensors) - 1)
	b.last().Outputs = append(b.last().Outputs, k)
	b.op("attention", OpAttention, &Attention{KVCache: true, LayerIndex: 3, OutputC4: true, Scale: .125}, k-1, k, x, x)
	b.op("permute", OpPermute, &Permute{Dims: []int32{0, 2, 1}}, x)
	b.op("mean", OpReduction, &Reduction{Op: ReduceMean, Dims: []int32{-1, 0}, Keep: true, T: DTInvalid}, x)
	values := b.op("values", OpTopKV2, &TopK{T: DTInt32, Sorted: true}, x, i)
	b.Tensors = append(b.Tensors, "choices")
	b.last().Outputs = append(b.last().Outputs, values+1)
	b.op("cast", OpCast, &Cast{From: DTInt32, To: DTFloat}, x)
	b.op("range", OpRange, &Range{T: DTInt32}, i, i, i)
	b.op("relu", OpReLU, &Relu{Slope: .25}, x)
	b.op("product", OpBatchMatMul, &BatchMatMul{TransposeX: true, TransposeY: true}, x, x)
	b.op("elements", OpGatherElements, nil, table, i, i)
	b.op("recurrence", OpLinearAttention, &LinearAttention{Type: GatedDeltaRule, KeyHeads: 2, ValueHeads: 4, KeyDim: 3, ValueDim: 5, QKNorm: true}, x, x, x, table)
	b.op("moe", OpMoE, &MoE{Layer: 5, Experts: 2, TopK: 2}, x, values, values+1)
	b.Subgraphs = expertGraph().Subgraphs
	b.op("out", OpAttention, &Attention{LayerIndex: -1, KVShared: true}, k-1, k, x)
	return b.Graph
}

func TestOpenGivesBackWhatMarshalWrote(t *testing.T) {
	for name, g := range map[string]*Graph{"small": smallGraph(), "experts": expertGraph(), "full": fullGraph()} {
		t.Run(name, func(t *testing.T) {
			if d := cmp.Diff(g, reopen(t, g), sameGraph); d != "" {
				t.Error(d)
			}
			first, err := g.Marshal()
			if err != nil {
				t.Fatal(err)
			}
			if again, err := g.Marshal(); err != nil || !slices.Equal(first, again) {
				t.Errorf("the second Marshal gave other bytes, error %v", err)
			}
		})
	}
}

func TestFullGraphUsesEveryOpType(t *testing.T) {
	used := map[OpType]bool{}
	for _, op := range fullGraph().AllOps() {
		used[op.Type] = true
	}
	for typ := range rules {
		if !used[typ] {
			t.Errorf("%s is not used", typ)
		}
	}
}

func TestAllOps(t *testing.T) {
	g := expertGraph()
	var got []string
	for s, op := range g.AllOps() {
		got = append(got, fmt.Sprint(s, op.Name))
	}
	if want := []string{"0x", "0k", "0top", "0y", "1/x", "1/y", "2/x", "2/y"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	n := 0
	for range g.AllOps() {
		if n++; n == 5 {
			break
		}
	}
}

func TestLive(t *testing.T) {
	b := graphBuilder{&Graph{Outputs: []string{"y"}}}
	x := b.op("x", OpInput, &Input{DType: DTFloat})
	b.Tensors = append(b.Tensors, "nowhere")
	dead := b.op("dead", OpRank, nil, x+1)
	b.op("deader", OpRank, nil, dead)
	b.op("y", OpRank, nil, x)
	if got, want := b.Live(), []bool{true, false, false, true}; !slices.Equal(got, want) {
		t.Errorf("live %v, want %v", got, want)
	}
	reopen(t, b.Graph) // an op that nothing needs may read a tensor that nothing writes
	b.Outputs = nil
	if got, want := b.Live(), []bool{true, true, true, true}; !slices.Equal(got, want) {
		t.Errorf("without outputs live %v, want %v", got, want)
	}
	if _, err := b.Marshal(); err == nil {
		t.Error("a live op may read a tensor that nothing writes")
	}
}

func TestDimFormatZeroIsNHWC(t *testing.T) {
	var op Op
	if got := op.Format.Format(); got != NHWC {
		t.Errorf("zero value is %s", got)
	}
}

func BenchmarkMarshal(b *testing.B) {
	g, size := constGraph(8 << 20)
	b.SetBytes(size)
	for b.Loop() {
		if _, err := g.Marshal(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkOpen(b *testing.B) {
	g, size := constGraph(8 << 20)
	file, err := g.Marshal()
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(size)
	for b.Loop() {
		if _, err := Open(file); err != nil {
			b.Fatal(err)
		}
	}
}

// constGraph holds one table of floats.
func constGraph(bytes int64) (*Graph, int64) {
	b := graphBuilder{&Graph{}}
	n := bytes / 4
	b.op("table", OpConst, &Blob{Dims: []int32{int32(n)}, DType: DTFloat, Float32s: make([]float32, n)})
	return b.Graph, n * 4
}
