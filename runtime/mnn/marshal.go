package mnn

import (
	"encoding/binary"
	"fmt"

	flatbuffers "github.com/google/flatbuffers/go"

	"github.com/llmexport/llmexport/runtime/mnn/internal/fb"
)

// maxGraphBytes bounds the output of Marshal. The builder doubles its buffer and fails at 2 GiB; large values belong in
// the weight file.
const maxGraphBytes = 1 << 29

var errTooLarge = fmt.Errorf("more than %d bytes: put large values into the weight file", maxGraphBytes)

// Marshal encodes the graph as llm.mnn: the same bytes for the same graph, default values left out. [Open] decodes it
// to an equal graph. It rejects a graph that Open would reject, and one of more than 512 MiB.
func (g *Graph) Marshal() ([]byte, error) {
	if err := g.check(); err != nil {
		return nil, fmt.Errorf("graph: %w", err)
	}
	return g.encode()
}

// Size returns the number of bytes that Marshal would return. It expands only some generated subgraphs of each kind.
func (g *Graph) Size() (int, error) {
	e := newEncoder(1 << 20)
	e.known = map[likeness]*sizes{}
	b, err := e.graph(g)
	return len(b) + e.left, err
}

// encode is Marshal without the rules, except for generated subgraphs.
func (g *Graph) encode() ([]byte, error) { return newEncoder(g.sizeHint()).graph(g) }

// graph encodes the whole file.
func (e *encoder) graph(g *Graph) ([]byte, error) {
	oplists, err := e.ops(g.Ops)
	if err != nil {
		return nil, fmt.Errorf("graph: %w", err)
	}
	var subgraphs flatbuffers.UOffsetT
	if len(g.Subgraphs) > 0 {
		list := make([]flatbuffers.UOffsetT, len(g.Subgraphs))
		for k := range g.Subgraphs {
			if list[k], err = e.subgraph(&g.Subgraphs[k]); err != nil {
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

// sizeHint returns somewhat more than the size of the output, so that the buffer need not grow: a graph of many experts
// has a hundred megabytes.
func (g *Graph) sizeHint() int {
	const table, text = 32, 12 // including references to them
	n := 1<<10 + opsHint(g.Ops)
	for _, name := range g.Tensors {
		n += len(name) + text
	}
	var last likeness
	one := 0
	for k := range g.Subgraphs {
		s := &g.Subgraphs[k]
		if like := (likeness{s.Like, len(s.Name), 0}); s.Make == nil || s.Like == 0 || like != last {
			last, s = like, s.Full()
			one = 2*table + len(s.Name) + opsHint(s.Ops)
			for _, name := range s.Tensors {
				one += len(name) + text
			}
		}
		n += one
	}
	return min(n, maxGraphBytes)
}

func opsHint(ops []Op) (n int) {
	const table, text = 32, 12
	for i := range ops {
		op := &ops[i]
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
	return n
}

// encoder is a builder that stops growing at maxGraphBytes. Offset 0 stands for an absent value.
type encoder struct {
	*flatbuffers.Builder
	full bool // the limit was reached

	// Used only by Size: the sizes of subgraphs, and the number of bytes of known size that were not written.
	known map[likeness]*sizes
	left  int
}

func newEncoder(size int) *encoder { return &encoder{Builder: flatbuffers.NewBuilder(size)} }

// room reports whether n more bytes fit.
func (e *encoder) room(n int) bool {
	e.full = e.full || n > maxGraphBytes-e.left-int(e.Offset())
	return !e.full
}

// alignment is the largest alignment of a value: the output depends on the offset modulo alignment.
const alignment = 8

// likeness is what determines the size of a generated subgraph.
type likeness struct{ like, name, phase int }

// sizes are the sizes of subgraphs of one likeness: the last one, and whether the one before was equal. The first of a
// kind is larger, by layouts of tables that all others share.
type sizes struct {
	last int
	sure bool
}

// subgraph encodes a subgraph, unless only its size is needed and known.
func (e *encoder) subgraph(s *Subgraph) (flatbuffers.UOffsetT, error) {
	if s.Make == nil {
		return s.marshal(e)
	}
	start := int(e.Offset())
	like := likeness{s.Like, len(s.Name), start % alignment}
	size := e.known[like]
	if size != nil && size.sure {
		if !e.room(size.last) {
			return 0, fmt.Errorf("subgraph %q: %w", s.Name, errTooLarge)
		}
		n := size.last % alignment
		e.Prep(1, n)
		e.Pad(n)
		e.left += size.last - n
		return e.Offset(), nil
	}
	full := s.Full()
	if err := full.check(); err != nil {
		return 0, fmt.Errorf("subgraph %q: %w", s.Name, err)
	}
	at, err := full.marshal(e)
	if took := int(e.Offset()) - start; e.known != nil && s.Like != 0 {
		e.known[like] = &sizes{took, size != nil && size.last == took}
	}
	return at, err
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
		at[i] = e.CreateString(s) // empty elements are present, too
	}
	return e.CreateVectorOfTables(at)
}

// number is an element of a vector.
type number interface {
	int8 | uint8 | uint16 | int32 | uint32 | int64 | float32
}

// vector appends the elements at once: a table of rotary factors has millions.
func vector[T number](e *encoder, s []T) flatbuffers.UOffsetT {
	size := binary.Size(s)
	if len(s) == 0 || !e.room(size) {
		return 0
	}
	elem := size / len(s)
	e.StartVector(elem, len(s), elem)
	e.Pad(size)
	if _, err := binary.Encode(e.Bytes[e.Head():], binary.LittleEndian, s); err != nil {
		panic(fmt.Sprintf("internal error: %v", err)) // Pad has made room
	}
	return e.EndVector(len(s))
}

func (op *Op) marshal(e *encoder) flatbuffers.UOffsetT {
	var param flatbuffers.UOffsetT
	paramType := ParamNone
	if op.Param != nil {
		param, paramType = e.table(op.Param), op.Param.paramType()
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
