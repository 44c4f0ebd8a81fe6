package mnn

import "fmt"

// Permute reorders dimensions: output dimension k is input dimension Dims[k].
type Permute struct{ Dims []int32 }

// Reduction folds the dimensions Dims, or all if Dims is nil; Keep leaves them with length 1.
type Reduction struct {
	Op   ReductionOp
	Dims []int32
	Keep bool
	T    DataType
}

// TopK returns the k largest elements of the last dimension and their int32 indices; k is the second input, a scalar.
type TopK struct {
	T               DataType
	Sorted, Largest bool
}

// Cast changes the element type. Engines use To and the type of the input.
type Cast struct{ From, To DataType }

// Range counts from the first input to before the second in steps of the third, all int32 scalars.
type Range struct{ T DataType }

// Relu is max(x, 0) + Slope*min(x, 0).
type Relu struct{ Slope float32 }

// BatchMatMul multiplies the matrices of the last two dimensions.
type BatchMatMul struct{ TransposeX, TransposeY bool }

// MoE runs the experts of a layer: hidden [N,H], weights [N,k] and choices [N,k] int32 to [N,H]. Expert j is the subgraph
// "/expert/{Layer}_{j}" with one input [n,H] and one output [n,H].
//
// It is an Extra of the file format, with the attributes layer_id, num_experts and top_k.
type MoE struct{ Layer, Experts, TopK int32 }

// Expert returns the name of the subgraph of expert j.
func (p *MoE) Expert(j int32) string { return fmt.Sprintf("/expert/%d_%d", p.Layer, j) }

// LinearAttention is a causal convolution of the first input [1,D,s] with the fourth [D,1,K], followed, by Type, by:
//
//	short_conv         y = C * conv(B*x), where D = 3*H are B, C, x
//	gated_delta_rule   the recurrence over q, k, v of the SiLU of the convolution, with the second input as log decay and
//	                   the third as beta, [1,s,ValueHeads] each
//
// The output is [1,s,ValueHeads,ValueDim]. The op keeps a state.
type LinearAttention struct {
	Type                                   string
	KeyHeads, ValueHeads, KeyDim, ValueDim int32
	QKNorm                                 bool
}

// The types of LinearAttention.
const (
	ShortConv      = "short_conv"
	GatedDeltaRule = "gated_delta_rule"
)

func (*Permute) paramType() ParamType         { return ParamPermute }
func (*Reduction) paramType() ParamType       { return ParamReductionParam }
func (*TopK) paramType() ParamType            { return ParamTopKV2 }
func (*Cast) paramType() ParamType            { return ParamCastParam }
func (*Range) paramType() ParamType           { return ParamRange }
func (*Relu) paramType() ParamType            { return ParamRelu }
func (*BatchMatMul) paramType() ParamType     { return ParamBatchMatMulParam }
func (*MoE) paramType() ParamType             { return ParamExtra }
func (*LinearAttention) paramType() ParamType { return ParamLinearAttentionParam }
