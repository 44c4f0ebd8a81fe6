package kernel

import "math"

// Softmax replaces x by exp(x - max) / sum(exp(x - max)). Exponentials are those of [Exp] rounded to
// float32, their sum is float64. An element of -Inf gets 0; a row that holds NaN or +Inf, or nothing but
// -Inf, has no softmax and becomes NaN.
func Softmax(x []float32) {
	if len(x) > 0 {
		softmaxGeneric(x)
	}
}

// LogSumExp is log(sum(exp(row))) in float64, without overflow: the negative log-likelihood of token t is
// LogSumExp(row) - row[t]. An empty row gives -Inf, as do elements that are all -Inf; +Inf and NaN
// come through.
func LogSumExp(row []float32) float64 {
	top := maxOf(row)
	if math.IsInf(float64(top), 0) || top != top {
		return float64(top)
	}
	return float64(top) + Log(sumExpGeneric(row, top))
}

// SiLU writes x / (1 + exp(-x)) to dst, computed in float64. dst may be x itself. It panics unless both
// have the same length.
func SiLU(dst, x []float32) {
	if len(dst) != len(x) {
		panic("internal error: kernel.SiLU: lengths differ")
	}
	siluGeneric(dst, x)
}
