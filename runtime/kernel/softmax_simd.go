//go:build (amd64 || arm64) && !purego

package kernel

import "math"

func sumExp(lanes *[8]float64, row []float32, top, scale float64) {
	for use.simd() && len(row) >= 8 {
		n := piece(len(row))
		sumExpSIMD(&lanes[0], &row[0], n, top, scale)
		row = row[n:]
	}
	sumExpGeneric(lanes, row, top, scale)
}

// padded is the last elements of a row, fewer than eight, and -Inf, which adds nothing to a sum of exponentials: rows of
// scores have all lengths.
func padded(x []float32) (p [8]float32) {
	for i := copy(p[:], x); i < len(p); i++ {
		p[i] = float32(math.Inf(-1))
	}
	return p
}

func softmaxExp(lanes *[8]float64, x []float32, top float64) {
	if !use.simd() {
		softmaxExpGeneric(lanes, x, top)
		return
	}
	for len(x) >= 8 {
		n := piece(len(x))
		softmaxExpSIMD(&lanes[0], &x[0], n, top)
		x = x[n:]
	}
	if len(x) > 0 {
		last := padded(x)
		softmaxExp(lanes, last[:], top)
		copy(x, last[:])
	}
}

func divergence(lanes *[8]float64, p, q []float32, norm, shift float64) {
	for use.simd() && len(p) >= 8 {
		n := piece(len(p))
		divergenceSIMD(&lanes[0], &p[0], &q[0], n, norm, shift)
		p, q = p[n:], q[n:]
	}
	divergenceGeneric(lanes, p, q, norm, shift)
}

func exponentsAndSums(lanes, rounded *[8]float64, dst, x []float32, top float64) {
	for use.simd() && len(x) >= 8 {
		n := piece(len(x))
		exponentsAndSumsSIMD(&lanes[0], &rounded[0], &dst[0], &x[0], n, top)
		dst, x = dst[n:], x[n:]
	}
	exponentsAndSumsGeneric(lanes, rounded, dst, x, top)
}

func exps(dst []float64, x []float32, shift float64) {
	for use.simd() && len(x) >= 8 {
		n := piece(len(x))
		expsSIMD(&dst[0], &x[0], n, shift)
		dst, x = dst[n:], x[n:]
	}
	expsGeneric(dst, x, shift)
}

func expsWide(x []float64) {
	for use.simd() && len(x) >= 8 {
		n := piece(len(x))
		expsWideSIMD(&x[0], n)
		x = x[n:]
	}
	expsWideGeneric(x)
}

func exactScale(dst, x []float32, scale float64) {
	for use.simd() && len(x) >= 8 {
		n := piece(len(x))
		exactScaleSIMD(&dst[0], &x[0], n, scale)
		dst, x = dst[n:], x[n:]
	}
	exactScaleGeneric(dst, x, scale)
}

func exactSiLU(dst, x []float32) {
	for use.simd() && len(x) >= 8 {
		n := piece(len(x))
		exactSiLUSIMD(&dst[0], &x[0], n)
		dst, x = dst[n:], x[n:]
	}
	exactSiLUGeneric(dst, x)
}
