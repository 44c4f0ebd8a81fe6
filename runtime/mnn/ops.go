package mnn

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// rule describes an op type: its parameter and its numbers of inputs and outputs.
type rule struct {
	param                  ParamType
	minIn, maxIn, out, alt int // alt is an alternative to out, or 0
}

const many = 1 << 16

// rules lists the op types that this package reads and writes.
var rules = map[OpType]rule{
	OpInput:           {ParamInput, 0, 0, 1, 0},
	OpConst:           {ParamBlob, 0, 0, 1, 0},
	OpReshape:         {ParamReshape, 1, 2, 1, 0}, // data, shape
	OpConvertTensor:   {ParamTensorConvertInfo, 1, 1, 1, 0},
	OpConvolution:     {ParamConvolution2D, 1, 1, 1, 0},
	OpDepthwise:       {ParamConvolution2D, 3, 3, 1, 0}, // planes, kernels, biases
	OpLayerNorm:       {ParamLayerNorm, 1, 2, 1, 2},     // x; or residual and delta to sum and normed
	OpBinaryOp:        {ParamBinaryOp, 2, 2, 1, 0},
	OpUnaryOp:         {ParamUnaryOp, 1, 1, 1, 0},
	OpConcat:          {ParamAxis, 1, many, 1, 0},
	OpSoftmax:         {ParamAxis, 1, 1, 1, 0},
	OpStridedSlice:    {ParamStridedSliceParam, 3, 5, 1, 0}, // data, begin, end, axes and steps, or steps
	OpSqueeze:         {ParamSqueezeParam, 1, 2, 1, 0},      // data, axes
	OpUnsqueeze:       {ParamSqueezeParam, 1, 2, 1, 0},      // data, axes
	OpGatherV2:        {ParamGatherV2, 2, 3, 1, 0},          // table, indices, axis
	OpAttention:       {ParamAttentionParam, 3, 5, 1, 0},    // queries, keys, values, mask, sinks
	OpRoPE:            {ParamRoPEParam, 4, 4, 2, 0},         // queries, keys, cos, sin
	OpPermute:         {ParamPermute, 1, 1, 1, 0},
	OpReduction:       {ParamReductionParam, 1, 1, 1, 0},
	OpTopKV2:          {ParamTopKV2, 2, 2, 2, 0}, // data, k
	OpCast:            {ParamCastParam, 1, 1, 1, 0},
	OpRange:           {ParamRange, 3, 3, 1, 0}, // start, limit, step
	OpReLU:            {ParamRelu, 1, 1, 1, 0},
	OpBatchMatMul:     {ParamBatchMatMulParam, 2, 2, 1, 0},
	OpGatherElements:  {ParamNone, 2, 3, 1, 0},                 // data, indices, axis
	OpMoE:             {ParamExtra, 3, 3, 1, 0},                // hidden states, weights, choices
	OpLinearAttention: {ParamLinearAttentionParam, 4, 4, 1, 0}, // mixed, decay, beta, convolution
	OpShape:           {ParamNone, 1, 1, 1, 0},
	OpRank:            {ParamNone, 1, 1, 1, 0},
	OpSize:            {ParamNone, 1, 1, 1, 0},
}

// check applies the rules to every op of the graph and of its subgraphs. Each tensor must be written at most once and
// before it is read, and every tensor that the outputs need must be written. Features that the format allows and this
// package does not support are tensor.ErrUnsupported.
func (g *Graph) check() error {
	written, err := checkOps(g.Ops, g.Tensors)
	if err != nil {
		return err
	}
	if err := checkReads(g.Ops, g.Live(), g.Tensors, written); err != nil {
		return err
	}
	computed := make(map[string]bool, len(g.Tensors))
	for t, name := range g.Tensors {
		computed[name] = computed[name] || written[t]
	}
	for _, name := range g.Outputs {
		if !computed[name] {
			return fmt.Errorf("output %q is not a tensor that an op writes", name)
		}
	}
	return g.checkSubgraphs()
}

// checkOps applies the rules to ops and returns the tensors that they write.
func checkOps(ops []Op, tensors []string) (written []bool, err error) {
	if len(ops) == 0 || len(tensors) == 0 {
		return nil, errors.New("no ops or no tensors")
	}
	written = make([]bool, len(tensors))
	read := make([]bool, len(tensors))
	for i := range ops {
		op := &ops[i]
		if err := op.check(); err != nil {
			return nil, opError(i, op, err)
		}
		for _, t := range op.Inputs {
			if t < 0 || int(t) >= len(read) {
				return nil, opError(i, op, fmt.Errorf("input %d of %d tensors", t, len(read)))
			}
			read[t] = true
		}
		for _, t := range op.Outputs {
			if t < 0 || int(t) >= len(written) {
				return nil, opError(i, op, fmt.Errorf("output %d of %d tensors", t, len(written)))
			}
			if written[t] {
				return nil, opError(i, op, fmt.Errorf("output %d %q is written twice", t, tensors[t]))
			}
			if read[t] {
				return nil, opError(i, op, fmt.Errorf("output %d %q is read before it is written", t, tensors[t]))
			}
			written[t] = true
		}
	}
	return written, nil
}

// checkReads requires that live ops read only tensors that are written.
func checkReads(ops []Op, live []bool, tensors []string, written []bool) error {
	for i := range ops {
		op := &ops[i]
		for _, t := range op.Inputs {
			if live[i] && !written[t] {
				return opError(i, op, fmt.Errorf("input %d %q is written by no op", t, tensors[t]))
			}
		}
	}
	return nil
}

func opError(i int, op *Op, err error) error {
	return fmt.Errorf("op %d %s %q: %w", i, op.Type, op.Name, err)
}

// check applies the rule of the op's type and the rules of its parameter.
func (op *Op) check() error {
	r, ok := rules[op.Type]
	if !ok {
		return fmt.Errorf("op type: %w", tensor.ErrUnsupported)
	}
	have := ParamNone
	if op.Param != nil {
		have = op.Param.paramType()
	}
	if have != r.param {
		return fmt.Errorf("parameter %s instead of %s", have, r.param)
	}
	if n := len(op.Inputs); n < r.minIn || n > r.maxIn {
		return fmt.Errorf("%d inputs: %w", n, tensor.ErrUnsupported)
	}
	if n := len(op.Outputs); n != r.out && (n != r.alt || n == 0) {
		return fmt.Errorf("%d outputs: %w", n, tensor.ErrUnsupported)
	}
	if op.Format.Format() == FormatUnknown {
		return fmt.Errorf("defaultDimentionFormat %d: %w", op.Format, tensor.ErrUnsupported)
	}
	switch op.Type {
	case OpLayerNorm:
		if len(op.Inputs) != len(op.Outputs) {
			return errors.New("a norm has one input and output, or two of each")
		}
	case OpReshape:
		if len(op.Inputs) == 1 && len(op.Param.(*Reshape).Dims) == 0 {
			return errors.New("neither dims nor a second input")
		}
	case OpUnsqueeze:
		if len(op.Inputs) == 1 && len(op.Param.(*Squeeze).Dims) == 0 {
			return errors.New("neither dims nor a second input")
		}
	}
	if op.Param == nil {
		return nil
	}
	return op.Param.check()
}

// known requires that an enum value has a name in this package.
func known[T interface {
	comparable
	fmt.Stringer
}](names map[T]string, values ...T) error {
	for _, v := range values {
		if _, ok := names[v]; !ok {
			return fmt.Errorf("%s: %w", v, tensor.ErrUnsupported)
		}
	}
	return nil
}

func (p *Input) check() error {
	return cmp.Or(known(dataTypeNames, p.DType), known(formatNames, p.Format))
}

func (p *Reshape) check() error { return known(formatNames, p.DimType) }
func (p *Convert) check() error { return known(formatNames, p.Source, p.Dest) }
func (p *Axis) check() error    { return nil }
func (p *Squeeze) check() error { return nil }

func (p *GatherV2) check() error { return known(dataTypeNames, p.Axis, p.Indices, p.Params) }

func (p *Unary) check() error {
	return cmp.Or(known(unaryNames, p.Op), known(dataTypeNames, p.T))
}

func (p *Binary) check() error {
	if p.Activation != 0 && p.Activation != 1 {
		return fmt.Errorf("activationType %d: %w", p.Activation, tensor.ErrUnsupported)
	}
	return cmp.Or(known(binaryNames, p.Op), known(dataTypeNames, p.T))
}

func (p *StridedSlice) check() error {
	if p.FromType != 0 && p.FromType != 1 {
		return fmt.Errorf("fromType %d: %w", p.FromType, tensor.ErrUnsupported)
	}
	return known(dataTypeNames, p.Index, p.T)
}

func (p *Blob) check() error {
	if err := known(formatNames, p.Format); err != nil {
		return err
	}
	count := int64(1)
	for _, d := range p.Dims {
		var err error
		if count, err = tensor.Mul(count, int64(d)); err != nil {
			return fmt.Errorf("dims %v: %w", p.Dims, err)
		}
	}
	held := map[DataType]int{DTInt32: len(p.Int32s), DTFloat: len(p.Float32s), DTUint8: len(p.Uint8s), DTInt8: len(p.Int8s)}
	total := len(p.Int32s) + len(p.Float32s) + len(p.Uint8s) + len(p.Int8s)
	if len(p.External) > 0 {
		if total > 0 {
			return errors.New("both inline and external values")
		}
		if err := cmp.Or(known(dataTypeNames, p.DType), external(p.External, 2, 2)); err != nil {
			return err
		}
		// Engines read that many bytes into a buffer sized by the dimensions.
		if size := elementBytes[p.DType]; size > 0 && (count > math.MaxInt64/size || p.External[1] != size*count) {
			return fmt.Errorf("dims %v of type %s with %d bytes", p.Dims, p.DType, p.External[1])
		}
		return nil
	}
	n, ok := held[p.DType]
	if !ok {
		return fmt.Errorf("inline values of type %s: %w", p.DType, tensor.ErrUnsupported)
	}
	if int64(n) != count || n != total {
		return fmt.Errorf("dims %v of type %s with %d values of this type and %d in all", p.Dims, p.DType, n, total)
	}
	return nil
}

// elementBytes are the sizes of the element types in weight files.
var elementBytes = map[DataType]int64{DTFloat: 4, DTInt32: 4, DTHalf: 2, DTBFloat16: 2, DTInt8: 1, DTUint8: 1}

func (p *Convolution) check() error {
	if slices.Min([]int32{p.KernelX, p.KernelY, p.StrideX, p.StrideY, p.DilateX, p.DilateY, p.Group, p.Outputs, p.Inputs}) < 1 {
		return errors.New("kernel, stride, dilation, group and channels must be positive")
	}
	if p.PadMode < 0 || p.PadMode > 2 {
		return fmt.Errorf("padMode %d: %w", p.PadMode, tensor.ErrUnsupported)
	}
	if len(p.Bias) > 0 && len(p.Bias) != int(p.Outputs) {
		return fmt.Errorf("%d outputs with %d biases", p.Outputs, len(p.Bias))
	}
	inline := len(p.Weight)
	lengths := 3
	if q := p.Quan; q != nil {
		if q.Type < 1 || q.Type > 4 {
			return fmt.Errorf("weight storage type %d: %w", q.Type, tensor.ErrUnsupported)
		}
		inline += len(q.Buffer)
		lengths = 5
	}
	if len(p.External) > 0 {
		return external(p.External, 2, lengths)
	}
	if inline == 0 {
		return errors.New("no weight, neither inline nor external")
	}
	return nil
}

// maxKernel bounds the edge of a kernel.
const maxKernel = 64

func (p *Depthwise) check() error {
	switch {
	case p.Outputs < 1 || p.Group != p.Outputs || p.Inputs != p.Outputs:
		return fmt.Errorf("%d groups, %d inputs and %d outputs: %w", p.Group, p.Inputs, p.Outputs, tensor.ErrUnsupported)
	case min(p.KernelX, p.KernelY) < 1 || max(p.KernelX, p.KernelY) > maxKernel, p.StrideX < 1 || p.StrideX > p.KernelX || p.StrideX != p.StrideY,
		p.PadX < 0 || p.PadX >= p.KernelX || p.PadY < 0 || p.PadY >= p.KernelY, p.PadMode != 0, p.DilateX != 1 || p.DilateY != 1, p.Relu || p.Relu6:
		return fmt.Errorf("a kernel of %d x %d, strides %d and %d, padding %d and %d: %w",
			p.KernelY, p.KernelX, p.StrideY, p.StrideX, p.PadY, p.PadX, tensor.ErrUnsupported)
	case len(p.Weight)+len(p.Bias)+len(p.External) > 0 || p.Quan != nil:
		return fmt.Errorf("weights that are not inputs: %w", tensor.ErrUnsupported)
	}
	return nil
}

func (p *LayerNorm) check() error {
	if len(p.Beta) > 0 && len(p.Beta) != len(p.Gamma) {
		return fmt.Errorf("gamma of length %d with beta of length %d", len(p.Gamma), len(p.Beta))
	}
	if p.Group < 1 {
		return fmt.Errorf("group %d must be positive", p.Group)
	}
	if len(p.External) == 0 {
		return nil
	}
	if err := external(p.External, 2, 3); err != nil {
		return err
	}
	// Engines read the offsets into a buffer for as many factors.
	if len(p.External) == 3 && p.External[2] != 0 && p.External[2] != p.External[1] {
		return fmt.Errorf("gamma of %d bytes with beta of %d", p.External[1], p.External[2])
	}
	return nil
}

func (p *Attention) check() error {
	if p.KVSharedLayer < 0 || !p.KVShared && p.KVSharedLayer != 0 {
		return fmt.Errorf("shares the cache: %t, with layer %d", p.KVShared, p.KVSharedLayer)
	}
	return nil
}

func (p *RoPE) check() error {
	if min(p.Heads, p.KVHeads, p.HeadDim) < 1 || p.CutHeadDim < 0 || p.CutHeadDim > p.HeadDim {
		return fmt.Errorf("%d and %d heads of %d elements, %d of which rotate", p.Heads, p.KVHeads, p.HeadDim, p.CutHeadDim)
	}
	for _, n := range []*LayerNorm{p.QNorm, p.KNorm} {
		if n == nil {
			continue
		}
		if len(n.External) > 0 {
			return fmt.Errorf("norm of heads in the weight file: %w", tensor.ErrUnsupported)
		}
		if err := n.check(); err != nil {
			return err
		}
	}
	return nil
}

// external checks a list of an offset and byte lengths.
func external(list []int64, least, most int) error {
	if len(list) < least || len(list) > most {
		return fmt.Errorf("external list of %d numbers", len(list))
	}
	end := int64(0)
	for _, n := range list {
		var err error
		if end, err = tensor.Add(end, n); err != nil {
			return fmt.Errorf("external %v: %w", list, err)
		}
	}
	return nil
}
