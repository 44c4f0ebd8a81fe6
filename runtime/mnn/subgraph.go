package mnn

import (
	"errors"
	"fmt"
	"iter"

	"github.com/llmexport/llmexport/runtime/mnn/internal/fb"
	"github.com/llmexport/llmexport/runtime/tensor"

	flatbuffers "github.com/google/flatbuffers/go"
)

// Subgraph is a function that ops of a graph call by name. Tensor indices are local to it.
type Subgraph struct {
	Name string
	// Inputs are the outputs of its Input ops.
	Inputs, Outputs []int32
	// Tensors holds the name of every tensor. Each is written by at most one op.
	Tensors []string
	// Ops come after the ops whose outputs they read.
	Ops []Op

	// Make, if not nil, generates Tensors and Ops, which are then empty here, at every call. A model has tens of
	// thousands of experts, which differ only in names and offsets of weights, and each takes kilobytes.
	Make func() (tensors []string, ops []Op)
	// Like, if not 0, is the same number for generated subgraphs that marshal to the same number of bytes if their
	// names have the same length.
	Like int
}

// Full returns the subgraph with Tensors and Ops.
func (s *Subgraph) Full() *Subgraph {
	if s.Make == nil {
		return s
	}
	full := &Subgraph{Name: s.Name, Inputs: s.Inputs, Outputs: s.Outputs}
	full.Tensors, full.Ops = s.Make()
	return full
}

// Expand replaces all generated subgraphs by their results.
func (g *Graph) Expand() {
	for k := range g.Subgraphs {
		g.Subgraphs[k] = *g.Subgraphs[k].Full()
	}
}

// AllOps yields the ops of the graph, with 0, and then those of its subgraphs, with 1 plus the index of the subgraph.
// Ops of generated subgraphs are valid only during the call.
func (g *Graph) AllOps() iter.Seq2[int, *Op] {
	return func(yield func(int, *Op) bool) {
		for i := range g.Ops {
			if !yield(0, &g.Ops[i]) {
				return
			}
		}
		for k := range g.Subgraphs {
			s := g.Subgraphs[k].Full()
			for i := range s.Ops {
				if !yield(k+1, &s.Ops[i]) {
					return
				}
			}
		}
	}
}

// LiveOps is AllOps without the ops that no output depends on, which an engine skips.
func (g *Graph) LiveOps() iter.Seq2[int, *Op] {
	return func(yield func(int, *Op) bool) {
		live, of := g.Live(), 0
		n := 0
		for s, op := range g.AllOps() {
			if s != of {
				live, of, n = g.Subgraphs[s-1].Live(), s, 0
			}
			if n++; live[n-1] && !yield(s, op) {
				return
			}
		}
	}
}

// Live returns for each op whether an output of the subgraph depends on it.
func (s *Subgraph) Live() []bool {
	s = s.Full()
	needed := make([]bool, len(s.Tensors))
	for _, t := range s.Outputs {
		needed[t] = true
	}
	return live(s.Ops, needed)
}

// checkSubgraphs applies the rules of graphs to the subgraphs, and requires that the experts of every MoE exist:
// engines do not check that. Generated subgraphs are checked when they are generated.
func (g *Graph) checkSubgraphs() error {
	byName := make(map[string]*Subgraph, len(g.Subgraphs))
	for k := range g.Subgraphs {
		s := &g.Subgraphs[k]
		var err error
		if s.Make == nil {
			err = s.check()
		}
		if err == nil && byName[s.Name] != nil {
			err = errors.New("another one has the same name")
		}
		if err != nil {
			return fmt.Errorf("subgraph %d %q: %w", k, s.Name, err)
		}
		byName[s.Name] = s
	}
	for i := range g.Ops {
		op := &g.Ops[i]
		p, ok := op.Param.(*MoE)
		if !ok {
			continue
		}
		for j := range p.Experts {
			switch s := byName[p.Expert(j)]; {
			case s == nil:
				return opError(i, op, fmt.Errorf("no subgraph %q", p.Expert(j)))
			case len(s.Inputs) != 1 || len(s.Outputs) != 1:
				return opError(i, op, fmt.Errorf("%d inputs and %d outputs of the expert %q", len(s.Inputs), len(s.Outputs), s.Name))
			}
		}
	}
	return nil
}

func (s *Subgraph) check() error {
	if s.Name == "" || len(s.Outputs) == 0 {
		return errors.New("no name or no outputs")
	}
	written, err := checkOps(s.Ops, s.Tensors)
	if err != nil {
		return err
	}
	for _, t := range s.Outputs {
		if t < 0 || int(t) >= len(written) || !written[t] {
			return fmt.Errorf("output %d is not a tensor that an op writes", t)
		}
	}
	if err := checkReads(s.Ops, s.Live(), s.Tensors, written); err != nil {
		return err
	}
	given := map[int32]bool{}
	for _, t := range s.Inputs {
		if given[t] {
			return fmt.Errorf("input %d is given twice", t)
		}
		given[t] = true
	}
	declared := 0
	for i := range s.Ops {
		switch op := &s.Ops[i]; op.Type {
		case OpInput:
			if declared++; !given[op.Outputs[0]] {
				return opError(i, op, errors.New("not among the inputs of the subgraph"))
			}
		case OpMoE:
			return opError(i, op, fmt.Errorf("in a subgraph: %w", tensor.ErrUnsupported))
		}
	}
	if declared != len(given) {
		return fmt.Errorf("%d inputs of which %d are declared", len(given), declared)
	}
	return nil
}

func (s *Subgraph) decode(src *fb.SubGraphProto) error {
	s.Name = string(src.Name())
	s.Inputs = list(src.InputsLength(), src.Inputs)
	s.Outputs = list(src.OutputsLength(), src.Outputs)
	s.Tensors = names(src.TensorsLength(), src.Tensors)
	var err error
	if s.Ops, err = decodeOps(src.NodesLength(), src.Nodes); err != nil {
		return fmt.Errorf("subgraph %q: %w", s.Name, err)
	}
	return nil
}

// marshal appends the subgraph; at the size limit, it sets e.full.
func (s *Subgraph) marshal(e *encoder) (flatbuffers.UOffsetT, error) {
	nodes, err := e.ops(s.Ops)
	if err != nil {
		return 0, fmt.Errorf("subgraph %q: %w", s.Name, err)
	}
	name := e.text(s.Name)
	inputs := vector(e, s.Inputs)
	outputs := vector(e, s.Outputs)
	tensors := e.texts(s.Tensors)
	fb.SubGraphProtoStart(e.Builder)
	fb.SubGraphProtoAddName(e.Builder, name)
	fb.SubGraphProtoAddInputs(e.Builder, inputs)
	fb.SubGraphProtoAddOutputs(e.Builder, outputs)
	fb.SubGraphProtoAddTensors(e.Builder, tensors)
	fb.SubGraphProtoAddNodes(e.Builder, nodes)
	return fb.SubGraphProtoEnd(e.Builder), nil
}
