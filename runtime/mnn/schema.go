package mnn

// kind is the type of a slot of a table, as far as a bounds check needs it.
type kind uint8

const (
	byteValue kind = iota // a bool, a byte or a union's type, in the table itself
	wordValue             // an int, uint or float, in the table itself
	text                  // this and all others are stored elsewhere, and the table has an offset
	bytes1                // vectors of elements of 1, 2, 4 and 8 bytes
	bytes2
	bytes4
	bytes8
	texts
	child    // a table
	children // a vector of tables
	param    // a union; the slot before it is its type
)

// layout describes a table: its fields in the order of their slots, with the names of mnn.fbs.
type layout struct {
	name   string
	fields []field
}

type field struct {
	name string
	kind kind
	of   *layout // of child and children
	// refuse marks an unsupported field, which must be zero or empty.
	refuse bool
}

var netLayout = &layout{"Net", []field{
	{name: "bizCode", kind: text},
	{name: "extraTensorDescribe", kind: bytes4, refuse: true},
	{name: "extraInfo", kind: child, of: extraInfoLayout},
	{name: "oplists", kind: children, of: opLayout},
	{name: "outputName", kind: texts},
	{name: "preferForwardType", kind: byteValue},
	{name: "sourceType", kind: byteValue},
	{name: "tensorName", kind: texts},
	{name: "tensorNumber", kind: wordValue},
	{name: "usage", kind: byteValue, refuse: true},
	{name: "subgraphs", kind: children, of: subgraphLayout},
	{name: "mnn_uuid", kind: text},
}}

var subgraphLayout = &layout{"SubGraphProto", []field{
	{name: "name", kind: text},
	{name: "inputs", kind: bytes4},
	{name: "outputs", kind: bytes4},
	{name: "tensors", kind: texts},
	{name: "nodes", kind: children, of: opLayout},
	{name: "extraTensorDescribe", kind: bytes4, refuse: true},
}}

var extraInfoLayout = &layout{"ExtraInfo", []field{
	{name: "buffer", kind: bytes1},
	{name: "name", kind: text},
	{name: "version", kind: text},
}}

var opLayout = &layout{"Op", []field{
	{name: "inputIndexes", kind: bytes4},
	{name: "main_type", kind: byteValue},
	{name: "main", kind: param},
	{name: "name", kind: text},
	{name: "outputIndexes", kind: bytes4},
	{name: "type", kind: wordValue},
	{name: "defaultDimentionFormat", kind: byteValue},
	{name: "externalPath", kind: text, refuse: true},
}}

// paramLayouts are the members of the union OpParameter that this package reads.
var paramLayouts = map[ParamType]*layout{
	ParamAxis:                 {"Axis", words("axis")},
	ParamBatchMatMulParam:     {"BatchMatMulParam", []field{{name: "adjX"}, {name: "adjY"}}},
	ParamBinaryOp:             {"BinaryOp", words("opType", "T", "activationType")},
	ParamBlob:                 blobLayout,
	ParamCastParam:            {"CastParam", words("srcT", "dstT")},
	ParamConvolution2D:        convolutionLayout,
	ParamExtra:                extraLayout,
	ParamGatherV2:             {"GatherV2", words("Taxis", "Tindices", "Tparams")},
	ParamInput:                {"Input", []field{{name: "dims", kind: bytes4}, {name: "dtype", kind: wordValue}, {name: "dformat"}}},
	ParamLinearAttentionParam: linearAttentionLayout,
	ParamPermute:              {"Permute", []field{{name: "dims", kind: bytes4}}},
	ParamRange:                {"Range", words("Tidx")},
	ParamReductionParam: {"ReductionParam", []field{{name: "operation"}, {name: "dim", kind: bytes4},
		{name: "coeff", kind: wordValue, refuse: true}, {name: "keepDims"}, {name: "dType", kind: wordValue}}},
	ParamRelu:              {"Relu", words("slope")},
	ParamReshape:           {"Reshape", []field{{name: "dims", kind: bytes4}, {name: "dimType"}}},
	ParamSqueezeParam:      {"SqueezeParam", []field{{name: "squeezeDims", kind: bytes4}}},
	ParamStridedSliceParam: {"StridedSliceParam", words("Index", "T", "beginMask", "endMask", "ellipsisMask", "newAxisMask", "shrinkAxisMask", "fromType")},
	ParamTensorConvertInfo: {"TensorConvertInfo", []field{{name: "source"}, {name: "dest"}}},
	ParamTopKV2:            {"TopKV2", []field{{name: "T", kind: wordValue}, {name: "sorted"}, {name: "largest"}}},
	ParamUnaryOp:           {"UnaryOp", append(words("opType", "T"), field{name: "tableInt8", kind: bytes1, refuse: true})},
	ParamLayerNorm:         layerNormLayout,
	ParamAttentionParam:    attentionLayout,
	ParamRoPEParam: {"RoPEParam", append(words("rope_cut_head_dim", "num_head", "kv_num_head", "head_dim"),
		field{name: "q_norm", kind: child, of: layerNormLayout},
		field{name: "k_norm", kind: child, of: layerNormLayout})},
}

var blobLayout = &layout{"Blob", []field{
	{name: "dims", kind: bytes4},
	{name: "dataFormat", kind: byteValue},
	{name: "dataType", kind: wordValue},
	{name: "uint8s", kind: bytes1},
	{name: "int8s", kind: bytes1},
	{name: "int32s", kind: bytes4},
	{name: "int64s", kind: bytes8, refuse: true},
	{name: "float32s", kind: bytes4},
	{name: "strings", kind: texts, refuse: true},
	{name: "external", kind: bytes8},
}}

var convolutionLayout = &layout{"Convolution2D", []field{
	{name: "common", kind: child, of: &layout{"Convolution2DCommon", append(
		words("padX", "padY", "kernelX", "kernelY", "strideX", "strideY", "dilateX", "dilateY"),
		field{name: "padMode", kind: byteValue},
		field{name: "group", kind: wordValue},
		field{name: "outputCount", kind: wordValue},
		field{name: "inputCount", kind: wordValue},
		field{name: "relu", kind: byteValue},
		field{name: "relu6", kind: byteValue},
		field{name: "pads", kind: bytes4, refuse: true},
		field{name: "outPads", kind: bytes4, refuse: true},
		field{name: "hasOutputShape", kind: byteValue, refuse: true})}},
	{name: "weight", kind: bytes4},
	{name: "bias", kind: bytes4},
	{name: "quanParameter", kind: child, of: &layout{"IDSTQuan", []field{
		{name: "buffer", kind: bytes1},
		{name: "alpha", kind: bytes4},
		{name: "type", kind: wordValue},
		{name: "useInt32", kind: byteValue},
		{name: "quantScale", kind: wordValue},
		{name: "scaleIn", kind: wordValue},
		{name: "scaleOut", kind: wordValue},
		{name: "aMaxOrBits", kind: wordValue},
		{name: "aMin", kind: wordValue},
		{name: "readType", kind: wordValue},
		{name: "has_scaleInt", kind: byteValue},
		{name: "shapeInt32", kind: byteValue},
		{name: "weightSize", kind: wordValue},
		{name: "index", kind: bytes4},
		{name: "alphaFp16", kind: bytes2},
		{name: "scaleStorage", kind: byteValue},
	}}},
	{name: "symmetricQuan", kind: child, refuse: true},
	{name: "sparseParameter", kind: child, refuse: true},
	{name: "external", kind: bytes8},
}}

var layerNormLayout = &layout{"LayerNorm", []field{
	{name: "axis", kind: bytes4},
	{name: "epsilon", kind: wordValue},
	{name: "gamma", kind: bytes4},
	{name: "beta", kind: bytes4},
	{name: "group", kind: wordValue},
	{name: "external", kind: bytes8},
	{name: "useRMSNorm", kind: byteValue},
}}

var attentionLayout = &layout{"AttentionParam", []field{
	{name: "kv_cache", kind: byteValue},
	{name: "kv_shared_layer", kind: text, refuse: true},
	{name: "layer_index", kind: wordValue},
	{name: "kv_shared_layer_index", kind: wordValue},
	{name: "mhq_quant", kind: bytes4, refuse: true},
	{name: "output_c4", kind: byteValue},
	{name: "attnScale", kind: wordValue},
}}

// extraLayout has attributes, of which only numeric ones are read; the engine ignores their type.
var extraLayout = &layout{"Extra", []field{
	{name: "type", kind: text, refuse: true},
	{name: "engine", kind: text, refuse: true},
	{name: "info", kind: bytes1, refuse: true},
	{name: "attr", kind: children, of: &layout{"Attribute", []field{
		{name: "s", kind: text, refuse: true},
		{name: "i", kind: wordValue},
		{name: "b", kind: byteValue, refuse: true},
		{name: "key", kind: text},
		{name: "type", kind: wordValue},
		{name: "f", kind: wordValue, refuse: true},
		{name: "tensor", kind: child, refuse: true},
		{name: "list", kind: child, refuse: true},
		{name: "func", kind: child, refuse: true},
	}}},
	{name: "vector", kind: byteValue, refuse: true},
}}

var linearAttentionLayout = &layout{"LinearAttentionParam", []field{
	{name: "attn_type", kind: text},
	{name: "num_k_heads", kind: wordValue},
	{name: "num_v_heads", kind: wordValue},
	{name: "head_k_dim", kind: wordValue},
	{name: "head_v_dim", kind: wordValue},
	{name: "use_qk_l2norm", kind: byteValue},
	{name: "gate_fold", kind: byteValue, refuse: true},
	{name: "gate_coef", kind: bytes4, refuse: true},
	{name: "gate_bias", kind: bytes4, refuse: true},
}}

// words returns fields of four bytes each.
func words(names ...string) []field {
	fields := make([]field, len(names))
	for i, n := range names {
		fields[i] = field{name: n, kind: wordValue}
	}
	return fields
}
