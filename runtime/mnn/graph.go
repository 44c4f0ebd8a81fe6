// Package mnn reads and writes the two files of a model in an MNN package: the graph (llm.mnn, a FlatBuffers buffer)
// and the blocks of weights that the graph refers to (llm.mnn.weight).
//
// [Open] decodes a graph after a bounds check of the whole buffer; [Graph.Marshal] encodes one, with the same bytes for
// the same graph. Both reject violations of the rules in ops.go. Ops, parameters, fields and enum values without a name
// in this package are rejected with tensor.ErrUnsupported, so nothing that changes a result is silently dropped; fields
// that no engine reads (bizCode, preferForwardType, sourceType, tensorNumber, and the name and buffer of ExtraInfo) are
// dropped.
//
// The files of the graph side are mnn.fbs (the format), internal/fb (code generated from it), schema.go and verify.go
// (the bounds check), enums.go, params.go and sequence.go, fields.go (how parameters lie in the file) and codec.go (what
// reads and writes them), subgraph.go, ops.go (the rules), open.go and marshal.go.
package mnn

import (
	"slices"
)

// Graph is MNN's Net: ops in the order of their execution, over tensors referred to by index.
type Graph struct {
	// Ops come after the ops whose outputs they read.
	Ops []Op
	// Tensors holds the name of every tensor. Each is written by at most one op.
	Tensors []string
	// Subgraphs are the experts that MoE ops call.
	Subgraphs []Subgraph
	// Outputs names the outputs, each of them one of Tensors; the LLM engine looks up "logits" by name.
	Outputs []string
	// Version is ExtraInfo.version, printed by the engine and never compared.
	Version string
	// UUID is the mnn_uuid of graphs of other tools; ours have none.
	UUID string
}

// Live returns for each op whether an output of the graph depends on it; all do if Outputs is empty. A runtime skips
// the others: MNN's converter leaves ops behind that read tensors which no op writes. The graph must be valid for Open
// or Marshal.
func (g *Graph) Live() []bool {
	outputs := make(map[string]bool, len(g.Outputs))
	for _, name := range g.Outputs {
		outputs[name] = true
	}
	needed := make([]bool, len(g.Tensors))
	for t, name := range g.Tensors {
		needed[t] = len(g.Outputs) == 0 || outputs[name]
	}
	return live(g.Ops, needed)
}

// live returns which ops the needed tensors depend on, and adds the tensors that such ops read to needed.
func live(ops []Op, needed []bool) []bool {
	live := make([]bool, len(ops))
	for i, op := range slices.Backward(ops) {
		live[i] = slices.ContainsFunc(op.Outputs, func(t int32) bool { return needed[t] })
		if live[i] {
			for _, t := range op.Inputs {
				needed[t] = true
			}
		}
	}
	return live
}

// Op is one node. Inputs and Outputs index Graph.Tensors.
type Op struct {
	Name    string
	Type    OpType
	Inputs  []int32
	Outputs []int32
	// Format is defaultDimentionFormat; the zero value is NHWC, as in the schema. Of the ops in use, only LayerNorm,
	// Shape and Size use it.
	Format DimFormat
	Param  Param
}

// Param is the parameter of an op: nil, or a pointer to one of the types of params.go, as required by the type of the
// op. The zero value of a field is zero, regardless of the default of the file format. An empty list is the same as a
// nil list.
type Param interface {
	paramType() ParamType
	// check rejects values that no engine supports; those that the format allows are tensor.ErrUnsupported.
	check() error
	record
}
