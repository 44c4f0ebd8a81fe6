package mnn

import (
	"encoding/binary"
	"fmt"

	flatbuffers "github.com/google/flatbuffers/go"

	"github.com/llmexport/llmexport/runtime/mnn/internal/fb"
)

// maxGraphBytes bounds what Marshal writes. The builder doubles its buffer and gives up at 2 GiB; values of
// this size belong into the weight file.
const maxGraphBytes = 1 << 29

var errTooLarge = fmt.Errorf("more than %d bytes: put large values into the weight file", maxGraphBytes)

// Marshal encodes the graph as llm.mnn: the same bytes for the same graph, default values left out. [Open]
// gives an equal graph back. It refuses a graph that Open would refuse, and one of more than 512 MiB.
func (g *Graph) Marshal() ([]byte, error) {
	if err := g.check(); err != nil {
		return nil, fmt.Errorf("graph: %w", err)
	}
	return g.encode()
}

// encode is Marshal without the rules.
func (g *Graph) encode() ([]byte, error) {
	e := &encoder{Builder: flatbuffers.NewBuilder(g.sizeHint())}
	oplists, err := e.ops(g.Ops)
	if err != nil {
		return nil, fmt.Errorf("graph: %w", err)
	}
	var subgraphs flatbuffers.UOffsetT
	if len(g.Subgraphs) > 0 {
		list := make([]flatbuffers.UOffsetT, len(g.Subgraphs))
		for k := range g.Subgraphs {
			if list[k], err = g.Subgraphs[k].marshal(e); err != nil {
				return nil, fmt.Errorf("graph: %w", err)
			}
		}
		subgraphs = e.CreateVectorOfTables(list)
	}
	tensors := e.texts(g.Tensors)
	outputs := e.texts(g.Outputs)
	uuid := e.text(g.UUID)
	var info flatbuffers.UOffsetT
	if g.Version != "" {
		version := e.text(g.Version)
		fb.ExtraInfoStart(e.Builder)
		fb.ExtraInfoAddVersion(e.Builder, version)
		info = fb.ExtraInfoEnd(e.Builder)
	}
	if e.full {
		return nil, fmt.Errorf("graph: %w", errTooLarge)
	}
	fb.NetStart(e.Builder)
	fb.NetAddExtraInfo(e.Builder, info)
	fb.NetAddOplists(e.Builder, oplists)
	fb.NetAddOutputName(e.Builder, outputs)
	fb.NetAddTensorName(e.Builder, tensors)
	fb.NetAddSubgraphs(e.Builder, subgraphs)
	fb.NetAddMnnUuid(e.Builder, uuid)
	e.Finish(fb.NetEnd(e.Builder))
	return e.FinishedBytes(), nil
}

// sizeHint is somewhat more than what encode writes, so that the buffer need not grow: a graph of many experts has
// a hundred megabytes.
func (g *Graph) sizeHint() int {
	const table, text = 32, 12 // with what points to them
	n := 1 << 10
	for _, name := range g.Tensors {
		n += len(name) + text
	}
	for k := range g.Subgraphs {
		n += 2*table + len(g.Subgraphs[k].Name)
		for _, name := range g.Subgraphs[k].Tensors {
			n += len(name) + text
		}
	}
	for _, op := range g.AllOps() {
		n += 2*table + len(op.Name) + text + 4*(len(op.Inputs)+len(op.Outputs))
		switch p := op.Param.(type) {
		case *Blob:
			n += table + 4*(len(p.Dims)+len(p.Int32s)+len(p.Float32s)) + len(p.Uint8s) + len(p.Int8s)
		case *Convolution:
			n += 5*table + 4*(len(p.Weight)+len(p.Bias))
			if q := p.Quan; q != nil {
				n += table + len(q.Buffer) + 4*(len(q.Alpha)+len(q.Index)) + 2*len(q.AlphaFP16)
			}
		case *LayerNorm:
			n += 2*table + 4*(len(p.Gamma)+len(p.Beta))
		case *MoE:
			n += 3 * table
		}
	}
	return min(n, maxGraphBytes)
}

// encoder is a builder that stops to grow at maxGraphBytes. Offset 0 stands for an absent value.
type encoder struct {
	*flatbuffers.Builder
	full bool // something was left out
}

// room reports whether n more bytes fit.
func (e *encoder) room(n int) bool {
	e.full = e.full || n > maxGraphBytes-int(e.Offset())
	return !e.full
}

// ops appends a list of ops.
func (e *encoder) ops(ops []Op) (flatbuffers.UOffsetT, error) {
	list := make([]flatbuffers.UOffsetT, len(ops))
	for i := range ops {
		if list[i] = ops[i].marshal(e); e.full {
			return 0, opError(i, &ops[i], errTooLarge)
		}
	}
	return e.CreateVectorOfTables(list), nil
}

func (e *encoder) text(s string) flatbuffers.UOffsetT {
	if s == "" || !e.room(len(s)) {
		return 0
	}
	return e.CreateString(s)
}

func (e *encoder) texts(list []string) flatbuffers.UOffsetT {
	if len(list) == 0 {
		return 0
	}
	at := make([]flatbuffers.UOffsetT, len(list))
	for i, s := range list {
		if !e.room(len(s)) {
			return 0
		}
		at[i] = e.CreateString(s) // an element is present even when empty
	}
	return e.CreateVectorOfTables(at)
}

// vector appends the elements in one piece: a table of rotary factors has millions.
func vector[T int8 | uint8 | uint16 | int32 | uint32 | int64 | float32](e *encoder, s []T) flatbuffers.UOffsetT {
	size := binary.Size(s)
	if len(s) == 0 || !e.room(size) {
		return 0
	}
	elem := size / len(s)
	e.StartVector(elem, len(s), elem)
	e.Pad(size)
	if _, err := binary.Encode(e.Bytes[e.Head():], binary.LittleEndian, s); err != nil {
		panic(fmt.Sprintf("internal error: %v", err)) // the room was made by Pad
	}
	return e.EndVector(len(s))
}

func (op *Op) marshal(e *encoder) flatbuffers.UOffsetT {
	var param flatbuffers.UOffsetT
	paramType := ParamNone
	if op.Param != nil {
		param, paramType = op.Param.marshal(e), op.Param.paramType()
	}
	name := e.text(op.Name)
	inputs := vector(e, op.Inputs)
	outputs := vector(e, op.Outputs)
	b := e.Builder
	fb.OpStart(b)
	fb.OpAddInputIndexes(b, inputs)
	fb.OpAddMainType(b, fb.OpParameter(paramType))
	fb.OpAddMain(b, param)
	fb.OpAddName(b, name)
	fb.OpAddOutputIndexes(b, outputs)
	fb.OpAddType(b, int32(op.Type))
	fb.OpAddDefaultDimentionFormat(b, int8(op.Format.Format()))
	return fb.OpEnd(b)
}
