package plan

import "github.com/llmexport/llmexport/pipeline/lower"

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
		it := &p.Items[i]
		n := int64(it.Layout.Rows) * int64(it.Layout.Cols)
		scales := int64(it.Layout.Rows) * int64(it.Layout.Blocks) * 4
		if !it.Choice.Spec.Symmetric {
			scales *= 2
		}
		if it.Slot.Lookup { // the embedding reader holds its own copy of the scales and reads rows from disk
			m.Scales += scales
		}
		switch {
		case it.Slot.Kind == lower.NormSlot:
			m.Weights += it.Codes
			continue
		case it.Slot.Kind == lower.TableSlot:
			continue
		case it.Choice.Spec.Bits == 16:
			m.Weights += 4 * n
		case it.Choice.Spec.Bits == 4:
			m.Weights += n / 2
		default:
			m.Weights += n
		}
		m.Weights += it.Bias
		m.Scales += scales
	}
	m.PerToken = 4 * kvWidth
	return m
}

// Total is the estimate with a KV cache of the given number of positions.
func (m Memory) Total(positions int) int64 {
	return m.Weights + m.Scales + m.PerToken*int64(positions)
}
