package lower

import (
	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/mnn"
)

// value is the index of a tensor of the graph.
type value = int32

// builder appends ops to its sink; every method returns the tensor that the op writes.
type builder struct {
	g     *mnn.Graph
	slots []Slot
	sink

	decoder         *arch.Decoder
	mask, positions value
	split, high     int                     // rows of the two levels of rotary tables
	angles          map[*arch.Rope][2]value // cosines and sines of the call's positions
}

func newBuilder() *builder {
	g := &mnn.Graph{Outputs: []string{"logits"}}
	return &builder{g: g, sink: newSink(&g.Ops, &g.Tensors, 1, -1), angles: map[*arch.Rope][2]value{}}
}

func (b *builder) input(name string, dt mnn.DataType, dims ...int32) value {
	return b.op(name, mnn.OpInput, &mnn.Input{Dims: dims, DType: dt, Format: mnn.NCHW})
}

func (b *builder) binary(name string, op mnn.BinaryOp, x, y value) value {
	return b.op(name, mnn.OpBinaryOp, &mnn.Binary{Op: op, T: mnn.DTFloat}, x, y)
}

func (b *builder) unary(name string, op mnn.UnaryOp, x value) value {
	return b.op(name, mnn.OpUnaryOp, &mnn.Unary{Op: op, T: mnn.DTFloat}, x)
}

func (b *builder) reshape(name string, x value, dims ...int32) value {
	return b.op(name, mnn.OpReshape, &mnn.Reshape{Dims: dims, DimType: mnn.NCHW}, x)
}

func (b *builder) gather(name string, table, index value) value {
	return b.op(name, mnn.OpGatherV2, &mnn.GatherV2{}, table, index, b.scalar(0))
}

func (b *builder) concat(name string, axis int32, xs ...value) value {
	return b.op(name, mnn.OpConcat, &mnn.Axis{Axis: axis}, xs...)
}

// sliceEnd as an end index means "to the end": the engine clamps it.
const sliceEnd = 1 << 30

// slice is ONNX Slice along one axis with step 1.
func (b *builder) slice(name string, x, begin value, end, axis int32) value {
	return b.op(name, mnn.OpStridedSlice, &mnn.StridedSlice{FromType: 1}, x, begin, b.list(end), b.list(axis), b.list(1))
}

// norm is RMSNorm over the last axis.
func (b *builder) norm(name string, x value, n *arch.Norm) value {
	b.slot(Slot{Kind: NormSlot, Name: name, Weight: n.Gamma})
	return b.op(name, mnn.OpLayerNorm, &mnn.LayerNorm{Axis: []int32{-1}, Epsilon: float32(n.Eps), Group: 1, RMS: true}, x)
}

// linear is the fixed chain Reshape, ConvertTensor, Convolution, ConvertTensor, Reshape. The first two
// are shared by all linears of one input.
func (b *builder) linear(name string, x value, l *arch.Linear, slot Slot, dims ...int32) value {
	in, ok := b.packed[x]
	if !ok {
		r := b.reshape(name+"/pre_reshape", x, -1, int32(l.Weight.Cols), 1, 1)
		in = b.op(name+"/pre_convert", mnn.OpConvertTensor, &mnn.Convert{Source: mnn.NCHW, Dest: mnn.NC4HW4}, r)
		b.packed[x] = in
	}
	slot.Kind, slot.Name, slot.Weight, slot.Bias = LinearSlot, name, l.Weight, l.Bias
	b.slot(slot)
	y := b.op(name, mnn.OpConvolution, &mnn.Convolution{
		KernelX: 1, KernelY: 1, StrideX: 1, StrideY: 1, DilateX: 1, DilateY: 1, Group: 1,
		Outputs: int32(l.Weight.Rows), Inputs: int32(l.Weight.Cols),
	}, in)
	y = b.op(name+"/post_convert", mnn.OpConvertTensor, &mnn.Convert{Source: mnn.NC4HW4, Dest: mnn.NCHW}, y)
	return b.reshape(name+"/post_reshape", y, dims...)
}

// rotary builds the cosines and sines of the call's positions, [1, tokens, 1, dim] each, from two levels
// of tables: position = split*q + r, and the angles add. Both factors are exact in float32, whatever the
// position, where a product position*frequency in fp16 would not be.
func (b *builder) rotary(positions value, r *arch.Rope, split, high int) (cos, sin value) {
	if have, ok := b.angles[r]; ok {
		return have[0], have[1]
	}
	defer func() { b.angles[r] = [2]value{cos, sin} }()
	half := int32(r.Dim / 2)
	p := b.reshape("/rotary/position", positions, -1)
	p = b.binary("/rotary/clamp_low", mnn.BinaryMaximum, p, b.scalar(0))
	p = b.binary("/rotary/clamp_high", mnn.BinaryMinimum, p, b.scalar(int32(split*high-1)))
	q := b.binary("/rotary/high", mnn.BinaryRealDiv, p, b.scalar(int32(split)))
	back := b.binary("/rotary/high_positions", mnn.BinaryMul, q, b.scalar(int32(split)))
	low := b.binary("/rotary/low", mnn.BinarySub, p, back)

	cosH, sinH := angles(r.InvFreq, high, split)
	cosL, sinL := angles(r.InvFreq, split, 1)
	ch := b.gather("/rotary/cos_high", b.floats("/rotary/table/cos_high", cosH, int32(high), half), q)
	sh := b.gather("/rotary/sin_high", b.floats("/rotary/table/sin_high", sinH, int32(high), half), q)
	cl := b.gather("/rotary/cos_low", b.floats("/rotary/table/cos_low", cosL, int32(split), half), low)
	sl := b.gather("/rotary/sin_low", b.floats("/rotary/table/sin_low", sinL, int32(split), half), low)

	cos = b.binary("/rotary/cos", mnn.BinarySub,
		b.binary("/rotary/cos_cos", mnn.BinaryMul, ch, cl), b.binary("/rotary/sin_sin", mnn.BinaryMul, sh, sl))
	sin = b.binary("/rotary/sin", mnn.BinaryAdd,
		b.binary("/rotary/sin_cos", mnn.BinaryMul, sh, cl), b.binary("/rotary/cos_sin", mnn.BinaryMul, ch, sl))
	widen := func(name string, x value) value {
		return b.reshape(name+"_heads", b.concat(name+"_pair", 1, x, x), 1, -1, 1, int32(r.Dim))
	}
	return widen("/rotary/cos", cos), widen("/rotary/sin", sin)
}

// angles tabulates cos and sin of i*step*freq for i below n, [n, len(freq)], rounded from float64. They
// reach a file, so kernel.Sincos and not math.Sincos computes them.
func angles(freq []float64, n, step int) (cos, sin []float32) {
	cos, sin = make([]float32, 0, n*len(freq)), make([]float32, 0, n*len(freq))
	for i := range n {
		for _, f := range freq {
			s, c := kernel.Sincos(float64(i*step) * f)
			cos, sin = append(cos, float32(c)), append(sin, float32(s))
		}
	}
	return cos, sin
}

// rotate is x*cos + concat(-x[half:], x[:half])*sin along the head dimension.
func (b *builder) rotate(name string, x, cos, sin value, dim int) value {
	half := int32(dim / 2)
	neg := b.unary(name+"/neg", mnn.UnaryNeg, b.slice(name+"/second", x, b.list(half), sliceEnd, 3))
	turned := b.concat(name+"/turned", 3, neg, b.slice(name+"/first", x, b.list(0), half, 3))
	return b.binary(name, mnn.BinaryAdd, b.binary(name+"/cos", mnn.BinaryMul, x, cos), b.binary(name+"/sin", mnn.BinaryMul, turned, sin))
}
