//go:build (!amd64 && !arm64) || purego

package kernel

// packedBytes is the size of what Mul reads of the weights.
func (m *Int8Matrix) packedBytes() int { return len(m.plain.codes) + 12*len(m.plain.terms) }

// panelArrays are what assembly reads of the weights: nil.
func (m *Int8Matrix) panelArrays() (data *[]byte, sums *[]float32) { return nil, nil }
