package kernel

import "math"

// Softmax replaces x by exp(x - max) / sum(exp(x - max)). Exponentials are those of [Exp] rounded to
// float32, their sum is float64. An element of -Inf gets 0; a row that holds NaN or +Inf, or nothing but
// -Inf, has no softmax and becomes NaN.
func Softmax(x []float32) {
	if len(x) == 0 {
		return
	}
	top := float64(maxOf(x))
	if top != top || math.IsInf(top, 0) {
		for i := range x {
			x[i] = float32(math.NaN())
		}
		return
	}
	var lanes [8]float64
	softmaxExp(&lanes, x, top)
	exactScale(x, x, 1/sumLanes(&lanes))
}

// Exponents writes exp(x - max) to dst, as [Softmax] rounds it, and returns both LogSumExp(x) and the factor by which [ScaleExact]
// makes dst the softmax of x, for the exponentials of one of them. The factor is NaN where x has no softmax; dst is arbitrary then.
// It panics unless both have the same length.
func Exponents(dst, x []float32) (norm, factor float64) {
	if len(dst) != len(x) {
		panic("internal error: kernel.Exponents: lengths differ")
	}
	top := float64(maxOf(x))
	if math.IsInf(top, 0) || top != top {
		return top, math.NaN()
	}
	var lanes, rounded [8]float64
	exponentsAndSums(&lanes, &rounded, dst, x, top)
	return top + Log(sumLanes(&lanes)), 1 / sumLanes(&rounded)
}

// ScaleExact writes x * factor to dst, computed in float64. dst may be x. It panics unless both have the same length.
func ScaleExact(dst, x []float32, factor float64) {
	if len(dst) != len(x) {
		panic("internal error: kernel.ScaleExact: lengths differ")
	}
	exactScale(dst, x, factor)
}

// ExpsInPlace replaces every element of x by its [Exp].
func ExpsInPlace(x []float64) { expsWide(x) }

// Exps writes [Exp] of x - shift to dst. It panics unless both have the same length.
func Exps(dst []float64, x []float32, shift float64) {
	if len(dst) != len(x) {
		panic("internal error: kernel.Exps: lengths differ")
	}
	exps(dst, x, shift)
}

// LogSumExp is log(sum(exp(row))) in float64, without overflow: the negative log-likelihood of token t is
// LogSumExp(row) - row[t]. An empty row gives -Inf, as do elements that are all -Inf; +Inf and NaN
// come through. Elements more than 700 below the largest do not count.
func LogSumExp(row []float32) float64 {
	top := maxOf(row)
	if math.IsInf(float64(top), 0) || top != top {
		return float64(top)
	}
	return float64(top) + Log(SumExp(row, float64(top), 1))
}

// SumExp is the sum of exp((x-top)*scale) over the elements of row, in float64. Those with an exponent below -700 do not
// count, and none may be above 700. Position i belongs to lane i mod 8 of the sum.
func SumExp(row []float32, top, scale float64) float64 {
	var lanes [8]float64
	sumExp(&lanes, row, top, scale)
	return sumLanes(&lanes)
}

// SiLU writes x / (1 + exp(-x)) to dst, computed in float64. dst may be x itself. It panics unless both
// have the same length.
func SiLU(dst, x []float32) {
	if len(dst) != len(x) {
		panic("internal error: kernel.SiLU: lengths differ")
	}
	exactSiLU(dst, x)
}

// SiLUBack turns x and y into their gradients, for d, the gradient of [SiLU](x) · y. It panics unless all have the same length.
func SiLUBack(d, x, y []float32) {
	if len(d) != len(x) || len(d) != len(y) {
		panic("internal error: kernel.SiLUBack: lengths differ")
	}
	var values, slopes [1 << 10]float32
	for len(d) > 0 {
		n := min(len(d), len(values))
		SiLUSlopes(values[:n], slopes[:n], x[:n])
		for i, f := range d[:n] {
			x[i] = float32(f*y[i]) * slopes[i]
			y[i] = f * values[i]
		}
		d, x, y = d[n:], x[n:], y[n:]
	}
}

// SiLUSlopes writes [SiLU] of x to value, and its derivative to slope, computed in float32. It panics unless all have the same length.
func SiLUSlopes(value, slope, x []float32) {
	SiLU(value, x)
	slope = slope[:len(x)]
	for i, v := range x {
		sigma := float32(0.5)
		if v > 0x1p-100 || v < -0x1p-100 {
			sigma = value[i] / v
		}
		slope[i] = sigma + float32(value[i]*(1-sigma))
	}
}
