package mnn

import (
	flatbuffers "github.com/google/flatbuffers/go"

	"github.com/llmexport/llmexport/runtime/mnn/internal/fb"
)

func (p *Input) marshal(e *encoder) flatbuffers.UOffsetT {
	dims := vector(e, p.Dims)
	fb.InputStart(e.Builder)
	fb.InputAddDims(e.Builder, dims)
	fb.InputAddDtype(e.Builder, int32(p.DType))
	fb.InputAddDformat(e.Builder, int8(p.Format))
	return fb.InputEnd(e.Builder)
}

func (p *Blob) marshal(e *encoder) flatbuffers.UOffsetT {
	dims := vector(e, p.Dims)
	int32s := vector(e, p.Int32s)
	float32s := vector(e, p.Float32s)
	uint8s := vector(e, p.Uint8s)
	int8s := vector(e, p.Int8s)
	external := vector(e, p.External)
	fb.BlobStart(e.Builder)
	fb.BlobAddDims(e.Builder, dims)
	fb.BlobAddDataFormat(e.Builder, int8(p.Format))
	fb.BlobAddDataType(e.Builder, int32(p.DType))
	fb.BlobAddUint8s(e.Builder, uint8s)
	fb.BlobAddInt8s(e.Builder, int8s)
	fb.BlobAddInt32s(e.Builder, int32s)
	fb.BlobAddFloat32s(e.Builder, float32s)
	fb.BlobAddExternal(e.Builder, external)
	return fb.BlobEnd(e.Builder)
}

func (p *Reshape) marshal(e *encoder) flatbuffers.UOffsetT {
	dims := vector(e, p.Dims)
	fb.ReshapeStart(e.Builder)
	fb.ReshapeAddDims(e.Builder, dims)
	fb.ReshapeAddDimType(e.Builder, int8(p.DimType))
	return fb.ReshapeEnd(e.Builder)
}

func (p *Convert) marshal(e *encoder) flatbuffers.UOffsetT {
	fb.TensorConvertInfoStart(e.Builder)
	fb.TensorConvertInfoAddSource(e.Builder, int8(p.Source))
	fb.TensorConvertInfoAddDest(e.Builder, int8(p.Dest))
	return fb.TensorConvertInfoEnd(e.Builder)
}

func (p *Convolution) marshal(e *encoder) flatbuffers.UOffsetT {
	b := e.Builder
	fb.Convolution2DCommonStart(b)
	fb.Convolution2DCommonAddPadX(b, p.PadX)
	fb.Convolution2DCommonAddPadY(b, p.PadY)
	fb.Convolution2DCommonAddKernelX(b, p.KernelX)
	fb.Convolution2DCommonAddKernelY(b, p.KernelY)
	fb.Convolution2DCommonAddStrideX(b, p.StrideX)
	fb.Convolution2DCommonAddStrideY(b, p.StrideY)
	fb.Convolution2DCommonAddDilateX(b, p.DilateX)
	fb.Convolution2DCommonAddDilateY(b, p.DilateY)
	fb.Convolution2DCommonAddPadMode(b, p.PadMode)
	fb.Convolution2DCommonAddGroup(b, p.Group)
	fb.Convolution2DCommonAddOutputCount(b, p.Outputs)
	fb.Convolution2DCommonAddInputCount(b, p.Inputs)
	fb.Convolution2DCommonAddRelu(b, p.Relu)
	fb.Convolution2DCommonAddRelu6(b, p.Relu6)
	common := fb.Convolution2DCommonEnd(b)
	var quan flatbuffers.UOffsetT
	if p.Quan != nil {
		quan = p.Quan.marshal(e)
	}
	weight := vector(e, p.Weight)
	bias := vector(e, p.Bias)
	external := vector(e, p.External)
	fb.Convolution2DStart(b)
	fb.Convolution2DAddCommon(b, common)
	fb.Convolution2DAddWeight(b, weight)
	fb.Convolution2DAddBias(b, bias)
	fb.Convolution2DAddQuanParameter(b, quan)
	fb.Convolution2DAddExternal(b, external)
	return fb.Convolution2DEnd(b)
}

func (q *Quan) marshal(e *encoder) flatbuffers.UOffsetT {
	buffer := vector(e, q.Buffer)
	alpha := vector(e, q.Alpha)
	index := vector(e, q.Index)
	halves := vector(e, q.AlphaFP16)
	b := e.Builder
	fb.IDSTQuanStart(b)
	fb.IDSTQuanAddBuffer(b, buffer)
	fb.IDSTQuanAddAlpha(b, alpha)
	fb.IDSTQuanAddType(b, q.Type)
	fb.IDSTQuanAddUseInt32(b, q.UseInt32)
	fb.IDSTQuanAddQuantScale(b, q.QuantScale)
	fb.IDSTQuanAddScaleIn(b, q.ScaleIn)
	fb.IDSTQuanAddScaleOut(b, q.ScaleOut)
	fb.IDSTQuanAddAMaxOrBits(b, q.MaxOrBits)
	fb.IDSTQuanAddAMin(b, q.Min)
	fb.IDSTQuanAddReadType(b, q.ReadType)
	fb.IDSTQuanAddHasScaleInt(b, q.ScaleInt)
	fb.IDSTQuanAddShapeInt32(b, q.ShapeInt32)
	fb.IDSTQuanAddWeightSize(b, q.WeightSize)
	fb.IDSTQuanAddIndex(b, index)
	fb.IDSTQuanAddAlphaFp16(b, halves)
	if q.ScaleFP16 {
		fb.IDSTQuanAddScaleStorage(b, 1)
	}
	return fb.IDSTQuanEnd(b)
}

func (p *LayerNorm) marshal(e *encoder) flatbuffers.UOffsetT {
	axis := vector(e, p.Axis)
	gamma := vector(e, p.Gamma)
	beta := vector(e, p.Beta)
	external := vector(e, p.External)
	b := e.Builder
	fb.LayerNormStart(b)
	fb.LayerNormAddAxis(b, axis)
	fb.LayerNormAddEpsilon(b, p.Epsilon)
	fb.LayerNormAddGamma(b, gamma)
	fb.LayerNormAddBeta(b, beta)
	fb.LayerNormAddGroup(b, p.Group)
	fb.LayerNormAddExternal(b, external)
	fb.LayerNormAddUseRmsnorm(b, p.RMS)
	return fb.LayerNormEnd(b)
}

func (p *Binary) marshal(e *encoder) flatbuffers.UOffsetT {
	fb.BinaryOpStart(e.Builder)
	fb.BinaryOpAddOpType(e.Builder, int32(p.Op))
	fb.BinaryOpAddT(e.Builder, int32(p.T))
	fb.BinaryOpAddActivationType(e.Builder, p.Activation)
	return fb.BinaryOpEnd(e.Builder)
}

func (p *Unary) marshal(e *encoder) flatbuffers.UOffsetT {
	fb.UnaryOpStart(e.Builder)
	fb.UnaryOpAddOpType(e.Builder, int32(p.Op))
	fb.UnaryOpAddT(e.Builder, int32(p.T))
	return fb.UnaryOpEnd(e.Builder)
}

func (p *Axis) marshal(e *encoder) flatbuffers.UOffsetT {
	fb.AxisStart(e.Builder)
	fb.AxisAddAxis(e.Builder, p.Axis)
	return fb.AxisEnd(e.Builder)
}

func (p *StridedSlice) marshal(e *encoder) flatbuffers.UOffsetT {
	b := e.Builder
	fb.StridedSliceParamStart(b)
	fb.StridedSliceParamAddIndex(b, int32(p.Index))
	fb.StridedSliceParamAddT(b, int32(p.T))
	fb.StridedSliceParamAddBeginMask(b, p.BeginMask)
	fb.StridedSliceParamAddEndMask(b, p.EndMask)
	fb.StridedSliceParamAddEllipsisMask(b, p.EllipsisMask)
	fb.StridedSliceParamAddNewAxisMask(b, p.NewAxisMask)
	fb.StridedSliceParamAddShrinkAxisMask(b, p.ShrinkAxisMask)
	fb.StridedSliceParamAddFromType(b, p.FromType)
	return fb.StridedSliceParamEnd(b)
}

func (p *Squeeze) marshal(e *encoder) flatbuffers.UOffsetT {
	dims := vector(e, p.Dims)
	fb.SqueezeParamStart(e.Builder)
	fb.SqueezeParamAddSqueezeDims(e.Builder, dims)
	return fb.SqueezeParamEnd(e.Builder)
}

func (p *GatherV2) marshal(e *encoder) flatbuffers.UOffsetT {
	fb.GatherV2Start(e.Builder)
	fb.GatherV2AddTaxis(e.Builder, int32(p.Axis))
	fb.GatherV2AddTindices(e.Builder, int32(p.Indices))
	fb.GatherV2AddTparams(e.Builder, int32(p.Params))
	return fb.GatherV2End(e.Builder)
}

func (p *Attention) marshal(e *encoder) flatbuffers.UOffsetT {
	b := e.Builder
	fb.AttentionParamStart(b)
	fb.AttentionParamAddKvCache(b, p.KVCache)
	fb.AttentionParamAddLayerIndex(b, p.LayerIndex)
	if p.KVShared {
		fb.AttentionParamAddKvSharedLayerIndex(b, p.KVSharedLayer)
	}
	fb.AttentionParamAddOutputC4(b, p.OutputC4)
	fb.AttentionParamAddAttnScale(b, p.Scale)
	return fb.AttentionParamEnd(b)
}

func (p *RoPE) marshal(e *encoder) flatbuffers.UOffsetT {
	var q, k flatbuffers.UOffsetT
	if p.QNorm != nil {
		q = p.QNorm.marshal(e)
	}
	if p.KNorm != nil {
		k = p.KNorm.marshal(e)
	}
	b := e.Builder
	fb.RoPEParamStart(b)
	fb.RoPEParamAddRopeCutHeadDim(b, p.CutHeadDim)
	fb.RoPEParamAddNumHead(b, p.Heads)
	fb.RoPEParamAddKvNumHead(b, p.KVHeads)
	fb.RoPEParamAddHeadDim(b, p.HeadDim)
	fb.RoPEParamAddQNorm(b, q)
	fb.RoPEParamAddKNorm(b, k)
	return fb.RoPEParamEnd(b)
}
