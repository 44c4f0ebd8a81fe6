package mnn

import (
	"fmt"

	flatbuffers "github.com/google/flatbuffers/go"

	"github.com/llmexport/llmexport/runtime/mnn/internal/fb"
	"github.com/llmexport/llmexport/runtime/tensor"
)

func readPermute(t flatbuffers.Table) (Param, error) {
	var p fb.Permute
	p.Init(t.Bytes, t.Pos)
	return &Permute{Dims: list(p.DimsLength(), p.Dims)}, nil
}

func readReduction(t flatbuffers.Table) (Param, error) {
	var p fb.ReductionParam
	p.Init(t.Bytes, t.Pos)
	return &Reduction{Op: ReductionOp(p.Operation()), Dims: list(p.DimLength(), p.Dim), Keep: p.KeepDims(), T: DataType(p.DType())}, nil
}

func readTopK(t flatbuffers.Table) (Param, error) {
	var p fb.TopKV2
	p.Init(t.Bytes, t.Pos)
	return &TopK{T: DataType(p.T()), Sorted: p.Sorted(), Largest: p.Largest()}, nil
}

func readCast(t flatbuffers.Table) (Param, error) {
	var p fb.CastParam
	p.Init(t.Bytes, t.Pos)
	return &Cast{From: DataType(p.SrcT()), To: DataType(p.DstT())}, nil
}

func readRange(t flatbuffers.Table) (Param, error) {
	var p fb.Range
	p.Init(t.Bytes, t.Pos)
	return &Range{T: DataType(p.Tidx())}, nil
}

func readRelu(t flatbuffers.Table) (Param, error) {
	var p fb.Relu
	p.Init(t.Bytes, t.Pos)
	return &Relu{Slope: p.Slope()}, nil
}

func readBatchMatMul(t flatbuffers.Table) (Param, error) {
	var p fb.BatchMatMulParam
	p.Init(t.Bytes, t.Pos)
	return &BatchMatMul{TransposeX: p.AdjX(), TransposeY: p.AdjY()}, nil
}

// attribute is a numeric attribute of an Extra.
type attribute struct {
	key   string
	value *int32
}

// attributes returns the numbers of p with their keys.
func (p *MoE) attributes() []attribute {
	return []attribute{{"layer_id", &p.Layer}, {"num_experts", &p.Experts}, {"top_k", &p.TopK}}
}

func readMoE(t flatbuffers.Table) (Param, error) {
	var extra fb.Extra
	extra.Init(t.Bytes, t.Pos)
	p := &MoE{Layer: 0, Experts: 128, TopK: 1} // defaults of the engine for missing attributes
	seen := map[string]bool{}
	var a fb.Attribute
	for k := range extra.AttrLength() {
		extra.Attr(&a, k)
		key := string(a.Key())
		if seen[key] {
			return nil, fmt.Errorf("attribute %q is given twice", key)
		}
		seen[key] = true
		found := false
		for _, known := range p.attributes() {
			if known.key == key {
				*known.value, found = a.I(), true
			}
		}
		if !found {
			return nil, fmt.Errorf("attribute %q: %w", key, tensor.ErrUnsupported)
		}
	}
	return p, nil
}

func readLinearAttention(t flatbuffers.Table) (Param, error) {
	var p fb.LinearAttentionParam
	p.Init(t.Bytes, t.Pos)
	return &LinearAttention{
		Type:     string(p.AttnType()),
		KeyHeads: p.NumKHeads(), ValueHeads: p.NumVHeads(), KeyDim: p.HeadKDim(), ValueDim: p.HeadVDim(),
		QKNorm: p.UseQkL2norm(),
	}, nil
}
