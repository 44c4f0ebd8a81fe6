package mnn

import (
	"errors"
	"fmt"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// newParams makes zero values of the members of the union OpParameter that this package reads.
var newParams = map[ParamType]func() Param{
	ParamAxis:                 zero[Axis],
	ParamBatchMatMulParam:     zero[BatchMatMul],
	ParamBinaryOp:             zero[Binary],
	ParamBlob:                 zero[Blob],
	ParamCastParam:            zero[Cast],
	ParamConvolution2D:        zero[Convolution],
	ParamExtra:                zero[MoE],
	ParamGatherV2:             zero[GatherV2],
	ParamInput:                zero[Input],
	ParamLinearAttentionParam: zero[LinearAttention],
	ParamPermute:              zero[Permute],
	ParamRange:                zero[Range],
	ParamReductionParam:       zero[Reduction],
	ParamRelu:                 zero[Relu],
	ParamReshape:              zero[Reshape],
	ParamSqueezeParam:         zero[Squeeze],
	ParamStridedSliceParam:    zero[StridedSlice],
	ParamTensorConvertInfo:    zero[Convert],
	ParamTopKV2:               zero[TopK],
	ParamUnaryOp:              zero[Unary],
	ParamLayerNorm:            zero[LayerNorm],
	ParamAttentionParam:       zero[Attention],
	ParamRoPEParam:            zero[RoPE],
}

func zero[P any, R interface {
	*P
	Param
}]() Param {
	return R(new(P))
}

// paramLayouts describe the tables of newParams for the bounds check.
var paramLayouts = func() map[ParamType]*layout {
	all := make(map[ParamType]*layout, len(newParams))
	for typ, make := range newParams {
		all[typ] = describe(typ.String(), make())
	}
	return all
}()

func (p *Input) fields(c *codec) {
	numbers(c, "dims", &p.Dims)
	word(c, "dtype", &p.DType, DTFloat)
	octet(c, "dformat", &p.Format, NC4HW4)
}

func (p *Blob) fields(c *codec) {
	numbers(c, "dims", &p.Dims)
	octet(c, "dataFormat", &p.Format, 0)
	word(c, "dataType", &p.DType, DTFloat)
	numbers(c, "uint8s", &p.Uint8s)
	numbers(c, "int8s", &p.Int8s)
	numbers(c, "int32s", &p.Int32s)
	c.refuse("int64s", bytes8)
	numbers(c, "float32s", &p.Float32s)
	c.refuse("strings", texts)
	numbers(c, "external", &p.External)
}

func (p *Reshape) fields(c *codec) {
	numbers(c, "dims", &p.Dims)
	octet(c, "dimType", &p.DimType, 0)
}

func (p *Convert) fields(c *codec) {
	octet(c, "source", &p.Source, 0)
	octet(c, "dest", &p.Dest, 0)
}

func (p *Convolution) fields(c *codec) {
	common := (*convolutionCommon)(p)
	nested(c, "common", "Convolution2DCommon", &common)
	if common == nil {
		c.fail(errors.New("common is missing"))
	}
	numbers(c, "weight", &p.Weight)
	numbers(c, "bias", &p.Bias)
	nested(c, "quanParameter", "IDSTQuan", &p.Quan)
	c.refuse("symmetricQuan", child)
	c.refuse("sparseParameter", child)
	numbers(c, "external", &p.External)
}

func (p *Depthwise) fields(c *codec) { (*Convolution)(p).fields(c) }

// convolutionCommon is the table in a Convolution that holds its numbers.
type convolutionCommon Convolution

func (p *convolutionCommon) fields(c *codec) {
	word(c, "padX", &p.PadX, 0)
	word(c, "padY", &p.PadY, 0)
	word(c, "kernelX", &p.KernelX, 1)
	word(c, "kernelY", &p.KernelY, 1)
	word(c, "strideX", &p.StrideX, 1)
	word(c, "strideY", &p.StrideY, 1)
	word(c, "dilateX", &p.DilateX, 1)
	word(c, "dilateY", &p.DilateY, 1)
	octet(c, "padMode", &p.PadMode, 0)
	word(c, "group", &p.Group, 1)
	word(c, "outputCount", &p.Outputs, 0)
	word(c, "inputCount", &p.Inputs, 0)
	c.flag("relu", &p.Relu, false)
	c.flag("relu6", &p.Relu6, false)
	c.refuse("pads", bytes4)
	c.refuse("outPads", bytes4)
	c.refuse("hasOutputShape", byteValue)
}

func (q *Quan) fields(c *codec) {
	numbers(c, "buffer", &q.Buffer)
	numbers(c, "alpha", &q.Alpha)
	word(c, "type", &q.Type, 0)
	c.flag("useInt32", &q.UseInt32, false)
	c.float("quantScale", &q.QuantScale)
	c.float("scaleIn", &q.ScaleIn)
	c.float("scaleOut", &q.ScaleOut)
	word(c, "aMaxOrBits", &q.MaxOrBits, 0)
	word(c, "aMin", &q.Min, 0)
	word(c, "readType", &q.ReadType, 0)
	c.flag("has_scaleInt", &q.ScaleInt, false)
	c.flag("shapeInt32", &q.ShapeInt32, false)
	word(c, "weightSize", &q.WeightSize, 0)
	numbers(c, "index", &q.Index)
	numbers(c, "alphaFp16", &q.AlphaFP16)
	var storage int8
	if q.ScaleFP16 {
		storage = 1
	}
	octet(c, "scaleStorage", &storage, 0)
	if c.pass == reading {
		if q.ScaleFP16 = storage == 1; storage != 0 && storage != 1 {
			c.fail(fmt.Errorf("scaleStorage %d: %w", storage, tensor.ErrUnsupported))
		}
	}
}

func (p *LayerNorm) fields(c *codec) {
	numbers(c, "axis", &p.Axis)
	c.float("epsilon", &p.Epsilon)
	numbers(c, "gamma", &p.Gamma)
	numbers(c, "beta", &p.Beta)
	word(c, "group", &p.Group, 1)
	numbers(c, "external", &p.External)
	c.flag("useRMSNorm", &p.RMS, false)
}

func (p *Binary) fields(c *codec) {
	word(c, "opType", &p.Op, 0)
	word(c, "T", &p.T, DTFloat)
	word(c, "activationType", &p.Activation, 0)
}

func (p *Unary) fields(c *codec) {
	word(c, "opType", &p.Op, 0)
	word(c, "T", &p.T, 0)
	c.refuse("tableInt8", bytes1)
}

func (p *Axis) fields(c *codec) { word(c, "axis", &p.Axis, 0) }

func (p *StridedSlice) fields(c *codec) {
	word(c, "Index", &p.Index, 0)
	word(c, "T", &p.T, 0)
	word(c, "beginMask", &p.BeginMask, 0)
	word(c, "endMask", &p.EndMask, 0)
	word(c, "ellipsisMask", &p.EllipsisMask, 0)
	word(c, "newAxisMask", &p.NewAxisMask, 0)
	word(c, "shrinkAxisMask", &p.ShrinkAxisMask, 0)
	word(c, "fromType", &p.FromType, 0)
}

func (p *Squeeze) fields(c *codec) { numbers(c, "squeezeDims", &p.Dims) }

func (p *GatherV2) fields(c *codec) {
	word(c, "Taxis", &p.Axis, 0)
	word(c, "Tindices", &p.Indices, 0)
	word(c, "Tparams", &p.Params, 0)
}

func (p *Attention) fields(c *codec) {
	c.flag("kv_cache", &p.KVCache, true)
	c.refuse("kv_shared_layer", text)
	word(c, "layer_index", &p.LayerIndex, -1)
	shared := int32(-1)
	if p.KVShared {
		shared = p.KVSharedLayer
	}
	word(c, "kv_shared_layer_index", &shared, -1)
	if c.pass == reading && shared >= 0 {
		p.KVShared, p.KVSharedLayer = true, shared
	}
	c.refuse("mhq_quant", bytes4)
	c.flag("output_c4", &p.OutputC4, false)
	c.float("attnScale", &p.Scale)
}

func (p *RoPE) fields(c *codec) {
	word(c, "rope_cut_head_dim", &p.CutHeadDim, 0)
	word(c, "num_head", &p.Heads, 0)
	word(c, "kv_num_head", &p.KVHeads, 0)
	word(c, "head_dim", &p.HeadDim, 0)
	nested(c, "q_norm", "LayerNorm", &p.QNorm)
	nested(c, "k_norm", "LayerNorm", &p.KNorm)
}

func (p *Permute) fields(c *codec) { numbers(c, "dims", &p.Dims) }

func (p *Reduction) fields(c *codec) {
	octet(c, "operation", &p.Op, 0)
	numbers(c, "dim", &p.Dims)
	c.refuse("coeff", wordValue)
	c.flag("keepDims", &p.Keep, false)
	word(c, "dType", &p.T, DTFloat)
}

func (p *TopK) fields(c *codec) {
	word(c, "T", &p.T, DTFloat)
	c.flag("sorted", &p.Sorted, false)
	c.flag("largest", &p.Largest, true)
}

func (p *Cast) fields(c *codec) {
	word(c, "srcT", &p.From, 0)
	word(c, "dstT", &p.To, 0)
}

func (p *Range) fields(c *codec) { word(c, "Tidx", &p.T, 0) }

func (p *Relu) fields(c *codec) { c.float("slope", &p.Slope) }

func (p *BatchMatMul) fields(c *codec) {
	c.flag("adjX", &p.TransposeX, false)
	c.flag("adjY", &p.TransposeY, false)
}

// attribute is a numeric attribute of an Extra; engines ignore its type.
type attribute struct {
	key   string
	value int32
}

func (a *attribute) fields(c *codec) {
	c.refuse("s", text)
	word(c, "i", &a.value, 0)
	c.refuse("b", byteValue)
	c.string("key", &a.key)
	c.ignore("type", wordValue)
	c.refuse("f", wordValue)
	c.refuse("tensor", child)
	c.refuse("list", child)
	c.refuse("func", child)
}

func (p *MoE) fields(c *codec) {
	c.refuse("type", text)
	c.refuse("engine", text)
	c.refuse("info", bytes1)
	attributes := []attribute{{"layer_id", p.Layer}, {"num_experts", p.Experts}, {"top_k", p.TopK}}
	nestedList(c, "attr", "Attribute", &attributes)
	if c.pass == reading {
		c.fail(p.set(attributes))
	}
	c.refuse("vector", byteValue)
}

// set takes the numbers from attributes of a file.
func (p *MoE) set(attributes []attribute) error {
	*p = MoE{Layer: 0, Experts: 128, TopK: 1} // defaults of the engine for missing attributes
	places := map[string]*int32{"layer_id": &p.Layer, "num_experts": &p.Experts, "top_k": &p.TopK}
	seen := map[string]bool{}
	for _, a := range attributes {
		place := places[a.key]
		switch {
		case seen[a.key]:
			return fmt.Errorf("attribute %q is given twice", a.key)
		case place == nil:
			return fmt.Errorf("attribute %q: %w", a.key, tensor.ErrUnsupported)
		}
		seen[a.key], *place = true, a.value
	}
	return nil
}

func (p *LinearAttention) fields(c *codec) {
	c.string("attn_type", &p.Type)
	word(c, "num_k_heads", &p.KeyHeads, 0)
	word(c, "num_v_heads", &p.ValueHeads, 0)
	word(c, "head_k_dim", &p.KeyDim, 0)
	word(c, "head_v_dim", &p.ValueDim, 0)
	c.flag("use_qk_l2norm", &p.QKNorm, false)
	c.refuse("gate_fold", byteValue)
	c.refuse("gate_coef", bytes4)
	c.refuse("gate_bias", bytes4)
}
