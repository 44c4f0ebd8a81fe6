//go:build !amd64 || purego

package kernel

func vnniPeak(int) bool { return false }

// packedBytes is the size of what Mul reads of the weights.
func (m *Int8Matrix) packedBytes() int { return len(m.plain.codes) + 12*len(m.plain.terms) }
