//go:build (!amd64 && !arm64) || purego

package kernel

// int8Panels is the layout of the SIMD code, of which there is none.
type int8Panels struct{}

func layoutOfInt8() int8Layout { return int8Layout{rows: 1} }

func (m *Int8Matrix) newPanels(int, DynOption) bool { return false }

func (m *Int8Matrix) packPanels(*WeightCodes, int, int) {}

func (m *Int8Matrix) mulPanels([]float32, *QuantizedRows, int, int) {}

func minMax(x []float32) (lo, hi float32) { return minMaxGeneric(x) }

func quantizeBlock(codes []uint8, x []float32, stride int, quant, bias float32, away bool) int32 {
	return quantizeBlockGeneric(codes, x, stride, quant, bias, away)
}
