package lower

import (
	"fmt"
	"math"
	"strconv"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/runtime/mnn"
)

// sink is where ops are appended: the graph or a subgraph. Tensors, and with them the constants and converted inputs that ops
// share, are local to it.
type sink struct {
	ops     *[]mnn.Op
	tensors *[]string
	// subgraph is that of Slot; prefix precedes the names of constants, because names are unique within the file.
	subgraph int
	prefix   string
	// lead are the dimensions of a row of hidden states before its elements: [1, tokens] in the graph, [tokens] in a
	// subgraph.
	lead   []int32
	consts map[string]value // unnamed constants, by content
	layout
}

func newSink(ops *[]mnn.Op, tensors *[]string, lead ...int32) sink {
	return sink{ops: ops, tensors: tensors, lead: lead, consts: map[string]value{}, layout: newLayout(false)}
}

// rows returns the dimensions of rows of n elements.
func (s *sink) rows(n int) []int32 { return append(s.lead[:len(s.lead):len(s.lead)], int32(n)) }

func (s *sink) tensor(name string) value {
	*s.tensors = append(*s.tensors, name)
	return value(len(*s.tensors) - 1)
}

// op appends an op with one output, which carries the op's name, and before it what brings its inputs into the layout that it takes.
func (s *sink) op(name string, t mnn.OpType, p mnn.Param, in ...value) value {
	in, dims := s.layOut(t, in)
	if dims == nil {
		return s.append(name, t, p, mnn.DimNHWC, in)
	}
	out := s.append(name, t, p, mnn.DimNC4HW4, in)
	s.dims[out] = dims
	return out
}

func (s *sink) append(name string, t mnn.OpType, p mnn.Param, f mnn.DimFormat, in []value) value {
	out := s.tensor(name)
	*s.ops = append(*s.ops, mnn.Op{Name: name, Type: t, Inputs: in, Outputs: []int32{out}, Format: f, Param: p})
	return out
}

// slot adds a slot of the op that is appended next.
func (b *builder) slot(s Slot) {
	s.Op, s.Subgraph = len(*b.ops), b.subgraph
	b.slots = append(b.slots, s)
}

// sub appends the subgraph of a function of rows of n elements. f appends the ops: it takes the input and returns the result.
func (b *builder) sub(name string, n int, f func(x value) (value, error)) error {
	g := mnn.Subgraph{Name: name}
	if n := len(b.g.Subgraphs); n > 0 { // experts are alike, and there may be many
		last := &b.g.Subgraphs[n-1]
		g.Ops, g.Tensors = make([]mnn.Op, 0, len(last.Ops)), make([]string, 0, len(last.Tensors))
	}
	outer := b.sink
	b.sink = newSink(&g.Ops, &g.Tensors, -1)
	b.layout = newLayout(outer.c4())
	b.sink.subgraph, b.sink.prefix = len(b.g.Subgraphs)+1, name+"/"
	defer func() { b.sink = outer }()
	x := b.op(name+"/input", mnn.OpInput, &mnn.Input{Dims: []int32{1, int32(n)}, DType: mnn.DTFloat, Format: mnn.NCHW})
	y, err := f(x)
	if err != nil {
		return err
	}
	g.Inputs, g.Outputs = []int32{x}, []int32{b.unpacked(y)}
	b.g.Subgraphs = append(b.g.Subgraphs, g)
	return nil
}

// scalar is an int32 constant without dimensions.
func (b *builder) scalar(v int32) value { return b.integers([]int32{v}, nil) }

// list is an int32 constant of rank 1.
func (b *builder) list(v ...int32) value { return b.integers(v, []int32{int32(len(v))}) }

func (b *builder) integers(v, dims []int32) value {
	return b.shared(fmt.Sprint(v, dims), &mnn.Blob{Dims: dims, Format: mnn.NCHW, DType: mnn.DTInt32, Int32s: v})
}

// scalarFloat is a float constant without dimensions.
func (b *builder) scalarFloat(v float64) value {
	f := float32(v)
	return b.shared("f"+strconv.FormatUint(uint64(math.Float32bits(f)), 16), &mnn.Blob{Format: mnn.NCHW, DType: mnn.DTFloat, Float32s: []float32{f}})
}

// shared returns a constant that ops of the sink share; key identifies its content.
func (b *builder) shared(key string, p *mnn.Blob) value {
	if t, ok := b.consts[key]; ok {
		return t
	}
	t := b.op(b.prefix+"const/"+strconv.Itoa(len(b.consts)), mnn.OpConst, p)
	b.consts[key] = t
	if b.c4() && p.Dims == nil {
		b.numbers[t] = true
	}
	return t
}

// floats is a constant whose values are in the graph file.
func (b *builder) floats(name string, v []float32, dims ...int32) value {
	return b.op(name, mnn.OpConst, &mnn.Blob{Dims: dims, Format: mnn.NCHW, DType: mnn.DTFloat, Float32s: v})
}

// ones is a constant of ones, by which a tensor is repeated along other dimensions.
func (b *builder) ones(dims ...int32) value {
	n := 1
	for _, d := range dims {
		n *= int(d)
	}
	v := make([]float32, n)
	for i := range v {
		v[i] = 1
	}
	return b.shared("ones"+fmt.Sprint(dims), &mnn.Blob{Dims: dims, Format: mnn.NCHW, DType: mnn.DTFloat, Float32s: v})
}

// constant is a float constant whose values are in the weight file. Without dims it has those of the weight.
func (b *builder) constant(name string, w arch.Weight, dims ...int32) value {
	if len(dims) == 0 {
		dims = []int32{int32(w.Rows)}
		if w.Cols > 0 {
			dims = append(dims, int32(w.Cols))
		}
	}
	b.slot(Slot{Kind: ConstSlot, Name: name, Weight: w})
	return b.op(name, mnn.OpConst, &mnn.Blob{Dims: dims, Format: mnn.NCHW, DType: mnn.DTFloat})
}
