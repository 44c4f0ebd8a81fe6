package kernel

import "math"

// ln 2 in two parts: multiples of ln2Hi by the exponent of any float64 are exact.
const (
	ln2Hi = 0x1.62e42feep-1
	ln2Lo = math.Ln2 - ln2Hi
)

// expTerms are 1/n! for n = 13 down to 2, of which every other belongs to the even half of the polynomial. The terms left out
// are below 2^-57 for |x| <= ln(2)/2.
var expTerms = [...]float64{
	1.0 / 6227020800, 1.0 / 479001600, 1.0 / 39916800, 1.0 / 3628800, 1.0 / 362880, 1.0 / 40320,
	1.0 / 5040, 1.0 / 720, 1.0 / 120, 1.0 / 24, 1.0 / 6, 1.0 / 2,
}

// Exp is e**x with an error of less than one unit in the last place, and the same bits on every
// machine: the one in package math has assembly on some, and its sums are fused on others. Exp(NaN) is
// NaN; results below the smallest subnormal are 0, above the largest value +Inf.
func Exp(x float64) float64 {
	switch {
	case x != x:
		return x
	case x > 709.782712893384: // ln of the largest float64
		return math.Inf(1)
	case x < -745.1332191019412: // ln of half the smallest subnormal
		return 0
	}
	// x = k ln 2 + r + c, where c is what rounding took from r.
	k := math.Floor(float64(x*math.Log2E) + 0.5)
	hi, lo := x-float64(k*ln2Hi), float64(k*ln2Lo)
	r := hi - lo
	c := (hi - r) - lo
	z := float64(r * r)
	odd, even := expTerms[0], expTerms[1]
	for i := 2; i < len(expTerms); i += 2 {
		odd, even = float64(odd*z)+expTerms[i], float64(even*z)+expTerms[i+1]
	}
	p := even + float64(r*odd)
	return scaleExp(1+(r+(float64(z*p)+c)), int(k))
}

// scaleExp is y * 2**k for y near 1 and -1075 <= k <= 1024, rounded once.
func scaleExp(y float64, k int) float64 {
	switch {
	case k > 1023:
		return y * 2 * 0x1p1023
	case k < -1021:
		return y * math.Float64frombits(uint64(k+64+1023)<<52) * 0x1p-64
	}
	return y * math.Float64frombits(uint64(k+1023)<<52)
}
