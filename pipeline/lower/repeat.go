package lower

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/runtime/mnn"
)

// pattern is the subgraph of an expert that others are copied from: a layer may have hundreds that differ only in names.
type pattern struct {
	graph mnn.Subgraph
	// names is the prefix of the names of its ops.
	names [2]string
	slots []Slot
	// weights maps the weight and the bias of every slot to the index of the expert's weight; -1 for none.
	weights [][2]int
	mlp     arch.MLP
}

// mlpWeights lists the weights of an expert, in the same order for all experts.
func mlpWeights(m *arch.MLP) []arch.Weight {
	w := []arch.Weight{m.Gate.Weight, m.Gate.Bias, m.Up.Weight, m.Up.Bias, m.Down.Weight, m.Down.Bias, m.XIELU[0], m.XIELU[1], m.XIELU[2]}
	if m.Norm != nil {
		w = append(w, m.Norm.Gamma, m.Norm.Beta)
	}
	return w
}

// newPattern makes a pattern of the subgraph that was appended last, that of an expert, with its slots. It returns nil if the
// expert uses a weight twice.
func (b *builder) newPattern(names [2]string, slots []Slot, m *arch.MLP) *pattern {
	p := &pattern{graph: b.g.Subgraphs[len(b.g.Subgraphs)-1], names: names, slots: slots, mlp: *m}
	at := map[string]int{"": -1}
	for i, w := range mlpWeights(m) {
		if w.Tensor == "" {
			continue
		}
		if _, ok := at[w.Tensor]; ok {
			return nil
		}
		at[w.Tensor] = i
	}
	for _, s := range slots {
		p.weights = append(p.weights, [2]int{at[s.Weight.Tensor], at[s.Bias.Tensor]})
	}
	return p
}

// fits reports whether an expert differs from the pattern's only in the names of its tensors.
func (p *pattern) fits(m *arch.MLP) bool {
	a, b := p.mlp, *m
	if (a.Norm == nil) != (b.Norm == nil) || a.Norm != nil && (a.Norm.Eps != b.Norm.Eps || a.Norm.Centered != b.Norm.Centered) {
		return false
	}
	x, y := mlpWeights(&a), mlpWeights(&b)
	for i := range x {
		if (x[i].Tensor == "") != (y[i].Tensor == "") || x[i].Rows != y[i].Rows || x[i].Cols != y[i].Cols {
			return false
		}
	}
	for _, m := range []*arch.MLP{&a, &b} { // all other fields are numbers
		m.Gate, m.Up, m.Down, m.Norm, m.XIELU = arch.Linear{}, arch.Linear{}, arch.Linear{}, nil, [3]arch.Weight{}
	}
	return a == b
}

// repeat appends the subgraph of an expert that fits the pattern. The names of its ops begin with names.
func (b *builder) repeat(p *pattern, name string, names [2]string, m *arch.MLP) {
	k := len(b.g.Subgraphs)
	weights := mlpWeights(m)
	for i, s := range p.slots {
		s.Subgraph, s.Name = k+1, p.rename(s.Name, names)
		if w := p.weights[i]; w[1] < 0 {
			s.Weight = weights[w[0]]
		} else {
			s.Weight, s.Bias = weights[w[0]], weights[w[1]]
		}
		b.slots = append(b.slots, s)
	}
	b.g.Subgraphs = append(b.g.Subgraphs, mnn.Subgraph{
		Name: name, Inputs: p.graph.Inputs, Outputs: p.graph.Outputs,
		Make: func() ([]string, []mnn.Op) { return p.make(names) },
	})
}

// rename replaces the prefixes of the pattern's names.
func (p *pattern) rename(name string, names [2]string) string {
	for i, from := range p.names {
		if rest, ok := strings.CutPrefix(name, from); ok {
			return names[i] + rest
		}
	}
	return name
}

// make returns the tensors and ops of a copy. Parameters are shared with the pattern, except those with the places of weights.
func (p *pattern) make(names [2]string) ([]string, []mnn.Op) {
	tensors, ops := make([]string, len(p.graph.Tensors)), make([]mnn.Op, len(p.graph.Ops))
	for i, t := range p.graph.Tensors {
		tensors[i] = p.rename(t, names)
	}
	for i, op := range p.graph.Ops {
		if t := op.Outputs[0]; p.graph.Tensors[t] == op.Name {
			op.Name = tensors[t]
		} else {
			op.Name = p.rename(op.Name, names)
		}
		ops[i] = op
	}
	for _, s := range p.slots {
		op := &ops[s.Op]
		switch x := op.Param.(type) {
		case *mnn.Convolution:
			c := *x
			op.Param = &c
		case *mnn.LayerNorm:
			n := *x
			op.Param = &n
		case *mnn.Blob:
			c := *x
			op.Param = &c
		}
	}
	return tensors, ops
}

// expertGraphs appends the subgraphs of the experts of layer moe.Layer.
func (b *builder) expertGraphs(p string, moe *mnn.MoE, experts []arch.MLP, hidden int) error {
	var like *pattern
	for j := range experts {
		name := moe.Expert(int32(j))
		names := [2]string{name + "/", p + "experts." + strconv.Itoa(j) + "/"}
		if like != nil && like.fits(&experts[j]) {
			b.repeat(like, name, names, &experts[j])
			continue
		}
		first := len(b.slots)
		err := b.sub(name, hidden, func(x value) (value, error) { return b.mlp(names[1], &experts[j], x) })
		if err != nil {
			return fmt.Errorf("expert %d: %w", j, err)
		}
		if like == nil {
			like = b.newPattern(names, b.slots[first:len(b.slots):len(b.slots)], &experts[j])
		}
	}
	return nil
}
