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
	for len(x) > 0 {
		n := min(len(x), softmaxRows*width)
		for r := 0; r < n; r += width {
			engineSoftmaxExps(dst[r:r+width], x[r:r+width])
		}
		for r, sum := range rowSums(dst[:n], width) {
			if row := r * width; row < n {
				scale(dst[row:row+width], dst[row:row+width], 1/(sum+1e-20))
			}
		}
		dst, x = dst[n:], x[n:]
	}
}

// engineSoftmaxExps writes exp(x - max) of a row.
func engineSoftmaxExps(dst, x []float32) {
	top, size := peaks(x)
	if top = max(top, -math.MaxFloat32); size > infinity {
		top = float32(math.NaN())
	}
	shift(dst, x, -top)
	full := len(x) &^ 7
	engineExps(dst[:full], dst[:full])
	for i, v := range dst[full:] {
		dst[full+i] = expf(v)
	}
}

// softmaxRows is how many rows are summed side by side: each is added up element by element, and waits for every sum.
const softmaxRows = 4

// rowSums returns the sums of up to softmaxRows rows of x.
func rowSums(x []float32, width int) (sums [softmaxRows]float32) {
	if len(x) < softmaxRows*width {
		for r := 0; r*width < len(x); r++ {
			for _, p := range x[r*width : (r+1)*width] {
				sums[r] += p
			}
		}
		return sums
	}
	a, b, c, d := x[:width], x[width:2*width], x[2*width:3*width], x[3*width:4*width]
	var sa, sb, sc, sd float32
	for i, p := range a {
		sa, sb, sc, sd = sa+p, sb+b[i], sc+c[i], sd+d[i]
	}
	return [softmaxRows]float32{sa, sb, sc, sd}
}
