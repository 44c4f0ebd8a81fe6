//go:build (!amd64 && !arm64) || purego

package kernel

import "runtime"

// These are the functions of builds without assembly: the definitions, and nothing to set up.

func bf16ToF32(dst []float32, src []byte) { bf16ToF32Generic(dst, src) }

func f16ToF32(dst []float32, src []byte) { f16ToF32Generic(dst, src) }

func f32ToF16(dst []byte, src []float32) { f32ToF16Generic(dst, src) }

func add(dst, x, y []float32) { addGeneric(dst, x, y) }

func mul(dst, x, y []float32) { mulGeneric(dst, x, y) }

func scale(dst, x []float32, factor float32) { scaleGeneric(dst, x, factor) }

func addScaled(dst, x []float32, factor float32) { addScaledGeneric(dst, x, factor) }

// attentionLanes is the scratch of code that takes many queries at once.
type attentionLanes struct{}

func (*EngineAttention) attendLanes(*attentionJob) bool { return false }

func (p *tileProduct) quad(dst, x, tiles []float32, scale float32, factors, _ []float32) {
	p.generic(dst, x, tiles, scale, factors, true)
}

// ascending writes the sums of generic, which are ascending, to dst.
func (p *tileProduct) ascending(dst, x, tiles []float32) { p.generic(dst, x, tiles, 1, nil, false) }

func (w *rowWeights) weigh(s []float32, n int) { w.weighGeneric(s, n) }

func gatherColumns(dst, src []float32, rows *[8]int, stride, dim int) {
	gatherColumnsGeneric(dst, src, rows, stride, dim)
}

func engineExps(dst, x []float32) { engineExpsGeneric(dst, x) }

func engineSiLU(dst, x []float32) { engineSiLUGeneric(dst, x) }

func engineSiLUMul(dst, gate, up []float32) { engineSiLUMulGeneric(dst, gate, up) }

// gemmTileRows is the number of rows of a whole tile.
func gemmTileRows() int { return gemmTileMax }

// gemmRowColumns is the number of columns that gemmRow takes.
func gemmRowColumns(int) int { return PanelRows }

// gemmRow is never called here, because gemmRowColumns is at most a panel.
func gemmRow([]float32, []float32, []float32, int, bool) {}

func gemmSums(t *gemmTile) { gemmSumsGeneric(t) }

func transpose(dst, src []float32, rows, n, lddst, ldsrc int) {
	transposeGeneric(dst, src, rows, n, lddst, ldsrc)
}

func prefetchRows(*byte, int, int, int) {}

func copyRows(dst, src []float32, width, n, lddst, ldsrc int) {
	copyRowsGeneric(dst, src, width, n, lddst, ldsrc)
}

func supported() switches { return switches{} }

// int8Panels is the layout of the SIMD code; builds without assembly have none.
type int8Panels struct{}

func layoutOfInt8() int8Layout { return int8Layout{rows: 1} }

func (m *Int8Matrix) newPanels(int, DynOption) bool { return false }

func (m *Int8Matrix) packPanels(*WeightCodes, int, int) {}

func (m *Int8Matrix) mulPanels([]float32, *QuantizedRows, int, int) {}

func minMax(x []float32) (lo, hi float32) { return minMaxGeneric(x) }

func quantizeBlock(codes []uint8, x []float32, half, eight int, quant, bias float32, away bool) int32 {
	return quantizeBlockGeneric(codes, x, half, eight, quant, bias, away)
}

func engineNorm(dst, x, gamma []float32, rows int, eps float32) {
	engineNormGeneric(dst, x, gamma, rows, eps)
}

func enginePackedNorm(dst, x, gamma []float32, rows int, eps float32) {
	enginePackedNormGeneric(dst, x, gamma, rows, eps)
}

func pause() { runtime.Gosched() }

func rotate(dst, x, cos, sin []float32, heads, dim int) { rotateGeneric(dst, x, cos, sin, heads, dim) }

func sumExp(lanes *[8]float64, row []float32, top, scale float64) {
	sumExpGeneric(lanes, row, top, scale)
}

func softmaxExp(lanes *[8]float64, x []float32, top float64) { softmaxExpGeneric(lanes, x, top) }

func exponentsAndSums(lanes, rounded *[8]float64, dst, x []float32, top float64) {
	exponentsAndSumsGeneric(lanes, rounded, dst, x, top)
}

func exps(dst []float64, x []float32, shift float64) { expsGeneric(dst, x, shift) }

func expsWide(x []float64) { expsWideGeneric(x) }

func exactScale(dst, x []float32, scale float64) { exactScaleGeneric(dst, x, scale) }

func exactSiLU(dst, x []float32) { exactSiLUGeneric(dst, x) }

func divergence(lanes *[8]float64, p, q []float32, norm, shift float64) {
	divergenceGeneric(lanes, p, q, norm, shift)
}
