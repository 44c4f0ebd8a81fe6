package kernel

import (
	"fmt"
	"math"
)

// SincosLimit is the largest magnitude of an argument of [Sincos], in radians.
const SincosLimit = 1 << 27

// Sincos returns the sine and the cosine of x radians with an error below 1e-15, the same bits on every
// architecture: math.Sincos may differ in the last bit where the compiler fuses products with sums. It
// panics if x is NaN or beyond [SincosLimit].
func Sincos(x float64) (sin, cos float64) {
	if !(math.Abs(x) <= SincosLimit) {
		panic(fmt.Sprintf("internal error: kernel.Sincos(%g)", x))
	}
	// x = n*pi/2 + r. The first three parts of pi/2 have 26 bits or fewer and n has at most 27, so their
	// products are exact, and so is all that cancels in the differences.
	n := math.Floor(float64(x*(2/math.Pi)) + 0.5)
	r := x - float64(n*halfPi0)
	r -= float64(n * halfPi1)
	r -= float64(n * halfPi2)
	r -= float64(n * halfPi3)
	s, c := sinSeries(r), cosSeries(r)
	switch int64(n) & 3 {
	case 0:
		return s, c
	case 1:
		return c, -s
	case 2:
		return -s, -c
	}
	return -c, s
}

// pi/2 is the sum of these, to 2^-130.
const (
	halfPi0 = 0x1.921fb5p0
	halfPi1 = 0x1.110b46p-26
	halfPi2 = 0x1.1a6262p-54
	halfPi3 = 0x1.3145c06e0e689p-78
)

// The series are Taylor's. Below pi/4 the first term left out is less than 1e-19 of the result.

func sinSeries(r float64) float64 {
	z := float64(r * r)
	p := float64(0)
	for _, c := range [...]float64{-1. / 121645100408832000, 1. / 355687428096000, -1. / 1307674368000, 1. / 6227020800, -1. / 39916800,
		1. / 362880, -1. / 5040, 1. / 120, -1. / 6} {
		p = float64(p*z) + c
	}
	return r + float64(r*float64(z*p))
}

func cosSeries(r float64) float64 {
	z := float64(r * r)
	p := float64(0)
	for _, c := range [...]float64{1. / 2432902008176640000, -1. / 6402373705728000, 1. / 20922789888000, -1. / 87178291200, 1. / 479001600,
		-1. / 3628800, 1. / 40320, -1. / 720, 1. / 24, -1. / 2} {
		p = float64(p*z) + c
	}
	return 1 + float64(z*p)
}
