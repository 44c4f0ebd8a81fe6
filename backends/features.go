package backends

import (
	"cmp"
	"slices"

	"github.com/llmexport/llmexport/quant"
	"github.com/llmexport/llmexport/runtime/mnn"
)

// Features are the properties of a package on which backends differ.
type Features struct {
	// Linears are the storage forms of linear layers, without repetition.
	Linears []Linear `json:"linears"`
	// HeadDims are the head dimensions of Attention ops, sorted.
	HeadDims []int `json:"head_dims"`
	// Masks reports whether an Attention op has a mask other than the causal one: a sliding window, a chunk or ALiBi.
	Masks bool `json:"masks,omitempty"`
	// Sinks reports whether an Attention op has attention sinks.
	Sinks bool `json:"sinks,omitempty"`
	// Scaled reports whether an Attention op has a scale of its own.
	Scaled bool `json:"scaled,omitempty"`
	// SharedCache reports whether an Attention op reads the keys and values of another one.
	SharedCache bool `json:"shared_cache,omitempty"`
	// LinearAttention reports whether there is a LinearAttention op, ShortConv whether one is a short convolution.
	LinearAttention bool `json:"linear_attention,omitempty"`
	ShortConv       bool `json:"short_conv,omitempty"`
	// PlainDelta reports whether a LinearAttention op is a gated delta rule that does not normalize.
	PlainDelta bool `json:"plain_delta,omitempty"`
	// NormedDelta reports whether a LinearAttention op is a gated delta rule that normalizes queries and keys, RaggedDelta whether the
	// width of its keys is not a power of two.
	NormedDelta bool `json:"normed_delta,omitempty"`
	RaggedDelta bool `json:"ragged_delta,omitempty"`
	// EvenDelta reports whether keys of a gated delta rule are as wide as its values.
	EvenDelta bool `json:"even_delta,omitempty"`
	// WideDelta reports whether keys or values of a gated delta rule have more than 128 elements.
	WideDelta bool `json:"wide_delta,omitempty"`
	// PackedRest reports whether hidden states in the C4 form have rows whose length is not a multiple of 4.
	PackedRest bool `json:"packed_rest,omitempty"`
	// NormWidths are the lengths of rows of norms of plain tensors that are not multiples of 4, sorted.
	NormWidths []int `json:"norm_widths,omitempty"`
	// ExactGELU reports whether there is an op for the exact GELU.
	ExactGELU bool `json:"exact_gelu,omitempty"`
	// IntDivision reports whether integers are divided by constants: positions by the rows of rotary tables, or by the chunks of masks.
	IntDivision bool `json:"int_division,omitempty"`
	// Experts reports whether there are MoE ops.
	Experts bool `json:"experts,omitempty"`
	// RaggedChoice reports whether scores of chosen experts are picked out of rows whose length is not a multiple of 8, or is not known.
	RaggedChoice bool `json:"ragged_choice,omitempty"`
	// Classic reports whether the graph is not in the C4 form: hidden states are plain tensors, or Attention ops take and give such.
	Classic bool `json:"classic,omitempty"`
	// Needs is the lowest precision at which the model works: "normal" or "high"; empty if that is "low".
	Needs string `json:"needs,omitempty"`
}

// Linear is a storage form of linear layers.
type Linear struct {
	Bits int `json:"bits"`
	// Block is the number of columns per scale, 0 for a whole row.
	Block     int  `json:"block,omitempty"`
	Symmetric bool `json:"symmetric,omitempty"`
	// Header is aMaxOrBits, the width that the op names; 0 at 16 bits.
	Header int `json:"header,omitempty"`
}

// LinearOf returns a storage form as llmexport writes it.
func LinearOf(s quant.Spec) Linear {
	if s.Bits == 16 {
		return Linear{Bits: 16}
	}
	l := Linear{Bits: s.Bits, Symmetric: s.Symmetric, Header: s.HeaderBits()}
	if s.Block != quant.WholeRow {
		l.Block = s.Block
	}
	return l
}

// AddLinear adds a storage form unless it is there.
func (f *Features) AddLinear(l Linear) {
	if !slices.Contains(f.Linears, l) {
		f.Linears = append(f.Linears, l)
		slices.SortFunc(f.Linears, func(a, b Linear) int {
			return cmp.Or(cmp.Compare(a.Bits, b.Bits), cmp.Compare(a.Block, b.Block), cmp.Compare(a.Header, b.Header))
		})
	}
}

// FeaturesOf returns the features of a graph, without the storage forms of its linear layers and the precision that it needs. Head
// dimensions that do not follow from the graph are left out.
func FeaturesOf(g *mnn.Graph) Features {
	f := Features{HeadDims: []int{}}
	packed, rest := false, false
	t := newTrace(g)
	for i := range g.Ops {
		op := &g.Ops[i]
		packed = packed || op.Format == mnn.DimNC4HW4
		if op.Type == mnn.OpGatherElements && len(op.Inputs) > 0 {
			n := t.width(op.Inputs[0])
			f.RaggedChoice = f.RaggedChoice || n == 0 || n%8 != 0
		}
		switch p := op.Param.(type) {
		case *mnn.Attention:
			f.Classic = f.Classic || !p.OutputC4
			f.SharedCache = f.SharedCache || p.KVShared
			f.Scaled = f.Scaled || p.Scale != 0
			if len(op.Inputs) > 3 {
				from := t.source(op.Inputs[3])
				f.Masks = f.Masks || from == nil || from.Type != mnn.OpInput
			}
			f.Sinks = f.Sinks || len(op.Inputs) > 4
			if n := t.width(op.Inputs[0]); n > 0 && !slices.Contains(f.HeadDims, n) {
				f.HeadDims = append(f.HeadDims, n)
			}
		case *mnn.LinearAttention:
			f.LinearAttention = true
			f.ShortConv = f.ShortConv || p.Type == mnn.ShortConv
			f.PlainDelta = f.PlainDelta || p.Type == mnn.GatedDeltaRule && !p.QKNorm
			f.WideDelta = f.WideDelta || p.Type == mnn.GatedDeltaRule && max(p.KeyDim, p.ValueDim) > 128
			f.EvenDelta = f.EvenDelta || p.Type == mnn.GatedDeltaRule && p.KeyDim == p.ValueDim
			if p.Type == mnn.GatedDeltaRule && p.QKNorm {
				f.NormedDelta = true
				f.RaggedDelta = f.RaggedDelta || p.KeyDim&(p.KeyDim-1) != 0
			}
		case *mnn.Unary:
			f.ExactGELU = f.ExactGELU || p.Op == mnn.UnaryGeluStandard
		case *mnn.Binary:
			f.IntDivision = f.IntDivision || p.Op == mnn.BinaryRealDiv && len(op.Inputs) > 1 && t.integers(op.Inputs[1])
		case *mnn.Convert:
			rest = rest || p.Dest == mnn.NC4HW4 && len(op.Inputs) > 0 && t.channels(op.Inputs[0])%4 != 0
		case *mnn.MoE:
			f.Experts = true
		case *mnn.LayerNorm:
			if op.Format == mnn.DimNC4HW4 || len(op.Inputs) == 0 {
				continue
			}
			if n := t.width(op.Inputs[0]); n%4 != 0 && !slices.Contains(f.NormWidths, n) {
				f.NormWidths = append(f.NormWidths, n)
			}
		}
	}
	f.PackedRest = packed && rest
	f.Classic = f.Classic || !packed
	slices.Sort(f.HeadDims)
	slices.Sort(f.NormWidths)
	return f
}

// trace finds the ops that write tensors, and the last dimensions of tensors.
type trace struct {
	writers []*mnn.Op // by tensor
	widths  map[int32]int
	depth   int // of calls of width
}

// deepest is more than the ops between the input of a graph and Attention in any layer that is known.
const deepest = 1000

func newTrace(g *mnn.Graph) *trace {
	t := &trace{writers: make([]*mnn.Op, len(g.Tensors)), widths: map[int32]int{}}
	for i := range g.Ops {
		for _, o := range g.Ops[i].Outputs {
			if 0 <= o && int(o) < len(t.writers) {
				t.writers[o] = &g.Ops[i]
			}
		}
	}
	return t
}

// source is the op that writes a tensor, nil if there is none.
func (t *trace) source(tensor int32) *mnn.Op {
	if tensor < 0 || int(tensor) >= len(t.writers) {
		return nil
	}
	return t.writers[tensor]
}

// channels is the second dimension of a tensor of rows [-1, n, 1, 1], which linear layers take, else 0.
func (t *trace) channels(tensor int32) int {
	if op := t.source(tensor); op != nil {
		if p, ok := op.Param.(*mnn.Reshape); ok && len(p.Dims) == 4 {
			return int(p.Dims[1])
		}
	}
	return 0
}

// width returns the last dimension of a tensor, and 0 if it does not follow from the ops that occur between a linear layer and
// Attention: norms, rotations, products, slices and concatenations.
func (t *trace) width(tensor int32) int {
	if n, ok := t.widths[tensor]; ok || t.depth == deepest {
		return n
	}
	t.depth++
	defer func() { t.depth-- }()
	t.widths[tensor] = 0 // of a tensor that depends on itself, which is in no valid graph
	n := t.widthOf(t.source(tensor))
	t.widths[tensor] = n
	return n
}

func (t *trace) widthOf(op *mnn.Op) int {
	if op == nil {
		return 0
	}
	switch p := op.Param.(type) {
	case *mnn.Blob:
		if len(p.Dims) == 0 {
			return 1
		}
		return int(p.Dims[len(p.Dims)-1])
	case *mnn.RoPE:
		return int(p.HeadDim)
	case *mnn.Reshape:
		if len(p.Dims) > 0 {
			return max(0, int(p.Dims[len(p.Dims)-1]))
		}
	}
	if len(op.Inputs) == 0 {
		return 0
	}
	first := t.width(op.Inputs[0])
	switch p := op.Param.(type) {
	case *mnn.Binary:
		if len(op.Inputs) > 1 {
			return max(first, t.width(op.Inputs[1]))
		}
	case *mnn.Axis:
		if op.Type == mnn.OpConcat && (p.Axis == lastAxis || p.Axis == -1) {
			for _, in := range op.Inputs[1:] {
				n := t.width(in)
				if n == 0 {
					return 0
				}
				first += n
			}
		}
	case *mnn.StridedSlice:
		return t.sliced(op, first)
	}
	return first
}

// lastAxis is that of queries [1, tokens, heads, dim].
const lastAxis = 3

// sliced is the width of a slice of a tensor of some width.
func (t *trace) sliced(op *mnn.Op, width int) int {
	const begin, end, axis = 1, 2, 3
	along, ok := t.numberOf(op, axis)
	if !ok {
		return 0
	}
	if along != lastAxis && along != -1 {
		return width
	}
	from, ok := t.numberOf(op, begin)
	to, okTo := t.numberOf(op, end)
	if !ok || !okTo {
		return 0
	}
	to = min(to, width)
	if from < 0 {
		from += width
	}
	if to < 0 {
		to += width
	}
	return max(0, to-from)
}

// numberOf is the value of an input of an op that is a constant of one number.
func (t *trace) numberOf(op *mnn.Op, input int) (int, bool) {
	if input >= len(op.Inputs) {
		return 0, false
	}
	return t.number(op.Inputs[input])
}

// integers reports whether a tensor is a constant of integers.
func (t *trace) integers(tensor int32) bool {
	if op := t.source(tensor); op != nil {
		p, ok := op.Param.(*mnn.Blob)
		return ok && len(p.Int32s) > 0
	}
	return false
}

// number is the value of a constant of one number.
func (t *trace) number(tensor int32) (int, bool) {
	if op := t.source(tensor); op != nil {
		if p, ok := op.Param.(*mnn.Blob); ok && len(p.Int32s) == 1 {
			return int(p.Int32s[0]), true
		}
	}
	return 0, false
}
