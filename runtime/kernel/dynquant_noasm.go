//go:build !amd64 || purego

package kernel

// int8Panels is the layout of the SIMD code, of which there is none.
type int8Panels struct{}

func (m *Int8Matrix) pack() {}

func (m *Int8Matrix) mulPanels([]float32, *QuantizedRows, int, int) bool { return false }
