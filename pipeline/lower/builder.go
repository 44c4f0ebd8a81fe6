package lower

import (
	"slices"

	"github.com/llmexport/llmexport/pipeline/arch"
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
	context         int    // positions that the package can hold
	latent          string // Options.Latent
	spelledGELU     bool   // Options.SpelledGELU
	tabledQuotients bool   // Options.TabledQuotients
	storedAttention bool   // Options.StoredAttention
	tower           bool   // the graph is that of a tower
	axes            bool   // positions have several axes
	follow          *value // tokens of the same picture that follow each of the call, int32 [tokens, 1], if the graph is told
	towerMask       *value // that of a tower whose pictures have any size
	tile            int    // rows of a tile within a tower that reads several at a time, else 0
	mask, positions value
	// tokenRows are those of the table of a model with PerLayer, [1, tokens, elements], and side what it makes of them for every layer, [1,
	// tokens, layers, elements]. lent are keys and values of attentions that lend them, by their columns.
	tokenRows, side value
	lent            map[int][2]value
	split, high     int                     // rows of the two levels of rotary tables
	angles          map[*arch.Rope][2]value // cosines and sines of the call's positions
	once            map[string]value        // tensors of the graph that layers share, by name
	// window is that of the engine's masks; 0: the graph computes the masks it needs.
	window    int
	maskBytes int // of all masks, for every pair of a query and a key
	// length and padding, of a graph that takes several texts at a time, are the tokens of a text, int32 [1], and what is added
	// to the scores of keys, [texts, 1, 1, tokens]; else nil.
	length, padding *value
	// states and distances, of a graph whose scores depend on the distance, are the number of rows, int32 [1], and a vector for each distance
	// from that number less one down to one less that number.
	states, distances value
	near              *nearStates // of an encoder whose states attend to near ones

	err error // the first of those that methods without an error found

	// Results for Model.
	caches        int
	cacheElements int64
	stateBytes    int64
	whole         bool
	precision     string
	conditions    []string
}

func newBuilder() *builder {
	g := &mnn.Graph{Outputs: []string{"logits"}}
	return &builder{
		g: g, sink: newSink(&g.Ops, &g.Tensors, 1, -1),
		angles: map[*arch.Rope][2]value{}, once: map[string]value{}, lent: map[int][2]value{},
	}
}

func (b *builder) fail(err error) {
	if b.err == nil {
		b.err = err
	}
}

// shares returns the tensor of the graph, not of a subgraph, that f makes; f is called once for a name.
func (b *builder) shares(name string, f func() value) value {
	if v, ok := b.once[name]; ok {
		return v
	}
	v := f()
	b.once[name] = v
	return v
}

// condition adds a sentence for users, once.
func (b *builder) condition(sentence string) {
	if !slices.Contains(b.conditions, sentence) {
		b.conditions = append(b.conditions, sentence)
	}
}

// precisions are the engine's names, the lowest first; "" stands for no requirement.
var precisions = []string{"", "low", "normal", "high"}

// atLeast raises the required precision.
func (b *builder) atLeast(precision string) {
	if slices.Index(precisions, precision) > slices.Index(precisions, b.precision) {
		b.precision = precision
	}
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

// times multiplies by a number; it appends no op if the number is 1 as a float32.
func (b *builder) times(name string, x value, factor float64) value {
	if float32(factor) == 1 {
		return x
	}
	return b.binary(name, mnn.BinaryMul, x, b.scalarFloat(factor))
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

// toFloat converts int32.
func (b *builder) toFloat(name string, x value) value {
	return b.op(name, mnn.OpCast, &mnn.Cast{From: mnn.DTInt32, To: mnn.DTFloat}, x)
}

// sliceEnd as an end index means "to the end": the engine clamps it.
const sliceEnd = 1 << 30

// slice is ONNX Slice along one axis with step 1.
func (b *builder) slice(name string, x, begin value, end, axis int32) value {
	return b.op(name, mnn.OpStridedSlice, &mnn.StridedSlice{FromType: 1}, x, begin, b.list(end), b.list(axis), b.list(1))
}

// within is x with bounds of one element.
func (b *builder) within(name string, x value, low, high arch.Weight) value {
	x = b.binary(name+"/at_least", mnn.BinaryMaximum, x, b.constant(name+"/low", low))
	return b.binary(name+"/at_most", mnn.BinaryMinimum, x, b.constant(name+"/high", high))
}

// linear appends the fixed chain Reshape, ConvertTensor, Convolution, ConvertTensor, Reshape. All linears
// of one input share the first two. In the C4 form the last two are left to those that need them.
func (b *builder) linear(name string, x value, l *arch.Linear, slot Slot, dims ...int32) value {
	if c := l.Clip; c != nil {
		plain := *l
		plain.Clip = nil
		x = b.within(name+"/in", x, c.InLow, c.InHigh)
		return b.within(name+"/out", b.linear(name, x, &plain, slot, dims...), c.OutLow, c.OutHigh)
	}
	in := x
	if b.dims[x] == nil {
		in = b.pack(name, x, l.Weight.Cols)
	}
	slot.Kind, slot.Name, slot.Weight, slot.Bias, slot.Tower = LinearSlot, name, l.Weight, l.Bias, b.tower
	b.slot(slot)
	y := b.op(name, mnn.OpConvolution, &mnn.Convolution{
		KernelX: 1, KernelY: 1, StrideX: 1, StrideY: 1, DilateX: 1, DilateY: 1, Group: 1,
		Outputs: int32(l.Weight.Rows), Inputs: int32(l.Weight.Cols),
	}, in)
	if b.c4() {
		b.dims[y] = dims
		return y
	}
	y = b.op(name+"/post_convert", mnn.OpConvertTensor, &mnn.Convert{Source: mnn.NC4HW4, Dest: mnn.NCHW}, y)
	return b.reshape(name+"/post_reshape", y, dims...)
}
