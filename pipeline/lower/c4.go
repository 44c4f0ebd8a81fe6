package lower

import (
	"fmt"
	"slices"

	"github.com/llmexport/llmexport/runtime/mnn"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// The C4 form differs from the classic one in the layout of hidden states: from the embedding to the last layer they stay in NC4HW4,
// [tokens, elements, 1, 1], which is what a Convolution takes and gives. Ops that treat elements apart, norms of whole rows and
// Attention go along; other ops get plain tensors, as in the classic form, from a conversion that all of them share. Blocks are lowered
// by the same code for both forms.

// FormC4 is the C4 form, which releases before 3.6.1 do not load and Hexagon demands.
const FormC4 = "c4"

// layout says which tensors of a sink are in NC4HW4.
type layout struct {
	// packed has the form in NC4HW4 of plain tensors: of the inputs of linear layers, and of whatever was converted.
	packed map[value]value
	// dims has the dimensions that tensors in NC4HW4 have as plain ones. It is nil in the classic form.
	dims map[value][]int32
	// plain has the plain form of tensors in NC4HW4.
	plain map[value]value
	// numbers are the constants without dimensions.
	numbers map[value]bool
}

func newLayout(c4 bool) layout {
	l := layout{packed: map[value]value{}}
	if c4 {
		l.dims, l.plain, l.numbers = map[value][]int32{}, map[value]value{}, map[value]bool{}
	}
	return l
}

// c4 reports whether the graph is in the C4 form.
func (l *layout) c4() bool { return l.dims != nil }

// checkC4 rejects models of which no graph in the C4 form exists.
func (b *builder) checkC4() error {
	if b.decoder.Pooling != nil {
		return fmt.Errorf("an embedding model or reranker in the C4 form: %w", tensor.ErrUnsupported)
	}
	return nil
}

// unpacked returns the plain form of a tensor.
func (s *sink) unpacked(v value) value {
	dims, ok := s.dims[v]
	if !ok {
		return v
	}
	y, ok := s.plain[v]
	if !ok {
		name := (*s.tensors)[v]
		y = s.op(name+"/post_convert", mnn.OpConvertTensor, &mnn.Convert{Source: mnn.NC4HW4, Dest: mnn.NCHW}, v)
		y = s.op(name+"/post_reshape", mnn.OpReshape, &mnn.Reshape{Dims: dims, DimType: mnn.NCHW}, y)
		s.plain[v], s.packed[y] = y, v
	}
	return y
}

// inStream returns hidden states in the layout that the form keeps them in between layers.
func (b *builder) inStream(h value) value {
	if !b.c4() {
		return h
	}
	return b.inC4(h, b.decoder.Hidden, b.rows(b.decoder.Hidden)...)
}

// inC4 returns the form in NC4HW4 of rows of n elements, of a plain tensor of those dimensions.
func (s *sink) inC4(x value, n int, dims ...int32) value {
	if s.dims[x] != nil {
		return x
	}
	y := s.pack((*s.tensors)[x], x, n)
	s.dims[y], s.plain[y] = dims, x
	return y
}

// pack appends the conversion of x to rows of n elements in NC4HW4.
func (s *sink) pack(name string, x value, n int) value {
	y, ok := s.packed[x]
	if !ok {
		r := s.op(name+"/pre_reshape", mnn.OpReshape, &mnn.Reshape{Dims: []int32{-1, int32(n), 1, 1}, DimType: mnn.NCHW}, x)
		y = s.op(name+"/pre_convert", mnn.OpConvertTensor, &mnn.Convert{Source: mnn.NCHW, Dest: mnn.NC4HW4}, r)
		s.packed[x] = y
	}
	return y
}

// layOut returns the inputs of an op in the layout that it takes, and the plain dimensions of its result if that is in NC4HW4.
func (s *sink) layOut(t mnn.OpType, in []value) ([]value, []int32) {
	first := slices.IndexFunc(in, func(v value) bool { return s.dims[v] != nil })
	if first < 0 || t == mnn.OpConvolution || t == mnn.OpConvertTensor {
		return in, nil
	}
	dims := s.dims[in[first]]
	switch t {
	case mnn.OpUnaryOp, mnn.OpReLU, mnn.OpLayerNorm:
		return in, dims
	case mnn.OpBinaryOp:
		if !slices.ContainsFunc(in, func(v value) bool { return !s.numbers[v] && !slices.Equal(s.dims[v], dims) }) {
			return in, dims
		}
	}
	in = slices.Clone(in)
	for i, v := range in {
		in[i] = s.unpacked(v)
	}
	return in, nil
}

// attentionC4 appends an Attention op of heads with values and results in NC4HW4, and queries and keys that are plain, as Hexagon
// demands. in are the inputs of the op.
func (b *builder) attentionC4(name string, p *mnn.Attention, heads, kvHeads, dim int, in []value) value {
	p.OutputC4 = true
	for i, v := range in {
		if i == 2 {
			in[i] = b.inC4(v, kvHeads*dim, 1, -1, int32(kvHeads), int32(dim))
		} else {
			in[i] = b.unpacked(v)
		}
	}
	o := b.append(name, mnn.OpAttention, p, mnn.DimNHWC, in)
	b.dims[o] = []int32{1, -1, int32(heads * dim)}
	return o
}
