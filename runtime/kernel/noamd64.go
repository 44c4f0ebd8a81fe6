//go:build !amd64 || purego

package kernel

// These are the functions with assembly on amd64 only: the definitions elsewhere.

func peaks(x []float32) (top float32, size uint32) { return peaksGeneric(x) }

func atLeast(x []float32, limit float32) int { return atLeastGeneric(x, limit) }

func nonFinite(x []float32) int { return nonFiniteGeneric(x) }

func engineGELU(dst, x []float32) { engineGELUGeneric(dst, x) }

func shift(dst, x []float32, term float32) { shiftGeneric(dst, x, term) }

func beyond(x, limits []float32, factor float32) int { return beyondGeneric(x, limits, factor) }

func codeSums(code, x []float32) (products, sum float64) { return codeSumsGeneric(code, x) }

func codeErrors(dst []float32, squares []float64, value, zero, scale, inverse []float32, divisor float32, bits int) {
	codeErrorsGeneric(dst, squares, value, zero, scale, inverse, divisor, bits)
}

func addShifted(dst, x []float32, factor, term float32) { addShiftedGeneric(dst, x, factor, term) }

func addScaledRows(dst, x, factors []float32) { addScaledRowsGeneric(dst, x, factors) }

func exactNorm(dst, x, gamma []float32, rows int, eps float32) {
	rmsNormGeneric(dst, x, gamma, rows, eps)
}

// tileLanes is how many rows tileRows takes at once, 0 for none.
func tileLanes() int { return 0 }

func tileRows([]float32, []float32, []float32, int) {}

func softmaxOfLanes([]float32, int, int) {}

func (*EngineFullAttention) attendLanes(*fullScratch, []float32, []float32, int, int, int) bool {
	return false
}

func gridSums(sums []float64, x, importance, zero, inverse []float32, bits int) {
	gridSumsGeneric(sums, x, importance, zero, inverse, bits)
}

func gridErrors(errors []float64, x, importance, zero, scale, inverse []float32, bits int) {
	gridErrorsGeneric(errors, x, importance, zero, scale, inverse, bits)
}

func peakLoops() []PeakLoop { return nil }

func canPeakRead() bool { return false }

func peakRead([]byte) {}

func blockExtremes(lo, hi, x []float32, block int) { blockExtremesGeneric(lo, hi, x, block) }

func gridCodes(dst []uint8, x, zero, inverse []float32, block, bits int) {
	gridCodesGeneric(dst, x, zero, inverse, block, bits)
}

func packCodes(dst []byte, codes []uint8, bits int) { packCodesGeneric(dst, codes, bits) }

func halfDots(dst *[halfLanes]float32, x []float32, w []float64) { halfDotsGeneric(dst, x, w) }
