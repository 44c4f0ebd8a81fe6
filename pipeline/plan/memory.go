package plan

import (
	"github.com/llmexport/llmexport/pipeline/lower"
	"github.com/llmexport/llmexport/quant"
)

// Memory estimates what a device needs to run the package, in bytes.
type Memory struct {
	// Weights are codes as the engine keeps them (2, 3, 5 and 6 bits are expanded to bytes where no native
	// kernel exists) and halves as floats.
	Weights int64
	// Scales are those of linear layers and, a second time, of the embedding table. The engine keeps them in fp32.
	Scales int64
	// PerToken is the KV cache of one position in fp32.
	PerToken int64
	// State is the size of recurrent states, which does not depend on the number of positions.
	State int64
}

// Memory computes the estimate for all parts.
func (p *Plan) Memory() Memory {
	m := Memory{PerToken: 4 * p.Model.CacheElements, State: p.Model.StateBytes}
	for it := range p.Items() {
		x := it.memory()
		m.Weights, m.Scales = m.Weights+x.Weights, m.Scales+x.Scales
	}
	return m
}

// Add adds a linear layer, given its bit width and the numbers of weights, of scales and zero terms, and of biases.
func (m *Memory) Add(bits int, weights, scales, biases int64) {
	switch bits {
	case 16, 32:
		m.Weights += 4 * weights
	case 4:
		m.Weights += weights / 2
	default:
		m.Weights += weights
	}
	m.Weights += 4 * biases
	m.Scales += 4 * scales
}

// Total returns the estimate with a KV cache of the given number of positions.
func (m Memory) Total(positions int) int64 {
	return m.Weights + m.Scales + m.State + m.PerToken*int64(positions)
}

// memory returns what a device keeps of an item.
func (it *Item) memory() (m Memory) {
	scales := int64(it.Layout.Rows) * int64(it.Layout.Blocks)
	if !it.Choice.Spec.Symmetric {
		scales *= 2
	}
	if it.Slot.Lookup { // the embedding reader holds its own copy of the scales and reads rows from disk
		m.Scales = 4 * scales
	}
	switch it.Slot.Kind {
	case lower.NormSlot, lower.ConstSlot:
		m.Weights = it.Codes + it.Bias
	case lower.LinearSlot:
		m.Add(it.Choice.Spec.Bits, int64(it.Layout.Rows)*int64(it.Layout.Cols), scales, it.Bias/4)
	}
	return m
}

// Cost returns what the item's matrix would take if it were stored in the form s, in bytes of the file and of a device's
// memory.
func (it *Item) Cost(s quant.Spec) (bytes, ram int64, err error) {
	x := *it
	if err := x.store(s); err != nil {
		return 0, 0, err
	}
	m := x.memory()
	return x.Size() - x.Bias, m.Weights + m.Scales, nil
}
