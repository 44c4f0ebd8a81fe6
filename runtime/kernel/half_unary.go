package kernel

import (
	"fmt"
	"math"
)

// The functions of this file compute in float32, with the exp of [halfExp]; what they write is not yet rounded.

// HalfExp writes exp(x) to dst.
//
// Emulates MNNExp (CommonOptFunctionNeon.cpp).
func HalfExp(dst, x []float32) {
	checkTwo("HalfExp", dst, x)
	for i, v := range x {
		dst[i] = halfExp(v)
	}
}

// HalfExpm1 writes exp(x) - 1 to dst.
func HalfExpm1(dst, x []float32) {
	HalfExp(dst, x)
	for i, e := range dst {
		dst[i] = e - 1
	}
}

// HalfSigmoid writes 1 / (1 + exp(-x)) to dst, of which only eight digits are right: the engine takes the processor's estimate of a reciprocal.
//
// Emulates MNNSigmoidLowp (CommonOptFunction.cpp).
func HalfSigmoid(dst, x []float32) {
	checkTwo("HalfSigmoid", dst, x)
	for i, v := range x {
		dst[i] = estimatedReciprocal(1 + halfExp(-v))
	}
}

// estimatedReciprocal is the instruction FRECPE of arm64 for x from 1 to 2^126: 2^-e times the reciprocal of the first nine digits of x/2^e, rounded
// to eight digits.
func estimatedReciprocal(x float32) float32 {
	b := math.Float32bits(x)
	if x != x || b>>23 > 252 {
		return 1 / x // infinite, or not a number
	}
	digits := (b>>15&0xff|0x100)*2 + 1
	estimate := (1<<19/digits + 1) / 2
	return math.Float32frombits((253-b>>23)<<23 | estimate&0xff<<15)
}

// HalfSiLU writes x / (1 + exp(-x)) to dst.
//
// Emulates MNNSiLuLowp (CommonOptFunction.cpp).
func HalfSiLU(dst, x []float32) {
	checkTwo("HalfSiLU", dst, x)
	for i, v := range x {
		dst[i] = v / (1 + halfExp(-v))
	}
}

// HalfTanh writes (1 - e) / (1 + e), where e = exp(-2x), to dst.
func HalfTanh(dst, x []float32) {
	checkTwo("HalfTanh", dst, x)
	for i, v := range x {
		e := halfExp(-2 * v)
		dst[i] = (1 - e) / (1 + e)
	}
}

// HalfSoftmaxRows writes the softmax of each row of x to dst.
//
// Emulates ___MNNSoftmax (CPUSoftmax.cpp).
func HalfSoftmaxRows(dst, x []float32, width int) {
	if width <= 0 || len(dst) != len(x) || len(x)%width != 0 {
		panic(fmt.Sprintf("internal error: kernel.HalfSoftmaxRows: lengths %d, %d, rows of %d", len(dst), len(x), width))
	}
	for ; len(x) > 0; dst, x = dst[width:], x[width:] {
		most := x[0]
		for _, v := range x[:width] {
			most = max(most, v)
		}
		var lanes [8]float32
		full := width &^ 7
		for i, v := range x[:width] {
			e := halfExp(v - most)
			dst[i] = e
			switch {
			case i < full:
				lanes[i%8] += e
			case i < width&^3:
				lanes[i%4] += e
			}
		}
		sum := sumFours(&lanes)
		for _, e := range dst[width&^3 : width] {
			sum += e
		}
		scale(dst[:width], dst[:width], 1/sum)
	}
}

// sumFours adds eight lanes as vectors of four, and these in pairs.
func sumFours(l *[8]float32) float32 {
	return ((l[0] + l[4]) + (l[1] + l[5])) + ((l[2] + l[6]) + (l[3] + l[7]))
}

// HalfNormRows writes RMSNorm of each row of x, with factors gamma, to dst; with offsets beta the norm that subtracts the mean.
//
// Emulates MNNNorm (CommonOptFunction.cpp) with NEON.
func HalfNormRows(dst, x, gamma, beta []float32, eps float32) {
	width := len(gamma)
	if width == 0 || len(dst) != len(x) || len(x)%width != 0 || beta != nil && len(beta) != width {
		panic(fmt.Sprintf("internal error: kernel.HalfNormRows: lengths %d, %d, %d, %d", len(dst), len(x), width, len(beta)))
	}
	for ; len(x) > 0; dst, x = dst[width:], x[width:] {
		var mean float32
		if beta != nil {
			mean = engineSum(x[:width]) / float32(width)
		}
		factor := 1 / float32(math.Sqrt(float64(squares(x[:width], mean)/float32(width)+eps)))
		for i, v := range x[:width] {
			y := float32((v - mean) * factor)
			if beta == nil {
				dst[i] = y * gamma[i]
			} else {
				dst[i] = float32(fma32(float64(y), float64(gamma[i]), float64(beta[i])))
			}
		}
	}
}

// squares is the sum of squares of x - mean, fused, in 16 lanes; groups of four that are left go to the sums of four of them, and the last
// elements to the sum of all.
func squares(x []float32, mean float32) float32 {
	var lanes [16]float64
	fused := func(sum float64, v float32) float64 {
		d := float64(v - mean)
		return fma32(d, d, sum)
	}
	full := len(x) &^ 15
	for i, v := range x[:full] {
		lanes[i%16] = fused(lanes[i%16], v)
	}
	var four [4]float64
	for i := range four {
		four[i] = float64(float32(lanes[i]+lanes[i+4])) + float64(float32(lanes[i+8]+lanes[i+12]))
		four[i] = float64(float32(four[i]))
	}
	for i, v := range x[full : len(x)&^3] {
		four[i%4] = fused(four[i%4], v)
	}
	sum := (float32(four[0]) + float32(four[1])) + (float32(four[2]) + float32(four[3]))
	for _, v := range x[len(x)&^3:] {
		sum = float32(fused(float64(sum), v))
	}
	return sum
}
