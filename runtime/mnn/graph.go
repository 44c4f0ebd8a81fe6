// Package mnn reads and writes the two files that hold a model in an MNN package: the graph (llm.mnn, a
// FlatBuffers buffer) and the blocks of weights that the graph points into (llm.mnn.weight).
//
// [Open] decodes a graph after a bounds check of the whole buffer; [Graph.Marshal] writes one, the same
// bytes for the same graph. Both refuse what the rules of ops.go do not allow. Ops, parameters, fields and
// enum values that no table of this package names are refused with tensor.ErrUnsupported, so nothing that
// changes a result is silently dropped; what no engine looks at (bizCode, preferForwardType, sourceType,
// tensorNumber, and the name and buffer of ExtraInfo) is.
//
// The files of the graph side are mnn.fbs (the format), internal/fb (code generated from it), schema.go and
// verify.go (the bounds check), enums.go, params.go and sequence.go, subgraph.go, ops.go (the rules), open.go and marshal.go.
package mnn

import (
	"slices"

	flatbuffers "github.com/google/flatbuffers/go"
)

// Graph is MNN's Net: ops in the order in which they run, over tensors that are named by index.
type Graph struct {
	// Ops come after the ops whose outputs they read.
	Ops []Op
	// Tensors holds the name of every tensor. Each is written by at most one op.
	Tensors []string
	// Subgraphs are the experts that MoE ops call.
	Subgraphs []Subgraph
	// Outputs names the outputs, each of them one of Tensors; the LLM engine asks for "logits" by name.
	Outputs []string
	// Version is ExtraInfo.version, printed by the engine and never compared.
	Version string
	// UUID is the mnn_uuid of foreign graphs; ours carry none.
	UUID string
}

// Live says for each op whether an output of the graph depends on it; all do when Outputs is empty. A runtime
// skips the others: MNN's converter leaves ops behind which read tensors that no op writes any more. The graph is
// one that Open gave or Marshal takes.
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

// live says which ops the needed tensors depend on, and adds to these the tensors that such ops read.
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
	// Format is defaultDimentionFormat; the zero value is NHWC, as in the schema.
	// Of the ops in use only LayerNorm, Shape and Size look at it.
	Format DimFormat
	Param  Param
}

// Param is the parameter of an op: nil, or a pointer to one of the types of params.go, as the type of the op
// demands. Numbers are written as they stand: the zero value of a field is zero, whatever the default of the
// file format. A list without elements is the same as a nil list.
type Param interface {
	paramType() ParamType
	// check refuses values that no engine runs, with tensor.ErrUnsupported where the format allows them.
	check() error
	// marshal appends the table and returns its place.
	marshal(e *encoder) flatbuffers.UOffsetT
}
