package mnn

// OpType is the type of an op. Numbers and names are MNN's; [Open] accepts only those with rules in ops.go.
type OpType int32

// The op types that this program uses.
const (
	OpBinaryOp        OpType = 7
	OpCast            OpType = 9
	OpConcat          OpType = 10
	OpConst           OpType = 11
	OpConvolution     OpType = 12
	OpDepthwise       OpType = 13
	OpFill            OpType = 27
	OpGatherV2        OpType = 31
	OpInput           OpType = 34
	OpMoE             OpType = 40
	OpPermute         OpType = 46
	OpRange           OpType = 65
	OpRank            OpType = 66
	OpReduction       OpType = 68
	OpReLU            OpType = 69
	OpReshape         OpType = 73
	OpShape           OpType = 80
	OpSize            OpType = 82
	OpSoftmax         OpType = 85
	OpSqueeze         OpType = 90
	OpStridedSlice    OpType = 91
	OpTopKV2          OpType = 99
	OpUnaryOp         OpType = 101
	OpBatchMatMul     OpType = 106
	OpUnsqueeze       OpType = 107
	OpConvertTensor   OpType = 129
	OpGatherElements  OpType = 152
	OpAttention       OpType = 299
	OpLinearAttention OpType = 305
	OpRoPE            OpType = 306
	OpLayerNorm       OpType = 603
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
	ParamGatherV2             ParamType = 19
	ParamInput                ParamType = 21
	ParamPermute              ParamType = 29
	ParamRange                ParamType = 47
	ParamReductionParam       ParamType = 50
	ParamRelu                 ParamType = 51
	ParamReshape              ParamType = 55
	ParamSqueezeParam         ParamType = 64
	ParamStridedSliceParam    ParamType = 65
	ParamTensorConvertInfo    ParamType = 66
	ParamTopKV2               ParamType = 68
	ParamUnaryOp              ParamType = 70
	ParamBatchMatMulParam     ParamType = 73
	ParamExtra                ParamType = 78
	ParamLayerNorm            ParamType = 88
	ParamAttentionParam       ParamType = 98
	ParamLinearAttentionParam ParamType = 100
	ParamRoPEParam            ParamType = 102
)

func (t OpType) String() string    { return name(opNames, t, "OpType") }
func (t ParamType) String() string { return name(paramNames, t, "OpParameter") }

// opNames also has the other op types of language models and their encoders, for messages.
var opNames = map[OpType]string{
	OpBinaryOp:        "BinaryOp",
	OpCast:            "Cast",
	OpConcat:          "Concat",
	OpConst:           "Const",
	OpConvolution:     "Convolution",
	OpDepthwise:       "ConvolutionDepthwise",
	17:                "Deconvolution",
	26:                "ExpandDims",
	OpFill:            "Fill",
	30:                "Gather",
	OpGatherV2:        "GatherV2",
	OpInput:           "Input",
	35:                "Interp",
	39:                "MatMul",
	OpMoE:             "MoE",
	44:                "Pack",
	45:                "Padding",
	OpPermute:         "Permute",
	47:                "Pooling",
	OpRange:           "Range",
	OpRank:            "Rank",
	OpReduction:       "Reduction",
	OpReLU:            "ReLU",
	OpReshape:         "Reshape",
	77:                "Scale",
	OpShape:           "Shape",
	81:                "Sigmoid",
	OpSize:            "Size",
	83:                "Slice",
	OpSoftmax:         "Softmax",
	OpSqueeze:         "Squeeze",
	OpStridedSlice:    "StridedSlice",
	95:                "TanH",
	98:                "Tile",
	OpTopKV2:          "TopKV2",
	100:               "Transpose",
	OpUnaryOp:         "UnaryOp",
	102:               "Unpack",
	103:               "Where",
	OpBatchMatMul:     "BatchMatMul",
	OpUnsqueeze:       "Unsqueeze",
	115:               "GatherND",
	118:               "ScatterNd",
	119:               "OneHot",
	120:               "BroadcastTo",
	128:               "Raster",
	OpConvertTensor:   "ConvertTensor",
	148:               "CumSum",
	OpGatherElements:  "GatherElements",
	256:               "Plugin",
	257:               "Select",
	262:               "Identity",
	266:               "TrainableParam",
	OpAttention:       "Attention",
	300:               "FmhaV2",
	301:               "Fmhca",
	303:               "SplitGeLU",
	304:               "GroupNorm",
	OpLinearAttention: "LinearAttention",
	OpRoPE:            "RoPE",
	307:               "FusedLinear",
	308:               "GatedRMSNorm",
	512:               "Extra",
	513:               "ConvInt8",
	514:               "Int8ToFloat",
	517:               "FloatToInt8",
	600:               "While",
	601:               "If",
	OpLayerNorm:       "LayerNorm",
	604:               "GridSample",
}

// paramNames also has the parameters of those op types.
var paramNames = map[ParamType]string{
	ParamNone:                 "NONE",
	ParamAxis:                 "Axis",
	ParamBinaryOp:             "BinaryOp",
	ParamBlob:                 "Blob",
	ParamCastParam:            "CastParam",
	ParamConvolution2D:        "Convolution2D",
	15:                        "ExpandDims",
	16:                        "Fill",
	18:                        "Gather",
	ParamGatherV2:             "GatherV2",
	ParamInput:                "Input",
	22:                        "Interp",
	25:                        "MatMul",
	28:                        "PackParam",
	ParamPermute:              "Permute",
	30:                        "Plugin",
	31:                        "Pool",
	ParamRange:                "Range",
	ParamReductionParam:       "ReductionParam",
	ParamRelu:                 "Relu",
	ParamReshape:              "Reshape",
	58:                        "Scale",
	61:                        "Slice",
	ParamSqueezeParam:         "SqueezeParam",
	ParamStridedSliceParam:    "StridedSliceParam",
	ParamTensorConvertInfo:    "TensorConvertInfo",
	ParamTopKV2:               "TopKV2",
	69:                        "Transpose",
	ParamUnaryOp:              "UnaryOp",
	ParamBatchMatMulParam:     "BatchMatMulParam",
	74:                        "QuantizedFloatParam",
	ParamExtra:                "Extra",
	83:                        "OneHotParam",
	84:                        "PadParam",
	85:                        "WhileParam",
	86:                        "IfParam",
	ParamLayerNorm:            "LayerNorm",
	91:                        "GridSample",
	94:                        "CumSum",
	95:                        "GroupNorm",
	96:                        "FmhaV2Param",
	97:                        "FmhcaParam",
	ParamAttentionParam:       "AttentionParam",
	ParamLinearAttentionParam: "LinearAttentionParam",
	101:                       "ShapeParam",
	ParamRoPEParam:            "RoPEParam",
	103:                       "FusedLinearParam",
}
