package mnn

// Input declares an input of the graph.
type Input struct {
	Dims   []int32
	DType  DataType
	Format Format
}

// OfTexts reports whether the input is the mask of several texts of equal length, [texts, 1, 1, tokens], which is zero where a
// text has a token.
func (p *Input) OfTexts() bool { return len(p.Dims) == 4 && p.Dims[2] == 1 }

// Blob is the value of a Const, in the slice for DType or in External; Dims is nil for a scalar.
type Blob struct {
	Dims     []int32
	Format   Format
	DType    DataType
	Int32s   []int32
	Float32s []float32
	Uint8s   []byte
	Int8s    []int8
	// External is [offset, bytes] in the weight file.
	External []int64
}

// Reshape changes the dimensions of a tensor: 0 copies, -1 is inferred. An op with two inputs takes them from the
// second one and ignores Dims.
type Reshape struct {
	Dims    []int32
	DimType Format
}

// Convert changes the memory layout but no values.
type Convert struct{ Source, Dest Format }

// Convolution is a linear layer if kernel and stride are 1, as everywhere in a language model.
type Convolution struct {
	KernelX, KernelY, StrideX, StrideY, DilateX, DilateY, PadX, PadY, Group int32
	// PadMode: 0 Caffe's explicit padding, 1 valid, 2 same.
	PadMode int8
	// Outputs and Inputs count channels: rows and columns of a linear layer.
	Outputs, Inputs int32
	Relu, Relu6     bool
	// Quan is the storage of the weight; nil means fp32.
	Quan *Quan
	// External is [offset, weight incl. header, alpha, bias, index] in bytes, or with nil Quan
	// [offset, weight, bias].
	External []int64
	// Weight and Bias are the inline alternatives to external fp32 data.
	Weight, Bias []float32
}

// Depthwise is a convolution of each channel alone, with zeros around planes. Kernels [Outputs, 1, KernelY, KernelX] and
// biases [Outputs] are inputs.
type Depthwise Convolution

// Quan is IDSTQuan, the storage of a weight.
type Quan struct {
	// Type: 1 packed codes, 2 sparse, 3 fp16, 4 raw int8.
	Type int32
	// MaxOrBits sizes buffers of OpenCL, other backends ignore it; Min is 1 if alpha contains the value of code 2^(bits-1), negative if it contains the
	// block minimum.
	MaxOrBits, Min int32
	// ReadType not 0 means asymmetric: alpha holds pairs.
	ReadType   int32
	QuantScale float32
	ScaleIn    float32
	ScaleOut   float32
	// ScaleInt is has_scaleInt, an int8 convolution of old models.
	ScaleInt bool
	UseInt32 bool
	// ShapeInt32: the header has 32-bit rows and columns.
	ShapeInt32 bool
	WeightSize uint32
	// ScaleFP16: alpha is stored as IEEE halves instead of fp32.
	ScaleFP16 bool
	// Buffer, Alpha, AlphaFP16 and Index are the inline alternatives to external data.
	Buffer    []int8
	Alpha     []float32
	AlphaFP16 []uint16
	Index     []uint32
}

// LayerNorm normalizes over the last axis; RMS selects RMSNorm.
type LayerNorm struct {
	Axis        []int32
	Epsilon     float32
	Gamma, Beta []float32
	Group       int32
	// External is [offset, gamma bytes, beta bytes], fp32.
	External []int64
	RMS      bool
}

// Binary is an elementwise op of two inputs with broadcasting.
type Binary struct {
	Op BinaryOp
	T  DataType
	// Activation: 0 none, 1 ReLU.
	Activation int32
}

// Unary is an elementwise op.
type Unary struct {
	Op UnaryOp
	T  DataType
}

// Axis is the parameter of Concat and Softmax.
type Axis struct{ Axis int32 }

// StridedSlice takes begin, end, (axes,) strides as inputs; FromType 1 is ONNX Slice, 0 is TensorFlow's.
type StridedSlice struct {
	Index, T                                                      DataType
	BeginMask, EndMask, EllipsisMask, NewAxisMask, ShrinkAxisMask int32
	FromType                                                      int32
}

// Squeeze is the parameter of Squeeze and Unsqueeze. If Dims is nil, they are the second input; Squeeze with one input
// and nil Dims removes every dimension of length 1.
type Squeeze struct{ Dims []int32 }

// GatherV2 takes table, indices and axis as inputs.
type GatherV2 struct{ Axis, Indices, Params DataType }

// Attention appends keys and values to the op's own cache and attends over it.
type Attention struct {
	KVCache bool
	// LayerIndex is the number of the layer; -1 if absent.
	LayerIndex int32
	// KVShared reads the cache of the op whose LayerIndex is KVSharedLayer and stores nothing. Without it,
	// KVSharedLayer is 0.
	KVShared      bool
	KVSharedLayer int32
	// OutputC4: the value input and the result are NC4HW4 [tokens, heads*dim, 1, 1].
	OutputC4 bool
	// Scale multiplies the scores; 0 stands for 1/sqrt(head dim). CPU engines take it from llm_config.json.
	Scale float32
}

// RoPE rotates packed queries and keys, after an optional norm per head.
type RoPE struct {
	// CutHeadDim is the number of leading elements of a head that rotate, at most HeadDim.
	CutHeadDim, Heads, KVHeads, HeadDim int32
	// QNorm and KNorm hold gamma inline; nil means no norm.
	QNorm, KNorm *LayerNorm
}

func (*Input) paramType() ParamType        { return ParamInput }
func (*Blob) paramType() ParamType         { return ParamBlob }
func (*Reshape) paramType() ParamType      { return ParamReshape }
func (*Convert) paramType() ParamType      { return ParamTensorConvertInfo }
func (*Convolution) paramType() ParamType  { return ParamConvolution2D }
func (*Depthwise) paramType() ParamType    { return ParamConvolution2D }
func (*LayerNorm) paramType() ParamType    { return ParamLayerNorm }
func (*Binary) paramType() ParamType       { return ParamBinaryOp }
func (*Unary) paramType() ParamType        { return ParamUnaryOp }
func (*Axis) paramType() ParamType         { return ParamAxis }
func (*StridedSlice) paramType() ParamType { return ParamStridedSliceParam }
func (*Squeeze) paramType() ParamType      { return ParamSqueezeParam }
func (*GatherV2) paramType() ParamType     { return ParamGatherV2 }
func (*Attention) paramType() ParamType    { return ParamAttentionParam }
func (*RoPE) paramType() ParamType         { return ParamRoPEParam }
