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
	// Scales are kept as fp32 by the engine: of linear layers and, once more, of the embedding table.
	Scales int64
	// PerToken is the KV cache of one position in fp32.
	PerToken int64
}

// Memory computes the estimate for a model of the given KV width (sum over layers of 2*KVHeads*HeadDim).
func (p *Plan) Memory(kvWidth int64) Memory {
	var m Memory
	for i := range p.Items {
		w, s := p.Items[i].memory()
		m.Weights, m.Scales = m.Weights+w, m.Scales+s
	}
	m.PerToken = 4 * kvWidth
	return m
}

// Total is the estimate with a KV cache of the given number of positions.
func (m Memory) Total(positions int) int64 {
	return m.Weights + m.Scales + m.PerToken*int64(positions)
}

// memory is what a device keeps of an item.
func (it *Item) memory() (weights, scales int64) {
	n := int64(it.Layout.Rows) * int64(it.Layout.Cols)
	scales = int64(it.Layout.Rows) * int64(it.Layout.Blocks) * 4
	if !it.Choice.Spec.Symmetric {
		scales *= 2
	}
	switch {
	case it.Slot.Kind == lower.NormSlot:
		return it.Codes, 0
	case it.Slot.Kind == lower.TableSlot: // the embedding reader keeps scales and reads rows from disk
		return 0, scales
	case it.Choice.Spec.Bits == 16:
		weights = 4 * n
	case it.Choice.Spec.Bits == 4:
		weights = n / 2
	default:
		weights = n
	}
	if it.Slot.Lookup { // which has scales of its own
		scales *= 2
	}
	return weights + it.Bias, scales
}

// Cost is what the item's matrix would take if it were stored as s: bytes of the file, and of a device's memory.
func (it *Item) Cost(s quant.Spec) (bytes, ram int64, err error) {
	x := *it
	if err := x.store(s); err != nil {
		return 0, 0, err
	}
	weights, scales := x.memory()
	return x.Size() - x.Bias, weights + scales, nil
}
