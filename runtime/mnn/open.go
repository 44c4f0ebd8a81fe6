package mnn

import (
	"errors"
	"fmt"
	"slices"

	flatbuffers "github.com/google/flatbuffers/go"

	"github.com/llmexport/llmexport/runtime/mnn/internal/fb"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// Open decodes llm.mnn. The graph keeps no reference to b. The error is tensor.ErrCorrupt for bytes that are not a
// graph or break a rule, and tensor.ErrUnsupported, naming the op, for a graph that uses unknown features. Memory and
// time are proportional to the length of b.
func Open(b []byte) (*Graph, error) {
	if err := verify(b); err != nil {
		return nil, fmt.Errorf("graph: %w", err)
	}
	g, err := decode(fb.GetRootAsNet(b, 0))
	if err == nil {
		err = g.check()
	}
	switch {
	case err == nil:
		return g, nil
	case errors.Is(err, tensor.ErrUnsupported), errors.Is(err, tensor.ErrCorrupt):
		return nil, fmt.Errorf("graph: %w", err)
	}
	return nil, fmt.Errorf("graph: %w: %w", err, tensor.ErrCorrupt)
}

func decode(n *fb.Net) (*Graph, error) {
	g := &Graph{
		Tensors: names(n.TensorNameLength(), n.TensorName),
		Outputs: names(n.OutputNameLength(), n.OutputName),
		UUID:    string(n.MnnUuid()),
	}
	if x := n.ExtraInfo(nil); x != nil {
		g.Version = string(x.Version())
	}
	var err error
	if g.Ops, err = decodeOps(n.OplistsLength(), n.Oplists); err != nil {
		return nil, err
	}
	if n.SubgraphsLength() > 0 {
		g.Subgraphs = make([]Subgraph, n.SubgraphsLength())
	}
	var src fb.SubGraphProto
	for k := range g.Subgraphs {
		n.Subgraphs(&src, k)
		if err := g.Subgraphs[k].decode(&src); err != nil {
			return nil, err
		}
	}
	return g, nil
}

func decodeOps(n int, at func(*fb.Op, int) bool) ([]Op, error) {
	ops := make([]Op, n)
	var src fb.Op
	for i := range ops {
		at(&src, i)
		op := &ops[i]
		op.Name = string(src.Name())
		op.Type = OpType(src.Type())
		op.Inputs = list(src.InputIndexesLength(), src.InputIndexes)
		op.Outputs = list(src.OutputIndexesLength(), src.OutputIndexes)
		if err := op.decode(&src); err != nil {
			return nil, opError(i, op, err)
		}
	}
	return ops, nil
}

// decode sets the format and the parameter.
func (op *Op) decode(src *fb.Op) error {
	format := Format(src.DefaultDimentionFormat())
	op.Format = DimFormat(slices.Index(dimFormats[:], format))
	if op.Format < 0 {
		return fmt.Errorf("defaultDimentionFormat %s: %w", format, tensor.ErrUnsupported)
	}
	if _, ok := rules[op.Type]; !ok {
		return fmt.Errorf("op type: %w", tensor.ErrUnsupported)
	}
	typ := ParamType(src.MainType())
	if typ == ParamNone {
		return nil
	}
	zero, ok := newParams[typ]
	if !ok {
		return fmt.Errorf("parameter %s: %w", typ, tensor.ErrUnsupported)
	}
	var t flatbuffers.Table
	if !src.Main(&t) {
		return fmt.Errorf("parameter %s is missing", typ)
	}
	op.Param = zero()
	if op.Type == OpDepthwise {
		op.Param = &Depthwise{}
	}
	return read(t, op.Param)
}

// list copies a vector; an empty one becomes nil.
func list[T any](n int, at func(int) T) []T {
	if n == 0 {
		return nil
	}
	s := make([]T, n)
	for i := range s {
		s[i] = at(i)
	}
	return s
}

func names(n int, at func(int) []byte) []string {
	return list(n, func(i int) string { return string(at(i)) })
}
