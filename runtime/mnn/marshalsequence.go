package mnn

import (
	flatbuffers "github.com/google/flatbuffers/go"

	"github.com/llmexport/llmexport/runtime/mnn/internal/fb"
)

func (p *Permute) marshal(e *encoder) flatbuffers.UOffsetT {
	dims := vector(e, p.Dims)
	fb.PermuteStart(e.Builder)
	fb.PermuteAddDims(e.Builder, dims)
	return fb.PermuteEnd(e.Builder)
}

func (p *Reduction) marshal(e *encoder) flatbuffers.UOffsetT {
	dims := vector(e, p.Dims)
	fb.ReductionParamStart(e.Builder)
	fb.ReductionParamAddOperation(e.Builder, int8(p.Op))
	fb.ReductionParamAddDim(e.Builder, dims)
	fb.ReductionParamAddKeepDims(e.Builder, p.Keep)
	fb.ReductionParamAddDType(e.Builder, int32(p.T))
	return fb.ReductionParamEnd(e.Builder)
}

func (p *TopK) marshal(e *encoder) flatbuffers.UOffsetT {
	fb.TopKV2Start(e.Builder)
	fb.TopKV2AddT(e.Builder, int32(p.T))
	fb.TopKV2AddSorted(e.Builder, p.Sorted)
	fb.TopKV2AddLargest(e.Builder, p.Largest)
	return fb.TopKV2End(e.Builder)
}

func (p *Cast) marshal(e *encoder) flatbuffers.UOffsetT {
	fb.CastParamStart(e.Builder)
	fb.CastParamAddSrcT(e.Builder, int32(p.From))
	fb.CastParamAddDstT(e.Builder, int32(p.To))
	return fb.CastParamEnd(e.Builder)
}

func (p *Range) marshal(e *encoder) flatbuffers.UOffsetT {
	fb.RangeStart(e.Builder)
	fb.RangeAddTidx(e.Builder, int32(p.T))
	return fb.RangeEnd(e.Builder)
}

func (p *Relu) marshal(e *encoder) flatbuffers.UOffsetT {
	fb.ReluStart(e.Builder)
	fb.ReluAddSlope(e.Builder, p.Slope)
	return fb.ReluEnd(e.Builder)
}

func (p *BatchMatMul) marshal(e *encoder) flatbuffers.UOffsetT {
	fb.BatchMatMulParamStart(e.Builder)
	fb.BatchMatMulParamAddAdjX(e.Builder, p.TransposeX)
	fb.BatchMatMulParamAddAdjY(e.Builder, p.TransposeY)
	return fb.BatchMatMulParamEnd(e.Builder)
}

func (p *MoE) marshal(e *encoder) flatbuffers.UOffsetT {
	var attrs []flatbuffers.UOffsetT
	for _, a := range p.attributes() {
		key := e.text(a.key)
		fb.AttributeStart(e.Builder)
		fb.AttributeAddI(e.Builder, *a.value)
		fb.AttributeAddKey(e.Builder, key)
		attrs = append(attrs, fb.AttributeEnd(e.Builder))
	}
	list := e.CreateVectorOfTables(attrs)
	fb.ExtraStart(e.Builder)
	fb.ExtraAddAttr(e.Builder, list)
	return fb.ExtraEnd(e.Builder)
}

func (p *LinearAttention) marshal(e *encoder) flatbuffers.UOffsetT {
	kind := e.text(p.Type)
	b := e.Builder
	fb.LinearAttentionParamStart(b)
	fb.LinearAttentionParamAddAttnType(b, kind)
	fb.LinearAttentionParamAddNumKHeads(b, p.KeyHeads)
	fb.LinearAttentionParamAddNumVHeads(b, p.ValueHeads)
	fb.LinearAttentionParamAddHeadKDim(b, p.KeyDim)
	fb.LinearAttentionParamAddHeadVDim(b, p.ValueDim)
	fb.LinearAttentionParamAddUseQkL2norm(b, p.QKNorm)
	return fb.LinearAttentionParamEnd(b)
}
