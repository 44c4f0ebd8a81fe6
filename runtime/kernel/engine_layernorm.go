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
		for i, v := range row {
			dst[i] = float32(float32((v-mean)*gamma[i])*inv) + beta[i]
		}
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
	var lanes [8]float32
	rest := x
	for ; len(rest) >= 8; rest = rest[8:] {
		for l, v := range rest[:8] {
			d := v - mean
			if square {
				d = float32(d * d)
			}
			lanes[l] += d
		}
	}
	sum := engineLaneSum(&lanes)
	for _, v := range rest {
		d := v - mean
		if square {
			d = float32(d * d)
		}
		sum += d
	}
	return sum
}

func checkLayerNorm(dst, x, gamma, beta []float32, rows int) int {
	width := len(gamma)
	if len(beta) != width || rows < 0 || len(dst) != rows*width || len(x) != rows*width {
		panic(fmt.Sprintf("internal error: kernel.EngineLayerNorm: %d rows of %d, %d offsets, %d and %d values", rows, width, len(beta), len(dst), len(x)))
	}
	return width
}
