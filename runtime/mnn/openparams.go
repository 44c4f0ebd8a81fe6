package mnn

import (
	"errors"
	"fmt"

	flatbuffers "github.com/google/flatbuffers/go"

	"github.com/llmexport/llmexport/runtime/mnn/internal/fb"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// readers decode the parameters of paramLayouts from verified tables.
var readers = map[ParamType]func(t flatbuffers.Table) (Param, error){
	ParamAxis:                 readAxis,
	ParamBinaryOp:             readBinary,
	ParamBlob:                 readBlob,
	ParamConvolution2D:        readConvolution,
	ParamGatherV2:             readGatherV2,
	ParamInput:                readInput,
	ParamReshape:              readReshape,
	ParamSqueezeParam:         readSqueeze,
	ParamStridedSliceParam:    readStridedSlice,
	ParamTensorConvertInfo:    readConvert,
	ParamUnaryOp:              readUnary,
	ParamLayerNorm:            readLayerNorm,
	ParamAttentionParam:       readAttention,
	ParamRoPEParam:            readRoPE,
	ParamPermute:              readPermute,
	ParamReductionParam:       readReduction,
	ParamTopKV2:               readTopK,
	ParamCastParam:            readCast,
	ParamRange:                readRange,
	ParamRelu:                 readRelu,
	ParamBatchMatMulParam:     readBatchMatMul,
	ParamExtra:                readMoE,
	ParamLinearAttentionParam: readLinearAttention,
}

func readAxis(t flatbuffers.Table) (Param, error) {
	var p fb.Axis
	p.Init(t.Bytes, t.Pos)
	return &Axis{Axis: p.Axis()}, nil
}

func readBinary(t flatbuffers.Table) (Param, error) {
	var p fb.BinaryOp
	p.Init(t.Bytes, t.Pos)
	return &Binary{Op: BinaryOp(p.OpType()), T: DataType(p.T()), Activation: p.ActivationType()}, nil
}

func readBlob(t flatbuffers.Table) (Param, error) {
	var p fb.Blob
	p.Init(t.Bytes, t.Pos)
	return &Blob{
		Dims:     list(p.DimsLength(), p.Dims),
		Format:   Format(p.DataFormat()),
		DType:    DataType(p.DataType()),
		Int32s:   list(p.Int32sLength(), p.Int32s),
		Float32s: list(p.Float32sLength(), p.Float32s),
		Uint8s:   list(p.Uint8sLength(), p.Uint8s),
		Int8s:    list(p.Int8sLength(), p.Int8s),
		External: list(p.ExternalLength(), p.External),
	}, nil
}

func readConvolution(t flatbuffers.Table) (Param, error) {
	var p fb.Convolution2D
	p.Init(t.Bytes, t.Pos)
	c := p.Common(nil)
	if c == nil {
		return nil, errors.New("common is missing")
	}
	conv := &Convolution{
		KernelX: c.KernelX(), KernelY: c.KernelY(),
		StrideX: c.StrideX(), StrideY: c.StrideY(),
		DilateX: c.DilateX(), DilateY: c.DilateY(),
		PadX: c.PadX(), PadY: c.PadY(), PadMode: c.PadMode(),
		Group:   c.Group(),
		Outputs: c.OutputCount(), Inputs: c.InputCount(),
		Relu: c.Relu(), Relu6: c.Relu6(),
		External: list(p.ExternalLength(), p.External),
		Weight:   list(p.WeightLength(), p.Weight),
		Bias:     list(p.BiasLength(), p.Bias),
	}
	if q := p.QuanParameter(nil); q != nil {
		if s := q.ScaleStorage(); s != 0 && s != 1 {
			return nil, fmt.Errorf("scaleStorage %d: %w", s, tensor.ErrUnsupported)
		}
		conv.Quan = readQuan(q)
	}
	return conv, nil
}

func readQuan(q *fb.IDSTQuan) *Quan {
	return &Quan{
		Type:       q.Type(),
		MaxOrBits:  q.AMaxOrBits(),
		Min:        q.AMin(),
		ReadType:   q.ReadType(),
		QuantScale: q.QuantScale(),
		ScaleIn:    q.ScaleIn(),
		ScaleOut:   q.ScaleOut(),
		ScaleInt:   q.HasScaleInt(),
		UseInt32:   q.UseInt32(),
		ShapeInt32: q.ShapeInt32(),
		WeightSize: q.WeightSize(),
		ScaleFP16:  q.ScaleStorage() == 1,
		Buffer:     list(q.BufferLength(), q.Buffer),
		Alpha:      list(q.AlphaLength(), q.Alpha),
		AlphaFP16:  list(q.AlphaFp16Length(), q.AlphaFp16),
		Index:      list(q.IndexLength(), q.Index),
	}
}

func readGatherV2(t flatbuffers.Table) (Param, error) {
	var p fb.GatherV2
	p.Init(t.Bytes, t.Pos)
	return &GatherV2{Axis: DataType(p.Taxis()), Indices: DataType(p.Tindices()), Params: DataType(p.Tparams())}, nil
}

func readInput(t flatbuffers.Table) (Param, error) {
	var p fb.Input
	p.Init(t.Bytes, t.Pos)
	return &Input{Dims: list(p.DimsLength(), p.Dims), DType: DataType(p.Dtype()), Format: Format(p.Dformat())}, nil
}

func readReshape(t flatbuffers.Table) (Param, error) {
	var p fb.Reshape
	p.Init(t.Bytes, t.Pos)
	return &Reshape{Dims: list(p.DimsLength(), p.Dims), DimType: Format(p.DimType())}, nil
}

func readSqueeze(t flatbuffers.Table) (Param, error) {
	var p fb.SqueezeParam
	p.Init(t.Bytes, t.Pos)
	return &Squeeze{Dims: list(p.SqueezeDimsLength(), p.SqueezeDims)}, nil
}

func readStridedSlice(t flatbuffers.Table) (Param, error) {
	var p fb.StridedSliceParam
	p.Init(t.Bytes, t.Pos)
	return &StridedSlice{
		Index: DataType(p.Index()), T: DataType(p.T()),
		BeginMask: p.BeginMask(), EndMask: p.EndMask(), EllipsisMask: p.EllipsisMask(),
		NewAxisMask: p.NewAxisMask(), ShrinkAxisMask: p.ShrinkAxisMask(),
		FromType: p.FromType(),
	}, nil
}

func readConvert(t flatbuffers.Table) (Param, error) {
	var p fb.TensorConvertInfo
	p.Init(t.Bytes, t.Pos)
	return &Convert{Source: Format(p.Source()), Dest: Format(p.Dest())}, nil
}

func readUnary(t flatbuffers.Table) (Param, error) {
	var p fb.UnaryOp
	p.Init(t.Bytes, t.Pos)
	return &Unary{Op: UnaryOp(p.OpType()), T: DataType(p.T())}, nil
}

func readLayerNorm(t flatbuffers.Table) (Param, error) {
	var p fb.LayerNorm
	p.Init(t.Bytes, t.Pos)
	return layerNorm(&p), nil
}

func layerNorm(p *fb.LayerNorm) *LayerNorm {
	if p == nil {
		return nil
	}
	return &LayerNorm{
		Axis:     list(p.AxisLength(), p.Axis),
		Epsilon:  p.Epsilon(),
		Gamma:    list(p.GammaLength(), p.Gamma),
		Beta:     list(p.BetaLength(), p.Beta),
		Group:    p.Group(),
		External: list(p.ExternalLength(), p.External),
		RMS:      p.UseRmsnorm(),
	}
}

func readAttention(t flatbuffers.Table) (Param, error) {
	var p fb.AttentionParam
	p.Init(t.Bytes, t.Pos)
	a := &Attention{KVCache: p.KvCache(), LayerIndex: p.LayerIndex(), OutputC4: p.OutputC4(), Scale: p.AttnScale()}
	if shared := p.KvSharedLayerIndex(); shared >= 0 {
		a.KVShared, a.KVSharedLayer = true, shared
	}
	return a, nil
}

func readRoPE(t flatbuffers.Table) (Param, error) {
	var p fb.RoPEParam
	p.Init(t.Bytes, t.Pos)
	return &RoPE{
		CutHeadDim: p.RopeCutHeadDim(), Heads: p.NumHead(), KVHeads: p.KvNumHead(), HeadDim: p.HeadDim(),
		QNorm: layerNorm(p.QNorm(nil)), KNorm: layerNorm(p.KNorm(nil)),
	}, nil
}
