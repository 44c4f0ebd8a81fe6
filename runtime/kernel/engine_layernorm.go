package kernel

import (
	"fmt"
	"math"
)

// EngineLayerNormRows writes (x - mean) / sqrt(variance + eps) * gamma + beta to dst, for each row of x [rows, len(gamma)],
// in float32. Sums are those of [EngineRMSNormRows]: eight lanes and the last elements.
//
//	mean = sum of x / len
//	inv  = 1 / sqrt(sum of (x-mean)² / len + eps)
//	dst  = ((x-mean)*gamma) * inv + beta
//
// dst may be x itself. It panics unless gamma and beta have the same length and dst and x hold that many rows.
//
// Emulates _AVX_MNNNorm (avx/MathFunctions.cpp).
func EngineLayerNormRows(dst, x, gamma, beta []float32, rows int, eps float32) {
	width := checkLayerNorm(dst, x, gamma, beta, rows)
	for ; rows > 0; rows-- {
		row := x[:width]
		mean := normSum(row, 0, false) / float32(width)
		inv := 1 / float32(math.Sqrt(float64(normSum(row, mean, true)/float32(width)+eps)))
		out := dst[:width]
		shift(out, row, -mean)
		mul(out, out, gamma)
		scale(out, out, inv)
		add(out, out, beta)
		dst, x = dst[width:], x[width:]
	}
}

// EngineLayerNormPackedRows is EngineLayerNormRows for two or more tokens in the layout NC4HW4: sums are one by one, and the
// result is ((x-mean)*inv) * gamma + beta.
//
// Emulates _MNNNormPacked_Float (x86_x64/AVX2Functions.cpp), which MNN has since 3.6.1.
func EngineLayerNormPackedRows(dst, x, gamma, beta []float32, rows int, eps float32) {
	width := checkLayerNorm(dst, x, gamma, beta, rows)
	for ; rows > 0; rows-- {
		row := x[:width]
		var sum, squares float32
		for _, v := range row {
			sum += v
		}
		mean := sum / float32(width)
		for _, v := range row {
			d := v - mean
			squares += float32(d * d)
		}
		inv := 1 / float32(math.Sqrt(float64(squares/float32(width)+eps)))
		for i, v := range row {
			dst[i] = float32(float32((v-mean)*inv)*gamma[i]) + beta[i]
		}
		dst, x = dst[width:], x[width:]
	}
}

// normSum adds x-mean, or its square, in eight lanes and then one by one.
func normSum(x []float32, mean float32, square bool) float32 {
	full := len(x) &^ 7
	var lanes [8]float32
	if square {
		lanes = lanesOfSquares(x[:full], mean)
	} else {
		lanes = lanesOfSum(x[:full])
	}
	sum := engineLaneSum(&lanes)
	for _, v := range x[full:] {
		d := v - mean
		if square {
			d = float32(d * d)
		}
		sum += d
	}
	return sum
}

// lanesOfSum adds every eighth element; there are whole groups of eight. Sums in variables of their own do not wait for memory.
func lanesOfSum(x []float32) [8]float32 {
	var a, b, c, d, e, f, g, h float32
	for ; len(x) >= 8; x = x[8:] {
		v := (*[8]float32)(x)
		a, b, c, d, e, f, g, h = a+v[0], b+v[1], c+v[2], d+v[3], e+v[4], f+v[5], g+v[6], h+v[7]
	}
	return [8]float32{a, b, c, d, e, f, g, h}
}

// lanesOfSquares is lanesOfSum of the squares of x-mean.
func lanesOfSquares(x []float32, mean float32) [8]float32 {
	var a, b, c, d, e, f, g, h float32
	for ; len(x) >= 8; x = x[8:] {
		v := (*[8]float32)(x)
		v0, v1, v2, v3, v4, v5, v6, v7 := v[0]-mean, v[1]-mean, v[2]-mean, v[3]-mean, v[4]-mean, v[5]-mean, v[6]-mean, v[7]-mean
		a, b, c, d = a+float32(v0*v0), b+float32(v1*v1), c+float32(v2*v2), d+float32(v3*v3)
		e, f, g, h = e+float32(v4*v4), f+float32(v5*v5), g+float32(v6*v6), h+float32(v7*v7)
	}
	return [8]float32{a, b, c, d, e, f, g, h}
}

func checkLayerNorm(dst, x, gamma, beta []float32, rows int) int {
	width := len(gamma)
	if len(beta) != width || rows < 0 || len(dst) != rows*width || len(x) != rows*width {
		panic(fmt.Sprintf("internal error: kernel.EngineLayerNorm: %d rows of %d, %d offsets, %d and %d values", rows, width, len(beta), len(dst), len(x)))
	}
	return width
}
