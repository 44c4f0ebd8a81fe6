//go:build (amd64 || arm64) && !purego

package kernel

// packedBytes is the size of what Mul reads of the weights.
func (m *Int8Matrix) packedBytes() int {
	if m.panels == nil {
		return len(m.plain.codes) + 12*len(m.plain.terms)
	}
	return len(m.panels.data)
}

// panelArrays are what the assembly reads of the weights, or nil.
func (m *Int8Matrix) panelArrays() (data *[]byte, sums *[]float32) {
	if m.panels == nil {
		return nil, nil
	}
	return &m.panels.data, &m.panels.sums
}
