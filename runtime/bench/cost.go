package bench

import (
	"github.com/llmexport/llmexport/runtime/mnn"
)

// Cost is the computation and memory traffic of a graph.
type Cost struct {
	// Bits of a code of most weights.
	Bits int `json:"bits"`
	// Weights counts the weights of linear layers used for a token; of experts, only the chosen ones. HeadWeights are
	// those of the layer that computes the logits, which a prefill runs for one token only.
	Weights     int64 `json:"weights"`
	HeadWeights int64 `json:"head_weights"`
	// WeightBytes is the size of the same layers in the package: codes, scales, zero terms and biases. A decode reads
	// them once per token.
	WeightBytes int64 `json:"weight_bytes"`
	// CacheWidth is the number of keys and values of a position in all layers.
	CacheWidth int64 `json:"cache_width"`
	// QueryWidth is the number of query elements of a position in all layers.
	QueryWidth int64 `json:"query_width"`
}

// cacheElement is the size of a key or value in the cache of the runtime, in bytes.
const cacheElement = 4

// prefillOperations counts two operations for every multiply-add of linear layers and of attention to the position
// itself and all before it.
func (c *Cost) prefillOperations(tokens int) float64 {
	n := float64(tokens)
	linear := float64(c.Weights-c.HeadWeights)*n + float64(c.HeadWeights)
	pairs := n * (n + 1) / 2
	return 2 * (linear + 2*float64(c.QueryWidth)*pairs)
}

// decodeBytes returns the bytes read to decode tokens after depth.
func (c *Cost) decodeBytes(depth, tokens int) float64 {
	n := float64(tokens)
	positions := n*float64(depth) + n*(n+1)/2
	return n*float64(c.WeightBytes) + positions*float64(c.CacheWidth)*cacheElement
}

// CostOf counts the computation and memory traffic of the live ops of a graph.
func CostOf(g *mnn.Graph) Cost {
	f := newFinder(g)
	widths := &shapes{f, map[int32][]int64{}}
	chosen := chosenExperts(g)
	var c Cost
	byBits := map[int]int64{}
	for s, op := range g.LiveOps() {
		switch p := op.Param.(type) {
		case *mnn.Convolution:
			n := int64(p.Outputs) * int64(p.Inputs)
			byBits[codeBits(p)] += n
			if s > 0 && !chosen[g.Subgraphs[s-1].Name] {
				continue
			}
			c.Weights += n
			c.WeightBytes += storedBytes(p)
		case *mnn.Attention:
			if len(op.Inputs) < 3 || s > 0 {
				continue
			}
			c.QueryWidth += widths.width(op.Inputs[0])
			c.CacheWidth += widths.width(op.Inputs[1]) + widths.width(op.Inputs[2])
		}
	}
	for bits, n := range byBits {
		if best := byBits[c.Bits]; n > best || n == best && bits < c.Bits {
			c.Bits = bits
		}
	}
	for t, name := range g.Tensors {
		if name == "logits" {
			if p := f.linear(int32(t)); p != nil {
				c.HeadWeights = int64(p.Outputs) * int64(p.Inputs)
			}
		}
	}
	return c
}

// chosenExperts names as many experts of every layer as a token uses; all experts of a layer have the same size.
func chosenExperts(g *mnn.Graph) map[string]bool {
	names := map[string]bool{}
	for i := range g.Ops {
		if p, ok := g.Ops[i].Param.(*mnn.MoE); ok {
			for j := range p.TopK {
				names[p.Expert(j)] = true
			}
		}
	}
	return names
}

// storedBytes returns the size of a linear layer in the package.
func storedBytes(p *mnn.Convolution) int64 {
	n := 4 * int64(len(p.Weight)+len(p.Bias))
	for _, x := range p.External[min(1, len(p.External)):min(4, len(p.External))] {
		n += x
	}
	return n
}

// codeBits derives the width of a stored weight from the size of all of them; the header is too short to matter.
func codeBits(p *mnn.Convolution) int {
	if n := int64(p.Outputs) * int64(p.Inputs); len(p.External) > 1 && n > 0 {
		return int(8 * p.External[1] / n)
	}
	return 32
}

// finder finds the linear layer that produces a tensor, possibly through other ops.
type finder struct {
	g *mnn.Graph
	// op and output are the producer of each tensor; op is -1 without one.
	op, output []int
}

func newFinder(g *mnn.Graph) *finder {
	f := &finder{g, make([]int, len(g.Tensors)), make([]int, len(g.Tensors))}
	for t := range f.op {
		f.op[t] = -1
	}
	for i := range g.Ops {
		for k, t := range g.Ops[i].Outputs {
			f.op[t], f.output[t] = i, k
		}
	}
	return f
}

// width returns the number of outputs of that layer, 0 if there is none.
func (f *finder) width(t int32) int64 {
	if p := f.linear(t); p != nil {
		return int64(p.Outputs)
	}
	return 0
}

func (f *finder) linear(t int32) *mnn.Convolution { return f.search(t, map[int32]bool{}) }

func (f *finder) search(t int32, seen map[int32]bool) *mnn.Convolution {
	if seen[t] || f.op[t] < 0 {
		return nil
	}
	seen[t] = true
	op := &f.g.Ops[f.op[t]]
	if p, ok := op.Param.(*mnn.Convolution); ok {
		return p
	}
	inputs := op.Inputs
	if k := f.output[t]; op.Type == mnn.OpRoPE && k < len(inputs) { // queries to queries, keys to keys
		inputs = inputs[k : k+1]
	}
	for _, in := range inputs {
		if p := f.search(in, seen); p != nil {
			return p
		}
	}
	return nil
}
