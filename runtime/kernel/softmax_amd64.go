//go:build !purego

package kernel

import "math"

// Each of these takes n elements, a multiple of eight and not 0, and adds to the sums of eight lanes.

//go:noescape
func sumExpAVX2(lanes *float64, x *float32, n int, top, scale float64)

//go:noescape
func sumExpAVX512(lanes *float64, x *float32, n int, top, scale float64)

//go:noescape
func softmaxExpAVX2(lanes *float64, x *float32, n int, top float64)

//go:noescape
func softmaxExpAVX512(lanes *float64, x *float32, n int, top float64)

//go:noescape
func divergenceAVX2(lanes *float64, p, q *float32, n int, norm, shift float64)

//go:noescape
func divergenceAVX512(lanes *float64, p, q *float32, n int, norm, shift float64)

//go:noescape
func exactScaleAVX2(x *float32, n int, scale float64)

//go:noescape
func exactScaleAVX512(x *float32, n int, scale float64)

//go:noescape
func exactSiLUAVX2(dst, x *float32, n int)

//go:noescape
func exactSiLUAVX512(dst, x *float32, n int)

func sumExp(lanes *[8]float64, row []float32, top, scale float64) {
	for use.avx2 && len(row) >= 8 {
		n := piece(len(row))
		if use.avx512 {
			sumExpAVX512(&lanes[0], &row[0], n, top, scale)
		} else {
			sumExpAVX2(&lanes[0], &row[0], n, top, scale)
		}
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
	if !use.avx2 {
		softmaxExpGeneric(lanes, x, top)
		return
	}
	for len(x) >= 8 {
		n := piece(len(x))
		if use.avx512 {
			softmaxExpAVX512(&lanes[0], &x[0], n, top)
		} else {
			softmaxExpAVX2(&lanes[0], &x[0], n, top)
		}
		x = x[n:]
	}
	if len(x) > 0 {
		last := padded(x)
		softmaxExp(lanes, last[:], top)
		copy(x, last[:])
	}
}

func divergence(lanes *[8]float64, p, q []float32, norm, shift float64) {
	for use.avx2 && len(p) >= 8 {
		n := piece(len(p))
		if use.avx512 {
			divergenceAVX512(&lanes[0], &p[0], &q[0], n, norm, shift)
		} else {
			divergenceAVX2(&lanes[0], &p[0], &q[0], n, norm, shift)
		}
		p, q = p[n:], q[n:]
	}
	divergenceGeneric(lanes, p, q, norm, shift)
}

func exactScale(x []float32, scale float64) {
	for use.avx2 && len(x) >= 8 {
		n := piece(len(x))
		if use.avx512 {
			exactScaleAVX512(&x[0], n, scale)
		} else {
			exactScaleAVX2(&x[0], n, scale)
		}
		x = x[n:]
	}
	exactScaleGeneric(x, scale)
}

func exactSiLU(dst, x []float32) {
	for use.avx2 && len(x) >= 8 {
		n := piece(len(x))
		if use.avx512 {
			exactSiLUAVX512(&dst[0], &x[0], n)
		} else {
			exactSiLUAVX2(&dst[0], &x[0], n)
		}
		dst, x = dst[n:], x[n:]
	}
	exactSiLUGeneric(dst, x)
}
