package mnn

// OpType is the type of an op. Numbers and names are MNN's; [Open] accepts only those with rules in ops.go.
type OpType int32

// The op types of language models and their encoders.
const (
	OpBinaryOp             OpType = 7
	OpCast                 OpType = 9
	OpConcat               OpType = 10
	OpConst                OpType = 11
	OpConvolution          OpType = 12
	OpConvolutionDepthwise OpType = 13
	OpDeconvolution        OpType = 17
	OpExpandDims           OpType = 26
	OpFill                 OpType = 27
	OpGather               OpType = 30
	OpGatherV2             OpType = 31
	OpInput                OpType = 34
	OpInterp               OpType = 35
	OpMatMul               OpType = 39
	OpMoE                  OpType = 40
	OpPack                 OpType = 44
	OpPadding              OpType = 45
	OpPermute              OpType = 46
	OpPooling              OpType = 47
	OpRange                OpType = 65
	OpRank                 OpType = 66
	OpReduction            OpType = 68
	OpReLU                 OpType = 69
	OpReshape              OpType = 73
	OpScale                OpType = 77
	OpShape                OpType = 80
	OpSigmoid              OpType = 81
	OpSize                 OpType = 82
	OpSlice                OpType = 83
	OpSoftmax              OpType = 85
	OpSqueeze              OpType = 90
	OpStridedSlice         OpType = 91
	OpTanH                 OpType = 95
	OpTile                 OpType = 98
	OpTopKV2               OpType = 99
	OpTranspose            OpType = 100
	OpUnaryOp              OpType = 101
	OpUnpack               OpType = 102
	OpWhere                OpType = 103
	OpBatchMatMul          OpType = 106
	OpUnsqueeze            OpType = 107
	OpGatherND             OpType = 115
	OpScatterNd            OpType = 118
	OpOneHot               OpType = 119
	OpBroadcastTo          OpType = 120
	OpRaster               OpType = 128
	OpConvertTensor        OpType = 129
	OpCumSum               OpType = 148
	OpGatherElements       OpType = 152
	OpPlugin               OpType = 256
	OpSelect               OpType = 257
	OpIdentity             OpType = 262
	OpTrainableParam       OpType = 266
	OpAttention            OpType = 299
	OpFmhaV2               OpType = 300
	OpFmhca                OpType = 301
	OpSplitGeLU            OpType = 303
	OpGroupNorm            OpType = 304
	OpLinearAttention      OpType = 305
	OpRoPE                 OpType = 306
	OpFusedLinear          OpType = 307
	OpGatedRMSNorm         OpType = 308
	OpExtra                OpType = 512
	OpConvInt8             OpType = 513
	OpInt8ToFloat          OpType = 514
	OpFloatToInt8          OpType = 517
	OpWhile                OpType = 600
	OpIf                   OpType = 601
	OpLayerNorm            OpType = 603
	OpGridSample           OpType = 604
)

// ParamType is the table that contains the parameter of an op.
type ParamType uint8

// The parameter tables of these ops.
const (
	ParamNone                 ParamType = 0
	ParamAxis                 ParamType = 4
	ParamBinaryOp             ParamType = 6
	ParamBlob                 ParamType = 7
	ParamCastParam            ParamType = 8
	ParamConvolution2D        ParamType = 9
	ParamExpandDims           ParamType = 15
	ParamFill                 ParamType = 16
	ParamGather               ParamType = 18
	ParamGatherV2             ParamType = 19
	ParamInput                ParamType = 21
	ParamInterp               ParamType = 22
	ParamMatMul               ParamType = 25
	ParamPackParam            ParamType = 28
	ParamPermute              ParamType = 29
	ParamPlugin               ParamType = 30
	ParamPool                 ParamType = 31
	ParamRange                ParamType = 47
	ParamReductionParam       ParamType = 50
	ParamRelu                 ParamType = 51
	ParamReshape              ParamType = 55
	ParamScale                ParamType = 58
	ParamSlice                ParamType = 61
	ParamSqueezeParam         ParamType = 64
	ParamStridedSliceParam    ParamType = 65
	ParamTensorConvertInfo    ParamType = 66
	ParamTopKV2               ParamType = 68
	ParamTranspose            ParamType = 69
	ParamUnaryOp              ParamType = 70
	ParamBatchMatMulParam     ParamType = 73
	ParamQuantizedFloatParam  ParamType = 74
	ParamExtra                ParamType = 78
	ParamOneHotParam          ParamType = 83
	ParamPadParam             ParamType = 84
	ParamWhileParam           ParamType = 85
	ParamIfParam              ParamType = 86
	ParamLayerNorm            ParamType = 88
	ParamGridSample           ParamType = 91
	ParamCumSum               ParamType = 94
	ParamGroupNorm            ParamType = 95
	ParamFmhaV2Param          ParamType = 96
	ParamFmhcaParam           ParamType = 97
	ParamAttentionParam       ParamType = 98
	ParamLinearAttentionParam ParamType = 100
	ParamShapeParam           ParamType = 101
	ParamRoPEParam            ParamType = 102
	ParamFusedLinearParam     ParamType = 103
)

func (t OpType) String() string    { return name(opNames, t, "OpType") }
func (t ParamType) String() string { return name(paramNames, t, "OpParameter") }

var opNames = map[OpType]string{
	OpBinaryOp:             "BinaryOp",
	OpCast:                 "Cast",
	OpConcat:               "Concat",
	OpConst:                "Const",
	OpConvolution:          "Convolution",
	OpConvolutionDepthwise: "ConvolutionDepthwise",
	OpDeconvolution:        "Deconvolution",
	OpExpandDims:           "ExpandDims",
	OpFill:                 "Fill",
	OpGather:               "Gather",
	OpGatherV2:             "GatherV2",
	OpInput:                "Input",
	OpInterp:               "Interp",
	OpMatMul:               "MatMul",
	OpMoE:                  "MoE",
	OpPack:                 "Pack",
	OpPadding:              "Padding",
	OpPermute:              "Permute",
	OpPooling:              "Pooling",
	OpRange:                "Range",
	OpRank:                 "Rank",
	OpReduction:            "Reduction",
	OpReLU:                 "ReLU",
	OpReshape:              "Reshape",
	OpScale:                "Scale",
	OpShape:                "Shape",
	OpSigmoid:              "Sigmoid",
	OpSize:                 "Size",
	OpSlice:                "Slice",
	OpSoftmax:              "Softmax",
	OpSqueeze:              "Squeeze",
	OpStridedSlice:         "StridedSlice",
	OpTanH:                 "TanH",
	OpTile:                 "Tile",
	OpTopKV2:               "TopKV2",
	OpTranspose:            "Transpose",
	OpUnaryOp:              "UnaryOp",
	OpUnpack:               "Unpack",
	OpWhere:                "Where",
	OpBatchMatMul:          "BatchMatMul",
	OpUnsqueeze:            "Unsqueeze",
	OpGatherND:             "GatherND",
	OpScatterNd:            "ScatterNd",
	OpOneHot:               "OneHot",
	OpBroadcastTo:          "BroadcastTo",
	OpRaster:               "Raster",
	OpConvertTensor:        "ConvertTensor",
	OpCumSum:               "CumSum",
	OpGatherElements:       "GatherElements",
	OpPlugin:               "Plugin",
	OpSelect:               "Select",
	OpIdentity:             "Identity",
	OpTrainableParam:       "TrainableParam",
	OpAttention:            "Attention",
	OpFmhaV2:               "FmhaV2",
	OpFmhca:                "Fmhca",
	OpSplitGeLU:            "SplitGeLU",
	OpGroupNorm:            "GroupNorm",
	OpLinearAttention:      "LinearAttention",
	OpRoPE:                 "RoPE",
	OpFusedLinear:          "FusedLinear",
	OpGatedRMSNorm:         "GatedRMSNorm",
	OpExtra:                "Extra",
	OpConvInt8:             "ConvInt8",
	OpInt8ToFloat:          "Int8ToFloat",
	OpFloatToInt8:          "FloatToInt8",
	OpWhile:                "While",
	OpIf:                   "If",
	OpLayerNorm:            "LayerNorm",
	OpGridSample:           "GridSample",
}

var paramNames = map[ParamType]string{
	ParamNone:                 "NONE",
	ParamAxis:                 "Axis",
	ParamBinaryOp:             "BinaryOp",
	ParamBlob:                 "Blob",
	ParamCastParam:            "CastParam",
	ParamConvolution2D:        "Convolution2D",
	ParamExpandDims:           "ExpandDims",
	ParamFill:                 "Fill",
	ParamGather:               "Gather",
	ParamGatherV2:             "GatherV2",
	ParamInput:                "Input",
	ParamInterp:               "Interp",
	ParamMatMul:               "MatMul",
	ParamPackParam:            "PackParam",
	ParamPermute:              "Permute",
	ParamPlugin:               "Plugin",
	ParamPool:                 "Pool",
	ParamRange:                "Range",
	ParamReductionParam:       "ReductionParam",
	ParamRelu:                 "Relu",
	ParamReshape:              "Reshape",
	ParamScale:                "Scale",
	ParamSlice:                "Slice",
	ParamSqueezeParam:         "SqueezeParam",
	ParamStridedSliceParam:    "StridedSliceParam",
	ParamTensorConvertInfo:    "TensorConvertInfo",
	ParamTopKV2:               "TopKV2",
	ParamTranspose:            "Transpose",
	ParamUnaryOp:              "UnaryOp",
	ParamBatchMatMulParam:     "BatchMatMulParam",
	ParamQuantizedFloatParam:  "QuantizedFloatParam",
	ParamExtra:                "Extra",
	ParamOneHotParam:          "OneHotParam",
	ParamPadParam:             "PadParam",
	ParamWhileParam:           "WhileParam",
	ParamIfParam:              "IfParam",
	ParamLayerNorm:            "LayerNorm",
	ParamGridSample:           "GridSample",
	ParamCumSum:               "CumSum",
	ParamGroupNorm:            "GroupNorm",
	ParamFmhaV2Param:          "FmhaV2Param",
	ParamFmhcaParam:           "FmhcaParam",
	ParamAttentionParam:       "AttentionParam",
	ParamLinearAttentionParam: "LinearAttentionParam",
	ParamShapeParam:           "ShapeParam",
	ParamRoPEParam:            "RoPEParam",
	ParamFusedLinearParam:     "FusedLinearParam",
}
