package kernel

import "math"

// EngineSoftmaxRows writes exp(x - max) / sum to dst, for each row of x [len(x)/width, width], in float32:
//
//	p   = exp(x - max)            expf for the last elements that fill no group of eight
//	dst = p * (1 / (sum + 1e-20)) the sum of p, one by one
//
// dst may be x itself. It panics unless both have the same length, a multiple of width.
//
// Emulates _AVX_MNNSoftmax (avx/MathFunctions.cpp) as CPUSoftmax calls it for the last axis.
func EngineSoftmaxRows(dst, x []float32, width int) {
	checkTwo("EngineSoftmaxRows", dst, x)
	if width <= 0 || len(x)%width != 0 {
		panic("internal error: kernel.EngineSoftmaxRows: no whole rows")
	}
	for ; len(x) > 0; dst, x = dst[width:], x[width:] {
		engineSoftmax(dst[:width], x[:width])
	}
}

func engineSoftmax(dst, x []float32) {
	top := float32(-math.MaxFloat32)
	for _, v := range x {
		top = max(top, v)
	}
	for i, v := range x {
		dst[i] = v - top
	}
	full, sum := len(x)&^7, float32(0)
	engineExps(dst[:full], dst[:full])
	for i, v := range dst[full:] {
		dst[full+i] = expf(v)
	}
	for _, p := range dst {
		sum += p
	}
	scale(dst, dst, 1/(sum+1e-20))
}
