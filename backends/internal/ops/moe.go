package ops

import (
	"fmt"
	"slices"

	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/mnn"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// named are the subgraphs of a graph by name.
func named(g *mnn.Graph) map[string]*mnn.Subgraph {
	all := make(map[string]*mnn.Subgraph, len(g.Subgraphs))
	for i := range g.Subgraphs {
		all[g.Subgraphs[i].Name] = g.Subgraphs[i].Full()
	}
	return all
}

// experts are the subgraphs that a MoE calls. Ops that keep a state, and experts of their own, are refused in them.
func experts(named map[string]*mnn.Subgraph, p *mnn.MoE) ([]*mnn.Subgraph, error) {
	if p.TopK < 1 || p.TopK > p.Experts || int(p.Experts) > len(named) {
		return nil, fmt.Errorf("%d of %d experts, %d subgraphs: %w", p.TopK, p.Experts, len(named), tensor.ErrCorrupt)
	}
	list := make([]*mnn.Subgraph, p.Experts)
	for j := range p.Experts {
		s := named[p.Expert(j)]
		if s == nil || len(s.Inputs) != 1 || len(s.Outputs) != 1 {
			return nil, fmt.Errorf("expert %s is missing or does not have exactly one input and one output: %w", p.Expert(j), tensor.ErrCorrupt)
		}
		for i := range s.Ops {
			switch op := &s.Ops[i]; op.Type {
			case mnn.OpAttention, mnn.OpLinearAttention, mnn.OpMoE:
				return nil, fmt.Errorf("op %s (%v) in an expert: %w", op.Name, op.Type, tensor.ErrUnsupported)
			}
		}
		list[j] = s
	}
	return list, nil
}

// CompileExperts compiles each expert of the live MoE ops once. The result is by op.
func CompileExperts[E any](g *mnn.Graph, live []bool, compile func(s *mnn.Subgraph) (E, error)) (map[int][]E, error) {
	byOp, made, subgraphs := make(map[int][]E), make(map[string]E), named(g)
	for i := range g.Ops {
		p, ok := g.Ops[i].Param.(*mnn.MoE)
		if !ok || !live[i] {
			continue
		}
		list, err := experts(subgraphs, p)
		if err != nil {
			return nil, fmt.Errorf("op %s (%v): %w", g.Ops[i].Name, g.Ops[i].Type, err)
		}
		for _, s := range list {
			x, ok := made[s.Name]
			if !ok {
				if x, err = compile(s); err != nil {
					return nil, fmt.Errorf("expert %s: %w", s.Name, err)
				}
				made[s.Name] = x
			}
			byOp[i] = append(byOp[i], x)
		}
	}
	return byOp, nil
}

// CheckExperts rejects a MoE with inputs of these shapes: hidden [rows, width], weights [rows, k] and choices [rows, k].
func CheckExperts(p *mnn.MoE, shapes [][]int) error {
	if len(shapes) != 3 || len(shapes[0]) != 2 || Count(shapes[0]) == 0 || !slices.Equal(shapes[1], []int{shapes[0][0], int(p.TopK)}) ||
		!slices.Equal(shapes[2], shapes[1]) {
		return fmt.Errorf("%d experts of %d on %v: %w", p.TopK, p.Experts, shapes, tensor.ErrCorrupt)
	}
	return nil
}

// Work is one call of an expert: the rows that chose it, and for each the weight of its result.
type Work struct {
	Expert  int
	Rows    []int
	Weights []float32
}

// Route divides the rows of a MoE into calls of experts, in the order in which the engine runs them and adds their results:
// the experts of a single row in the order of the choices, and of several rows in their own order, an expert with all its
// rows at once.
//
// Emulates MoEModule::onForward (express/module/MoEModule.cpp).
func Route(p *mnn.MoE, weights []float32, choices []int32) ([]Work, error) {
	k, experts := int(p.TopK), int(p.Experts)
	for _, c := range choices {
		if c < 0 || int(c) >= experts {
			return nil, fmt.Errorf("expert %d of %d: %w", c, experts, tensor.ErrCorrupt)
		}
	}
	list := make([]Work, 0, min(experts, len(choices)))
	if len(choices) == k {
		for i, c := range choices {
			list = append(list, Work{int(c), []int{0}, weights[i : i+1]})
		}
		return list, nil
	}
	byExpert := make([]int, experts) // place in list plus one
	for i, c := range choices {
		if byExpert[c] == 0 {
			list = append(list, Work{Expert: int(c)})
			byExpert[c] = len(list)
		}
		w := &list[byExpert[c]-1]
		w.Rows, w.Weights = append(w.Rows, i/k), append(w.Weights, weights[i])
	}
	slices.SortFunc(list, func(a, b Work) int { return a.Expert - b.Expert })
	return list, nil
}

// Mix adds up the weighted results of experts.
type Mix struct {
	Out   []float32 // [rows, width]
	Width int
	// Half rounds the products of a single row to half precision, and their sum, where the engine runs them as a graph.
	Half  bool
	begun []bool // by row
	row   []float32
}

// NewMix returns a Mix that writes to out, for that many rows.
func NewMix(out []float32, rows int) *Mix {
	m := &Mix{Out: out, Width: len(out) / rows, begun: make([]bool, rows), row: make([]float32, len(out)/rows)}
	if rows == 1 { // the engine's sum of a single row begins with 0
		clear(out)
		m.begun[0] = true
	}
	return m
}

// Add adds the result y of a call, [rows of the call, width].
func (m *Mix) Add(w *Work, y []float32) {
	for i, r := range w.Rows {
		row, dst := y[i*m.Width:][:m.Width], m.Out[r*m.Width:][:m.Width]
		if !m.begun[r] {
			kernel.Scale(dst, row, w.Weights[i])
			m.begun[r] = true
			continue
		}
		kernel.Scale(m.row, row, w.Weights[i])
		if m.Half && len(m.begun) == 1 {
			kernel.HalfRound(m.row, m.row)
		}
		kernel.Add(dst, dst, m.row)
	}
}
