package bench

import (
	"github.com/llmexport/llmexport/runtime/mnn"
)

// Cost is what a graph computes and reads.
type Cost struct {
	// Bits of a code of most weights.
	Bits int `json:"bits"`
	// Weights counts the weights of linear layers that a token passes: of experts, those that are chosen. HeadWeights are
	// those of the layer that gives the logits, which a prefill runs for one token only.
	Weights     int64 `json:"weights"`
	HeadWeights int64 `json:"head_weights"`
	// WeightBytes is what the same layers take in the package: codes, scales, zero terms and biases. A decode reads them
	// once a token, in this form or another.
	WeightBytes int64 `json:"weight_bytes"`
	// CacheWidth is the number of keys and values of a position in all layers.
	CacheWidth int64 `json:"cache_width"`
	// QueryWidth is the number of query elements of a position in all layers.
	QueryWidth int64 `json:"query_width"`
}

// cacheElement is the size of a key or value in the cache of the runtime, in bytes.
const cacheElement = 4

// prefillOperations counts two for every multiplication whose product is added to a sum, of linear layers and of
// attention to the position itself and all before it.
func (c *Cost) prefillOperations(tokens int) float64 {
	n := float64(tokens)
	linear := float64(c.Weights-c.HeadWeights)*n + float64(c.HeadWeights)
	pairs := n * (n + 1) / 2
	return 2 * (linear + 2*float64(c.QueryWidth)*pairs)
}

// decodeBytes is what decoding tokens behind depth reads.
func (c *Cost) decodeBytes(depth, tokens int) float64 {
	n := float64(tokens)
	positions := n*float64(depth) + n*(n+1)/2
	return n*float64(c.WeightBytes) + positions*float64(c.CacheWidth)*cacheElement
}

// CostOf counts what the live ops of a graph compute and read.
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

// chosenExperts names as many experts of every layer as a token passes; all of a layer are equally large.
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

// storedBytes is what a linear layer takes in the package.
func storedBytes(p *mnn.Convolution) int64 {
	n := 4 * int64(len(p.Weight)+len(p.Bias))
	for _, x := range p.External[min(1, len(p.External)):min(4, len(p.External))] {
		n += x
	}
	return n
}

// codeBits is the width of a stored weight, from the bytes of all of them: the header in front is too short to matter.
func codeBits(p *mnn.Convolution) int {
	if n := int64(p.Outputs) * int64(p.Inputs); len(p.External) > 1 && n > 0 {
		return int(8 * p.External[1] / n)
	}
	return 32
}

// finder looks for the linear layer that a tensor comes from.
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

// width is the number of outputs of that layer, 0 if there is none.
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
