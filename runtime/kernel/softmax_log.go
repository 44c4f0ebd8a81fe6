package kernel

import "math"

// logTerms are 2/(2n+1) for n = 10 down to 1, the series of log((1+s)/(1-s)) / s after its 2. The omitted terms are below 2^-58
// for every s in Log.
var logTerms = [...]float64{
	2.0 / 21, 2.0 / 19, 2.0 / 17, 2.0 / 15, 2.0 / 13, 2.0 / 11, 2.0 / 9, 2.0 / 7, 2.0 / 5, 2.0 / 3,
}

// Log is the natural logarithm with an error of less than one unit in the last place, and the same bits on
// every machine, as [Exp]. Log(0) is -Inf, Log(+Inf) is +Inf, and the logarithm of NaN or of a negative
// number is NaN.
func Log(x float64) float64 {
	switch {
	case x != x || x < 0:
		return math.NaN()
	case x == 0:
		return math.Inf(-1)
	case x > math.MaxFloat64:
		return x
	}
	// x = 2**k (1 + f) with 1+f between sqrt(1/2) and sqrt(2).
	f, k := math.Frexp(x)
	if f < math.Sqrt2/2 {
		f, k = 2*f, k-1
	}
	f--
	// With s = f/(2+f), log(1+f) = 2s + s t, where t is the series in s² without its first term. Since
	// 2s = f - s f and s f = f²/2 - s f²/2, this is f - (f²/2 - s (f²/2 + t)), which rounds only small terms.
	s := f / (2 + f)
	z := float64(s * s)
	t := logTerms[0]
	for _, c := range logTerms[1:] {
		t = float64(t*z) + c
	}
	t = float64(t * z)
	h := float64(float64(f*f) / 2)
	n := float64(k)
	return float64(n*ln2Hi) - ((h - (float64(s*(h+t)) + float64(n*ln2Lo))) - f)
}

// Log1p is log(1 + x) for x >= 0. The quotient restores the digits of a small x that 1 + x loses (Kahan).
func Log1p(x float64) float64 {
	y := 1 + x
	if y == 1 {
		return x
	}
	return float64(Log(y) * (x / (y - 1)))
}

// Softplus is log(1 + exp(x)).
func Softplus(x float64) float64 { return max(x, 0) + Log1p(Exp(-math.Abs(x))) }
